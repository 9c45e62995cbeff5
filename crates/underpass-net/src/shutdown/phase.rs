//! The phases in which a server ends.

use tokio::sync::watch;

/// The phase of a server, or of a generation of its workers. Phases only advance.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum ShutdownPhase {
    /// Connections are accepted and served.
    Running,
    /// Connections are not accepted any more. Open connections end with their next response, or
    /// after the idle timeout.
    Retiring,
    /// Idle connections are closed; responses in progress go on until the deadline.
    Draining,
    /// Everything ends at once.
    Now,
}

/// Waits until `phase` or a later one is reached, and returns which.
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
