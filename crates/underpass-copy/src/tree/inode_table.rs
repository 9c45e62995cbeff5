//! The files and folders seen and created by this run: to preserve hard links, and to avoid copying
//! a folder into itself or overwriting a file just created.

use std::collections::{HashMap, HashSet};
use std::ffi::{CStr, CString, OsString};
use std::os::fd::AsFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};

use rustix::fs::{AtFlags, OFlags, Stat, linkat, statat, unlinkat};
use rustix::io::Errno;

use crate::fs::folder::{
    Folder, Identity, file_type, identity, joined, numbers_anew, without_slashes,
};
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

    /// Links the copy, then checks the new name: another process that can rename in the destination
    /// could have replaced the copy by another file.
    fn link_from(&self, from: impl AsFd, folder: impl AsFd, name: &CStr) -> Result<(), Errno> {
        let from = from.as_fd();
        linkat(from, &self.name, folder.as_fd(), name, AtFlags::empty())?;
        let look = |folder, name| statat(folder, name, AtFlags::SYMLINK_NOFOLLOW);
        let linked = look(folder.as_fd(), name)?;
        if identity(&linked) == self.identity {
            return Ok(());
        }
        // The new name has another inode number there: compare the attributes.
        if numbers_anew(folder.as_fd()) && is_alike(&linked, &look(from, &self.name)?) {
            return Ok(());
        }
        unlinkat(folder, name, AtFlags::empty())?;
        Err(Errno::NOENT)
    }
}

/// Returns whether two queries without reliable inode numbers may be of one file.
fn is_alike(one: &Stat, other: &Stat) -> bool {
    let facts = |stat: &Stat| {
        (
            file_type(stat),
            stat.st_size,
            stat.st_mtime,
            stat.st_mtime_nsec,
        )
    };
    facts(one) == facts(other)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
