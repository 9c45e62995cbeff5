//! How a server ends: in phases, asked for by anybody, seen by every worker.

use std::sync::Arc;

use tokio::sync::watch;

/// How far a server has come on its way to an end. Phases only advance.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Phase {
    /// Connections are taken and answered.
    Running,
    /// No connection is taken, idle ones are closed, running answers go on until the deadline.
    Draining,
    /// Everything ends at once.
    Now,
}

/// The switch. Clones are the same switch.
#[derive(Clone, Debug)]
pub struct Shutdown {
    phase: Arc<watch::Sender<Phase>>,
}

impl Shutdown {
    pub(crate) fn new() -> Shutdown {
        Shutdown {
            phase: Arc::new(watch::Sender::new(Phase::Running)),
        }
    }

    /// Advances to `phase` at least; going back is not possible. Does not block and does not wait
    /// for the effect.
    pub fn advance(&self, phase: Phase) {
        self.phase.send_if_modified(|current| {
            let further = phase > *current;
            *current = phase.max(*current);
            further
        });
    }

    /// One phase further: what a signal asks for.
    pub fn hurry(&self) {
        let next = match self.phase() {
            Phase::Running => Phase::Draining,
            Phase::Draining | Phase::Now => Phase::Now,
        };
        self.advance(next);
    }

    /// How far it has come.
    pub fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    pub(crate) fn phases(&self) -> watch::Receiver<Phase> {
        self.phase.subscribe()
    }
}

/// Waits until the switch stands at `phase` or further.
pub(crate) async fn reached(phases: &mut watch::Receiver<Phase>, phase: Phase) {
    // An error means that the switch is gone, and with it everybody who could let the server run.
    let _ = phases.wait_for(|&current| current >= phase).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_only_advance() {
        let shutdown = Shutdown::new();
        let phases = shutdown.phases();
        shutdown.hurry();
        assert_eq!(*phases.borrow(), Phase::Draining);
        shutdown.advance(Phase::Running);
        assert_eq!(*phases.borrow(), Phase::Draining);
        shutdown.hurry();
        shutdown.hurry();
        assert_eq!(*phases.borrow(), Phase::Now);
    }
}
