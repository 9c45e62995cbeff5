//! A folder beneath which files may be received, and its partial files.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use rustix::fs::{
    AtFlags, Dir, FileType, FlockOperation, Mode, OFlags, Stat, flock, fstat, ftruncate, mkdirat,
    openat, renameat, statat, unlinkat,
};
use rustix::io::Errno;

use crate::beneath::{FOLDER, open_beneath};
use crate::error::{Doing, Error};
use crate::folder::{RECORD_SUFFIX, UPLOADS_FOLDER, UploadFolder, set_folder_mode};
use crate::overwrite::{FileVersion, Overwrite};
use crate::partial::{Committed, PartialFile, SyncPolicy, rename};
use crate::path::RelativePath;
use crate::record::{UploadId, UploadRecord, seconds};
use crate::removal::{holds_mount, may_be_folder, remove_tree};
use crate::space::FreeSpace;

/// A partial file without a record that is younger may be one whose lock is about to be taken.
const ORPHAN_AGE: Duration = Duration::from_secs(60);

/// Entries of a tree that is looked through before it is changed. More take seconds.
const ENTRIES_MAX: usize = 100_000;

/// A folder beneath which files may be received.
#[derive(Debug)]
pub struct Area {
    pub(crate) folder: Arc<UploadFolder>,
    /// The boot of the machine.
    pub(crate) boot: String,
    /// The client of each upload, as far as its record has been read.
    clients: Mutex<HashMap<UploadId, Option<String>>>,
}

/// The number of uploads that may be incomplete.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct UploadsMax {
    /// Those of all clients.
    pub all: usize,
    /// Those of each client.
    pub per_client: usize,
}

/// What a name stands for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum NameKind {
    /// A regular file.
    File,
    /// A folder.
    Folder,
    /// A symbolic link or a special file.
    Other,
}

/// The result of a sweep.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct SweepSummary {
    /// Uploads that can be resumed.
    pub kept: u64,
    /// Partial files and removed folders of which nothing is left now.
    pub removed: u64,
}

impl Area {
    /// Opens the folder `path` beneath `root`, or `root` itself. Nothing is written yet.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NotAFolder`], [`Error::Link`], [`Error::Denied`].
    pub fn open(root: BorrowedFd<'_>, path: Option<&RelativePath>) -> Result<Area, Error> {
        let path = path.map_or(".", RelativePath::as_str);
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
        // Without /proc nothing that is not durable outlives the process.
        let boot = boot.or_else(|_| UploadId::random().map(|id| id.to_string()))?;
        Ok(Area {
            folder: Arc::new(UploadFolder::open(root, path)?),
            boot: boot.trim().to_owned(),
            clients: Mutex::default(),
        })
    }

    /// The folder.
    pub fn root(&self) -> BorrowedFd<'_> {
        self.folder.root()
    }

    /// Reads the record of an upload, which another process may be receiving.
    ///
    /// # Errors
    /// [`Error::Gone`], [`Error::Io`].
    pub fn record(&self, id: &UploadId) -> Result<UploadRecord, Error> {
        self.folder.record(id)
    }

    /// Returns the records of all uploads, which other processes may be receiving.
    ///
    /// # Errors
    /// [`Error::Io`] where the folder cannot be read.
    pub fn records(&self) -> Result<Vec<(UploadId, UploadRecord)>, Error> {
        let is_there = statat(self.root(), UPLOADS_FOLDER, AtFlags::SYMLINK_NOFOLLOW);
        if let Err(Errno::NOENT) = is_there {
            return Ok(Vec::new());
        }
        let uploads = self.folder.uploads()?;
        let ids = names(uploads.as_fd())?
            .filter_map(|(name, _)| UploadId::parse(name.strip_suffix(RECORD_SUFFIX)?.as_bytes()));
        // One that was completed meanwhile has no record any more.
        let known = ids.filter_map(|id| Some((id.clone(), self.record(&id).ok()?)));
        Ok(known.collect())
    }

    /// Bytes that may be received before less than `keep_free` is left on the file system.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn space(&self, keep_free: u64) -> Result<u64, Error> {
        Ok(FreeSpace::of(self.root(), keep_free)?.bytes())
    }

    /// Checks that `needed` bytes may be received, and returns how many may.
    ///
    /// # Errors
    /// [`Error::TooFull`], [`Error::Io`].
    pub fn check_space(&self, needed: u64, keep_free: u64) -> Result<u64, Error> {
        let space = FreeSpace::of(self.root(), keep_free)?;
        space.check(needed)?;
        Ok(space.bytes())
    }

    /// Returns a new partial file without a record, which cannot be resumed.
    ///
    /// # Errors
    /// [`Error::Denied`], [`Error::NoSpace`], [`Error::Io`].
    pub fn begin(&self) -> Result<PartialFile, Error> {
        let id = UploadId::random()?;
        let file = self.folder.make_partial(&id)?;
        Ok(PartialFile::new(&self.folder, id, file, None))
    }

    /// Returns a new partial file with a record, of which there may be `most`.
    ///
    /// # Errors
    /// [`Error::TooMany`], [`Error::TooManyOfClient`], [`Error::Name`] for a record that is too
    /// long, and as [`begin`](Area::begin).
    pub fn create(&self, record: UploadRecord, most: UploadsMax) -> Result<PartialFile, Error> {
        let _locked = self.check_new(&record, most)?;
        let id = UploadId::random()?;
        let file = self.folder.make_partial(&id)?;
        let boot = self.boot.clone();
        let partial = PartialFile::new(
            &self.folder,
            id,
            file,
            Some(UploadRecord { boot, ..record }),
        );
        partial.write_record().inspect_err(|_| {
            let _ = self.folder.forget(partial.id());
        })?;
        Ok(partial)
    }

    /// Checks whether there may be another upload with this record. The result is held until the
    /// record exists, so that requests at the same time keep to the limits.
    pub(crate) fn check_new(
        &self,
        record: &UploadRecord,
        most: UploadsMax,
    ) -> Result<MutexGuard<'_, HashMap<UploadId, Option<String>>>, Error> {
        record.text()?;
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        self.read_clients(&mut clients)?;
        if clients.len() >= most.all {
            return Err(Error::TooMany);
        }
        if let Some(client) = &record.client {
            let same = clients.values().filter(|it| it.as_ref() == Some(client));
            if same.count() >= most.per_client {
                return Err(Error::TooManyOfClient);
            }
        }
        Ok(clients)
    }

    /// Brings the clients of uploads up to date. Other processes create and complete uploads, too;
    /// the client of an upload never changes.
    fn read_clients(&self, clients: &mut HashMap<UploadId, Option<String>>) -> Result<(), Error> {
        let uploads = self.folder.uploads()?;
        let id = |name: &str| UploadId::parse(name.strip_suffix(RECORD_SUFFIX)?.as_bytes());
        let found: HashSet<UploadId> = names(uploads.as_fd())?
            .filter_map(|(name, _)| id(&name))
            .collect();
        clients.retain(|id, _| found.contains(id));
        for id in found {
            if let Entry::Vacant(entry) = clients.entry(id) {
                let record = self.record(entry.key()).ok();
                entry.insert(record.and_then(|record| record.client));
            }
        }
        Ok(())
    }

    /// Opens the partial file of an upload to receive more. Bytes of which it is not certain that
    /// they are what was sent are dropped; if they were reported as received, so is the upload.
    ///
    /// # Errors
    /// [`Error::Gone`], [`Error::Busy`], [`Error::Io`].
    pub fn resume(&self, id: &UploadId, now: SystemTime) -> Result<PartialFile, Error> {
        let file = openat(
            self.folder.uploads()?,
            id.as_str(),
            OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::empty(),
        );
        let file = match file {
            Err(Errno::NOENT | Errno::ISDIR | Errno::LOOP) => return Err(Error::Gone),
            file => file.doing("opening a partial file")?,
        };
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => return Err(Error::Busy),
            locked => locked.doing("locking a partial file")?,
        }
        // It may have been committed or removed before it was locked.
        let mut record = self.record(id)?;
        let stat = fstat(&file).doing("looking at a partial file")?;
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        if size > 0 {
            // A process that was killed has not noted the last bytes in the record.
            record.postpone(u64::try_from(stat.st_mtime).unwrap_or(0));
        }
        let trusted = record.trusted(size, &self.boot);
        let Some(trusted) = trusted.filter(|_| !record.is_expired(now) && stat.st_nlink > 0) else {
            self.folder.forget(id)?;
            return Err(Error::Gone);
        };
        let is_of_this_boot = record.boot == self.boot;
        let record = UploadRecord {
            boot: self.boot.clone(),
            ..record
        };
        let partial = PartialFile::new(&self.folder, id.clone(), file, Some(record));
        if !is_of_this_boot {
            ftruncate(partial.file(), trusted).doing("truncating a partial file")?;
            partial.write_record()?;
        }
        Ok(partial)
    }

    /// Removes what is not being received and cannot be resumed: expired uploads, partial files
    /// without a valid record, records without a partial file, the rest of removed folders.
    ///
    /// # Errors
    /// [`Error::Io`] where the folder cannot be read. What cannot be removed stays.
    pub fn sweep(&self, now: SystemTime) -> Result<SweepSummary, Error> {
        let mut summary = SweepSummary::default();
        let is_there = statat(self.root(), UPLOADS_FOLDER, AtFlags::SYMLINK_NOFOLLOW);
        if let Err(Errno::NOENT) = is_there {
            return Ok(summary);
        }
        let opened = self.folder.uploads()?;
        let uploads = opened.as_fd();
        let entries: Vec<_> = names(uploads)?.collect();
        for (name, kind) in entries {
            let Some(id) = UploadId::parse(name.as_bytes()) else {
                let digits = name.split('.').next().unwrap_or_default();
                let is_there = statat(uploads, digits, AtFlags::SYMLINK_NOFOLLOW).is_ok();
                if UploadId::parse(digits.as_bytes()).is_some() && !is_there {
                    let _ = unlinkat(uploads, &name, AtFlags::empty());
                }
                continue;
            };
            if kind == NameKind::Folder {
                match self.sweep_folder(uploads, &id, now) {
                    Ok(Some(true)) => summary.kept += 1,
                    Ok(Some(false)) => summary.removed += 1,
                    Ok(None) | Err(_) => {}
                }
                continue;
            }
            match self.resume(&id, now) {
                Ok(_) => summary.kept += 1,
                Err(Error::Gone) if self.is_orphan(uploads, &name, now) => {
                    let is_removed = self.folder.forget(&id).is_ok();
                    summary.removed += u64::from(is_removed);
                }
                Err(_) => {}
            }
        }
        Ok(summary)
    }

    /// Removes a folder that is not a tree that can be resumed. Returns whether it is one; `None`
    /// if it is being received.
    fn sweep_folder(
        &self,
        uploads: BorrowedFd<'_>,
        id: &UploadId,
        now: SystemTime,
    ) -> Result<Option<bool>, Error> {
        let folder = match open_beneath(uploads, id.as_str(), FOLDER) {
            Err(Errno::NOENT) => return Ok(None),
            // A removed folder that its owner may not read.
            Err(Errno::ACCESS) => None,
            folder => Some(folder.doing("opening a folder")?),
        };
        if let Some(folder) = &folder {
            match flock(folder, FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::WOULDBLOCK) => return Ok(None),
                locked => locked.doing("locking a folder")?,
            }
        }
        let is_kept = match self.record(id) {
            Ok(record) => record.has_trusted_tree(&self.boot) && !record.is_expired(now),
            Err(Error::Gone) => false,
            Err(error) => return Err(error),
        };
        if !is_kept {
            self.folder.forget(id)?;
        }
        Ok(Some(is_kept))
    }

    /// Whether a partial file is old, or gone.
    fn is_orphan(&self, uploads: BorrowedFd<'_>, name: &str, now: SystemTime) -> bool {
        let stat = statat(uploads, name, AtFlags::SYMLINK_NOFOLLOW);
        stat.map_or(true, |stat| {
            let modified = u64::try_from(stat.st_mtime).unwrap_or(0);
            seconds(now).saturating_sub(modified) >= ORPHAN_AGE.as_secs()
        })
    }

    /// Returns what has a name, without following a link.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NotAFolder`], [`Error::Link`] for a link on the way.
    pub fn stat(&self, path: &RelativePath) -> Result<Stat, Error> {
        let (folders, name) = path.split();
        let stat = statat(
            self.folder.parent(folders)?,
            name,
            AtFlags::SYMLINK_NOFOLLOW,
        );
        stat.doing("looking for the name")
    }

    fn kind(&self, path: &RelativePath) -> Result<NameKind, Error> {
        Ok(NameKind::of(&self.stat(path)?))
    }

    /// Makes a folder in one that exists, for files of `mode`.
    ///
    /// # Errors
    /// [`Error::Exists`] whatever has the name, [`Error::NotFound`] without the folder it is in,
    /// and others.
    pub fn make_folder(&self, path: &RelativePath, mode: Option<u32>) -> Result<(), Error> {
        let ((folders, name), doing) = (path.split(), "making a folder");
        let parent = self.folder.parent(folders)?;
        mkdirat(&parent, name, Mode::from_raw_mode(0o777)).doing(doing)?;
        let made = open_beneath(parent.as_fd(), name, FOLDER).doing(doing)?;
        set_folder_mode(made.as_fd(), mode)
    }

    /// Removes a file, a link, or a folder with everything in it: first its name, at once, then
    /// its content.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Mount`] and others, with nothing changed.
    /// [`Error::Changed`] for a file that is not the version `only`.
    /// [`Error::Denied`], [`Error::Io`] and [`Error::Mount`] of removing the content of a folder:
    /// what could not be removed has the name again, and folders in it may have other names.
    pub fn remove(&self, path: &RelativePath, only: Option<FileVersion>) -> Result<(), Error> {
        let (folders, name) = path.split();
        let folder = self.folder.parent(folders)?;
        // Where it cannot be made, nothing is received either.
        let locked = self.folder.lock_names().ok();
        if only.is_some_and(|only| {
            !self
                .stat(path)
                .is_ok_and(|stat| FileVersion::of(&stat) == only)
        }) {
            return Err(Error::Changed);
        }
        match unlinkat(&folder, name, AtFlags::empty()) {
            Err(Errno::ISDIR | Errno::PERM) if self.kind(path)? == NameKind::Folder => {}
            removed => return removed.doing("removing the file"),
        }
        drop(locked);
        if holds_mount(folder.as_fd(), name)? {
            return Err(Error::Mount);
        }
        let (uploads, gone) = (self.folder.uploads()?, UploadId::random()?);
        match renameat(&folder, name, &uploads, gone.as_str()) {
            Ok(()) => remove_tree(uploads.as_fd(), gone.as_str()).map_err(|error| {
                // What cannot be removed is not hidden either.
                let (from, to) = (uploads.as_fd(), folder.as_fd());
                let _ = rename(from, gone.as_str(), to, name, Overwrite::Refused);
                match error {
                    Error::Io {
                        errno: Errno::BUSY, ..
                    } => Error::Mount,
                    error => error,
                }
            }),
            // Another file system is mounted above it.
            Err(Errno::XDEV) => remove_tree(folder.as_fd(), name),
            Err(errno) => Err(Error::of("removing the folder", errno)),
        }
    }

    /// Whether everything beneath a folder is accepted, by its path relative to the folder. A file
    /// has nothing beneath it.
    ///
    /// # Errors
    /// Any of reading the folders; [`Error::TooManyEntries`] for more than 100,000 entries.
    pub fn all_beneath(
        &self,
        path: &RelativePath,
        accept: impl Fn(&[u8]) -> bool,
    ) -> Result<bool, Error> {
        if self.kind(path)? != NameKind::Folder {
            return Ok(true);
        }
        let (doing, mut count) = ("reading the folder", 0);
        let top = open_beneath(self.root(), path.as_str(), FOLDER).doing(doing)?;
        let mut left = vec![Vec::new()];
        while let Some(beneath) = left.pop() {
            let name: &[u8] = if beneath.is_empty() { b"." } else { &beneath };
            let folder = open_beneath(&top, name, FOLDER);
            if let (Err(Errno::NOTDIR), false) = (&folder, beneath.is_empty()) {
                continue;
            }
            for entry in Dir::read_from(folder.doing(doing)?).doing(doing)? {
                let entry = entry.doing(doing)?;
                let name = entry.file_name().to_bytes();
                if name == b"." || name == b".." {
                    continue;
                }
                let path = match &beneath[..] {
                    [] => name.to_vec(),
                    beneath => [beneath, b"/", name].concat(),
                };
                count += 1;
                if count > ENTRIES_MAX {
                    return Err(Error::TooManyEntries);
                }
                if !accept(&path) {
                    return Ok(false);
                }
                if may_be_folder(entry.file_type()) {
                    left.push(path);
                }
            }
        }
        Ok(true)
    }

    /// Gives a file or a folder another name.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Exists`], [`Error::IsFolder`], [`Error::Link`] for a target
    /// that is one, and others; [`Error::Io`] with `EXDEV` between file systems, with `EINVAL` for
    /// a folder into itself. Nothing has changed.
    pub fn rename(
        &self,
        from: &RelativePath,
        to: &RelativePath,
        overwrite: Overwrite,
    ) -> Result<bool, Error> {
        if self.kind(from)? == NameKind::Other {
            return Err(Error::Link);
        }
        let _locked = self.folder.lock_names()?;
        let has_replaced = match self.kind(to) {
            Err(Error::NotFound) => false,
            Ok(NameKind::File) if overwrite == Overwrite::Refused => return Err(Error::Exists),
            Ok(NameKind::File) => true,
            Ok(NameKind::Folder) => return Err(Error::IsFolder),
            Ok(NameKind::Other) => return Err(Error::Link),
            Err(error) => return Err(error),
        };
        let ((from, old), (to, new)) = (from.split(), to.split());
        let (from, to) = (self.folder.parent(from)?, self.folder.parent(to)?);
        rename(from.as_fd(), old, to.as_fd(), new, overwrite).doing("renaming")?;
        Ok(has_replaced)
    }

    /// Copies a regular file, by shared blocks where the file system can.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::IsFolder`] for a folder, and as [`PartialFile::commit`].
    pub fn copy(
        &self,
        from: &RelativePath,
        to: &RelativePath,
        overwrite: Overwrite,
        (sync, mode): (SyncPolicy, Option<u32>),
    ) -> Result<Committed, Error> {
        match self.kind(from)? {
            NameKind::File => {}
            NameKind::Folder => return Err(Error::IsFolder),
            NameKind::Other => return Err(Error::Link),
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let source = open_beneath(self.root(), from.as_str(), flags);
        let source = source.doing("opening the file")?;
        let partial = self.begin()?;
        let copied = underpass::copy_file(&underpass::Kernel::probe(), &source, partial.file());
        let account = copied
            .map_err(|error| Error::of("copying the file", error.errno.unwrap_or(Errno::IO)))?;
        let committed = partial.commit(to, overwrite, sync, mode)?;
        Ok(Committed {
            copied: Some(account),
            ..committed
        })
    }
}

impl NameKind {
    /// Returns the kind of what has this state.
    pub fn of(stat: &Stat) -> NameKind {
        NameKind::of_type(FileType::from_raw_mode(stat.st_mode))
    }

    fn of_type(kind: FileType) -> NameKind {
        match kind {
            FileType::RegularFile => NameKind::File,
            FileType::Directory => NameKind::Folder,
            _ => NameKind::Other,
        }
    }
}

/// Returns the names in a folder that are UTF-8, with what they stand for.
fn names(folder: BorrowedFd<'_>) -> Result<impl Iterator<Item = (String, NameKind)>, Error> {
    let entries = Dir::read_from(folder).doing("reading a folder")?;
    Ok(entries.filter_map(|entry| {
        let entry = entry.ok()?;
        let name = entry.file_name().to_str().ok()?.to_owned();
        (name != "." && name != "..").then(|| (name, NameKind::of_type(entry.file_type())))
    }))
}

#[cfg(test)]
mod tests;
