//! Trees begun and resumed in an area.

use std::os::fd::OwnedFd;
use std::time::SystemTime;

use rustix::fs::{FlockOperation, Mode, flock, fstat, mkdirat};
use rustix::io::Errno;

use crate::area::{Area, UploadsMax};
use crate::beneath::{FOLDER, open_beneath};
use crate::error::{Doing, Error};
use crate::record::{UploadId, UploadRecord};
use crate::tree::{PartialTree, TreeSettings};

/// Attempts to make a folder that no other process sweeps away before it is locked.
const ATTEMPTS_MAX: usize = 16;

impl Area {
    /// Returns a new tree without a record, which cannot be resumed.
    ///
    /// # Errors
    /// [`Error::Denied`], [`Error::NoSpace`], [`Error::Io`].
    pub fn begin_tree(&self, settings: TreeSettings) -> Result<PartialTree, Error> {
        let (id, root) = self.make_tree_folder()?;
        PartialTree::new((&self.folder, id), root, None, settings)
    }

    /// Returns a new tree with a record, of which there may be `most` with those of files.
    ///
    /// # Errors
    /// [`Error::TooMany`], [`Error::Name`] for a record that is too long, and as
    /// [`begin_tree`](Area::begin_tree).
    pub fn create_tree(
        &self,
        record: UploadRecord,
        most: UploadsMax,
        settings: TreeSettings,
    ) -> Result<PartialTree, Error> {
        let _locked = self.check_new(&record, most)?;
        let (id, root) = self.make_tree_folder()?;
        let boot = self.boot.clone();
        let record = UploadRecord { boot, ..record };
        let made = PartialTree::new((&self.folder, id.clone()), root, Some(record), settings);
        let written = made.and_then(|mut tree| tree.note(None).map(|()| tree));
        written.inspect_err(|_| {
            let _ = self.folder.forget(&id);
        })
    }

    /// Opens a tree to receive the rest of it. The stream has to continue behind the checkpoint of
    /// its [`record`](PartialTree::record): with the headers of the next member, which are followed
    /// by the rest of its content if it was cut.
    ///
    /// # Errors
    /// [`Error::Gone`] also if bytes may be lost that were reported as received, [`Error::Busy`],
    /// [`Error::Io`].
    pub fn resume_tree(
        &self,
        id: &UploadId,
        now: SystemTime,
        settings: TreeSettings,
    ) -> Result<PartialTree, Error> {
        let root = open_beneath(&self.folder.uploads()?, id.as_str(), FOLDER);
        let root = match root {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Err(Error::Gone),
            root => root.doing("opening a partial tree")?,
        };
        lock(&root)?;
        // It may have been committed or removed before it was locked.
        let record = self.record(id)?;
        if !record.has_trusted_tree(&self.boot) || record.is_expired(now) {
            self.folder.forget(id)?;
            return Err(Error::Gone);
        }
        let boot = self.boot.clone();
        let record = UploadRecord { boot, ..record };
        PartialTree::new((&self.folder, id.clone()), root, Some(record), settings)
    }

    /// Makes a locked folder among the partial files.
    fn make_tree_folder(&self) -> Result<(UploadId, OwnedFd), Error> {
        let (doing, uploads) = ("making a partial tree", self.folder.uploads()?);
        for _ in 0..ATTEMPTS_MAX {
            let id = UploadId::random()?;
            mkdirat(&uploads, id.as_str(), Mode::from_raw_mode(0o777)).doing(doing)?;
            let root = match open_beneath(&uploads, id.as_str(), FOLDER) {
                Err(Errno::NOENT) => continue,
                root => root.doing(doing)?,
            };
            match lock(&root) {
                Err(Error::Busy) => continue,
                locked => locked?,
            }
            // A sweep removes folders that are not locked.
            if fstat(&root).doing(doing)?.st_nlink > 0 {
                return Ok((id, root));
            }
        }
        Err(Error::Busy)
    }
}

fn lock(root: &OwnedFd) -> Result<(), Error> {
    match flock(root, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => Err(Error::Busy),
        locked => locked.doing("locking a partial tree"),
    }
}
