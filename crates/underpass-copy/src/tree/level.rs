//! Folders in progress: a pair of open folders, their position in the tree, and the number of
//! unfinished children.
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

/// A source folder and its destination folder.
#[derive(Debug)]
pub(crate) struct FolderPair {
    pub(crate) source: Folder,
    pub(crate) dest: Folder,
    pub(crate) origin: DestinationOrigin,
}

impl FolderPair {
    /// Creates a pair of a folder and its copy, which was made by `creation`.
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

/// The origin of a destination folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DestinationOrigin {
    /// This run has created it: any entry in it that isn't ours was planted.
    Fresh,
    /// It existed before.
    Old,
    /// It doesn't exist at all (`--dry-run`).
    Imagined,
}

/// A position in the tree that is copied. At the top are the folders that contain an operand and
/// its copy, below them an operand that is a folder, and then its content.
#[derive(Debug)]
pub(crate) struct Level {
    pub(crate) up: Option<Arc<Level>>,
    /// Its name in the folder above; for the topmost folders, their displayed path.
    source: OsString,
    /// The name of its copy.
    dest: OsString,
    /// The topmost folders, open.
    pub(crate) folders: Option<Arc<FolderPair>>,
    left: AtomicUsize,
    closing: Mutex<Option<FolderFinish>>,
}

/// The metadata that a folder's copy gets when its content is done.
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

/// The origin of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// An operand.
    Operand,
    /// An operand that is its own destination: only its backup is made.
    OwnBackup,
    /// A child of a folder that is copied.
    Inside,
}

impl Level {
    pub(crate) fn top(source: OsString, dest: OsString, folders: Arc<FolderPair>) -> Arc<Self> {
        Self::new(None, source, dest, Some(folders))
    }

    /// Returns a folder below `self`, which counts it as a child.
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

    /// Counts one more child that must be done before the folder can be closed.
    pub(crate) fn expect_child(&self) {
        self.left.fetch_add(1, AcqRel);
    }

    /// Counts a child as done. Returns whether it was the last, which is true once.
    pub(crate) fn child_done(&self) -> bool {
        self.left.fetch_sub(1, AcqRel) == 1
    }

    /// Sets the work to do when all children are done.
    pub(crate) fn close_with(&self, closing: FolderFinish) {
        *self.closing.lock().unwrap_or_else(PoisonError::into_inner) = Some(closing);
    }

    pub(crate) fn take_closing(&self) -> Option<FolderFinish> {
        let mut closing = self.closing.lock().unwrap_or_else(PoisonError::into_inner);
        closing.take()
    }

    /// Returns the displayed path of the source.
    pub(crate) fn source(&self) -> OsString {
        path(self.levels_from_top().iter().map(|level| &level.source))
    }

    /// Returns the displayed path of the destination.
    pub(crate) fn dest(&self) -> OsString {
        path(self.levels_from_top().iter().map(|level| &level.dest))
    }

    /// Returns the path below the operand, for patterns.
    pub(crate) fn below_operand(&self) -> OsString {
        path(
            self.levels_from_top()
                .iter()
                .skip(2)
                .map(|level| &level.source),
        )
    }

    /// Returns the path down to the destination: the topmost folders, and the names below.
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
