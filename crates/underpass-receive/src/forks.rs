//! Tests that start processes, beside tests of locks: a child has all descriptors, and thus the
//! locks of all tests, until it becomes another program.

use std::path::Path;
use std::process::{Child, Command};
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

static FORKS: RwLock<()> = RwLock::new(());

/// A folder of a test while which no process starts.
pub(crate) struct UnforkedFolder {
    folder: tempfile::TempDir,
    _no_fork: RwLockReadGuard<'static, ()>,
}

impl UnforkedFolder {
    pub(crate) fn new() -> UnforkedFolder {
        UnforkedFolder {
            _no_fork: FORKS.read().unwrap_or_else(PoisonError::into_inner),
            folder: tempfile::tempdir().expect("a folder"),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Does something that starts processes when no test forbids it.
pub(crate) fn alone<T>(start: impl FnOnce() -> T) -> T {
    let _alone = FORKS.write().unwrap_or_else(PoisonError::into_inner);
    start()
}

/// Starts a process when no test forbids it.
pub(crate) fn spawn(command: &mut Command) -> Child {
    alone(|| command.spawn().expect("a process"))
}
