//! The files and folders seen and created by this run: to preserve hard links, and to avoid copying
//! a folder into itself or overwriting a file just created.

use std::collections::{HashMap, HashSet};
use std::ffi::{CStr, CString, OsString};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, Stat, fstat, linkat, openat, statat, unlinkat};
use rustix::io::Errno;

use crate::fs::folder::{Folder, Identity, identity, joined, without_slashes};
use crate::tree::level::{FolderPair, Level};

/// The copy of a file, with the folder that it is in.
#[derive(Clone, Debug)]
pub(crate) struct CopiedFile {
    pub(crate) level: Arc<Level>,
    pub(crate) folders: Weak<FolderPair>,
    pub(crate) name: CString,
    pub(crate) identity: Identity,
}

/// The files with several names, the operands, and the copies made for them.
#[derive(Debug, Default)]
pub(crate) struct InodeTable {
    files: Mutex<HashMap<Identity, CopyState>>,
    changed: Condvar,
    /// Existing files with several names, and the sources that may be kept in them.
    claimed: Mutex<HashMap<Identity, Identity>>,
    /// Files of several names that the progress counts.
    counted: Mutex<HashSet<Identity>>,
    operands: Mutex<OperandTable>,
}

#[derive(Debug)]
enum CopyState {
    InProgress,
    Copied(Box<CopiedFile>),
}

/// The operands, and the copies made for them.
#[derive(Debug, Default)]
pub(crate) struct OperandTable {
    /// The sources other than folders.
    pub(crate) sources: HashSet<NamedFile>,
    /// The copies of operands.
    pub(crate) created: HashSet<NamedFile>,
    pub(crate) folders: HashMap<Identity, KnownFolder>,
    /// Folders that this run has created above copies (`--parents`).
    pub(crate) parents: HashSet<Identity>,
    /// Existing folders, each with the names of the first folders that a dry run would create in it
    /// for an operand: the equivalent of [`KnownFolder::Made`] in a real run.
    pub(crate) imagined: HashMap<Identity, Vec<CString>>,
}

/// A name in a folder, without trailing slashes, and the identity of its file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct NamedFile {
    folder: Option<Identity>,
    name: Vec<u8>,
    identity: Identity,
}

impl NamedFile {
    pub(crate) fn new(folder: &Folder, name: &CStr, stat: &Stat) -> Self {
        Self {
            folder: folder.identity(),
            name: without_slashes(name.to_bytes()).to_vec(),
            identity: identity(stat),
        }
    }
}

/// A folder on the command line, or the first one created for such an operand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KnownFolder {
    /// It is being copied to this name in this folder, with this displayed path.
    Source(Identity, Vec<u8>, OsString),
    /// This run has created it.
    Made,
}

impl InodeTable {
    /// Registers a file. Returns its copy if another name of it was copied before; blocks while
    /// another worker copies it. After `None`, [`Self::file_copied`] or [`Self::file_failed`] must
    /// follow.
    pub(crate) fn begin_file(&self, source: Identity) -> Option<Box<CopiedFile>> {
        let mut files = lock(&self.files);
        loop {
            match files.get(&source) {
                None => {
                    files.insert(source, CopyState::InProgress);
                    return None;
                }
                Some(CopyState::Copied(copied)) => return Some(copied.clone()),
                Some(CopyState::InProgress) => {
                    let woken = self.changed.wait(files);
                    files = woken.unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }

    pub(crate) fn file_copied(&self, source: Identity, copied: CopiedFile) {
        lock(&self.files).insert(source, CopyState::Copied(Box::new(copied)));
        self.changed.notify_all();
    }

    /// Records that a file was not copied: its next name is copied instead.
    pub(crate) fn file_failed(&self, source: Identity) {
        lock(&self.files).remove(&source);
        self.changed.notify_all();
    }

    /// Whether an existing file may become the copy of this source, and is that of no other one.
    pub(crate) fn claim(&self, dest: Identity, source: Identity) -> bool {
        *lock(&self.claimed).entry(dest).or_insert(source) == source
    }

    /// Whether a file is met for the first time by the progress.
    pub(crate) fn count(&self, source: Identity) -> bool {
        lock(&self.counted).insert(source)
    }

    pub(crate) fn operands(&self) -> MutexGuard<'_, OperandTable> {
        lock(&self.operands)
    }
}

impl CopiedFile {
    pub(crate) fn shown(&self) -> OsString {
        joined(&self.level.dest(), self.name.to_bytes())
    }

    /// Links it as `name` in `folder`, which must not exist.
    ///
    /// # Errors
    /// `ENOENT` if its name now leads to another file.
    pub(crate) fn link(&self, folder: impl AsFd, name: &CStr) -> Result<(), Errno> {
        let folder = folder.as_fd();
        if let Some(folders) = self.folders.upgrade() {
            return self.link_from(folders.dest.fd(), folder, name);
        }
        let (top, way) = self.level.way_to_dest();
        let mut from = top.ok_or(Errno::NOENT)?.dest.clone();
        for step in way {
            from = Folder::place(from.fd(), step, OFlags::NOFOLLOW)?;
        }
        self.link_from(from.fd(), folder, name)
    }

    /// Another process that can rename in the destination could replace the copy by another file:
    /// so the new name is checked afterwards. Where it has another number than the copy, as all
    /// names of one file have behind many FUSE servers, the open copy is linked, which nobody can
    /// replace.
    fn link_from(&self, from: impl AsFd, folder: impl AsFd, name: &CStr) -> Result<(), Errno> {
        let (from, folder) = (from.as_fd(), folder.as_fd());
        linkat(from, &self.name, folder, name, AtFlags::empty())?;
        let is_it = |now: &Stat| identity(now) == self.identity;
        if is_it(&statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?) {
            return Ok(());
        }
        unlinkat(folder, name, AtFlags::empty())?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let copy = openat(from, &self.name, flags, Mode::empty())?;
        if !is_it(&fstat(&copy)?) {
            return Err(Errno::NOENT);
        }
        let copy = format!("/proc/self/fd/{}", copy.as_raw_fd());
        linkat(CWD, copy, folder, name, AtFlags::SYMLINK_FOLLOW)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
