//! Errors of receiving, sorted by what the sender can do about them.

use rustix::io::Errno;

const MIB: u64 = 1 << 20;

/// Why a file cannot be received, or a folder not changed. Nothing has changed under any visible
/// name unless the variant says so.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Error {
    /// The name is not one that files may be received under.
    #[error("{0}")]
    Name(&'static str),
    /// Nothing has this name.
    #[error("there is no such file or folder")]
    NotFound,
    /// Something has this name already, and it may not be replaced.
    #[error("the name is taken, and files are not replaced here")]
    Exists,
    /// The file is not the version that the request is about.
    #[error("the file does not match the condition")]
    Changed,
    /// The name is that of a folder, and a file is meant.
    #[error("the name is that of a folder")]
    IsFolder,
    /// A part of the path is a file.
    #[error("a part of the path is not a folder")]
    NotAFolder,
    /// A part of the path is a symbolic link or a special file.
    #[error(
        "a part of the path is a symbolic link or a special file, which is not written through"
    )]
    Link,
    /// Another file system is mounted in a folder that is to be removed.
    #[error("another file system is mounted in the folder")]
    Mount,
    /// A folder that is to be removed is not empty.
    #[error("the folder is not empty")]
    NotEmpty,
    /// The upload does not exist: completed, cancelled, expired, or never started.
    #[error("there is no such upload; it is complete, was cancelled or has expired")]
    Gone,
    /// Another process is receiving it.
    #[error("the upload is being received by another process; try again later")]
    Busy,
    /// The disk or the quota is full, or less space would be left than is to be kept free.
    #[error("there is not enough space")]
    NoSpace,
    /// The file system has less space than is needed, beside what is to be kept free.
    #[error(
        "there is not enough space: {} MiB are needed and {} MiB are free, of which {} MiB stay \
         free",
        needed.div_ceil(MIB),
        free / MIB,
        kept / MIB
    )]
    TooFull {
        /// Bytes that are needed.
        needed: u64,
        /// Bytes that are free.
        free: u64,
        /// Bytes of these that are kept free.
        kept: u64,
    },
    /// The file system has almost as many files as it can have.
    #[error("the file system has too few free inodes for more files")]
    NoInodes,
    /// The file would be larger than the process (`RLIMIT_FSIZE`) or the file system allows.
    #[error("the file is larger than the limit of the process or the file system")]
    TooLarge,
    /// There are as many uploads as there may be.
    #[error("too many uploads have not been completed")]
    TooMany,
    /// A client has as many uploads as one client may have.
    #[error("too many uploads of this client have not been completed")]
    TooManyOfClient,
    /// A folder has more entries than are looked through.
    #[error("the folder has more than 100,000 entries")]
    TooManyEntries,
    /// The server may not write there.
    #[error("this process may not write there")]
    Denied,
    /// The folder of partial files belongs to another user, or others may write to it, or it is
    /// none.
    #[error(
        "the folder .underpass-uploads belongs to another user, or others may write to it, or it \
         is not a folder; remove it while no server uses it"
    )]
    Foreign,
    /// The kernel refused a call for another reason.
    #[error("{doing}: {errno}")]
    Io {
        /// The attempted operation.
        doing: &'static str,
        /// The error of the call.
        errno: Errno,
    },
}

impl Error {
    /// Returns the meaning of `errno` for the operation `doing`.
    pub fn of(doing: &'static str, errno: Errno) -> Error {
        match errno {
            Errno::NOSPC | Errno::DQUOT => Error::NoSpace,
            Errno::FBIG => Error::TooLarge,
            Errno::ACCESS | Errno::PERM | Errno::ROFS => Error::Denied,
            Errno::NOENT => Error::NotFound,
            Errno::EXIST => Error::Exists,
            Errno::ISDIR => Error::IsFolder,
            Errno::NOTDIR => Error::NotAFolder,
            Errno::LOOP => Error::Link,
            Errno::NOTEMPTY => Error::NotEmpty,
            Errno::NAMETOOLONG => Error::Name("the name is too long for the file system"),
            _ => Error::Io { doing, errno },
        }
    }
}

/// Adds the operation to the error of a call.
pub(crate) trait Doing<T> {
    /// Maps the errno by [`Error::of`].
    fn doing(self, what: &'static str) -> Result<T, Error>;
}

impl<T> Doing<T> for Result<T, Errno> {
    fn doing(self, what: &'static str) -> Result<T, Error> {
        self.map_err(|errno| Error::of(what, errno))
    }
}
