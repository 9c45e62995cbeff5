//! All operations whose effects a crash may undo, in one place, so that tests can inject failures
//! and record the operations to build crash images. Also functions that read files of unknown
//! content.

use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSlice, IoSliceMut, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate, fdatasync, ftruncate};
use rustix::io::{Errno, ReadWriteFlags, preadv2, pwritev};

#[cfg(test)]
use crate::files::trace::watch;

/// The largest number of buffers in one call (IOV_MAX of Linux).
const BUFFERS_MAX: usize = 1024;

/// Opens a file for reading and writing; creates it if it does not exist.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    let _watched = watch(&DiskChange::Open(path))?;
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    options.open(path)
}

/// Writes all buffers, one after the other, from `offset` on.
///
/// # Errors
/// I/O errors. A part may have been written.
pub(crate) fn write_all(file: impl AsFd, buffers: &[&[u8]], mut offset: u64) -> io::Result<()> {
    let mut rest: Vec<IoSlice<'_>> = buffers.iter().map(|bytes| IoSlice::new(bytes)).collect();
    let mut rest = &mut rest[..];
    // Skip empty buffers, which would look like writes that make no progress.
    IoSlice::advance_slices(&mut rest, 0);
    while !rest.is_empty() {
        let _watched = watch(&DiskChange::Write(file.as_fd(), offset, rest))?;
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

/// Reads a file. Returns an error if it is not a regular file or has more than `bytes_max` bytes:
/// other kinds of files may be endless.
pub(crate) fn read(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let size = regular_size(path)?;
    if size > bytes_max {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let mut content = Vec::new();
    File::open(path)?
        .take(bytes_max)
        .read_to_end(&mut content)?;
    Ok(content)
}

/// Whether a read may wait for the disk.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum DiskWait {
    /// The read may block.
    Allowed,
    /// The read fails with `WouldBlock` if the pages are not cached.
    Forbidden,
}

/// Fills all of `bytes`.
///
/// # Errors
/// `UnexpectedEof`; `WouldBlock` if the read would wait for the disk; other I/O errors.
pub(crate) fn read_exact(
    file: impl AsFd,
    bytes: &mut [u8],
    position: u64,
    wait: DiskWait,
) -> io::Result<()> {
    match read_at_least(file, bytes, bytes.len(), position, wait)? < bytes.len() {
        true => Err(io::ErrorKind::UnexpectedEof.into()),
        false => Ok(()),
    }
}

/// Reads at least `least` bytes, unless the file ends, and as many more as are available. Returns
/// the number of bytes read.
///
/// # Errors
/// `WouldBlock` if the read would wait for the disk; other I/O errors.
pub(crate) fn read_at_least(
    file: impl AsFd,
    buffer: &mut [u8],
    least: usize,
    offset: u64,
    wait: DiskWait,
) -> io::Result<usize> {
    let mut flags = match wait {
        DiskWait::Allowed => ReadWriteFlags::empty(),
        DiskWait::Forbidden => ReadWriteFlags::NOWAIT,
    };
    let mut filled = 0;
    while filled < least {
        let mut room = [IoSliceMut::new(&mut buffer[filled..])];
        match preadv2(&file, &mut room, offset + filled as u64, flags) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(Errno::INTR) => {}
            // The file system has no such reads. Block: the reads are short and mostly cached.
            Err(Errno::OPNOTSUPP) if wait == DiskWait::Forbidden => {
                flags = ReadWriteFlags::empty();
            }
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(filled)
}

/// Returns the size of a regular file, or of the target of a symbolic link.
pub(crate) fn regular_size(path: &Path) -> io::Result<u64> {
    let found = fs::metadata(path)?;
    match found.is_file() {
        true => Ok(found.len()),
        false => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "this is no regular file",
        )),
    }
}

/// Syncs the content of a file and its size to disk.
pub(crate) fn sync(file: impl AsFd) -> io::Result<()> {
    let _watched = watch(&DiskChange::Sync(file.as_fd()))?;
    Ok(fdatasync(file)?)
}

/// Truncates a file. A crash may undo it until the file is synced.
pub(crate) fn truncate(file: impl AsFd, size: u64) -> io::Result<()> {
    let _watched = watch(&DiskChange::Truncate(file.as_fd(), size))?;
    Ok(ftruncate(file, size)?)
}

/// Reserves blocks without changing the size of the file. Failure is ignored.
pub(crate) fn reserve(file: impl AsFd, offset: u64, bytes: u64) {
    let _ = fallocate(file, FallocateFlags::KEEP_SIZE, offset, bytes);
}

/// Renames a file within a folder. A crash may undo it until the folder is synced.
pub(crate) fn rename(from: &Path, to: &Path) -> io::Result<()> {
    let _watched = watch(&DiskChange::Rename(from, to))?;
    fs::rename(from, to)
}

/// Removes a file. A crash may undo it until the folder is synced.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    let _watched = watch(&DiskChange::Remove(path))?;
    fs::remove_file(path)
}

/// Removes a file if it exists.
pub(crate) fn remove_if_there(path: &Path) -> io::Result<()> {
    match remove(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Creates a folder and its missing parents, and syncs their names: synced files in a folder whose
/// name is lost are lost with it.
pub(crate) fn create_folder(path: &Path) -> io::Result<()> {
    let above = match path.parent() {
        Some(above) if above.as_os_str().is_empty() => Path::new("."),
        Some(above) => above,
        None => return Ok(()),
    };
    if path.is_dir() {
        // The process that created it may have ended before the sync. The parent folder may belong
        // to another user and be inaccessible.
        let _ = sync_folder(above);
        return Ok(());
    }
    create_folder(above)?;
    make_folder(path)?;
    sync_folder(above)
}

fn make_folder(path: &Path) -> io::Result<()> {
    let _watched = watch(&DiskChange::CreateFolder(path))?;
    match fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

/// Removes a folder with all its content.
pub(crate) fn remove_folder(path: &Path) -> io::Result<()> {
    let _watched = watch(&DiskChange::RemoveFolder(path))?;
    fs::remove_dir_all(path)
}

/// Syncs the names in a folder to disk.
pub(crate) fn sync_folder(folder: &Path) -> io::Result<()> {
    let _watched = watch(&DiskChange::SyncFolder(folder))?;
    File::open(folder)?.sync_all()
}

/// Replaces a file: after a crash it has either the old content or the new.
pub(crate) fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    write_whole(path, content)?;
    path.parent().map_or(Ok(()), sync_folder)
}

/// Replaces a file. A crash may undo it until the folder is synced.
pub(crate) fn write_whole(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut new = path.as_os_str().to_owned();
    new.push(".tmp");
    let new = PathBuf::from(new);
    let file = open(&new)?;
    truncate(&file, 0)?;
    write_all(&file, &[content], 0)?;
    sync(&file)?;
    rename(&new, path)
}

/// An operation that is about to be made.
#[derive(Debug)]
#[cfg_attr(not(test), expect(dead_code, reason = "tests read it"))]
pub(crate) enum DiskChange<'c> {
    Open(&'c Path),
    Write(BorrowedFd<'c>, u64, &'c [IoSlice<'c>]),
    Truncate(BorrowedFd<'c>, u64),
    Sync(BorrowedFd<'c>),
    SyncFolder(&'c Path),
    Rename(&'c Path, &'c Path),
    Remove(&'c Path),
    CreateFolder(&'c Path),
    RemoveFolder(&'c Path),
}

/// Does nothing; the version for tests injects failures and records operations.
#[cfg(not(test))]
fn watch(_change: &DiskChange<'_>) -> io::Result<Watched> {
    Ok(Watched)
}

/// A placeholder for the lock that tests hold during an operation.
#[cfg(not(test))]
struct Watched;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::trace::{Call, plan};

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
            plan(call, 0, Errno::NOSPC);
            assert!(replace(&path, b"new").is_err(), "{call:?}");
            assert_eq!(fs::read(&path).unwrap(), b"old content");
        }
        replace(&path, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
    }
}
