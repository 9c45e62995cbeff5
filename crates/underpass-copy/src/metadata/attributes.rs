//! Extended attributes, copied as they are.

use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;

use rustix::io::Errno;

use super::file_handle::{FileHandle, MetadataError};
use crate::report::problem::ProblemKind;

/// What nearly every list and value fits into.
const USUAL_BYTES: usize = 1 << 10;
/// The longest list and the longest value that the kernel hands out (`XATTR_LIST_MAX`,
/// `XATTR_SIZE_MAX`; xattr(7)).
const MOST_BYTES: usize = 64 << 10;

const SELINUX: &CStr = c"security.selinux";

/// What becomes of the security context among the attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ContextHandling {
    /// It is an attribute like the others.
    Copied,
    /// It is seen to elsewhere.
    Left,
}

/// Copies all attributes but those that make up the mode, and those that belong to a file system
/// rather than to a file. Others that `dest` has stay.
pub(super) fn copy_all(
    source: &FileHandle<'_>,
    dest: &FileHandle<'_>,
    label: ContextHandling,
) -> Vec<MetadataError> {
    let mut buffer = vec![0; USUAL_BYTES];
    let names = match read(&mut buffer, |buffer| source.list(buffer)) {
        Ok(names) => names.to_vec(),
        Err(errno) if is_unsupported(errno) => return Vec::new(),
        Err(errno) => return vec![MetadataError::new(ProblemKind::Xattr, errno, "flistxattr")],
    };
    let mut errors = Vec::new();
    let names = names.split_inclusive(|&byte| byte == 0);
    for name in names.filter_map(|name| CStr::from_bytes_with_nul(name).ok()) {
        if stays(name.to_bytes()) || (label == ContextHandling::Left && name == SELINUX) {
            continue;
        }
        if let Err(error) = copy(source, dest, name, ProblemKind::Xattr, &mut buffer) {
            note(&mut errors, error);
        }
    }
    errors
}

/// Copies the security context; a source that has none gives none.
pub(super) fn copy_label(source: &FileHandle<'_>, dest: &FileHandle<'_>) -> Vec<MetadataError> {
    let mut buffer = vec![0; USUAL_BYTES];
    let copied = copy(source, dest, SELINUX, ProblemKind::Context, &mut buffer);
    copied.err().into_iter().collect()
}

/// Where attributes are not supported at all it is said once, and of no attribute in particular.
fn note(errors: &mut Vec<MetadataError>, error: MetadataError) {
    if !is_unsupported(error.errno) {
        errors.push(error);
    } else if !errors.iter().any(|other| is_unsupported(other.errno)) {
        errors.push(MetadataError {
            attribute: None,
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
) -> Result<(), MetadataError> {
    let error = |errno, call| MetadataError {
        attribute: Some(OsStr::from_bytes(name.to_bytes()).into()),
        ..MetadataError::new(kind.clone(), errno, call)
    };
    match read(buffer, |buffer| source.get(name, buffer)) {
        Ok(value) => dest
            .set(name, value)
            .map_err(|errno| error(errno, "fsetxattr")),
        // Removed since it was listed.
        Err(Errno::NODATA) => Ok(()),
        Err(errno) => Err(error(errno, "fgetxattr")),
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
