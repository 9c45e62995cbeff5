//! Wake-ups of a connection by other threads.

use std::sync::Arc;

use tokio::sync::Notify;

/// Wakes one connection from any thread: an append wakes the long polls that wait for it. Clones
/// wake the same connection. It may outlive the connection; waking it then does nothing.
#[derive(Clone, Debug, Default)]
pub struct WakeHandle(Arc<Notify>);

impl WakeHandle {
    /// Wakes the connection where it waits, or lets its next wait end at once. Several calls before
    /// the connection looks are one wake-up. Does not block.
    pub fn wake(&self) {
        self.0.notify_one();
    }

    /// Waits for a wake-up, and takes it. Cancel safe.
    pub(crate) async fn woken(&self) {
        self.0.notified().await;
    }
}
