//! An open folder with its partial files: what areas and partial files both need of it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{
    AtFlags, FlockOperation, Mode, OFlags, fchmod, flock, fstat, fsync, mkdirat, openat, renameat,
    unlinkat,
};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::beneath::{FOLDER, open_beneath};
use crate::error::{Doing, Error};
use crate::record::{RECORD_BYTES_MAX, UploadId, UploadRecord};
use crate::removal::remove_tree;

/// The folder of an area's partial files. It begins with a dot, so nothing is received under its
/// name.
pub const UPLOADS_FOLDER: &str = ".underpass-uploads";

pub(crate) const RECORD_SUFFIX: &str = ".json";

/// The mode of new files, less the process's umask.
pub(crate) const CREATED: Mode = Mode::from_raw_mode(0o666);

/// A folder with a folder of partial files in it.
#[derive(Debug)]
pub(crate) struct UploadFolder {
    root: OwnedFd,
}

impl UploadFolder {
    /// Opens the folder `path` beneath `root`.
    pub(crate) fn open(root: BorrowedFd<'_>, path: &str) -> Result<UploadFolder, Error> {
        Ok(UploadFolder {
            root: open_beneath(root, path, FOLDER).doing("opening the folder")?,
        })
    }

    pub(crate) fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// Opens the folder of partial files, and makes it if there is none: an operator may remove it.
    pub(crate) fn uploads(&self) -> Result<OwnedFd, Error> {
        let open = || open_beneath(self.root(), UPLOADS_FOLDER, FOLDER);
        let opened = match open() {
            Err(Errno::NOENT) => match mkdirat(&self.root, UPLOADS_FOLDER, Mode::RWXU) {
                Ok(()) | Err(Errno::EXIST) => open(),
                Err(errno) => return Err(Error::of("making the folder of uploads", errno)),
            },
            opened => opened,
        };
        // A link or a file in its place is not the server's either.
        if let Err(Errno::LOOP | Errno::NOTDIR) = opened {
            return Err(Error::Foreign);
        }
        let opened = opened.doing("opening the folder of uploads")?;
        let stat = fstat(&opened).doing("looking at the folder of uploads")?;
        // Somebody else could replace partial files there.
        if stat.st_uid != geteuid().as_raw() || stat.st_mode & 0o022 != 0 {
            return Err(Error::Foreign);
        }
        Ok(opened)
    }

    /// Locks the names of files while one is looked at and replaced or removed, against other
    /// requests of this process, of one that it has upgraded to, and of earlier configurations.
    pub(crate) fn lock_names(&self) -> Result<OwnedFd, Error> {
        let uploads = self.uploads()?;
        loop {
            match flock(&uploads, FlockOperation::LockExclusive) {
                Err(Errno::INTR) => {}
                // NFS locks only what is open for writing, which no folder is.
                Ok(()) | Err(Errno::BADF | Errno::OPNOTSUPP | Errno::NOLCK) => return Ok(uploads),
                locked => locked.doing("locking the names of files")?,
            }
        }
    }

    pub(crate) fn make_partial(&self, id: &UploadId) -> Result<OwnedFd, Error> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = openat(self.uploads()?, id.as_str(), flags, CREATED);
        let file = file.doing("making a partial file")?;
        flock(&file, FlockOperation::NonBlockingLockExclusive).doing("locking a partial file")?;
        Ok(file)
    }

    /// Reads the record of an upload, which another process may be receiving.
    ///
    /// # Errors
    /// [`Error::Gone`], [`Error::Io`].
    pub(crate) fn record(&self, id: &UploadId) -> Result<UploadRecord, Error> {
        let name = record_name(id);
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = match openat(self.uploads()?, name, flags, Mode::empty()) {
            Err(Errno::NOENT) => return Err(Error::Gone),
            file => file.doing("opening the record of an upload")?,
        };
        let doing = "reading the record of an upload";
        let size = usize::try_from(fstat(&file).doing(doing)?.st_size);
        let size = size.map_or(0, |size| size.min(RECORD_BYTES_MAX));
        let mut text = vec![0; size];
        let length = rustix::io::pread(&file, &mut text, 0).doing(doing)?;
        UploadRecord::parse(&text[..length]).ok_or(Error::Gone)
    }

    /// Writes a record whole: a reader finds the former one or this one.
    pub(crate) fn write_record(&self, id: &UploadId, record: &UploadRecord) -> Result<(), Error> {
        let (text, uploads) = (record.text()?, self.uploads()?);
        let new = format!("{}.new", record_name(id));
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
        let file = openat(&uploads, &new, flags, Mode::RUSR | Mode::WUSR);
        let file = file.doing("writing the record of an upload")?;
        let written = rustix::io::pwrite(&file, &text, 0);
        if written.doing("writing the record of an upload")? < text.len() {
            return Err(Error::NoSpace);
        }
        if record.durable > 0 {
            fsync(&file).doing("writing the record of an upload to disk")?;
        }
        let renamed = renameat(&uploads, &new, &uploads, record_name(id));
        renamed.doing("writing the record of an upload")
    }

    /// Removes a partial file or tree, and its record first: one without a record is swept away.
    pub(crate) fn forget(&self, id: &UploadId) -> Result<(), Error> {
        let uploads = self.uploads()?;
        for name in [record_name(id), id.as_str().to_owned()] {
            match unlinkat(&uploads, &name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(Errno::ISDIR) => remove_tree(uploads.as_fd(), &name)?,
                Err(errno) => return Err(Error::of("removing a partial file", errno)),
            }
        }
        Ok(())
    }

    /// Opens the folder of a path; its folders are made where there are none, for files of `mode`.
    pub(crate) fn make_folders(
        &self,
        folders: Option<&str>,
        mode: Option<u32>,
    ) -> Result<OwnedFd, Error> {
        let path = folders.unwrap_or(".");
        match open_beneath(self.root(), path, FOLDER) {
            Err(Errno::NOENT) => {}
            opened => return opened.doing("opening the folder"),
        }
        let mut at = open_beneath(self.root(), ".", FOLDER).doing("opening the folder")?;
        for name in path.split('/') {
            let made = mkdirat(&at, name, Mode::from_raw_mode(0o777));
            at = open_beneath(at.as_fd(), name, FOLDER).map_err(|errno| match made {
                Ok(()) | Err(Errno::EXIST) => Error::of("opening the folder", errno),
                Err(errno) => Error::of("making a folder", errno),
            })?;
            if made.is_ok() {
                set_folder_mode(at.as_fd(), mode)?;
            }
        }
        Ok(at)
    }

    /// Opens the folder that a path is in.
    pub(crate) fn parent(&self, folders: Option<&str>) -> Result<OwnedFd, Error> {
        open_beneath(self.root(), folders.unwrap_or("."), FOLDER).doing("opening the folder")
    }
}

/// Sets the permissions of a folder that was made for files of `mode`: whoever may read may search,
/// and the owner may do everything.
pub(crate) fn set_folder_mode(folder: BorrowedFd<'_>, mode: Option<u32>) -> Result<(), Error> {
    let Some(mode) = mode else { return Ok(()) };
    let doing = "setting the folder's mode";
    let inherited = fstat(folder).doing(doing)?.st_mode & Mode::SGID.as_raw_mode();
    let mode = inherited | 0o700 | mode | (mode & 0o444) >> 2;
    fchmod(folder, Mode::from_raw_mode(mode)).doing(doing)
}

pub(crate) fn record_name(id: &UploadId) -> String {
    format!("{id}{RECORD_SUFFIX}")
}
