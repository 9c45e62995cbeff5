//! Names resolved beneath an open folder.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;
use rustix::path::Arg;

/// The flags of an open folder.
pub(crate) const FOLDER: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::CLOEXEC);

/// Opens a path beneath a folder, through no link: the one way to a name of a sender.
pub(crate) fn open_beneath<P: Arg + Copy>(
    folder: impl AsFd,
    path: P,
    flags: OFlags,
) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let mut tries = 0;
    loop {
        tries += 1;
        match openat2(&folder, path, flags, Mode::empty(), resolve) {
            Err(Errno::INTR | Errno::AGAIN) if tries < 100 => {}
            opened => return opened,
        }
    }
}
