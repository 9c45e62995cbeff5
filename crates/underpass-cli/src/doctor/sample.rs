//! The bytes that trials move, and the private files that hold them.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use underpass::{Owed, Source};

/// More than one page, buffer and pipe for every mechanism, and an odd remainder.
pub(super) const SAMPLE_BYTES: usize = (1 << 20) + 4321;

/// At most this much of an existing file is moved: whole blocks, so that it can be cloned.
const FOREIGN_BYTES_MAX: usize = 1 << 20;

/// Names tried; another process or machine (on a network file system) may have taken some.
const NAMES_TRIED_MAX: u32 = 16;

/// Pseudo-random bytes: neither swapped nor repeated blocks compare as equal.
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
    /// Creates a private file that holds the sample.
    pub(super) fn create(directory: impl AsFd, bytes: Arc<[u8]>) -> Result<Self, Errno> {
        let file = private_file(directory.as_fd())?;
        let mut written = 0;
        while written < bytes.len() {
            written += rustix::io::pwrite(&file, &bytes[written..], written as u64)?;
        }
        let file = Arc::new(file);
        Ok(Self { file, bytes })
    }

    /// Uses an existing file; its beginning is read for the comparison.
    pub(super) fn of_foreign(file: File) -> std::io::Result<Self> {
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

    /// The known bytes as a source; a file without a size (procfs) is moved to its end.
    pub(super) fn source(&self) -> Result<Source<Arc<File>>, Errno> {
        let mut source = Source::whole(Arc::clone(&self.file))?;
        if source.end.size > 0 {
            source.owed = Owed::Exactly(self.bytes.len() as u64);
        }
        Ok(source)
    }

    /// Whether the file still has the content it had first.
    pub(super) fn is_unchanged(&self) -> bool {
        read_all(self.file.as_fd(), self.bytes.len()).is_ok_and(|now| *now == *self.bytes)
    }
}

/// Reads the beginning of a file, up to one byte more than expected.
pub(super) fn read_all(file: BorrowedFd<'_>, expected: usize) -> Result<Vec<u8>, Errno> {
    let mut bytes = vec![0; expected + 1];
    let mut filled = 0;
    while filled < bytes.len() {
        match rustix::io::pread(file, &mut bytes[filled..], filled as u64)? {
            0 => break,
            read => filled += read,
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

/// Creates an empty file without a name, which disappears with this process however it ends.
pub(super) fn private_file(directory: BorrowedFd<'_>) -> Result<File, Errno> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let nameless = flags | OFlags::TMPFILE | OFlags::EXCL;
    match rustix::fs::openat(directory, c".", nameless, Mode::RUSR | Mode::WUSR) {
        Ok(file) => Ok(file.into()),
        Err(errno @ (Errno::ROFS | Errno::ACCESS | Errno::NOSPC | Errno::DQUOT)) => Err(errno),
        // File systems without O_TMPFILE return EOPNOTSUPP, EISDIR, EINVAL or ENOENT.
        Err(_) => create_and_unlink(directory, flags | OFlags::CREATE | OFlags::EXCL),
    }
}

/// Creates a file whose name exists between two calls only.
fn create_and_unlink(directory: BorrowedFd<'_>, flags: OFlags) -> Result<File, Errno> {
    for serial in 0..NAMES_TRIED_MAX {
        let name = format!(".underpass-doctor-{}-{serial}", std::process::id());
        match rustix::fs::openat(directory, &name, flags, Mode::RUSR | Mode::WUSR) {
            Ok(file) => {
                rustix::fs::unlinkat(directory, &name, AtFlags::empty())?;
                return Ok(file.into());
            }
            Err(Errno::EXIST) => (),
            Err(errno) => return Err(errno),
        }
    }
    Err(Errno::EXIST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_of_making_a_file_leave_no_name() {
        let directory = tempfile::tempdir().unwrap();
        let open = File::open(directory.path()).unwrap();
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
        let files = [
            private_file(open.as_fd()).unwrap(),
            create_and_unlink(open.as_fd(), flags).unwrap(),
        ];
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
        for file in files {
            assert_eq!(rustix::io::pwrite(&file, b"x", 0), Ok(1));
            assert_eq!(read_all(file.as_fd(), 0).unwrap(), b"x");
        }
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
