//! A partial file, from its first byte to its name.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, RenameFlags, Stat, Uid, fchmod, fchown, fdatasync, fstat,
    fsync, ftruncate, linkat, openat, renameat, renameat_with, statat, unlinkat,
};
use rustix::io::Errno;
use rustix::path::Arg;
use underpass::drive::blocking::Driver;
use underpass::{Account, Kernel, Sink, Source, copy_file};

use crate::error::{Doing, Error};
use crate::folder::{CREATED, UploadFolder};
use crate::overwrite::{FileVersion, Overwrite};
use crate::path::RelativePath;
use crate::record::{UploadId, UploadRecord, seconds};

/// When received bytes are written to disk.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SyncPolicy {
    /// When the kernel likes. Everything survives the end of the process, not that of the machine.
    None,
    /// Before a file gets its name, and the name after that. A resumable upload that is not
    /// complete does not survive a crash of the machine.
    #[default]
    End,
    /// Whenever a request has ended, too: what was reported as received survives a crash.
    Chunk,
}

/// A file that has its name now.
#[derive(Debug)]
pub struct Committed {
    /// Whether it has replaced another one.
    pub has_replaced: bool,
    /// The state of the file.
    pub stat: Stat,
    /// How its bytes were copied, if the name is on another file system than the partial file.
    pub copied: Option<Account>,
}

/// A file being received, locked against other processes. Bytes are written at its
/// [`size`](PartialFile::size). Dropping one without a record removes it; one with a record stays.
#[derive(Debug)]
pub struct PartialFile {
    folder: Arc<UploadFolder>,
    id: UploadId,
    file: Arc<OwnedFd>,
    /// Boxed: most partial files have none.
    record: Option<Box<UploadRecord>>,
    /// Whether it is removed when it is dropped.
    is_temporary: bool,
}

impl PartialFile {
    pub(crate) fn new(
        folder: &Arc<UploadFolder>,
        id: UploadId,
        file: OwnedFd,
        record: Option<UploadRecord>,
    ) -> PartialFile {
        PartialFile {
            folder: Arc::clone(folder),
            id,
            file: Arc::new(file),
            is_temporary: record.is_none(),
            record: record.map(Box::new),
        }
    }

    /// The descriptor that bytes are written to.
    pub fn file(&self) -> &Arc<OwnedFd> {
        &self.file
    }

    /// Its name among the partial files.
    pub fn id(&self) -> &UploadId {
        &self.id
    }

    /// Its record, if it can be resumed.
    pub fn record(&self) -> Option<&UploadRecord> {
        self.record.as_deref()
    }

    /// Bytes that it has.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn size(&self) -> Result<u64, Error> {
        let stat = fstat(&self.file).doing("looking at the partial file")?;
        Ok(u64::try_from(stat.st_size).unwrap_or(0))
    }

    /// Drops all bytes from `size` on.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn truncate(&self, size: u64) -> Result<(), Error> {
        ftruncate(&self.file, size).doing("truncating the partial file")
    }

    /// Notes the length of the whole file, now that it is known.
    ///
    /// # Errors
    /// Any of writing the record.
    pub fn set_length(&mut self, length: u64) -> Result<(), Error> {
        if let Some(record) = &mut self.record {
            record.length = Some(length);
        }
        self.write_record()
    }

    /// Notes a detail of the protocol, or removes it.
    ///
    /// # Errors
    /// Any of writing the record, and [`Error::Name`] where it is too long.
    pub fn set_detail(&mut self, name: &str, value: Option<String>) -> Result<(), Error> {
        if let Some(record) = &mut self.record {
            match value {
                Some(value) => record.details.insert(name.to_owned(), value),
                None => record.details.remove(name),
            };
        }
        self.write_record()
    }

    /// Copies all bytes of another partial file to the end of this one, by shared blocks where the
    /// file system can.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::Io`]; a part of the bytes may have been copied.
    pub fn append(&self, part: &PartialFile) -> Result<Account, Error> {
        const DOING: &str = "joining partial files";
        let kernel = Kernel::probe();
        let source = Source::whole(part.file()).doing(DOING)?;
        let sink = Sink::at(self.file(), self.size()?).doing(DOING)?;
        let copied = Driver::new(&kernel).run(&source, &sink);
        copied.map_err(|error| Error::of(DOING, error.errno.unwrap_or(Errno::IO)))
    }

    /// Notes the end of a request that has brought bytes: the upload expires after `lifetime` from
    /// now, and under [`SyncPolicy::Chunk`] all bytes are on disk.
    ///
    /// # Errors
    /// Any of writing and syncing; with [`Error::NoSpace`] the bytes may not be on disk.
    pub fn keep(&mut self, lifetime: Duration, sync: SyncPolicy) -> Result<(), Error> {
        let size = self.size()?;
        if sync == SyncPolicy::Chunk {
            fdatasync(&self.file).doing("writing the partial file to disk")?;
        }
        let Some(record) = &mut self.record else {
            return Ok(());
        };
        record.lifetime = lifetime.as_secs();
        record.expires = seconds(SystemTime::now()).saturating_add(record.lifetime);
        if sync == SyncPolicy::Chunk {
            record.durable = size;
        }
        self.write_record()
    }

    pub(crate) fn write_record(&self) -> Result<(), Error> {
        match &self.record {
            Some(record) => self.folder.write_record(&self.id, record),
            None => Ok(()),
        }
    }

    /// Removes the partial file and its record.
    ///
    /// # Errors
    /// [`Error::Io`]; the next sweep tries again.
    pub fn discard(mut self) -> Result<(), Error> {
        self.is_temporary = false;
        self.folder.forget(&self.id)
    }

    /// Gives the file its name, in folders that are made where there are none. `mode` replaces the
    /// permissions that the process's umask leaves, also those of made folders, which can be
    /// searched by whoever may read. A replaced file leaves its permissions, unless there is a
    /// `mode`, and its owner and group, as far as the process may give files away; its other
    /// attributes are lost. A new file gets the group of a folder that hands its own on (setgid).
    ///
    /// # Errors
    /// [`Error::Exists`], [`Error::Changed`], [`Error::IsFolder`] and others; nothing has the name
    /// then that had not before, and a file with a record can be committed again.
    /// [`Error::Io`] after the rename is that of syncing the folder: the file has its name, which
    /// may not survive a crash.
    pub fn commit(
        mut self,
        target: &RelativePath,
        overwrite: Overwrite,
        sync: SyncPolicy,
        mode: Option<u32>,
    ) -> Result<Committed, Error> {
        if let Some(mode) = mode {
            fchmod(&self.file, Mode::from_raw_mode(mode)).doing("setting the file's mode")?;
        }
        if sync != SyncPolicy::None {
            fdatasync(&self.file).doing("writing the file to disk")?;
        }
        let (folders, name) = target.split();
        let folder = self.folder.make_folders(folders, mode)?;
        let (to, uploads) = ((folder.as_fd(), name), self.folder.uploads()?);
        let from = (uploads.as_fd(), self.id.as_str());
        let (replaced, copied) =
            match self.put_in_place(from, self.file.as_fd(), to, (overwrite, mode))? {
                Some(replaced) => (replaced, None),
                None => {
                    let (replaced, account) = self.copy_to(to, overwrite, (sync, mode))?;
                    (replaced, Some(account))
                }
            };
        self.is_temporary = false;
        // What is left of it is removed by the next sweep where this fails.
        let _ = self.folder.forget(&self.id);
        if sync != SyncPolicy::None {
            fsync(&folder).doing("writing the folder to disk")?;
        }
        let stat = statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW);
        Ok(Committed {
            has_replaced: replaced.is_some(),
            stat: stat.doing("looking at the new file")?,
            copied,
        })
    }

    /// Gives a complete `file` its name. Returns the state of the replaced file, if there was one;
    /// nothing if the name is on another file system.
    fn put_in_place(
        &self,
        from: (BorrowedFd<'_>, &str),
        file: BorrowedFd<'_>,
        (folder, name): (BorrowedFd<'_>, &str),
        (overwrite, mode): (Overwrite, Option<u32>),
    ) -> Result<Option<Option<Stat>>, Error> {
        let _locked = self.folder.lock_names()?;
        let replaced = look_before(folder, name, overwrite)?;
        match &replaced {
            Some(replaced) => keep_attributes(replaced, file, mode),
            None => inherit_group(folder, file),
        }
        match rename(from.0, from.1, folder, name, overwrite) {
            Ok(()) => Ok(Some(replaced)),
            Err(Errno::XDEV) => Ok(None),
            Err(errno) => Err(Error::of("naming the file", errno)),
        }
    }

    /// Copies the file to a folder on another file system. Returns the state of the replaced file,
    /// if there was one.
    fn copy_to(
        &self,
        to: (BorrowedFd<'_>, &str),
        overwrite: Overwrite,
        (sync, mode): (SyncPolicy, Option<u32>),
    ) -> Result<(Option<Stat>, Account), Error> {
        let folder = to.0;
        let hidden = format!(".underpass-{}", self.id);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let copy = openat(folder, &hidden, flags, CREATED).doing("making the file")?;
        let copied = || {
            let account = copy_file(&Kernel::probe(), &self.file, &copy).map_err(|error| {
                let errno = error.errno.unwrap_or(Errno::IO);
                Error::of("copying the file to its file system", errno)
            })?;
            if let Some(mode) = mode {
                fchmod(&copy, Mode::from_raw_mode(mode)).doing("setting the file's mode")?;
            }
            if sync != SyncPolicy::None {
                fdatasync(&copy).doing("writing the file to disk")?;
            }
            let from = (folder, &hidden[..]);
            let replaced = self.put_in_place(from, copy.as_fd(), to, (overwrite, mode))?;
            Ok((replaced.flatten(), account))
        };
        copied().inspect_err(|_| {
            let _ = unlinkat(folder, &hidden, AtFlags::empty());
        })
    }
}

impl Drop for PartialFile {
    fn drop(&mut self) {
        if self.is_temporary {
            let _ = self.folder.forget(&self.id);
        }
    }
}

/// Returns the regular file that has the name, and may be replaced.
fn look_before(
    folder: BorrowedFd<'_>,
    name: &str,
    overwrite: Overwrite,
) -> Result<Option<Stat>, Error> {
    let found = match statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(found) => found,
        Err(Errno::NOENT) => {
            return match overwrite {
                Overwrite::Only(_) => Err(Error::Changed),
                Overwrite::Allowed | Overwrite::Refused => Ok(None),
            };
        }
        Err(errno) => return Err(Error::of("looking for the name", errno)),
    };
    match (FileType::from_raw_mode(found.st_mode), overwrite) {
        (FileType::RegularFile, Overwrite::Allowed) => Ok(Some(found)),
        (FileType::RegularFile, Overwrite::Only(version)) => {
            match FileVersion::of(&found) == version {
                true => Ok(Some(found)),
                false => Err(Error::Changed),
            }
        }
        (FileType::RegularFile, Overwrite::Refused) => Err(Error::Exists),
        (FileType::Directory, _) => Err(Error::IsFolder),
        _ => Err(Error::Link),
    }
}

/// Takes over the permissions and the owner of a file that is replaced, as writing to it would.
fn keep_attributes(replaced: &Stat, file: BorrowedFd<'_>, mode: Option<u32>) {
    if mode.is_none() {
        let _ = fchmod(file, Mode::from_raw_mode(replaced.st_mode & 0o777));
    }
    let (owner, group) = (
        Uid::from_raw(replaced.st_uid),
        Gid::from_raw(replaced.st_gid),
    );
    // Without privileges a file can only be given to a group of the process.
    if fchown(file, Some(owner), Some(group)).is_err() {
        let _ = fchown(file, None, Some(group));
    }
}

/// Takes over the group of a folder that hands it on. The kernel does so for files made there.
fn inherit_group(folder: BorrowedFd<'_>, file: BorrowedFd<'_>) {
    let Ok(stat) = fstat(folder) else { return };
    if Mode::from_raw_mode(stat.st_mode).contains(Mode::SGID) {
        // Whoever is not in the group may not give files to it.
        let _ = fchown(file, None, Some(Gid::from_raw(stat.st_gid)));
    }
}

/// Renames a file; one that may not replace another does not, atomically.
pub(crate) fn rename<P: Arg + Copy>(
    from: BorrowedFd<'_>,
    old: P,
    to: BorrowedFd<'_>,
    new: P,
    overwrite: Overwrite,
) -> Result<(), Errno> {
    if overwrite != Overwrite::Refused {
        return renameat(from, old, to, new);
    }
    match renameat_with(from, old, to, new, RenameFlags::NOREPLACE) {
        // File systems without RENAME_NOREPLACE (NFS, some FUSE) answer EINVAL;
        // a second link fails where the name is taken, too. A folder has no second one.
        Err(unsupported @ (Errno::INVAL | Errno::NOSYS)) => {
            match linkat(from, old, to, new, AtFlags::empty()) {
                Err(Errno::PERM) => Err(unsupported),
                Err(errno) => Err(errno),
                Ok(()) => unlinkat(from, old, AtFlags::empty()),
            }
        }
        renamed => renamed,
    }
}
