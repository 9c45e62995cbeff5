//! Hashes of files, for comparing without downloading.
//!
//! ```text
//!  known for (device, inode, time, size)? ─── yes ──────────────────────────────► hash
//!        └─ no ─► one of few places, or wait ─► read on a blocking thread ─► still the same file?
//! ```
//!
//! A hash costs a client one line and the server a read of the whole file. So all workers together
//! read only a few files at a time, few requests wait for their turn, computed hashes are cached,
//! and reading stops when the client disconnects. A file that changes while it is read has no hash.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rustix::fs::{Stat, fstat};
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};
use tokio::sync::Semaphore;
use underpass::SharedFile;
use underpass_http::fields::digest::{FileDigest, HashAlgorithm};
use underpass_http::limits::DATE_SETTLES_AFTER;

use crate::limits::{
    DIGEST_SMALL_BYTES_MAX, DIGESTS_AT_ONCE_MAX, DIGESTS_KEPT_MAX, DIGESTS_WAITING_MAX, READ_BYTES,
};
use crate::site::stamp::FileStamp;

/// The reason why no hash is available.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum DigestError {
    /// Too many requests are waiting.
    Busy,
    /// The file changed while it was read.
    Changed,
    /// The file cannot be read.
    Failed(Errno),
}

impl From<Errno> for DigestError {
    fn from(errno: Errno) -> DigestError {
        DigestError::Failed(errno)
    }
}

/// A state of a file and a hash algorithm.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
struct DigestKey {
    stamp: FileStamp,
    algorithm: HashAlgorithm,
}

impl DigestKey {
    fn of(stat: &Stat, algorithm: HashAlgorithm) -> DigestKey {
        DigestKey {
            stamp: FileStamp::of(stat),
            algorithm,
        }
    }

    /// Whether no later change can have the same times.
    fn is_settled(&self) -> bool {
        let now = std::time::SystemTime::now();
        let since = now
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap_or_default();
        let latest = self.stamp.changed.max(self.stamp.modified).seconds;
        let settles = i64::try_from(DATE_SETTLES_AFTER.as_secs()).unwrap_or(i64::MAX);
        i64::try_from(since.as_secs()).is_ok_and(|now| now.saturating_sub(latest) > settles)
    }
}

/// The hashes of a server, shared by its workers.
#[derive(Debug)]
pub(crate) struct DigestCache {
    known: Mutex<KnownDigests>,
    small: DigestQueue,
    large: DigestQueue,
}

/// The hashes in progress and the requests waiting for one. Small and large files queue separately.
#[derive(Debug)]
struct DigestQueue {
    places: Semaphore,
    waiting: Semaphore,
}

impl DigestQueue {
    fn new(places: usize) -> DigestQueue {
        DigestQueue {
            places: Semaphore::new(places),
            waiting: Semaphore::new(places + DIGESTS_WAITING_MAX),
        }
    }
}

/// The computed hashes, the oldest first.
#[derive(Debug, Default)]
struct KnownDigests {
    digests: HashMap<DigestKey, FileDigest>,
    ages: VecDeque<DigestKey>,
}

impl Default for DigestCache {
    fn default() -> DigestCache {
        DigestCache {
            known: Mutex::default(),
            small: DigestQueue::new(1),
            large: DigestQueue::new(DIGESTS_AT_ONCE_MAX),
        }
    }
}

impl DigestCache {
    /// Returns the hash of a file. Dropping the future stops the reading after the current piece.
    pub(crate) async fn find(
        &self,
        file: Arc<SharedFile>,
        algorithm: HashAlgorithm,
    ) -> Result<FileDigest, DigestError> {
        let key = DigestKey::of(&fstat(&file)?, algorithm);
        if let Some(digest) = self.known(key) {
            return Ok(digest);
        }
        let queue = match key.stamp.size {
            ..=DIGEST_SMALL_BYTES_MAX => &self.small,
            _ => &self.large,
        };
        let Ok(_waits) = queue.waiting.try_acquire() else {
            return Err(DigestError::Busy);
        };
        let Ok(_place) = queue.places.acquire().await else {
            return Err(DigestError::Busy);
        };
        // Another request may have computed it meanwhile.
        if let Some(digest) = self.known(key) {
            return Ok(digest);
        }
        // Dropped with this future.
        let wanted = Arc::new(());
        let is_wanted = Arc::downgrade(&wanted);
        let read = move || read(&file, key, &is_wanted);
        let digest = tokio::task::spawn_blocking(read)
            .await
            .map_err(|_| DigestError::Failed(Errno::IO))??;
        drop(wanted);
        if key.is_settled() {
            self.keep(key, digest);
        }
        Ok(digest)
    }

    fn known(&self, key: DigestKey) -> Option<FileDigest> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.digests.get(&key).copied()
    }

    fn keep(&self, key: DigestKey, digest: FileDigest) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.digests.insert(key, digest).is_none() {
            known.ages.push_back(key);
        }
        if known.ages.len() > DIGESTS_KEPT_MAX
            && let Some(oldest) = known.ages.pop_front()
        {
            known.digests.remove(&oldest);
        }
    }
}

/// Reads a whole file, as long as `wanted` lives; the file must be the same before and after.
fn read(file: &SharedFile, key: DigestKey, wanted: &Weak<()>) -> Result<FileDigest, DigestError> {
    let mut hasher = match key.algorithm {
        HashAlgorithm::Sha256 => FileHasher::Sha256(Sha256::new()),
        HashAlgorithm::Blake3 => FileHasher::Blake3(Box::default()),
    };
    let mut buffer = vec![0; READ_BYTES];
    let mut offset = 0;
    while offset < key.stamp.size && wanted.strong_count() > 0 {
        match rustix::io::pread(file, &mut buffer[..], offset) {
            Ok(0) => return Err(DigestError::Changed),
            Ok(read) => {
                hasher.update(&buffer[..read]);
                offset += read as u64;
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(DigestError::Failed(errno)),
        }
    }
    if offset != key.stamp.size || DigestKey::of(&fstat(file)?, key.algorithm) != key {
        return Err(DigestError::Changed);
    }
    Ok(hasher.finish())
}

enum FileHasher {
    Sha256(Sha256),
    /// Boxed: the hasher holds a stack of two kilobytes.
    Blake3(Box<blake3::Hasher>),
}

impl FileHasher {
    fn update(&mut self, bytes: &[u8]) {
        match self {
            FileHasher::Sha256(hasher) => hasher.update(bytes),
            FileHasher::Blake3(hasher) => {
                hasher.update(bytes);
            }
        }
    }

    fn finish(self) -> FileDigest {
        match self {
            FileHasher::Sha256(hasher) => FileDigest(hasher.finalize().into()),
            FileHasher::Blake3(hasher) => FileDigest(hasher.finalize().into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write as _;

    use super::*;

    fn key(file: &SharedFile) -> DigestKey {
        DigestKey::of(&fstat(file).unwrap(), HashAlgorithm::Sha256)
    }

    #[test]
    fn lines_are_those_of_sha256sum() {
        let digest = FileDigest([0xab; 32]);
        let hex = "ab".repeat(32);
        assert_eq!(digest.line(b"a b"), format!("{hex}  a b\n").into_bytes());
        let escaped = format!("\\{hex}  a\\\\b\\nc\n").into_bytes();
        assert_eq!(digest.line(b"a\\b\nc"), escaped);
    }

    #[test]
    fn a_file_that_changed_has_no_hash() {
        let mut content = tempfile::tempfile().unwrap();
        content.write_all(b"hello").unwrap();
        let file = SharedFile::new(content.try_clone().unwrap().into());
        let kept = Arc::new(());
        let wanted = Arc::downgrade(&kept);
        let before = key(&file);
        assert!(read(&file, before, &wanted).is_ok());
        content.write_all(b"!").unwrap();
        assert_eq!(read(&file, before, &wanted), Err(DigestError::Changed));
        content.set_len(3).unwrap();
        assert_eq!(read(&file, before, &wanted), Err(DigestError::Changed));
    }

    #[test]
    fn nobody_waits_and_the_reading_stops() {
        let content = tempfile::tempfile().unwrap();
        content.set_len(1 << 40).unwrap();
        let file = SharedFile::new(File::into(content));
        assert_eq!(
            read(&file, key(&file), &Weak::new()),
            Err(DigestError::Changed)
        );
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let digests = DigestCache::default();
        let content = tempfile::tempfile().unwrap();
        let file = SharedFile::new(File::into(content));
        let of = |size| {
            let mut key = key(&file);
            key.stamp.size = size;
            key
        };
        for size in 0..=DIGESTS_KEPT_MAX as u64 {
            digests.keep(of(size), FileDigest([0; 32]));
        }
        let known = |size| digests.known(of(size)).is_some();
        assert!(!known(0) && known(1) && known(DIGESTS_KEPT_MAX as u64));
    }
}
