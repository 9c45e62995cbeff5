//! Opens names beneath a root.
//!
//! The kernel resolves the name (`openat2`), and nothing on the way leads out: neither `..`, nor
//! an absolute link, nor a relative one that climbs too far, nor the links of `/proc`, and no
//! swapping of folders while it happens.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags, ResolveFlags, Stat, fstat, openat2};
use rustix::io::Errno;

use crate::limits::{LINK_TRIES_MAX, RESOLVE_TRIES_MAX};
use crate::site::rules::Symlinks;

/// Opening never waits (`NONBLOCK`: a FIFO would wait for its writer), never makes a terminal ours
/// and is never inherited.
pub(crate) const OPEN: OFlags = OFlags::RDONLY
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

/// Whether this process may use `openat2`: kernels before 5.6 lack it, filters may forbid it.
pub(crate) fn probe(root: BorrowedFd<'_>) -> Result<(), Errno> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    open(root, b".", flags, Symlinks::Inside).map(drop)
}

/// What a link in a folder leads to, seen from `root`. It tries more often than [`open`]: a link
/// missing from a listing would be an error.
pub(crate) fn look_through(
    root: BorrowedFd<'_>,
    path: &[u8],
    symlinks: Symlinks,
) -> Result<Stat, Errno> {
    let mut tries = 0;
    loop {
        tries += 1;
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        match open(root, path, flags, symlinks) {
            Err(Errno::AGAIN) if tries < LINK_TRIES_MAX => std::thread::yield_now(),
            opened => return fstat(opened?),
        }
    }
}

/// How names are resolved: never through links that only `/proc` has, and nothing above the root
/// unless all links are followed. (A path has no `..` of its own.)
fn beneath(symlinks: Symlinks) -> ResolveFlags {
    let always = ResolveFlags::NO_MAGICLINKS;
    match symlinks {
        Symlinks::None => always | ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS,
        Symlinks::Inside => always | ResolveFlags::BENEATH,
        Symlinks::All => always,
    }
}

/// EAGAIN: a rename or a mount elsewhere on the system got in the way of a link's `..`
/// (openat2(2)).
pub(crate) fn open(
    root: BorrowedFd<'_>,
    path: &[u8],
    flags: OFlags,
    symlinks: Symlinks,
) -> Result<OwnedFd, Errno> {
    let mut tries = 0;
    loop {
        tries += 1;
        match openat2(root.as_fd(), path, flags, Mode::empty(), beneath(symlinks)) {
            Err(Errno::AGAIN | Errno::INTR) if tries < RESOLVE_TRIES_MAX => {}
            outcome => return outcome,
        }
    }
}
