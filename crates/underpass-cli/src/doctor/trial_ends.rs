//! The ends of trials: files with known bytes, and local connections whose other end is served by a
//! thread; and the time limits of trials.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use rustix::io::Errno;
use underpass::tcp::loopback_pair;
use underpass::{Owed, Source};

/// More than one page, buffer and pipe for every mechanism, and an odd remainder.
pub(super) const SAMPLE_BYTES: usize = (1 << 20) + 4321;

/// The maximum moved of an existing file: whole blocks, so that it can be cloned.
const FOREIGN_BYTES_MAX: usize = 1 << 20;

/// The limit for inspecting one path, and for one trial.
pub(super) const TRIAL_TIME_MAX: Duration = Duration::from_secs(5);

/// The limit for all trials together.
pub(super) const TRIALS_TIME_MAX: Duration = Duration::from_secs(60);

/// The source of the bytes of a trial.
#[derive(Clone, Debug)]
pub(super) enum TrialSource {
    File(SampleFile),
    Stream(StreamKind, Arc<[u8]>),
}

/// The destination of the bytes of a trial.
#[derive(Clone, Debug)]
pub(super) enum TrialSink {
    /// A private file in this directory.
    Directory(PathBuf),
    Stream(StreamKind),
}

/// The kind of connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum StreamKind {
    /// A TCP connection over the loopback interface.
    Tcp,
    /// A pair of Unix sockets.
    Unix,
    /// A pipe.
    Pipe,
}

impl StreamKind {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Unix => "Unix",
            Self::Pipe => "pipe",
        }
    }

    /// Opens a connection: the end to write to, and the end to read from.
    fn open(self) -> io::Result<(OwnedFd, OwnedFd)> {
        Ok(match self {
            Self::Tcp => {
                let (one, other) = loopback_pair()?;
                (one.into(), other.into())
            }
            Self::Unix => {
                let (one, other) = UnixStream::pair()?;
                (one.into(), other.into())
            }
            Self::Pipe => {
                let (read, write) = io::pipe()?;
                (write.into(), read.into())
            }
        })
    }

    /// Opens an end from which these bytes can be read, and then end of file.
    pub(super) fn giving(self, bytes: Arc<[u8]>) -> io::Result<OwnedFd> {
        let (write, read) = self.open()?;
        // If the reader closes early, EPIPE or ECONNRESET ends the thread.
        thread::Builder::new().spawn(move || File::from(write).write_all(&bytes))?;
        Ok(read)
    }
}

impl TrialSource {
    pub(super) fn bytes(&self) -> &Arc<[u8]> {
        match self {
            Self::File(original) => &original.bytes,
            Self::Stream(_, bytes) => bytes,
        }
    }
}

impl TrialSink {
    /// Opens an end that accepts bytes. The returned function reads them back, up to one more than
    /// expected, once the end is closed.
    pub(super) fn open(&self, expected: usize) -> io::Result<(OwnedFd, ReadBack)> {
        match self {
            Self::Directory(directory) => {
                let file = tempfile::tempfile_in(directory)?;
                let end = file.try_clone()?.into();
                let read_back = move || read_all(&file, expected);
                Ok((end, Box::new(read_back)))
            }
            Self::Stream(stream) => {
                let (end, read) = stream.open()?;
                let collector = thread::Builder::new().spawn(move || {
                    let mut bytes = Vec::new();
                    let mut read = File::from(read).take(expected as u64 + 1);
                    read.read_to_end(&mut bytes).map(|_| bytes)
                })?;
                let read_back = move || collector.join().unwrap_or(Err(Errno::IO.into()));
                Ok((end, Box::new(read_back)))
            }
        }
    }
}

/// Returns the bytes that arrived.
pub(super) type ReadBack = Box<dyn FnOnce() -> io::Result<Vec<u8>>>;

/// Returns pseudo-random bytes: neither swapped nor repeated blocks compare as equal.
pub(super) fn bytes() -> Arc<[u8]> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    (0..SAMPLE_BYTES).map(|_| next()).collect()
}

/// A file with known content.
#[derive(Clone, Debug)]
pub(super) struct SampleFile {
    file: Arc<File>,
    pub(super) bytes: Arc<[u8]>,
}

impl SampleFile {
    /// Creates an unnamed file with the sample. It disappears with this process, however it ends.
    pub(super) fn create(directory: &Path, bytes: Arc<[u8]>) -> io::Result<Self> {
        let mut file = tempfile::tempfile_in(directory)?;
        file.write_all(&bytes)?;
        let file = Arc::new(file);
        Ok(Self { file, bytes })
    }

    /// Uses an existing file; its start is read for the comparison.
    pub(super) fn of_foreign(file: File) -> io::Result<Self> {
        let mut bytes = Vec::new();
        (&file)
            .take(FOREIGN_BYTES_MAX as u64)
            .read_to_end(&mut bytes)?;
        if bytes.is_empty() {
            return Err(Errno::NODATA.into());
        }
        let bytes = bytes.into();
        let file = Arc::new(file);
        Ok(Self { file, bytes })
    }

    /// Returns the known bytes as a source; a file without a size (procfs) is moved to its end.
    pub(super) fn source(&self) -> Result<Source<Arc<File>>, Errno> {
        let mut source = Source::whole(Arc::clone(&self.file))?;
        if source.end.size > 0 {
            source.owed = Owed::Exactly(self.bytes.len() as u64);
        }
        Ok(source)
    }

    /// Returns whether the file still has its original content.
    pub(super) fn is_unchanged(&self) -> bool {
        read_all(&self.file, self.bytes.len()).is_ok_and(|now| *now == *self.bytes)
    }
}

/// Reads the start of a file, up to one byte more than expected.
fn read_all(mut file: &File, expected: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.take(expected as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Runs the work on a separate thread and returns its result, or `None` after the limit or a panic.
/// A thread over the limit is abandoned; it ends with the process.
pub(super) fn within<T: Send + 'static>(
    limit: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (sender, receiver) = mpsc::channel();
    thread::Builder::new()
        .spawn(move || sender.send(work()))
        .ok()?;
    receiver.recv_timeout(limit).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_that_ends_gives_its_result_and_other_work_none() {
        assert_eq!(within(TRIAL_TIME_MAX, || 7), Some(7));
        let (_kept, never) = mpsc::channel::<()>();
        assert_eq!(within(Duration::from_millis(1), move || never.recv()), None);
    }

    #[test]
    fn a_sample_leaves_no_name() {
        let directory = tempfile::tempdir().unwrap();
        let sample = SampleFile::create(directory.path(), bytes()).unwrap();
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
        assert!(sample.is_unchanged());
    }

    #[test]
    fn the_sample_has_no_equal_blocks() {
        let bytes = bytes();
        let blocks: std::collections::HashSet<_> = bytes.chunks(512).collect();
        assert_eq!(blocks.len(), SAMPLE_BYTES.div_ceil(512));
    }

    #[test]
    fn an_original_that_changes_is_noticed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a");
        std::fs::write(&path, "first").unwrap();
        let original = SampleFile::of_foreign(File::open(&path).unwrap()).unwrap();
        assert!(original.is_unchanged());
        std::fs::write(&path, "other").unwrap();
        assert!(!original.is_unchanged());
    }
}
