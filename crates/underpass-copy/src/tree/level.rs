//! Folders on the way: a pair of open folders, where it stands in the tree, and what is still under
//! way below it.
//!
//! ```text
//!   Level ──up──▶ Level ──up──▶ Level (the operand's parents)
//!     │             │  left: children that are not done, and the walk itself
//!     ▼             ▼
//!   Folders       Folders       two descriptors, shared by the tasks in them
//! ```
//!
//! A folder gets its times and its mode when the last of its children is done, by any worker.

use std::ffi::{CStr, CString, OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::atomic::{AtomicUsize, Ordering::AcqRel};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::Stat;

use crate::fs::folder::{Folder, append, plain};
use crate::metadata::Creation;
use crate::report::reporter::SequenceNumber;

/// A folder that is copied from and the one that is copied into.
#[derive(Debug)]
pub(crate) struct FolderPair {
    pub(crate) source: Folder,
    pub(crate) dest: Folder,
    pub(crate) origin: DestinationOrigin,
}

impl FolderPair {
    /// A folder and its copy, which came into being like this.
    pub(crate) fn new(source: Folder, dest: Folder, creation: Creation) -> Arc<Self> {
        let origin = match (&dest, creation) {
            (Folder::Imagined, _) => DestinationOrigin::Imagined,
            (_, Creation::New { .. }) => DestinationOrigin::Fresh,
            (_, Creation::Existing) => DestinationOrigin::Old,
        };
        Arc::new(Self {
            source,
            dest,
            origin,
        })
    }
}

/// What may be in a folder that is copied into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DestinationOrigin {
    /// This run has made it: whatever is in it and isn't ours was planted.
    Fresh,
    /// It was there.
    Old,
    /// It isn't there at all (`--dry-run`).
    Imagined,
}

/// Where something stands in the tree that is copied. Topmost are the folders that an operand and
/// its copy stand in, below them an operand that is a folder, and then what is in it.
#[derive(Debug)]
pub(crate) struct Level {
    pub(crate) up: Option<Arc<Level>>,
    /// Its name in the folder above; of the topmost folders as they are shown.
    source: OsString,
    /// The name of its copy.
    dest: OsString,
    /// The topmost folders, open.
    pub(crate) folders: Option<Arc<FolderPair>>,
    left: AtomicUsize,
    closing: Mutex<Option<FolderFinish>>,
}

/// What a folder's copy gets when all in it is done.
#[derive(Debug)]
pub(crate) struct FolderFinish {
    pub(crate) folders: Arc<FolderPair>,
    pub(crate) stat: Stat,
    pub(crate) creation: Creation,
    /// Where problems of closing are reported.
    pub(crate) sequence: SequenceNumber,
}

/// A name to copy.
pub(crate) struct Task {
    pub(crate) level: Arc<Level>,
    pub(crate) folders: Arc<FolderPair>,
    pub(crate) source: CString,
    pub(crate) dest: CString,
    pub(crate) role: Role,
    pub(crate) sequence: SequenceNumber,
}

/// Where a name comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// The command line.
    Operand,
    /// The command line, as source and destination: its backup is made, and nothing else.
    OwnBackup,
    /// A folder that is copied.
    Inside,
}

impl Level {
    pub(crate) fn top(source: OsString, dest: OsString, folders: Arc<FolderPair>) -> Arc<Self> {
        Self::new(None, source, dest, Some(folders))
    }

    /// A folder below `self`, which counts it as a child.
    pub(crate) fn below(self: &Arc<Self>, source: &CStr, dest: &CStr) -> Arc<Self> {
        self.expect_child();
        let shown = |name| OsString::from_vec(plain(name).into_bytes());
        Self::new(Some(Arc::clone(self)), shown(source), shown(dest), None)
    }

    fn new(
        up: Option<Arc<Level>>,
        source: OsString,
        dest: OsString,
        folders: Option<Arc<FolderPair>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            up,
            source,
            dest,
            folders,
            left: AtomicUsize::new(1),
            closing: Mutex::default(),
        })
    }

    /// One more thing is to be done before the folder can be closed.
    pub(crate) fn expect_child(&self) {
        self.left.fetch_add(1, AcqRel);
    }

    /// Something in it is done. Answers whether it was the last, which is true once.
    pub(crate) fn child_done(&self) -> bool {
        self.left.fetch_sub(1, AcqRel) == 1
    }

    /// What is to be done when all in it is.
    pub(crate) fn close_with(&self, closing: FolderFinish) {
        *self.closing.lock().unwrap_or_else(PoisonError::into_inner) = Some(closing);
    }

    pub(crate) fn take_closing(&self) -> Option<FolderFinish> {
        let mut closing = self.closing.lock().unwrap_or_else(PoisonError::into_inner);
        closing.take()
    }

    /// The source as it is shown.
    pub(crate) fn source(&self) -> OsString {
        path(self.levels_from_top().iter().map(|level| &level.source))
    }

    /// The destination as it is shown.
    pub(crate) fn dest(&self) -> OsString {
        path(self.levels_from_top().iter().map(|level| &level.dest))
    }

    /// The path below the operand, for patterns.
    pub(crate) fn below_operand(&self) -> OsString {
        path(
            self.levels_from_top()
                .iter()
                .skip(2)
                .map(|level| &level.source),
        )
    }

    /// The way down to the destination: the topmost folders, and the names below.
    pub(crate) fn way_to_dest(&self) -> (Option<&Arc<FolderPair>>, Vec<&OsStr>) {
        let levels = self.levels_from_top();
        let names = levels.iter().skip(1).map(|level| level.dest.as_os_str());
        (levels[0].folders.as_ref(), names.collect())
    }

    fn levels_from_top(&self) -> Vec<&Level> {
        let mut levels: Vec<_> =
            std::iter::successors(Some(self), |level| level.up.as_deref()).collect();
        levels.reverse();
        levels
    }
}

fn path<'a>(names: impl Iterator<Item = &'a OsString>) -> OsString {
    let mut path = Vec::new();
    for name in names {
        append(&mut path, name.as_bytes());
    }
    OsString::from_vec(path)
}

impl Drop for Level {
    /// A chain of a hundred thousand folders would overflow the stack if each dropped the next.
    fn drop(&mut self) {
        let mut up = self.up.take();
        while let Some(mut level) = up.and_then(Arc::into_inner) {
            up = level.up.take();
        }
    }
}
