//! Access control lists, copied as the attributes that they are, and the mode with them: on a file
//! with a list the group bits of the mode are the mask of the list (acl(5)).

use std::ffi::CStr;

use rustix::fs::FileType;
use rustix::io::Errno;

use super::attributes::{is_unsupported, read};
use super::file_handle::{FileHandle, MetadataError};
use crate::report::problem::ProblemKind;

const ACCESS: &CStr = c"system.posix_acl_access";
const DEFAULT: &CStr = c"system.posix_acl_default";

/// What lists of a few entries fit into.
const USUAL_BYTES: usize = 256;

/// Gives `dest` the lists of `source`, which is of this kind, and this mode. The mode is set in any
/// case; what could not be is answered.
pub(super) fn copy(
    source: &FileHandle<'_>,
    dest: &FileHandle<'_>,
    mode: u32,
    kind: FileType,
) -> Vec<MetadataError> {
    let mut errors = copy_access(source, dest, mode);
    if kind == FileType::Directory {
        errors.extend(copy_default(source, dest));
    }
    errors
}

/// Sets a mode and removes the access control list. The list goes first, and in one step with the
/// permission bits: at no time anybody has more rights than before and after.
pub(super) fn set_only(dest: &FileHandle<'_>, mode: u32) -> Vec<MetadataError> {
    let has_list = !matches!(dest.get(ACCESS, &mut [0; USUAL_BYTES]), Err(errno) if is_none(errno));
    let removed = if has_list {
        dest.set(ACCESS, &list_of_mode(mode))
    } else {
        Ok(())
    };
    let listed = removed.map_err(|errno| MetadataError::new(ProblemKind::Acl, errno, "fsetxattr"));
    let chmodded = mode_error(dest.chmod(mode));
    listed.err().into_iter().chain(chmodded).collect()
}

pub(super) fn mode_error(result: Result<(), Errno>) -> Option<MetadataError> {
    let error = |errno| MetadataError::new(ProblemKind::Mode, errno, "fchmod");
    result.err().map(error)
}

fn copy_access(source: &FileHandle<'_>, dest: &FileHandle<'_>, mode: u32) -> Vec<MetadataError> {
    let mut buffer = vec![0; USUAL_BYTES];
    let list = match read(&mut buffer, |buffer| source.get(ACCESS, buffer)) {
        Ok(list) => list,
        Err(errno) if is_none(errno) => return set_only(dest, mode),
        Err(errno) => {
            let error = MetadataError::new(ProblemKind::Acl, errno, "fgetxattr");
            let more = set_only(dest, mode & !0o070);
            return [error].into_iter().chain(more).collect();
        }
    };
    match dest.set(ACCESS, list) {
        Ok(()) => mode_error(dest.chmod(mode)).into_iter().collect(),
        Err(errno) => {
            let error = MetadataError::new(ProblemKind::Acl, errno, "fsetxattr");
            let more = set_only(dest, mode & !0o070 | group_bits(list) & mode);
            [error].into_iter().chain(more).collect()
        }
    }
}

fn copy_default(source: &FileHandle<'_>, dest: &FileHandle<'_>) -> Option<MetadataError> {
    let mut buffer = vec![0; USUAL_BYTES];
    let (result, call) = match read(&mut buffer, |buffer| source.get(DEFAULT, buffer)) {
        Ok(list) => (dest.set(DEFAULT, list), "fsetxattr"),
        Err(errno) if is_none(errno) => match dest.remove(DEFAULT) {
            Err(errno) if is_none(errno) => (Ok(()), "fremovexattr"),
            result => (result, "fremovexattr"),
        },
        Err(errno) => (Err(errno), "fgetxattr"),
    };
    let error = |errno| MetadataError::new(ProblemKind::Acl, errno, call);
    result.err().map(error)
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
