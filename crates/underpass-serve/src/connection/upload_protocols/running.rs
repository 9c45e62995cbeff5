//! Uploads that bytes arrive for at this moment, and those that were just completed. Of two
//! requests for the same upload the newer wins: the older one belongs to a connection that its
//! client has given up.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, OwnedMutexGuard};
use underpass_receive::UploadId;

/// All of a server.
#[derive(Debug, Default)]
pub(crate) struct RunningUploads {
    uploads: Mutex<HashMap<UploadId, Arc<RunningUpload>>>,
    completed: Mutex<VecDeque<(UploadId, CompletedUpload)>>,
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
    /// `None` while an older request has it.
    turn: Option<OwnedMutexGuard<()>>,
}

/// An upload whose file has its name. A client that has not received the response asks for it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct CompletedUpload {
    /// The path that it was created under.
    pub(crate) path: String,
    /// The user who started it.
    pub(crate) owner: Option<String>,
    /// Bytes of the file.
    pub(crate) size: u64,
}

/// Completed uploads that are remembered.
const COMPLETED_MAX: usize = 1024;

impl RunningUploads {
    fn lock(&self) -> MutexGuard<'_, HashMap<UploadId, Arc<RunningUpload>>> {
        self.uploads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the request that receives the upload, if there is one, and returns when it has ended.
    pub(crate) async fn take_over(self: &Arc<RunningUploads>, id: &UploadId) -> UploadTurn {
        let upload = Arc::clone(self.lock().entry(id.clone()).or_default());
        let number = upload.newest.fetch_add(1, Ordering::SeqCst) + 1;
        upload.changed.notify_waiters();
        let turn = Arc::clone(&upload.turn);
        // It exists before the wait, so that a future that is dropped leaves nothing behind.
        let mut waiting = UploadTurn {
            all: Arc::clone(self),
            id: id.clone(),
            upload,
            number,
            turn: None,
        };
        waiting.turn = Some(turn.lock_owned().await);
        waiting
    }

    fn completed_uploads(&self) -> MutexGuard<'_, VecDeque<(UploadId, CompletedUpload)>> {
        let completed = self.completed.lock();
        completed.unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers a completed upload for a while.
    pub(crate) fn complete(&self, id: UploadId, upload: CompletedUpload) {
        let mut completed = self.completed_uploads();
        if completed.len() == COMPLETED_MAX {
            completed.pop_front();
        }
        completed.push_back((id, upload));
    }

    /// Returns a completed upload, if it is remembered.
    pub(crate) fn completed(&self, id: &UploadId) -> Option<CompletedUpload> {
        let completed = self.completed_uploads();
        let found = completed.iter().find(|(known, _)| known == id);
        found.map(|(_, upload)| upload.clone())
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

    #[tokio::test(flavor = "current_thread")]
    async fn a_request_that_gives_up_waiting_leaves_nothing_behind() {
        let running = Arc::new(RunningUploads::default());
        let id = UploadId::random().unwrap();
        let older = running.take_over(&id).await;
        let mut newer = Box::pin(running.take_over(&id));
        let polled = tokio::time::timeout(std::time::Duration::from_millis(1), newer.as_mut());
        assert!(polled.await.is_err());
        drop(older);
        drop(newer);
        assert!(running.lock().is_empty());
    }

    #[test]
    fn completed_uploads_are_remembered_within_a_bound() {
        let running = RunningUploads::default();
        let upload = |size| CompletedUpload {
            path: "a".to_owned(),
            owner: None,
            size,
        };
        let first = UploadId::random().unwrap();
        running.complete(first.clone(), upload(0));
        assert_eq!(running.completed(&first), Some(upload(0)));
        for size in 1..=COMPLETED_MAX as u64 {
            running.complete(UploadId::random().unwrap(), upload(size));
        }
        assert_eq!(running.completed(&first), None);
        assert_eq!(running.completed_uploads().len(), COMPLETED_MAX);
    }
}
