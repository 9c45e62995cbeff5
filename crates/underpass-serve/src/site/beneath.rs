//! Opens names beneath a root.
//!
//! The kernel resolves the name (`openat2`), and no component leads out: neither `..`, nor an
//! absolute link, nor a relative one that climbs too far, nor the links of `/proc`, and no
//! concurrent swapping of folders.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::LazyLock;

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, Stat, fstat, openat, openat2};
use rustix::io::Errno;

use crate::limits::{LINK_TRIES_MAX, RESOLVE_TRIES_MAX};
use crate::rules::Symlinks;

/// Opening never waits (`NONBLOCK`: a leased file waits for its holder), never acquires a
/// controlling terminal, and the descriptor is never inherited.
pub(crate) const OPEN: OFlags = OFlags::RDONLY
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

/// Checks that this process may use `openat2`: kernels before 5.6 lack it, filters may forbid it.
pub(crate) fn probe(root: BorrowedFd<'_>) -> Result<(), Errno> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    // Opened now, while descriptors are available.
    LazyLock::force(&DESCRIPTORS);
    open(root, b".", flags, Symlinks::Inside).map(drop)
}

/// Examines a name and opens it if it is a regular file. Nothing else is opened: that could release
/// the writer of a FIFO, rewind a tape or start a watchdog.
pub(crate) fn open_file(
    root: BorrowedFd<'_>,
    path: &[u8],
    symlinks: Symlinks,
) -> Result<(Stat, Option<OwnedFd>), Errno> {
    let place = open(root, path, OFlags::PATH | OFlags::CLOEXEC, symlinks)?;
    let again = || open(root, path, OPEN, symlinks);
    open_place(&place, again)
}

/// Like [`open_file`], for a path descriptor (`O_PATH`), so that its name cannot be taken over
/// meanwhile. Without /proc the file is opened by name once more, with `again`.
pub(crate) fn open_place(
    place: &OwnedFd,
    again: impl FnOnce() -> Result<OwnedFd, Errno>,
) -> Result<(Stat, Option<OwnedFd>), Errno> {
    open_by(DESCRIPTORS.as_ref(), place, again)
}

fn open_by(
    descriptors: Option<&OwnedFd>,
    place: &OwnedFd,
    again: impl FnOnce() -> Result<OwnedFd, Errno>,
) -> Result<(Stat, Option<OwnedFd>), Errno> {
    let stat = fstat(place)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Ok((stat, None));
    }
    let Some(descriptors) = descriptors else {
        let opened = again()?;
        let found = fstat(&opened)?;
        return match (found.st_dev, found.st_ino) == (stat.st_dev, stat.st_ino) {
            true => Ok((found, Some(opened))),
            false => Err(Errno::AGAIN),
        };
    };
    let mut number = itoa::Buffer::new();
    let number = number.format(place.as_raw_fd());
    let opened = openat(descriptors, number, OPEN, Mode::empty())?;
    Ok((stat, Some(opened)))
}

/// The folder with a name for every open descriptor, by which it can be reopened.
static DESCRIPTORS: LazyLock<Option<OwnedFd>> = LazyLock::new(|| {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open("/proc/self/fd", flags, Mode::empty()).ok()
});

/// Returns the metadata of a link's target, resolved from `root`. Retries more often than [`open`]:
/// a link missing from a listing would be an error.
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

/// Returns how names are resolved: never through the magic links of `/proc`, and only beneath the
/// root unless all links are followed. (The paths themselves contain no `..`.)
fn beneath(symlinks: Symlinks) -> ResolveFlags {
    let always = ResolveFlags::NO_MAGICLINKS;
    match symlinks {
        Symlinks::None => always | ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS,
        Symlinks::Inside => always | ResolveFlags::BENEATH,
        Symlinks::All => always,
    }
}

/// Retries on EAGAIN: a rename or a mount elsewhere on the system interfered with a link's `..`
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_proc_a_name_that_was_taken_meanwhile_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["one", "other"] {
            std::fs::write(folder.path().join(name), name).unwrap();
        }
        let root = OwnedFd::from(std::fs::File::open(folder.path()).unwrap());
        let open = |name: &str, flags| open(root.as_fd(), name.as_bytes(), flags, Symlinks::None);
        let place = open("one", OFlags::PATH).unwrap();
        let (_, opened) = open_by(None, &place, || open("one", OPEN)).unwrap();
        let mut content = [0; 8];
        let read = rustix::io::read(opened.unwrap(), &mut content).unwrap();
        assert_eq!(&content[..read], b"one");
        let taken = open_by(None, &place, || open("other", OPEN));
        assert_eq!(taken.map(drop), Err(Errno::AGAIN));
    }
}
