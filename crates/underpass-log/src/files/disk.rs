//! The calls that change what a crash leaves: all of them, in one place, so that tests can have
//! them fail, and can record them to build what a crash would have left. Beside them, how files are
//! read of which nothing is known.

use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSlice, IoSliceMut, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate, fdatasync, ftruncate};
use rustix::io::{Errno, ReadWriteFlags, preadv2, pwritev};

#[cfg(test)]
use crate::files::trace::watch;

/// How many buffers one call writes (IOV_MAX of Linux).
const BUFFERS_MAX: usize = 1024;

/// Opens a file to read and write, and makes it where it does not exist.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    let _watched = watch(&DiskChange::Open(path))?;
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
    // Empty ones would look like writes that make no progress.
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

/// Reads a file. What is no regular file, or has more than `bytes_max` bytes, is an error: other
/// kinds of files may never end.
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
    /// It may: the thread is one that does.
    Allowed,
    /// It gives up where the pages are not cached.
    Forbidden,
}

/// Reads all of `bytes`.
///
/// # Errors
/// `UnexpectedEof`, `WouldBlock` if the read would wait for the disk; other I/O errors.
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

/// Reads `least` bytes at least, unless the file ends, and as many as come with them. Returns how
/// many.
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
            // A file system without such reads: they are short, and mostly of what was just sent.
            Err(Errno::OPNOTSUPP) if wait == DiskWait::Forbidden => {
                flags = ReadWriteFlags::empty();
            }
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(filled)
}

/// The size of a regular file, or of the one that a link leads to.
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

/// Brings the content of a file to the disk, and its size.
pub(crate) fn sync(file: impl AsFd) -> io::Result<()> {
    let _watched = watch(&DiskChange::Sync(file.as_fd()))?;
    Ok(fdatasync(file)?)
}

/// Cuts a file off. A crash may undo it until the file is synced.
pub(crate) fn truncate(file: impl AsFd, size: u64) -> io::Result<()> {
    let _watched = watch(&DiskChange::Truncate(file.as_fd(), size))?;
    Ok(ftruncate(file, size)?)
}

/// Has the file system reserve blocks, without changing the size of the file. Where that cannot be
/// done it is not.
pub(crate) fn reserve(file: impl AsFd, offset: u64, bytes: u64) {
    let _ = fallocate(file, FallocateFlags::KEEP_SIZE, offset, bytes);
}

/// Gives a file another name, in the same folder. A crash may undo it until the folder is synced.
pub(crate) fn rename(from: &Path, to: &Path) -> io::Result<()> {
    let _watched = watch(&DiskChange::Rename(from, to))?;
    fs::rename(from, to)
}

/// Removes a file. A crash may undo it until the folder is synced.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    let _watched = watch(&DiskChange::Remove(path))?;
    fs::remove_file(path)
}

/// Removes a file, if it is there.
pub(crate) fn remove_if_there(path: &Path) -> io::Result<()> {
    match remove(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Makes a folder, and those above it, where they do not exist. Their names are synced: what is
/// synced in a folder whose name is lost is lost with it.
pub(crate) fn create_folder(path: &Path) -> io::Result<()> {
    let above = match path.parent() {
        Some(above) if above.as_os_str().is_empty() => Path::new("."),
        Some(above) => above,
        None => return Ok(()),
    };
    if path.is_dir() {
        // Whoever made it may have ended before it was synced. The folder above may be another
        // user's, and not to be opened.
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

/// Removes a folder with everything in it.
pub(crate) fn remove_folder(path: &Path) -> io::Result<()> {
    let _watched = watch(&DiskChange::RemoveFolder(path))?;
    fs::remove_dir_all(path)
}

/// Brings names in a folder to the disk.
pub(crate) fn sync_folder(folder: &Path) -> io::Result<()> {
    let _watched = watch(&DiskChange::SyncFolder(folder))?;
    File::open(folder)?.sync_all()
}

/// Replaces a file: after a crash there is the old content or the new one.
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

/// A call that is about to be made.
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

/// Where tests come in. Nothing otherwise.
#[cfg(not(test))]
fn watch(_change: &DiskChange<'_>) -> io::Result<Watched> {
    Ok(Watched)
}

/// What tests hold while a call is made.
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
