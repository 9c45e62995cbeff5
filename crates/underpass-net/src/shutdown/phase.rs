//! The phases in which a server ends.

use tokio::sync::watch;

/// How far a server, or a generation of its workers, has come on its way to an end. Phases only
/// advance.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum ShutdownPhase {
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

/// Waits until the switch stands at `phase` or further, and says where.
pub(crate) async fn reached(
    phases: &mut watch::Receiver<ShutdownPhase>,
    phase: ShutdownPhase,
) -> ShutdownPhase {
    match phases.wait_for(|&current| current >= phase).await {
        Ok(current) => *current,
        // The switch is gone, and with it everybody who could let the server run.
        Err(_) => ShutdownPhase::Now,
    }
}
