//! How a server ends: in phases, asked for by anybody, seen by every worker.
//!
//! ```text
//!            a newer generation has taken over
//!  Running ──────────────► Retiring ──┐
//!     └───────────────────────────────┴─► Draining ─► Now
//!                 a stop is asked for      asked again, or too late
//! ```

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use crate::listen::address::Address;
use crate::listen::listeners::Listeners;

/// How far a server, or a generation of its workers, has come on its way to an end. Phases only
/// advance.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Phase {
    /// Connections are taken and answered.
    Running,
    /// No more connections are taken. Those that are there are answered, and end with their next
    /// answer, or when they have been idle for too long.
    Retiring,
    /// No connection is taken, idle ones are closed, running answers go on until the deadline.
    Draining,
    /// Everything ends at once.
    Now,
}

/// The switch. Clones are the same switch.
#[derive(Clone, Debug)]
pub struct Shutdown {
    switch: Arc<Mutex<Switch>>,
}

#[derive(Debug)]
pub(crate) struct Switch {
    phase: Phase,
    generations: Vec<watch::Sender<Phase>>,
    /// Held for generations to come; a worker has duplicates.
    pub(crate) listeners: Listeners,
    /// Of the listeners, the last ones where there are none any more.
    addresses: Vec<Address>,
}

impl Shutdown {
    pub(crate) fn new() -> Shutdown {
        Shutdown {
            switch: Arc::new(Mutex::new(Switch {
                phase: Phase::Running,
                generations: Vec::new(),
                listeners: Listeners::default(),
                addresses: Vec::new(),
            })),
        }
    }

    /// Advances to `phase` at least; going back is not possible. Does not wait for the effect.
    pub fn advance(&self, phase: Phase) {
        self.lock().advance(phase);
    }

    /// One phase further: what a signal asks for.
    pub fn hurry(&self) {
        let mut switch = self.lock();
        let next = match switch.phase {
            Phase::Running | Phase::Retiring => Phase::Draining,
            Phase::Draining | Phase::Now => Phase::Now,
        };
        switch.advance(next);
    }

    /// How far the server is.
    pub fn phase(&self) -> Phase {
        self.lock().phase
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Switch> {
        self.switch.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Switch {
    pub(crate) fn phase(&self) -> Phase {
        self.phase
    }

    pub(crate) fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    pub(crate) fn advance(&mut self, phase: Phase) {
        self.phase = phase.max(self.phase);
        if self.phase > Phase::Running {
            // Before any worker looks at its queue for the last time: while a duplicate is open
            // here the kernel goes on completing connections, which nobody would take.
            self.listeners = Listeners::default();
        }
        for generation in &self.generations {
            advance(generation, self.phase);
        }
    }

    /// From here on `generation` is the one that takes connections, on `listeners`, and all others
    /// retire.
    pub(crate) fn succeed(&mut self, generation: watch::Sender<Phase>, listeners: Listeners) {
        self.addresses = listeners.addresses();
        self.listeners = listeners;
        self.generations.retain(|earlier| !earlier.is_closed());
        for earlier in &self.generations {
            advance(earlier, Phase::Retiring);
        }
        self.generations.push(generation);
    }
}

fn advance(generation: &watch::Sender<Phase>, phase: Phase) {
    generation.send_if_modified(|current| {
        let further = phase > *current;
        *current = phase.max(*current);
        further
    });
}

/// Waits until the switch stands at `phase` or further, and says where.
pub(crate) async fn reached(phases: &mut watch::Receiver<Phase>, phase: Phase) -> Phase {
    match phases.wait_for(|&current| current >= phase).await {
        Ok(current) => *current,
        // The switch is gone, and with it everybody who could let the server run.
        Err(_) => Phase::Now,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generation(shutdown: &Shutdown) -> watch::Receiver<Phase> {
        let sender = watch::Sender::new(Phase::Running);
        let phases = sender.subscribe();
        shutdown.lock().succeed(sender, Listeners::default());
        phases
    }

    #[test]
    fn phases_only_advance() {
        let shutdown = Shutdown::new();
        let phases = generation(&shutdown);
        shutdown.hurry();
        assert_eq!(*phases.borrow(), Phase::Draining);
        shutdown.advance(Phase::Running);
        assert_eq!(*phases.borrow(), Phase::Draining);
        shutdown.hurry();
        shutdown.hurry();
        assert_eq!(*phases.borrow(), Phase::Now);
    }

    #[test]
    fn a_generation_retires_when_the_next_one_comes_and_stops_with_it() {
        let shutdown = Shutdown::new();
        let first = generation(&shutdown);
        let second = generation(&shutdown);
        assert_eq!(*first.borrow(), Phase::Retiring);
        assert_eq!(*second.borrow(), Phase::Running);
        shutdown.hurry();
        assert_eq!(*first.borrow(), Phase::Draining);
        assert_eq!(*second.borrow(), Phase::Draining);
    }
}
