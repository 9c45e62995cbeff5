//! Fault injection and recording for tests of crashes: a planned operation fails, and all
//! operations in a folder can be recorded.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;

use crate::files::disk::DiskChange;

/// The operations that can fail.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Call {
    Open,
    Write,
    Sync,
    Rename,
}

thread_local! {
    static PLANNED: Cell<Option<(Call, usize, Errno)>> = const { Cell::new(None) };
}

/// Makes one operation on this thread fail: the one after `skipped` others of its kind.
pub(crate) fn plan(call: Call, skipped: usize, errno: Errno) {
    PLANNED.set(Some((call, skipped, errno)));
}

fn check(call: Call) -> io::Result<()> {
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

/// An operation that was made. Paths are relative to the recorded folder; the paths of files are
/// their names at that moment.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Operation {
    Open(PathBuf),
    Write(PathBuf, u64, Vec<u8>),
    Truncate(PathBuf, u64),
    Sync(PathBuf),
    SyncFolder(PathBuf),
    Rename(PathBuf, PathBuf),
    Remove(PathBuf),
    CreateFolder(PathBuf),
    RemoveFolder(PathBuf),
}

/// The folders being recorded.
static RECORDED: Mutex<BTreeMap<PathBuf, Vec<Operation>>> = Mutex::new(BTreeMap::new());

type Recorded = MutexGuard<'static, BTreeMap<PathBuf, Vec<Operation>>>;

fn recorded() -> Recorded {
    RECORDED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A recording of the operations in a folder by any thread. It ends on drop.
#[derive(Debug)]
pub(crate) struct Trace(PathBuf);

impl Trace {
    /// Starts a recording. The path must not contain symbolic links.
    pub(crate) fn begin(folder: &Path) -> Trace {
        let before = recorded().insert(folder.to_owned(), Vec::new());
        assert!(before.is_none(), "{folder:?} is being recorded");
        Trace(folder.to_owned())
    }

    /// Returns the number of operations recorded so far.
    pub(crate) fn len(&self) -> usize {
        recorded().get(&self.0).map_or(0, Vec::len)
    }

    /// Returns the operations recorded so far.
    pub(crate) fn operations(&self) -> Vec<Operation> {
        recorded().get(&self.0).cloned().unwrap_or_default()
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        recorded().remove(&self.0);
    }
}

/// A guard held during an operation in a recorded folder, so that operations are recorded in the
/// order in which they are made.
pub(crate) struct Watched(#[expect(dead_code, reason = "held, not read")] Option<Recorded>);

/// Fails as planned, or records the operation that is about to be made.
///
/// # Errors
/// The planned error.
pub(crate) fn watch(change: &DiskChange<'_>) -> io::Result<Watched> {
    let call = match change {
        DiskChange::Open(_) => Some(Call::Open),
        DiskChange::Write(..) | DiskChange::Truncate(..) => Some(Call::Write),
        DiskChange::Sync(_) | DiskChange::SyncFolder(_) => Some(Call::Sync),
        DiskChange::Rename(..) => Some(Call::Rename),
        DiskChange::Remove(_) | DiskChange::CreateFolder(_) | DiskChange::RemoveFolder(_) => None,
    };
    call.map_or(Ok(()), check)?;
    let mut recorded = recorded();
    if recorded.is_empty() {
        return Ok(Watched(None));
    }
    let path = match change {
        DiskChange::Write(file, ..) | DiskChange::Truncate(file, _) | DiskChange::Sync(file) => {
            path_of(file)?
        }
        DiskChange::Open(path)
        | DiskChange::SyncFolder(path)
        | DiskChange::Rename(path, _)
        | DiskChange::Remove(path)
        | DiskChange::CreateFolder(path)
        | DiskChange::RemoveFolder(path) => path.to_path_buf(),
    };
    let found = recorded.iter_mut().find_map(|(folder, operations)| {
        Some((path.strip_prefix(folder).ok()?, operations, folder))
    });
    let Some((path, operations, folder)) = found else {
        return Ok(Watched(None));
    };
    operations.push(operation(change, path.to_owned(), folder));
    Ok(Watched(Some(recorded)))
}

fn operation(change: &DiskChange<'_>, path: PathBuf, folder: &Path) -> Operation {
    match change {
        DiskChange::Open(_) => Operation::Open(path),
        DiskChange::Write(_, offset, buffers) => {
            let bytes: Vec<&[u8]> = buffers.iter().map(|buffer| &**buffer).collect();
            Operation::Write(path, *offset, bytes.concat())
        }
        DiskChange::Truncate(_, size) => Operation::Truncate(path, *size),
        DiskChange::Sync(_) => Operation::Sync(path),
        DiskChange::SyncFolder(_) => Operation::SyncFolder(path),
        DiskChange::Rename(_, to) => {
            let to = to.strip_prefix(folder).unwrap_or(to);
            Operation::Rename(path, to.to_owned())
        }
        DiskChange::Remove(_) => Operation::Remove(path),
        DiskChange::CreateFolder(_) => Operation::CreateFolder(path),
        DiskChange::RemoveFolder(_) => Operation::RemoveFolder(path),
    }
}

/// Returns the current path of a file. An unlinked file is in no folder.
fn path_of(file: &BorrowedFd<'_>) -> io::Result<PathBuf> {
    let path = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    let is_removed = path.to_string_lossy().ends_with(" (deleted)");
    Ok(if is_removed { PathBuf::new() } else { path })
}
