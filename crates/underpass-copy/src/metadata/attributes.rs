//! Extended attributes, copied as they are; and access control lists, copied as the attributes
//! that they are, with the mode: on a file with a list the group bits of the mode are the mask of
//! the list (acl(5)).

use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;

use rustix::fs::FileType;
use rustix::io::Errno;

use super::file_handle::FileHandle;
use crate::report::problem::{Problem, ProblemKind};

/// What nearly every list and value fits into.
const USUAL_BYTES: usize = 1 << 10;
/// The longest list and the longest value that the kernel hands out (`XATTR_LIST_MAX`,
/// `XATTR_SIZE_MAX`; xattr(7)).
const MOST_BYTES: usize = 64 << 10;

/// The security context.
pub(super) const SELINUX: &CStr = c"security.selinux";

/// Copies all attributes but those that make up the mode, and those that belong to a file system
/// rather than to a file, and but `elsewhere`, which is seen to elsewhere. Others that `dest` has
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

/// Where attributes are not supported at all it is said once, and of no attribute in particular.
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

/// Reads into a buffer that grows where it is too short. It grows to the most there can be, so that
/// what becomes longer between two calls fits as well.
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

/// Whether an attribute is no matter of copying attributes: access control lists go along with the
/// mode; the others describe how one file system keeps a file, or may be written by the kernel
/// only.
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

/// What access control lists of a few entries fit into.
const USUAL_ACL_BYTES: usize = 256;

/// Gives `dest` the lists of `source`, which is of this kind, and this mode. The mode is set in any
/// case; what could not be is answered.
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

/// Sets a mode and removes the access control list. The list goes first, and in one step with the
/// permission bits: at no time anybody has more rights than before and after.
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

fn is_none(errno: Errno) -> bool {
    errno == Errno::NODATA || is_unsupported(errno)
}

/// The form of the attribute: a version, then entries of tag, permissions and id, all in little
/// endian (`linux/posix_acl_xattr.h`).
const VERSION: [u8; 4] = 2_u32.to_le_bytes();
const OWNER: u16 = 0x01;
const GROUP: u16 = 0x04;
const OTHERS: u16 = 0x20;
const ENTRY_BYTES: usize = 8;

/// The list that says no more than a mode: the kernel sets the permission bits from it and keeps
/// none.
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

/// What a list grants the file's group, at the place of a mode's group bits: where the list can't
/// go along, the mask would be too much.
fn group_bits(list: &[u8]) -> u32 {
    let entries = list.get(VERSION.len()..).unwrap_or_default();
    let group = entries
        .chunks_exact(ENTRY_BYTES)
        .find(|entry| entry[..2] == GROUP.to_le_bytes());
    group.map_or(0, |entry| u32::from(entry[2] & 7) << 3)
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
    }

    #[test]
    fn of_a_broken_list_the_group_has_nothing() {
        assert_eq!(group_bits(&[]), 0);
        assert_eq!(group_bits(&[2, 0, 0, 0, 4, 0, 7]), 0);
    }
}
