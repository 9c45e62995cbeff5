//! Open folders, results of `stat(2)` for their names, and paths as bytes: names are looked up in
//! open folders, and no path is resolved twice.

use std::ffi::{CStr, CString, OsStr, OsString};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::Arc;

use rustix::fs::{
    AtFlags, CWD, FileType, FsWord, Mode, OFlags, RawDir, Stat, StatxFlags, chmod, fstat, fstatfs,
    fsync, mkdirat, openat, statat, statx,
};
use rustix::io::Errno;
use rustix::path::Arg;
use underpass::{Endpoint, FileStat};

/// The flags to open a folder for reading.
pub(crate) const READ: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::CLOEXEC);

/// The flags to open a folder for look-ups only.
pub(crate) const PLACE: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// The names of a folder in one batch; a single read may return more.
const BATCH_NAMES: usize = 8192;

/// The size of one read of a folder.
const BUFFER_BYTES: usize = 32 << 10;

/// An open folder, or a stand-in for one.
#[derive(Clone, Debug)]
pub(crate) enum Folder {
    /// Open for reading.
    Open(Arc<OwnedFd>),
    /// Open for look-ups only (`O_PATH`): it can't be read.
    Place(Arc<OwnedFd>),
    /// The working directory.
    Working,
    /// A folder that `--dry-run` did not make.
    Imagined,
}

impl Folder {
    /// Opens a folder for reading, or for look-ups if reading is not allowed.
    pub(crate) fn open(
        folder: BorrowedFd<'_>,
        name: &CStr,
        more_flags: OFlags,
    ) -> Result<Self, Errno> {
        match openat(folder, name, READ | more_flags, Mode::empty()) {
            Ok(fd) => Ok(Self::Open(Arc::new(fd))),
            Err(Errno::ACCESS) => Self::place(folder, name, more_flags),
            Err(errno) => Err(errno),
        }
    }

    /// Makes a folder and opens it. Returns the bits of its owner that the umask or an access
    /// control list of the parent had taken: it has them again, so that it can be filled.
    ///
    /// # Errors
    /// The errno, and the call that failed.
    pub(crate) fn make(
        parent: BorrowedFd<'_>,
        name: &CStr,
        mode: u32,
    ) -> Result<(Self, u32), (Errno, &'static str)> {
        let by = |call| move |errno| (errno, call);
        mkdirat(parent, name, Mode::from_raw_mode(mode)).map_err(by("mkdirat"))?;
        let made = Self::open(parent, name, OFlags::NOFOLLOW).map_err(by("openat"))?;
        let now = fstat(made.fd()).map_err(by("fstat"))?.st_mode & 0o7777;
        let lent = mode & 0o700 & !now;
        if lent == 0 {
            return Ok((made, lent));
        }
        let itself = format!("/proc/self/fd/{}", made.fd().as_raw_fd());
        chmod(itself, Mode::from_raw_mode(now | lent)).map_err(by("chmod"))?;
        let made = Self::open(made.fd(), c".", OFlags::empty()).map_err(by("openat"))?;
        Ok((made, lent))
    }

    /// Opens a folder as a place.
    pub(crate) fn place(
        folder: BorrowedFd<'_>,
        name: impl Arg,
        more_flags: OFlags,
    ) -> Result<Self, Errno> {
        let fd = openat(folder, name, PLACE | more_flags, Mode::empty())?;
        Ok(Self::Place(Arc::new(fd)))
    }

    /// Opens `..`, if it is the expected folder.
    pub(crate) fn parent(&self, expected: Identity) -> Result<Self, Errno> {
        let opened = Self::open(self.fd(), c"..", OFlags::empty())?;
        if identity(&fstat(opened.fd())?) == expected {
            Ok(opened)
        } else {
            Err(Errno::NOENT)
        }
    }

    /// Returns the descriptor for calls that look up a name in it.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Open(fd) | Self::Place(fd) => fd.as_fd(),
            Self::Working | Self::Imagined => CWD,
        }
    }

    /// Looks up a name, without following a symbolic link.
    pub(crate) fn look_at(&self, name: &CStr) -> Result<Stat, Errno> {
        statat(self.fd(), name, AtFlags::SYMLINK_NOFOLLOW)
    }

    /// Looks up a name, following symbolic links.
    pub(crate) fn look_behind(&self, name: &CStr) -> Result<Stat, Errno> {
        statat(self.fd(), name, AtFlags::empty())
    }

    /// Whether the time of change of something in it says nothing. SFTP has no such
    /// time, and sshfs reports that of modification, in seconds, which renaming leaves as it is.
    pub(crate) fn hides_changes(&self, stat: &Stat) -> bool {
        const FUSE_SUPER_MAGIC: FsWord = 0x6573_5546;
        let is_fuse = || fstatfs(self.fd()).is_ok_and(|it| it.f_type == FUSE_SUPER_MAGIC);
        changed_at(stat) == (stat.st_mtime, 0) && stat.st_mtime_nsec == 0 && is_fuse()
    }

    pub(crate) fn identity(&self) -> Option<Identity> {
        let stat = self.look_behind(c".");
        stat.ok().map(|stat| identity(&stat))
    }

    /// Reopens it for reading.
    pub(crate) fn readable(&self) -> Result<OwnedFd, Errno> {
        openat(self.fd(), c".", READ, Mode::empty())
    }

    /// Syncs the names in it to disk.
    pub(crate) fn sync(&self) -> Result<(), Errno> {
        match self {
            Self::Open(fd) => fsync(fd),
            Self::Imagined => Ok(()),
            _ => fsync(self.readable()?),
        }
    }
}

/// The names in a folder that were read and not processed, a batch at a time. A batch is sorted by
/// inode number: file systems store inodes with near numbers close together, and names in any
/// order.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    /// The names left, the next one last.
    left: Vec<Listed>,
    is_read: bool,
}

#[derive(Debug)]
struct Listed {
    inode: u64,
    kind: FileType,
    name: CString,
}

impl Listing {
    /// Returns the next name, and its type according to the folder. Reads more if necessary.
    pub(crate) fn next(
        &mut self,
        folder: BorrowedFd<'_>,
    ) -> Result<Option<(CString, FileType)>, Errno> {
        if self.left.is_empty() {
            self.read(folder, BATCH_NAMES)?;
        }
        Ok(self.left.pop().map(|next| (next.name, next.kind)))
    }

    /// Reads the rest, so that the folder can be closed.
    pub(crate) fn read_all(&mut self, folder: BorrowedFd<'_>) -> Result<(), Errno> {
        self.read(folder, usize::MAX)
    }

    fn read(&mut self, folder: BorrowedFd<'_>, names_max: usize) -> Result<(), Errno> {
        if self.is_read {
            return Ok(());
        }
        let mut buffer = [MaybeUninit::uninit(); BUFFER_BYTES];
        let mut entries = RawDir::new(folder, &mut buffer);
        self.is_read = true;
        let mut read = Vec::new();
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = entry.file_name();
            if name != c"." && name != c".." {
                read.push(Listed {
                    inode: entry.ino(),
                    kind: entry.file_type(),
                    name: name.to_owned(),
                });
            }
            if entries.is_buffer_empty() && read.len() >= names_max {
                self.is_read = false;
                break;
            }
        }
        // Several names of one inode keep the folder's order.
        read.sort_by_key(|listed| listed.inode);
        read.reverse();
        // The rest of an earlier batch comes first, and is therefore last in the list.
        read.append(&mut self.left);
        self.left = read;
        Ok(())
    }
}

/// Device and inode: distinguishes a file from every other one while it exists.
pub(crate) type Identity = (u64, u64);

pub(crate) fn identity(stat: &Stat) -> Identity {
    (stat.st_dev, stat.st_ino)
}

/// Returns whether `now`, a query on the file system of `on`, is of the file that was seen. If a
/// file system renumbers its files at each query, the type decides.
pub(crate) fn is_same_file(file: impl AsFd, now: &Stat, seen: &Stat) -> bool {
    let is_kind = now.st_dev == seen.st_dev && file_type(now) == file_type(seen);
    identity(now) == identity(seen) || is_kind && numbers_anew(file)
}

/// Returns whether inode numbers on this file system do not identify files: FUSE has one for each
/// name, or for each query, unless its server sends its own, and 9p those of another machine.
fn numbers_anew(file: impl AsFd) -> bool {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC;
    let look = || statx(&file, c"", flags, StatxFlags::INO).map(|now| now.stx_ino);
    matches!((look(), look()), (Ok(one), Ok(other)) if one != other)
}

pub(crate) fn file_type(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

pub(crate) fn is_folder(stat: &Stat) -> bool {
    file_type(stat) == FileType::Directory
}

pub(crate) fn is_link(stat: &Stat) -> bool {
    file_type(stat) == FileType::Symlink
}

pub(crate) fn is_regular(stat: &Stat) -> bool {
    file_type(stat) == FileType::RegularFile
}

/// Returns the size in bytes.
pub(crate) fn size(stat: &Stat) -> u64 {
    stat.st_size.max(0).cast_unsigned()
}

/// Returns the endpoint of a regular file with this `stat`.
pub(crate) fn endpoint(stat: &Stat) -> Endpoint {
    Endpoint::of_file(FileStat {
        device: stat.st_dev,
        inode: stat.st_ino,
        size: stat.st_size.cast_unsigned(),
        allocated: stat.st_blocks.cast_unsigned() * 512,
        block_bytes: stat.st_blksize as u64,
    })
}

/// Returns the time of the last change of the inode.
#[allow(
    clippy::unnecessary_cast,
    reason = "its type differs between architectures"
)]
pub(crate) fn changed_at(stat: &Stat) -> (i64, i64) {
    (stat.st_ctime, stat.st_ctime_nsec as i64)
}

/// Splits a path into everything before its last component, with the slash, and the last component,
/// with the slashes after it.
pub(crate) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    let end = without_slashes(path).len();
    let start = path[..end].iter().rposition(|byte| *byte == b'/');
    path.split_at(start.map_or(0, |slash| slash + 1))
}

pub(crate) fn without_slashes(path: &[u8]) -> &[u8] {
    let last = path.iter().rposition(|byte| *byte != b'/');
    &path[..last.map_or(0, |last| last + 1)]
}

/// Returns a folder's name without trailing slashes; `/` stays.
pub(crate) fn plain(name: &CStr) -> CString {
    match without_slashes(name.to_bytes()) {
        b"" => name.to_owned(),
        plain => CString::new(plain).unwrap_or_default(),
    }
}

/// Appends a name to a displayed path.
pub(crate) fn append(path: &mut Vec<u8>, name: &[u8]) {
    if !path.is_empty() && !path.ends_with(b"/") {
        path.push(b'/');
    }
    path.extend_from_slice(name);
}

/// Joins a displayed path and a name in it.
pub(crate) fn joined(path: &OsStr, name: &[u8]) -> OsString {
    let mut joined = path.as_bytes().to_vec();
    append(&mut joined, name);
    OsString::from_vec(joined)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_was_moved_does_not_lead_to_its_old_parent() {
        let root = tempfile::tempdir().expect("a folder");
        let path = |name: &str| root.path().join(name);
        for name in ["parent", "parent/child", "elsewhere"] {
            std::fs::create_dir(path(name)).expect("room");
        }
        let open = |name: &str| openat(CWD, path(name), READ, Mode::empty()).expect("a folder");
        let parent = identity(&fstat(open("parent")).expect("open"));
        let child = Folder::Open(Arc::new(open("parent/child")));
        let found = child.parent(parent).expect("it is there");
        assert_eq!(identity(&fstat(found.fd()).expect("open")), parent);
        std::fs::rename(path("parent/child"), path("elsewhere/child")).expect("ours");
        let found = child.parent(parent).map(drop);
        assert_eq!(found, Err(Errno::NOENT));
    }

    #[test]
    fn paths_are_split_before_their_last_component() {
        for (path, prefix, last) in [
            ("a", "", "a"),
            ("a/b", "a/", "b"),
            ("a/b//", "a/", "b//"),
            ("//a//b", "//a//", "b"),
            ("/", "", "/"),
            ("", "", ""),
            ("..", "", ".."),
            ("a/..", "a/", ".."),
        ] {
            let split = split(path.as_bytes());
            assert_eq!(split, (prefix.as_bytes(), last.as_bytes()), "{path}");
        }
    }
}
