//! What this run has met and made: so that several names of one file stay names of one file, no
//! folder is copied into itself, and nothing that was just made is overwritten.

use std::collections::{HashMap, HashSet};
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};

use rustix::fs::{AtFlags, Mode, OFlags, linkat, openat, statat, unlinkat};
use rustix::io::Errno;

use crate::tree::level::{Folders, Identity, Level, identity};

/// A name in a folder that was copied into, wherever that is by now.
#[derive(Clone, Debug)]
pub(crate) struct Copied {
    pub(crate) level: Arc<Level>,
    pub(crate) folders: Weak<Folders>,
    pub(crate) name: CString,
    pub(crate) identity: Identity,
}

/// What has become of files with several names, and what was made.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    files: Mutex<HashMap<Identity, Copying>>,
    settled: Condvar,
    operands: Mutex<Operands>,
}

#[derive(Debug)]
enum Copying {
    UnderWay,
    Done(Box<Copied>),
}

#[derive(Debug, Default)]
struct Operands {
    sources: HashSet<Named>,
    made: HashSet<Named>,
    folders: HashMap<Identity, MetFolder>,
    /// Folders that are there, and the names that would be made in them (`--dry-run`).
    imagined: HashMap<Identity, Vec<CString>>,
}

/// A name in a folder, and what it stood for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Named {
    pub(crate) folder: Option<Identity>,
    pub(crate) name: Vec<u8>,
    pub(crate) identity: Identity,
}

/// A folder that was named on the command line, or the first that was made for one that was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MetFolder {
    /// It is being copied to this name of this folder.
    Copied(Identity, Vec<u8>),
    /// This run has made it.
    Made,
}

impl Seen {
    /// Somebody begins with a file. Answers where it was copied to before; blocks while somebody
    /// else is copying it. After nothing, [`Seen::copied`] or [`Seen::failed`] must follow.
    pub(crate) fn begin(&self, source: Identity) -> Option<Box<Copied>> {
        let mut files = lock(&self.files);
        loop {
            match files.get(&source) {
                None => {
                    files.insert(source, Copying::UnderWay);
                    return None;
                }
                Some(Copying::Done(copied)) => return Some(copied.clone()),
                Some(Copying::UnderWay) => {
                    let woken = self.settled.wait(files);
                    files = woken.unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }

    pub(crate) fn copied(&self, source: Identity, copied: Copied) {
        lock(&self.files).insert(source, Copying::Done(Box::new(copied)));
        self.settled.notify_all();
    }

    /// It was not copied: the next of its names is.
    pub(crate) fn failed(&self, source: Identity) {
        lock(&self.files).remove(&source);
        self.settled.notify_all();
    }

    /// Whether a source stands on the command line for the first time.
    pub(crate) fn first_time(&self, source: Named) -> Met {
        match lock(&self.operands).sources.insert(source) {
            true => Met::First,
            false => Met::Again,
        }
    }

    /// An operand's copy was made.
    pub(crate) fn made(&self, dest: Named) {
        lock(&self.operands).made.insert(dest);
    }

    /// Whether an existing destination was made for an earlier operand.
    pub(crate) fn just_made(&self, dest: &Named) -> Met {
        match lock(&self.operands).made.contains(dest) {
            true => Met::Again,
            false => Met::First,
        }
    }

    /// What is known of a folder.
    pub(crate) fn folder(&self, folder: Identity) -> Option<MetFolder> {
        lock(&self.operands).folders.get(&folder).cloned()
    }

    /// Its copy failed: the next time is another matter.
    pub(crate) fn forget_folder(&self, folder: Identity) {
        lock(&self.operands).folders.remove(&folder);
    }

    pub(crate) fn met_folder(&self, folder: Identity, what: MetFolder) {
        lock(&self.operands).folders.entry(folder).or_insert(what);
    }

    /// A folder would have been made in `above`, had anything been done: the first one that was
    /// made for an operand is what [`MetFolder::Made`] stands for.
    pub(crate) fn imagined_in(&self, above: Identity, name: CString) {
        let mut operands = lock(&self.operands);
        operands.imagined.entry(above).or_default().push(name);
    }

    /// Names of folders that would be met in `above`, had anything been done.
    pub(crate) fn imagined(&self, above: Identity) -> Vec<CString> {
        let operands = lock(&self.operands);
        operands.imagined.get(&above).cloned().unwrap_or_default()
    }
}

/// Whether something was met before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Met {
    First,
    Again,
}

impl Copied {
    /// Gives it the name `name` in `folder`, where nothing may be.
    ///
    /// # Errors
    /// `ENOENT` where it isn't what was copied any more.
    pub(crate) fn link(&self, folder: impl AsFd, name: &CStr) -> Result<(), Errno> {
        let folder = folder.as_fd();
        if let Some(folders) = self.folders.upgrade() {
            return self.link_from(folders.dest.fd(), folder, name);
        }
        let (top, way) = self.level.way_to_dest();
        let top = top.ok_or(Errno::NOENT)?;
        let mut walked: Option<OwnedFd> = None;
        for step in way {
            let from = walked.as_ref().map_or(top.dest.fd(), |fd| fd.as_fd());
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            walked = Some(openat(from, step, flags, Mode::empty())?);
        }
        let from = walked.as_ref().map_or(top.dest.fd(), |fd| fd.as_fd());
        self.link_from(from, folder, name)
    }

    /// Whoever can rename in the destination could put another file in the place of the copy: so
    /// what was linked is looked at afterwards.
    fn link_from(&self, from: impl AsFd, folder: impl AsFd, name: &CStr) -> Result<(), Errno> {
        linkat(from, &self.name, folder.as_fd(), name, AtFlags::empty())?;
        let linked = statat(folder.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW)?;
        if identity(&linked) == self.identity {
            return Ok(());
        }
        unlinkat(folder, name, AtFlags::empty())?;
        Err(Errno::NOENT)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
