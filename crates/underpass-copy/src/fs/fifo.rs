//! FIFOs and pipes: opening and reading one waits for a process at its other end, and a stop must
//! not wait for that process.
//!
//! A signal does not end such a wait: handlers restart calls, and another thread may be
//! interrupted. So no wait here takes longer than a stop may go unnoticed.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;

/// The longest time that a wait may delay a stop.
pub(crate) const NAP: Duration = Duration::from_millis(20);

/// Waits until a pipe has data or all its writers are gone. A pipe without a writer since it was
/// opened has not ended: as with an `open` that blocks, a writer is waited for.
///
/// # Errors
/// The error of `poll(2)`; `EINTR` if the copy was stopped.
pub(crate) fn until_readable(pipe: impl AsFd, stopped: impl Fn() -> bool) -> Result<(), Errno> {
    let pipe = pipe.as_fd();
    let nap = Timespec {
        tv_sec: 0,
        tv_nsec: i64::from(NAP.subsec_nanos()),
    };
    while !stopped() {
        let mut polled = [PollFd::from_borrowed_fd(pipe, PollFlags::IN)];
        match poll(&mut polled, Some(&nap)) {
            Ok(0) | Err(Errno::INTR) => (),
            Ok(_) => return Ok(()),
            Err(errno) => return Err(errno),
        }
    }
    Err(Errno::INTR)
}

/// Opens a FIFO for writing once it has a reader: `open` adds the given flags to its own. Writes to
/// the result block.
///
/// # Errors
/// The errno of `open`; `EINTR` if the copy was stopped.
pub(crate) fn open_for_reader(
    open: impl Fn(OFlags) -> Result<OwnedFd, Errno>,
    stopped: impl Fn() -> bool,
) -> Result<OwnedFd, Errno> {
    while !stopped() {
        match open(OFlags::NONBLOCK) {
            // fifo(7): it has no reader yet.
            Err(Errno::NXIO) => std::thread::sleep(NAP),
            Err(errno) => return Err(errno),
            Ok(fd) => {
                let_block(&fd)?;
                return Ok(fd);
            }
        }
    }
    Err(Errno::INTR)
}

/// Makes calls block on a descriptor that was opened as nonblocking.
pub(crate) fn let_block(fd: impl AsFd) -> Result<(), Errno> {
    let flags = fcntl_getfl(&fd)?;
    fcntl_setfl(&fd, flags - OFlags::NONBLOCK)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use rustix::fs::{CWD, Mode, mkfifoat, openat};
    use rustix::pipe::pipe;

    use super::*;

    #[test]
    fn a_pipe_is_ready_with_bytes_and_at_its_end() {
        let (read, write) = pipe().expect("a pipe");
        rustix::io::write(&write, b"a").expect("room");
        assert_eq!(until_readable(&read, || false), Ok(()));
        rustix::io::read(&read, &mut [0_u8; 8]).expect("a byte");
        drop(write);
        assert_eq!(until_readable(&read, || false), Ok(()));
    }

    #[test]
    fn nobody_waits_longer_than_a_stop() {
        let (read, _write) = pipe().expect("a pipe");
        let asked = Cell::new(0);
        let third = || {
            asked.set(asked.get() + 1);
            asked.get() == 3
        };
        assert_eq!(until_readable(&read, third), Err(Errno::INTR));
        asked.set(0);
        let nobody = |_| Err(Errno::NXIO);
        let opened = open_for_reader(nobody, third).map(drop);
        assert_eq!(opened, Err(Errno::INTR));
        assert_eq!(asked.get(), 3);
    }

    #[test]
    fn what_was_waited_for_blocks_and_other_errors_are_reported() {
        let folder = tempfile::tempdir().expect("a folder");
        let fifo = folder.path().join("fifo");
        mkfifoat(CWD, &fifo, Mode::from_raw_mode(0o600)).expect("a FIFO");
        let open = |flags| openat(CWD, &fifo, flags, Mode::empty());
        let reader = open(OFlags::RDONLY | OFlags::NONBLOCK).expect("opens");
        let writer = open_for_reader(|more| open(OFlags::WRONLY | more), || false);
        let writer = writer.expect("there is a reader");
        assert!(
            !fcntl_getfl(&writer)
                .expect("open")
                .contains(OFlags::NONBLOCK)
        );
        drop(reader);
        let forbidden = open_for_reader(|_| Err(Errno::ACCESS), || false).map(drop);
        assert_eq!(forbidden, Err(Errno::ACCESS));
    }
}
