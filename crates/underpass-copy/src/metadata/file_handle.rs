//! A file whose metadata is copied, held independently of its name.
//!
//! Extended attributes are copied unchanged, and access control lists as attributes, together with
//! the mode: on a file with a list the group bits of the mode are the mask of the list (acl(5)).

use std::ffi::{CStr, OsStr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, Stat, Timespec, Timestamps, Uid, XattrFlags,
};
use rustix::io::Errno;

use crate::fs::folder::{Folder, file_type, identity};
use crate::report::problem::{Problem, ProblemKind};

/// A size that is enough for nearly every list and value.
const USUAL_BYTES: usize = 1 << 10;
/// The longest list and the longest value that the kernel returns (`XATTR_LIST_MAX`,
/// `XATTR_SIZE_MAX`; xattr(7)).
const MOST_BYTES: usize = 64 << 10;

/// The security context.
pub(super) const SELINUX: &CStr = c"security.selinux";

/// A file whose metadata is read or set.
#[derive(Clone, Copy, Debug)]
pub(crate) enum MetadataTarget<'a> {
    /// An open file or folder.
    Open(BorrowedFd<'a>),
    /// A name in an open folder, for files that can't or must not be opened; a symbolic link is not
    /// followed.
    Named(BorrowedFd<'a>, &'a CStr),
}

impl<'a> MetadataTarget<'a> {
    pub(crate) fn of_folder(folder: &'a Folder) -> Self {
        match folder {
            Folder::Open(_) => Self::Open(folder.fd()),
            _ => Self::Named(folder.fd(), c"."),
        }
    }
}

/// The origin of the copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Creation {
    /// It was created with these permission bits, less what the umask or an access control list of
    /// its folder took.
    New {
        mode: u32,
        /// Bits of them that were given back until the folder is full.
        lent: u32,
        role: FolderRole,
    },
    /// It was there.
    Existing,
}

impl Creation {
    pub(crate) fn new(mode: u32) -> Self {
        Self::New {
            mode,
            lent: 0,
            role: FolderRole::Copy,
        }
    }
}

/// The reason for which a folder is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FolderRole {
    /// It is the copy of an operand, or of something below one; files have this role, too.
    Copy,
    /// It is above a copy (`--parents`). Without its original's mode, it gets the permissions that
    /// mkdir(2) gives in its place.
    Parent,
}

/// An open file, or one that is only pointed at (`O_PATH`): of that one modes and attributes are
/// reached through its link in `/proc`, which leads to it whatever has become of its name, and to a
/// symbolic link itself.
pub(super) enum FileHandle<'a> {
    Open(BorrowedFd<'a>),
    Pinned(OwnedFd, String),
}

impl<'a> FileHandle<'a> {
    /// Opens a source that is still the file that `stat` describes.
    pub(super) fn on_source(held: MetadataTarget<'a>, stat: &Stat) -> Result<Self, Problem> {
        Self::on(held, |now| identity(now) == identity(stat))
    }

    /// Opens a copy that can be the one that was created: of the source's kind, and without another
    /// name. Another user with write access to the folder can replace it by a name of another file,
    /// and would be given that file.
    pub(super) fn on_dest(
        held: MetadataTarget<'a>,
        source: &Stat,
        creation: Creation,
    ) -> Result<Self, Problem> {
        let kind = file_type(source);
        Self::on(held, |now| {
            let is_alone = now.st_nlink == 1 || kind == FileType::Directory;
            let is_kind = file_type(now) == kind;
            is_kind && (is_alone || creation == Creation::Existing)
        })
    }

    fn on(held: MetadataTarget<'a>, is_meant: impl FnOnce(&Stat) -> bool) -> Result<Self, Problem> {
        let (folder, name) = match held {
            MetadataTarget::Open(file) => return Ok(Self::Open(file)),
            MetadataTarget::Named(folder, name) => (folder, name),
        };
        let replaced = |errno| {
            let kind = match errno {
                Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::STALE => ProblemKind::Replaced,
                _ => ProblemKind::ParentAttributes,
            };
            Problem::failed(kind, "", errno)
        };
        let file = pin(folder, name).map_err(|errno| replaced(errno).by_call("openat"))?;
        let now = rustix::fs::fstat(&file).map_err(|errno| replaced(errno).by_call("fstat"))?;
        if !is_meant(&now) {
            return Err(replaced(Errno::STALE).by_call("fstat"));
        }
        let link = format!("/proc/self/fd/{}", file.as_raw_fd());
        Ok(Self::Pinned(file, link))
    }

    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Open(file) => *file,
            Self::Pinned(file, _) => file.as_fd(),
        }
    }

    pub(super) fn stat(&self) -> Result<Stat, Errno> {
        rustix::fs::fstat(self.fd())
    }

    pub(super) fn chown(&self, user: Option<u32>, group: u32) -> Result<(), Errno> {
        let (user, group) = (user.map(Uid::from_raw), Some(Gid::from_raw(group)));
        rustix::fs::chownat(self.fd(), c"", user, group, AtFlags::EMPTY_PATH)
    }

    pub(super) fn chmod(&self, mode: u32) -> Result<(), Errno> {
        let mode = Mode::from_raw_mode(mode);
        match self {
            Self::Open(file) => rustix::fs::fchmod(file, mode),
            Self::Pinned(_, link) => rustix::fs::chmod(link.as_str(), mode),
        }
    }

    pub(super) fn set_times(&self, stat: &Stat) -> Result<(), Errno> {
        let times = times(stat);
        match self {
            Self::Open(file) => rustix::fs::futimens(file, &times),
            Self::Pinned(file, _) => rustix::fs::utimensat(file, c"", &times, AtFlags::EMPTY_PATH),
        }
    }

    /// Returns the names of all extended attributes, each followed by a NUL. ERANGE if `names` is
    /// too short.
    pub(super) fn list(&self, names: &mut [u8]) -> Result<usize, Errno> {
        match self {
            Self::Open(file) => rustix::fs::flistxattr(file, names),
            Self::Pinned(_, link) => rustix::fs::listxattr(link.as_str(), names),
        }
    }

    /// Returns an attribute's value. ERANGE if `value` is too short.
    pub(super) fn get(&self, name: &CStr, value: &mut [u8]) -> Result<usize, Errno> {
        match self {
            Self::Open(file) => rustix::fs::fgetxattr(file, name, value),
            Self::Pinned(_, link) => rustix::fs::getxattr(link.as_str(), name, value),
        }
    }

    pub(super) fn set(&self, name: &CStr, value: &[u8]) -> Result<(), Errno> {
        let flags = XattrFlags::empty();
        match self {
            Self::Open(file) => rustix::fs::fsetxattr(file, name, value, flags),
            Self::Pinned(_, link) => rustix::fs::setxattr(link.as_str(), name, value, flags),
        }
    }

    pub(super) fn remove(&self, name: &CStr) -> Result<(), Errno> {
        match self {
            Self::Open(file) => rustix::fs::fremovexattr(file, name),
            Self::Pinned(_, link) => rustix::fs::removexattr(link.as_str(), name),
        }
    }
}

/// Pins a file by `O_PATH`. A folder named from within needs no search permission.
fn pin(folder: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::openat(folder, name, flags, Mode::empty()) {
        Err(Errno::ACCESS) if name == c"." => rustix::io::fcntl_dupfd_cloexec(folder, 0),
        pinned => pinned,
    }
}

pub(crate) fn times(stat: &Stat) -> Timestamps {
    Timestamps {
        last_access: time(stat.st_atime, stat.st_atime_nsec),
        last_modification: time(stat.st_mtime, stat.st_mtime_nsec),
    }
}

fn time(seconds: i64, nanoseconds: impl TryInto<i64>) -> Timespec {
    Timespec {
        tv_sec: seconds,
        // Always below a thousand million.
        tv_nsec: nanoseconds.try_into().unwrap_or(0),
    }
}

/// Copies all attributes except those that make up the mode, those that belong to a file system
/// rather than to a file, and `elsewhere`, which is copied separately. Other attributes of `dest`
/// stay.
pub(super) fn copy_all(
    source: &FileHandle<'_>,
    dest: &FileHandle<'_>,
    elsewhere: Option<&CStr>,
) -> Vec<Problem> {
    let mut buffer = vec![0; USUAL_BYTES];
    let names = match read(&mut buffer, |buffer| source.list(buffer)) {
        Ok(names) => names.to_vec(),
        Err(errno) if is_unsupported(errno) => return Vec::new(),
        Err(errno) => {
            return vec![Problem::failed(ProblemKind::Xattr, "", errno).by_call("flistxattr")];
        }
    };
    let mut errors = Vec::new();
    let names = names.split_inclusive(|&byte| byte == 0);
    for name in names.filter_map(|name| CStr::from_bytes_with_nul(name).ok()) {
        if stays(name.to_bytes()) || elsewhere == Some(name) {
            continue;
        }
        if let Err(error) = copy(source, dest, name, ProblemKind::Xattr, &mut buffer) {
            note(&mut errors, error);
        }
    }
    errors
}

/// Copies the security context; a source that has none gives none.
pub(super) fn copy_label(source: &FileHandle<'_>, dest: &FileHandle<'_>) -> Vec<Problem> {
    let mut buffer = vec![0; USUAL_BYTES];
    let copied = copy(source, dest, SELINUX, ProblemKind::Context, &mut buffer);
    copied.err().into_iter().collect()
}

/// Records an error; reports unsupported attributes only once, without naming one.
fn note(errors: &mut Vec<Problem>, error: Problem) {
    let is_unsupported = |error: &Problem| error.errno.is_some_and(is_unsupported);
    if !is_unsupported(&error) {
        errors.push(error);
    } else if !errors.iter().any(is_unsupported) {
        errors.push(Problem {
            other: None,
            ..error
        });
    }
}

fn copy(
    source: &FileHandle<'_>,
    dest: &FileHandle<'_>,
    name: &CStr,
    kind: ProblemKind,
    buffer: &mut Vec<u8>,
) -> Result<(), Problem> {
    let attribute = OsStr::from_bytes(name.to_bytes());
    let error = |errno| Problem::failed(kind.clone(), "", errno).with_other(attribute);
    match read(buffer, |buffer| source.get(name, buffer)) {
        Ok(value) => dest.set(name, value).map_err(error),
        // Removed since it was listed.
        Err(Errno::NODATA) => Ok(()),
        Err(errno) => Err(error(errno).by_call("fgetxattr")),
    }
}

/// Reads into a buffer that is enlarged if too short: to the maximum, so that a value that grows
/// between two calls fits as well.
pub(super) fn read(
    buffer: &mut Vec<u8>,
    mut call: impl FnMut(&mut [u8]) -> Result<usize, Errno>,
) -> Result<&[u8], Errno> {
    let len = match call(buffer) {
        Err(Errno::RANGE) => {
            buffer.resize(MOST_BYTES, 0);
            call(buffer)?
        }
        result => result?,
    };
    Ok(&buffer[..len])
}

pub(super) fn is_unsupported(errno: Errno) -> bool {
    matches!(errno, Errno::OPNOTSUPP | Errno::NOSYS)
}

/// Returns whether an attribute is not copied as an attribute: access control lists are copied with
/// the mode; the others describe how one file system stores a file, or are written only by the
/// kernel.
fn stays(name: &[u8]) -> bool {
    const NAMES: [&[u8]; 5] = [
        b"system.posix_acl_access",
        b"system.posix_acl_default",
        b"system.nfs4_acl",
        b"system.nfs4acl",
        b"security.evm",
    ];
    const BEGINNINGS: [&[u8]; 3] = [b"trusted.SGI_", b"xfsroot.", b"afs."];
    NAMES.contains(&name) || BEGINNINGS.iter().any(|start| name.starts_with(start))
}

const ACCESS: &CStr = c"system.posix_acl_access";
const DEFAULT: &CStr = c"system.posix_acl_default";

/// A size that is enough for access control lists of a few entries.
const USUAL_ACL_BYTES: usize = 256;

/// Copies the lists of `source`, which is of this kind, and sets this mode. The mode is set in any
/// case; returns the errors.
pub(super) fn copy_lists(
    source: &FileHandle<'_>,
    dest: &FileHandle<'_>,
    mode: u32,
    kind: FileType,
) -> Vec<Problem> {
    let mut errors = copy_access(source, dest, mode);
    if kind == FileType::Directory {
        errors.extend(copy_default(source, dest));
    }
    errors
}

/// Sets a mode and removes the access control list. The list goes first, in one step with the
/// permission bits: no user ever has more rights than before and after.
pub(super) fn set_only(dest: &FileHandle<'_>, mode: u32) -> Vec<Problem> {
    let has_list =
        !matches!(dest.get(ACCESS, &mut [0; USUAL_ACL_BYTES]), Err(errno) if is_none(errno));
    let removed = if has_list {
        dest.set(ACCESS, &list_of_mode(mode))
    } else {
        Ok(())
    };
    let listed = removed.map_err(acl_error);
    let chmodded = mode_error(dest.chmod(mode));
    listed.err().into_iter().chain(chmodded).collect()
}

pub(super) fn mode_error(result: Result<(), Errno>) -> Option<Problem> {
    let error = |errno| Problem::failed(ProblemKind::Mode, "", errno);
    result.err().map(error)
}

fn acl_error(errno: Errno) -> Problem {
    Problem::failed(ProblemKind::Acl, "", errno)
}

fn copy_access(source: &FileHandle<'_>, dest: &FileHandle<'_>, mode: u32) -> Vec<Problem> {
    let mut buffer = vec![0; USUAL_ACL_BYTES];
    let list = match read(&mut buffer, |buffer| source.get(ACCESS, buffer)) {
        Ok(list) => list,
        Err(errno) if is_none(errno) => return set_only(dest, mode),
        Err(errno) => {
            let more = set_only(dest, mode & !0o070);
            return [acl_error(errno).by_call("fgetxattr")]
                .into_iter()
                .chain(more)
                .collect();
        }
    };
    match dest.set(ACCESS, list) {
        Ok(()) => mode_error(dest.chmod(mode)).into_iter().collect(),
        Err(errno) => {
            let more = set_only(dest, mode & !0o070 | group_bits(list) & mode);
            [acl_error(errno)].into_iter().chain(more).collect()
        }
    }
}

fn copy_default(source: &FileHandle<'_>, dest: &FileHandle<'_>) -> Option<Problem> {
    let mut buffer = vec![0; USUAL_ACL_BYTES];
    let (result, call) = match read(&mut buffer, |buffer| source.get(DEFAULT, buffer)) {
        Ok(list) => (dest.set(DEFAULT, list), "fsetxattr"),
        Err(errno) if is_none(errno) => match dest.remove(DEFAULT) {
            Err(errno) if is_none(errno) => (Ok(()), "fremovexattr"),
            result => (result, "fremovexattr"),
        },
        Err(errno) => (Err(errno), "fgetxattr"),
    };
    result.err().map(|errno| acl_error(errno).by_call(call))
}

/// Returns the permissions that the default access control list of a folder leaves to a new folder
/// in the same place, since the list was inherited from there; `None` without a list.
pub(super) fn default_limit(folder: &FileHandle<'_>) -> Result<Option<u32>, Problem> {
    let mut buffer = vec![0; USUAL_ACL_BYTES];
    match read(&mut buffer, |buffer| folder.get(DEFAULT, buffer)) {
        Ok(list) => Ok(Some(limit_of(list))),
        Err(errno) if is_none(errno) => Ok(None),
        Err(errno) => Err(acl_error(errno).by_call("fgetxattr")),
    }
}

fn is_none(errno: Errno) -> bool {
    errno == Errno::NODATA || is_unsupported(errno)
}

/// The format of the attribute: a version, then entries of tag, permissions and id, all little
/// endian (`linux/posix_acl_xattr.h`).
const VERSION: [u8; 4] = 2_u32.to_le_bytes();
const OWNER: u16 = 0x01;
const GROUP: u16 = 0x04;
const MASK: u16 = 0x10;
const OTHERS: u16 = 0x20;
const ENTRY_BYTES: usize = 8;

/// Returns a list that is equivalent to a mode: the kernel sets the permission bits from it and
/// stores no list.
fn list_of_mode(mode: u32) -> Vec<u8> {
    let entry = |tag: u16, bits: u32| {
        let [low, high] = tag.to_le_bytes();
        [low, high, (bits & 7) as u8, 0, 0xff, 0xff, 0xff, 0xff]
    };
    let entries = [
        entry(OWNER, mode >> 6),
        entry(GROUP, mode >> 3),
        entry(OTHERS, mode),
    ];
    [&VERSION[..], entries.as_flattened()].concat()
}

/// Returns the permissions of the file's group in a list, as group bits of a mode: if the list
/// can't be copied, the mask would grant too much.
fn group_bits(list: &[u8]) -> u32 {
    permissions(list, GROUP).unwrap_or(0) << 3
}

/// Returns the mode of a file with this list: the mask, if there is one, stands for the group.
fn limit_of(list: &[u8]) -> u32 {
    let bits = |tag| permissions(list, tag).unwrap_or(0);
    let group = permissions(list, MASK).unwrap_or(bits(GROUP));
    bits(OWNER) << 6 | group << 3 | bits(OTHERS)
}

/// Returns the permissions of the first entry with this tag.
fn permissions(list: &[u8], tag: u16) -> Option<u32> {
    let entries = list.get(VERSION.len()..).unwrap_or_default();
    let entry = entries
        .chunks_exact(ENTRY_BYTES)
        .find(|entry| entry[..2] == tag.to_le_bytes());
    entry.map(|entry| u32::from(entry[2] & 7))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_is_a_list_of_three() {
        let list = list_of_mode(0o6751);
        let expected = [
            2, 0, 0, 0, 1, 0, 7, 0, 255, 255, 255, 255, 4, 0, 5, 0, 255, 255, 255, 255, 32, 0, 1,
            0, 255, 255, 255, 255,
        ];
        assert_eq!(list, expected);
        assert_eq!(group_bits(&list), 0o050);
        assert_eq!(limit_of(&list), 0o751);
    }

    #[test]
    fn the_mask_of_a_list_stands_for_its_group() {
        let mut list = list_of_mode(0o751);
        list.extend([0x10, 0, 6, 0, 255, 255, 255, 255]);
        assert_eq!((group_bits(&list), limit_of(&list)), (0o050, 0o761));
    }

    #[test]
    fn of_a_broken_list_the_group_has_nothing() {
        assert_eq!(group_bits(&[]), 0);
        assert_eq!(group_bits(&[2, 0, 0, 0, 4, 0, 7]), 0);
    }
}
