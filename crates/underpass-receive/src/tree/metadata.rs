//! Metadata of members, set through descriptors.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{
    AtFlags, Gid, Mode, Timespec, Timestamps, UTIME_OMIT, Uid, XattrFlags, chownat, fchmod, fchown,
    fsetxattr, futimens, utimensat,
};
use rustix::io::Errno;
use underpass_tar::{Member, MemberOwner, TarTime};

use crate::error::{Doing, Error};
use crate::tree::settings::PreservedMetadata;

/// The only namespace of attributes that gives no privileges and changes no permissions.
const XATTR_NAMESPACE: &[u8] = b"user.";

fn times(modified: TarTime) -> Timestamps {
    let timespec = |seconds, nanoseconds| Timespec {
        tv_sec: seconds,
        tv_nsec: nanoseconds,
    };
    Timestamps {
        last_access: timespec(0, UTIME_OMIT),
        last_modification: timespec(modified.seconds, modified.nanoseconds.into()),
    }
}

pub(super) fn set_times(file: impl AsFd, modified: TarTime) -> Result<(), Errno> {
    futimens(file, &times(modified))
}

/// Sets the time and the owner of a link, which has no descriptor of its own, in its open folder.
pub(super) fn set_link_metadata(
    folder: BorrowedFd<'_>,
    name: &[u8],
    member: &Member,
    preserve: PreservedMetadata,
) -> Result<(), Error> {
    if preserve.owner {
        let (user, group) = owner(&member.owner);
        let changed = chownat(folder, name, user, group, AtFlags::SYMLINK_NOFOLLOW);
        changed.doing("setting a link's owner")?;
    }
    if preserve.times {
        let times = times(member.modified);
        let set = utimensat(folder, name, &times, AtFlags::SYMLINK_NOFOLLOW);
        set.doing("setting a link's time")?;
    }
    Ok(())
}

fn owner(owner: &MemberOwner) -> (Option<Uid>, Option<Gid>) {
    (
        Some(Uid::from_raw(owner.uid)),
        Some(Gid::from_raw(owner.gid)),
    )
}

/// Sets owner and attributes, before the mode: a new owner loses setuid, and a file that may not be
/// written takes no attribute. Returns the number of attributes that were left out.
pub(super) fn set_owner_and_xattrs(
    file: BorrowedFd<'_>,
    member: &Member,
    preserve: PreservedMetadata,
) -> Result<u64, Error> {
    if preserve.owner {
        let (user, group) = owner(&member.owner);
        fchown(file, user, group).doing("setting the owner")?;
    }
    if !preserve.xattrs {
        return Ok(member.xattrs.len() as u64);
    }
    let mut left_out = 0;
    for (name, value) in &member.xattrs {
        if !name.starts_with(XATTR_NAMESPACE) {
            left_out += 1;
            continue;
        }
        match fsetxattr(file, &name[..], value, XattrFlags::empty()) {
            Ok(()) => {}
            // The file system has none, or none that long.
            Err(Errno::OPNOTSUPP | Errno::RANGE | Errno::TOOBIG) => left_out += 1,
            Err(errno) => return Err(Error::of("setting an extended attribute", errno)),
        }
    }
    Ok(left_out)
}

/// Returns the mode that a file or folder of these permissions, as it was made, is to have.
pub(super) fn final_mode(member: &Member, made: u32, preserve: PreservedMetadata) -> u32 {
    match (preserve.mode, preserve.special_mode_bits) {
        (true, true) => member.mode & 0o7777,
        (true, false) => member.mode & 0o777,
        // What the umask has left.
        (false, _) => made & member.mode & 0o777,
    }
}

/// Sets the mode of a file that was made with other permissions.
pub(super) fn set_mode(file: BorrowedFd<'_>, made: u32, mode: u32) -> Result<(), Error> {
    match made == mode {
        true => Ok(()),
        false => fchmod(file, Mode::from_raw_mode(mode)).doing("setting the mode"),
    }
}
