//! What is sent: the items that the user has named, each under the last name of its path.

pub(crate) mod tree;
pub(crate) mod walk;

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, Stat, fstat, openat};
use rustix::io::Errno;

use crate::error::Error;
use crate::profile::{WINDOW_BYTES, WindowHash};

/// An item to send.
#[derive(Clone, Debug)]
pub struct Item {
    /// The name that the receiver stores it under.
    pub name: String,
    /// What it is.
    pub kind: ItemKind,
}

/// The kind of an item.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ItemKind {
    /// A regular file.
    File(PathBuf),
    /// A folder with everything beneath it.
    Tree(PathBuf),
    /// Standard input, whose length is not known, and which cannot be sent twice.
    Stdin,
}

impl Item {
    /// Returns the item that a path names; `-` is standard input.
    ///
    /// # Errors
    /// [`Error::Source`] for what is neither a file nor a folder, and for names that are not UTF-8.
    pub fn at(path: &Path) -> Result<Item, Error> {
        let failed = |doing, errno| Error::Source {
            path: path.to_owned(),
            doing,
            errno,
        };
        if path == Path::new("-") {
            return Ok(Item {
                name: "stdin".to_owned(),
                kind: ItemKind::Stdin,
            });
        }
        let looked = path.metadata();
        let errno = |error: io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
        let kind = looked.map_err(|error| failed("cannot be sent", errno(error)))?;
        let kind = match kind.file_type() {
            kind if kind.is_dir() => ItemKind::Tree(path.to_owned()),
            kind if kind.is_file() => ItemKind::File(path.to_owned()),
            kind if kind.is_fifo() || kind.is_char_device() => {
                return Err(failed(
                    "send it through standard input, as '-'",
                    Errno::INVAL,
                ));
            }
            _ => return Err(failed("only files and folders are sent", Errno::INVAL)),
        };
        // `.` and `..` have no name of their own.
        let named = path.canonicalize().ok();
        let named = path.file_name().or_else(|| named.as_deref()?.file_name());
        let name = named.ok_or_else(|| Error::Nameless {
            path: path.to_owned(),
        })?;
        let name = str::from_utf8(name.as_bytes());
        let name = name.map_err(|_| failed("its name is not UTF-8", Errno::ILSEQ))?;
        Ok(Item {
            name: name.to_owned(),
            kind,
        })
    }
}

/// Opens a file that is to be sent.
pub(crate) fn open(path: &Path) -> Result<(OwnedFd, Stat), Error> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let opened = openat(CWD, path, flags, Mode::empty());
    let opened = opened.and_then(|file| fstat(&file).map(|stat| (file, stat)));
    opened.map_err(|errno| Error::Source {
        path: path.to_owned(),
        doing: "opening it",
        errno,
    })
}

/// Returns the hash of the last bytes of a file before `offset`.
pub(crate) fn window(file: &File, offset: u64) -> io::Result<WindowHash> {
    let mut at = offset.saturating_sub(WINDOW_BYTES);
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; 256 << 10];
    while at < offset {
        let len = usize::try_from(offset - at).map_or(buffer.len(), |left| left.min(buffer.len()));
        match file.read_at(&mut buffer[..len], at) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => {
                hasher.update(&buffer[..read]);
                at += read as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(WindowHash(hasher.finalize()))
}
