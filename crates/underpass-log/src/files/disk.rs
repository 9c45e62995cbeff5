//! The calls that change what a crash leaves: all of them, in one place, so that tests can have
//! them fail.

use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSlice};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate, fdatasync, ftruncate};
use rustix::io::{Errno, pwritev};

/// How many buffers one call writes (IOV_MAX of Linux).
const BUFFERS_MAX: usize = 1024;

/// Opens a file to read and write, and makes it where it does not exist.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    fault::check(Call::Open)?;
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    options.open(path)
}

/// Writes all buffers one behind the other at `offset`.
///
/// # Errors
/// Of the kernel. A part may have been written.
pub(crate) fn write_all(file: impl AsFd, buffers: &[&[u8]], mut offset: u64) -> io::Result<()> {
    let mut rest: Vec<IoSlice<'_>> = buffers.iter().map(|bytes| IoSlice::new(bytes)).collect();
    let mut rest = &mut rest[..];
    while !rest.is_empty() {
        fault::check(Call::Write)?;
        let count = rest.len().min(BUFFERS_MAX);
        match pwritev(&file, &rest[..count], offset) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => {
                offset += written as u64;
                IoSlice::advance_slices(&mut rest, written);
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// Brings the content of a file to the disk, and its size.
pub(crate) fn sync(file: impl AsFd) -> io::Result<()> {
    fault::check(Call::Sync)?;
    Ok(fdatasync(file)?)
}

/// Cuts a file off.
pub(crate) fn truncate(file: impl AsFd, size: u64) -> io::Result<()> {
    fault::check(Call::Write)?;
    Ok(ftruncate(file, size)?)
}

/// Has the file system reserve blocks, without changing the size of the file. Where that cannot be
/// done it is not.
pub(crate) fn reserve(file: impl AsFd, offset: u64, bytes: u64) {
    let _ = fallocate(file, FallocateFlags::KEEP_SIZE, offset, bytes);
}

/// Gives a file another name, in the same folder. A crash may undo it until the folder is synced.
pub(crate) fn rename(from: &Path, to: &Path) -> io::Result<()> {
    fault::check(Call::Rename)?;
    fs::rename(from, to)
}

/// Brings names in a folder to the disk.
pub(crate) fn sync_folder(folder: &Path) -> io::Result<()> {
    fault::check(Call::Sync)?;
    File::open(folder)?.sync_all()
}

/// Replaces a file: after a crash there is the old content or the new one.
pub(crate) fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut new = path.as_os_str().to_owned();
    new.push(".tmp");
    let new = PathBuf::from(new);
    let file = open(&new)?;
    truncate(&file, 0)?;
    write_all(&file, &[content], 0)?;
    sync(&file)?;
    rename(&new, path)?;
    path.parent().map_or(Ok(()), sync_folder)
}

/// What can fail.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Call {
    Open,
    Write,
    Sync,
    Rename,
}

/// Faults that tests have planned. Nothing otherwise.
#[cfg(not(test))]
mod fault {
    pub(super) fn check(_call: super::Call) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod fault {
    use std::cell::Cell;
    use std::io;

    use rustix::io::Errno;

    use super::Call;

    thread_local! {
        static PLANNED: Cell<Option<(Call, usize, Errno)>> = const { Cell::new(None) };
    }

    /// Has the call behind `skipped` others of its kind fail, once, on this thread.
    pub(crate) fn plan(call: Call, skipped: usize, errno: Errno) {
        PLANNED.set(Some((call, skipped, errno)));
    }

    pub(super) fn check(call: Call) -> io::Result<()> {
        match PLANNED.get() {
            Some((planned, 0, errno)) if planned == call => {
                PLANNED.set(None);
                Err(errno.into())
            }
            Some((planned, skipped, errno)) if planned == call => {
                PLANNED.set(Some((planned, skipped - 1, errno)));
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_buffers_are_written_in_order() {
        let file = tempfile::tempfile().unwrap();
        let buffers: Vec<_> = (0..3000u32).map(|number| number.to_be_bytes()).collect();
        let slices: Vec<&[u8]> = buffers.iter().map(|bytes| &bytes[..]).collect();
        write_all(&file, &slices, 10).unwrap();
        let mut read = vec![0; 12_000];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut read, 10).unwrap();
        assert_eq!(read, buffers.concat());
    }

    #[test]
    fn a_file_is_replaced_as_a_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        replace(&path, b"old content").unwrap();
        for call in [Call::Open, Call::Write, Call::Sync, Call::Rename] {
            fault::plan(call, 0, Errno::NOSPC);
            assert!(replace(&path, b"new").is_err(), "{call:?}");
            assert_eq!(fs::read(&path).unwrap(), b"old content");
        }
        replace(&path, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
    }
}
