//! Spreads long work over the rounds of an event loop.

use std::future::Future;

use tokio::sync::Semaphore;
use tokio::task::yield_now;

/// Runs one step at a time, and lets other tasks run between two of them: a flood of handshakes
/// takes turns with the responses of other connections.
pub(crate) struct StepGate(Semaphore);

impl Default for StepGate {
    fn default() -> StepGate {
        StepGate(Semaphore::new(1))
    }
}

impl StepGate {
    /// Runs a step when its turn comes. Cancelling lets the next one run.
    pub(crate) async fn pass<T>(&self, step: impl Future<Output = T>) -> T {
        // The semaphore is never closed.
        let permit = self.0.acquire().await;
        let made = step.await;
        // The next step waits until the event loop has completed a round.
        yield_now().await;
        drop(permit);
        made
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::rc::Rc;

    use tokio::runtime::{Builder, LocalOptions};
    use tokio::task::spawn_local;

    use super::*;

    #[test]
    fn a_transfer_has_a_turn_between_any_two_steps_of_a_flood() {
        const FLOOD: usize = 300;
        let mut builder = Builder::new_current_thread();
        let runtime = builder.build_local(LocalOptions::default()).unwrap();
        let (gate, steps) = (Rc::new(StepGate::default()), Rc::new(Cell::new(0)));
        // The number of completed steps at each turn of the transfer.
        let turns = Rc::new(RefCell::new(Vec::new()));
        runtime.block_on(async {
            let handshake = |_| {
                let (gate, steps) = (Rc::clone(&gate), Rc::clone(&steps));
                spawn_local(async move { gate.pass(async { steps.set(steps.get() + 1) }).await })
            };
            let first: Vec<_> = (0..FLOOD / 2).map(handshake).collect();
            let transfer = {
                let (turns, steps) = (Rc::clone(&turns), Rc::clone(&steps));
                spawn_local(async move {
                    while steps.get() < FLOOD {
                        turns.borrow_mut().push(steps.get());
                        yield_now().await;
                    }
                })
            };
            let last: Vec<_> = (FLOOD / 2..FLOOD).map(handshake).collect();
            for task in first.into_iter().chain(last).chain([transfer]) {
                task.await.unwrap();
            }
        });
        let turns = turns.borrow();
        assert!(turns.len() >= FLOOD - 1, "{} turns", turns.len());
        let most = turns.windows(2).map(|pair| pair[1] - pair[0]).max();
        assert_eq!(most, Some(1), "steps between two turns");
    }
}
