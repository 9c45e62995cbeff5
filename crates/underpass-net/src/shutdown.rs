//! Stops a server in phases that every worker observes.
//!
//! ```text
//!            a newer generation has taken over
//!  Running ──────────────► Retiring ──┐
//!     └───────────────────────────────┴─► Draining ─► Now
//!                 a stop is requested      a second request, or timeout
//! ```

use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use crate::address::ListenAt;
use crate::listen::config::ListenerIdentity;
use crate::listen::listeners::Listeners;
use crate::listen::unix::SocketFile;

/// The phase of a server, or of a generation of its workers. Phases only advance.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum ShutdownPhase {
    /// Connections are accepted and served.
    Running,
    /// Connections are not accepted any more. Open connections end after their next response, or
    /// after the idle timeout.
    Retiring,
    /// Idle connections are closed; responses in progress continue until the deadline.
    Draining,
    /// Everything ends immediately.
    Now,
}

/// Waits until `phase` or a later one is reached, and returns the phase.
pub(crate) async fn reached(
    phases: &mut watch::Receiver<ShutdownPhase>,
    phase: ShutdownPhase,
) -> ShutdownPhase {
    match phases.wait_for(|&current| current >= phase).await {
        Ok(current) => *current,
        // The server has been dropped.
        Err(_) => ShutdownPhase::Now,
    }
}

/// A handle that stops a server. Clones refer to the same server.
#[derive(Clone, Debug)]
pub struct Shutdown {
    state: Arc<Mutex<ShutdownState>>,
    /// Has a receiver for each worker, of any generation, that may still have clients.
    serving: Arc<watch::Sender<()>>,
}

#[derive(Debug)]
pub(crate) struct ShutdownState {
    phase: ShutdownPhase,
    generations: Vec<watch::Sender<ShutdownPhase>>,
    /// The sockets for later generations; each worker has duplicates.
    pub(crate) listeners: Listeners,
    /// Files of listeners that accept while the server drains. Workers may not remove files.
    pub(crate) files: Vec<Arc<SocketFile>>,
    /// The identities of the listeners, or of the last ones after they were closed.
    identities: Vec<ListenerIdentity>,
}

impl Shutdown {
    pub(crate) fn new() -> Shutdown {
        Shutdown {
            state: Arc::new(Mutex::new(ShutdownState {
                phase: ShutdownPhase::Running,
                generations: Vec::new(),
                listeners: Listeners::default(),
                files: Vec::new(),
                identities: Vec::new(),
            })),
            serving: Arc::default(),
        }
    }

    /// Returns a receiver that a worker holds as long as it may have clients.
    pub(crate) fn serving(&self) -> watch::Receiver<()> {
        self.serving.subscribe()
    }

    /// Waits until no worker of any generation has clients.
    pub(crate) async fn no_clients(&self) {
        self.serving.closed().await;
    }

    /// Advances to `phase` at least; phases never go back. Does not wait for the effect.
    pub fn advance(&self, phase: ShutdownPhase) {
        self.lock().advance(phase);
    }

    /// Advances by one phase, as a signal requests.
    pub fn escalate(&self) {
        let mut state = self.lock();
        let next = match state.phase {
            ShutdownPhase::Running | ShutdownPhase::Retiring => ShutdownPhase::Draining,
            ShutdownPhase::Draining | ShutdownPhase::Now => ShutdownPhase::Now,
        };
        state.advance(next);
    }

    /// Returns the phase of the server.
    pub fn phase(&self) -> ShutdownPhase {
        self.lock().phase
    }

    /// Returns whether the newest generation listens at `at`.
    pub(crate) fn listens_at(&self, at: &ListenAt) -> bool {
        self.lock().listeners.contain(at)
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, ShutdownState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ShutdownState {
    pub(crate) fn phase(&self) -> ShutdownPhase {
        self.phase
    }

    pub(crate) fn identities(&self) -> &[ListenerIdentity] {
        &self.identities
    }

    pub(crate) fn advance(&mut self, phase: ShutdownPhase) {
        self.phase = phase.max(self.phase);
        if self.phase > ShutdownPhase::Running {
            // Before any worker checks its queue for the last time: while a duplicate is open here
            // the kernel still completes connections, which no worker would accept.
            self.files
                .extend(mem::take(&mut self.listeners).into_files());
        }
        for generation in &self.generations {
            advance(generation, self.phase);
        }
    }

    /// Makes `generation` the one that accepts connections, on `listeners`; all others retire.
    pub(crate) fn replace_generation(
        &mut self,
        generation: watch::Sender<ShutdownPhase>,
        listeners: Listeners,
    ) {
        self.identities = listeners.identities();
        self.listeners = listeners;
        self.generations.retain(|earlier| !earlier.is_closed());
        for earlier in &self.generations {
            advance(earlier, ShutdownPhase::Retiring);
        }
        self.generations.push(generation);
    }
}

fn advance(generation: &watch::Sender<ShutdownPhase>, phase: ShutdownPhase) {
    generation.send_if_modified(|current| {
        let further = phase > *current;
        *current = phase.max(*current);
        further
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generation(shutdown: &Shutdown) -> watch::Receiver<ShutdownPhase> {
        let sender = watch::Sender::new(ShutdownPhase::Running);
        let phases = sender.subscribe();
        shutdown
            .lock()
            .replace_generation(sender, Listeners::default());
        phases
    }

    #[test]
    fn phases_only_advance() {
        let shutdown = Shutdown::new();
        let phases = generation(&shutdown);
        shutdown.escalate();
        assert_eq!(*phases.borrow(), ShutdownPhase::Draining);
        shutdown.advance(ShutdownPhase::Running);
        assert_eq!(*phases.borrow(), ShutdownPhase::Draining);
        shutdown.escalate();
        shutdown.escalate();
        assert_eq!(*phases.borrow(), ShutdownPhase::Now);
    }

    #[test]
    fn a_generation_retires_when_the_next_one_comes_and_stops_with_it() {
        let shutdown = Shutdown::new();
        let first = generation(&shutdown);
        let second = generation(&shutdown);
        assert_eq!(*first.borrow(), ShutdownPhase::Retiring);
        assert_eq!(*second.borrow(), ShutdownPhase::Running);
        shutdown.escalate();
        assert_eq!(*first.borrow(), ShutdownPhase::Draining);
        assert_eq!(*second.borrow(), ShutdownPhase::Draining);
    }
}
