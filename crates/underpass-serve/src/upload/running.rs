//! Uploads that bytes arrive for at this moment. Of two requests for the same one the newer wins:
//! the older one belongs to a connection that its client has given up.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, OwnedMutexGuard};
use underpass_receive::UploadId;

/// All of a server.
#[derive(Debug, Default)]
pub(crate) struct RunningUploads {
    uploads: Mutex<HashMap<UploadId, Arc<RunningUpload>>>,
}

#[derive(Debug, Default)]
struct RunningUpload {
    /// The number of the newest request for it.
    newest: AtomicU64,
    changed: Notify,
    /// Held by the request whose turn it is.
    turn: Arc<tokio::sync::Mutex<()>>,
}

/// The right to receive an upload, until a newer request asks for it.
#[derive(Debug)]
pub(crate) struct UploadTurn {
    all: Arc<RunningUploads>,
    id: UploadId,
    upload: Arc<RunningUpload>,
    number: u64,
    _turn: OwnedMutexGuard<()>,
}

impl RunningUploads {
    fn lock(&self) -> MutexGuard<'_, HashMap<UploadId, Arc<RunningUpload>>> {
        self.uploads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the request that receives the upload, if there is one, and returns when it has ended.
    pub(crate) async fn take_over(self: &Arc<RunningUploads>, id: &UploadId) -> UploadTurn {
        let upload = Arc::clone(self.lock().entry(id.clone()).or_default());
        let number = upload.newest.fetch_add(1, Ordering::SeqCst) + 1;
        upload.changed.notify_waiters();
        let turn = Arc::clone(&upload.turn).lock_owned().await;
        UploadTurn {
            all: Arc::clone(self),
            id: id.clone(),
            upload,
            number,
            _turn: turn,
        }
    }
}

impl UploadTurn {
    /// Returns when a newer request asks for the upload.
    pub(crate) async fn ended(&self) {
        loop {
            let changed = self.upload.changed.notified();
            if self.upload.newest.load(Ordering::SeqCst) != self.number {
                return;
            }
            changed.await;
        }
    }
}

impl Drop for UploadTurn {
    fn drop(&mut self) {
        let mut uploads = self.all.lock();
        // The map and this one: nobody waits for it.
        if Arc::strong_count(&self.upload) == 2 {
            uploads.remove(&self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn the_newer_request_ends_the_older_one() {
        let running = Arc::new(RunningUploads::default());
        let id = UploadId::random().unwrap();
        let older = running.take_over(&id).await;
        let newer = {
            let (running, id) = (Arc::clone(&running), id.clone());
            tokio::spawn(async move { running.take_over(&id).await })
        };
        older.ended().await;
        drop(older);
        let newer = newer.await.unwrap();
        let ended = tokio::time::timeout(std::time::Duration::from_millis(1), newer.ended());
        assert!(ended.await.is_err());
        drop(newer);
        assert!(running.lock().is_empty());
    }
}
