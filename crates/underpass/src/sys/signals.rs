//! SIGPIPE and SIGXFSZ must not kill a process: the call returns an error instead.
//!
//! QUIRK(sendfile-sigpipe): sendfile and splice have no MSG_NOSIGNAL; towards a closed connection
//! they raise SIGPIPE, and beyond RLIMIT_FSIZE every write raises SIGXFSZ; both end the process
//! by default. A program that ignores them (every Rust binary ignores SIGPIPE) pays for one
//! `sigaction`; in others the signal is blocked for this thread while calls are made, and what they
//! made pending is discarded.

use std::mem::MaybeUninit;
use std::ptr;

/// While it lives, the signal does not reach this thread. Not to be held across an await.
#[derive(Debug)]
pub(crate) struct SignalGuard {
    guarded: Option<Guarded>,
}

struct Guarded {
    before: libc::sigset_t,
    /// The signal, if it was not pending already.
    ours: libc::sigset_t,
}

impl std::fmt::Debug for Guarded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Guarded")
    }
}

/// A signal that a call towards a sink raises, and that ends the process by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeadlySignal {
    /// SIGPIPE: the other end is closed.
    Pipe,
    /// SIGXFSZ: beyond the limit of file sizes.
    FileSize,
}

/// A signal that calls may raise and that the program does not ignore.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnignoredSignal(libc::c_int);

impl UnignoredSignal {
    /// The signal, unless the program ignores it now.
    pub(crate) fn unless_ignored(signal: DeadlySignal) -> Option<Self> {
        let signal = match signal {
            DeadlySignal::FileSize => libc::SIGXFSZ,
            DeadlySignal::Pipe => libc::SIGPIPE,
        };
        (!is_ignored(signal)).then_some(Self(signal))
    }
}

impl SignalGuard {
    pub(crate) fn against(raised: Option<UnignoredSignal>) -> Self {
        Self {
            guarded: raised.map(|UnignoredSignal(signal)| block(signal)),
        }
    }
}

impl Drop for SignalGuard {
    fn drop(&mut self) {
        if let Some(guarded) = &self.guarded {
            take_pending(&guarded.ours);
            // SAFETY: `before` was filled in by pthread_sigmask.
            unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &guarded.before, ptr::null_mut()) };
        }
    }
}

fn is_ignored(signal: libc::c_int) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: a null new action only asks; `action` is valid for writes, and all-zero is a valid
    // one.
    let action = unsafe {
        libc::sigaction(signal, ptr::null(), action.as_mut_ptr());
        action.assume_init()
    };
    action.sa_sigaction == libc::SIG_IGN
}

fn block(signal: libc::c_int) -> Guarded {
    let mut ours = empty_set();
    let mut pending = empty_set();
    let mut before = empty_set();
    let mut blocked = empty_set();
    // SAFETY: all sets are initialised and valid for writes; the signal is a valid number.
    unsafe {
        libc::sigaddset(&raw mut blocked, signal);
        libc::sigpending(&raw mut pending);
        if libc::sigismember(&raw const pending, signal) == 0 {
            libc::sigaddset(&raw mut ours, signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const blocked, &raw mut before);
    }
    Guarded { before, ours }
}

/// Takes back what our calls made pending, so that it isn't delivered when the mask is restored.
fn take_pending(set: &libc::sigset_t) {
    let now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `set` is initialised, `now` valid for reads; a null info is allowed.
    while unsafe { libc::sigtimedwait(set, ptr::null_mut(), &raw const now) } > 0 {}
}

fn empty_set() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigemptyset initialises the whole set.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        set.assume_init()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::{AsFd, OwnedFd};
    use std::os::unix::net::UnixStream;
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, ExitStatus};

    use rustix::io::Errno;
    use rustix::process::{Resource, Rlimit, setrlimit};

    use crate::drive::blocking::Driver;
    use crate::{Account, Error, Fault, Kernel, Mechanism, Policy, Sink, Source};

    /// Which part a process of its own plays: signals are the whole process's.
    const PART: &str = "UNDERPASS_TEST_SIGNALS_PART";

    /// Runs one test again, in a process that plays `part`.
    fn played(test: &str, part: &str) -> ExitStatus {
        Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", &format!("sys::signals::tests::{test}")])
            .env(PART, part)
            .output()
            .expect("starts")
            .status
    }

    fn part() -> Option<String> {
        std::env::var(PART).ok()
    }

    fn deadly_again(signal: libc::c_int) {
        // SAFETY: SIG_DFL is a valid disposition for both signals, and no handler of ours is lost.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
        assert!(!is_ignored(signal));
    }

    fn is_blocked(signal: libc::c_int) -> bool {
        let mut mask = empty_set();
        // SAFETY: a null new mask only asks; `mask` is valid for writes.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, ptr::null(), &raw mut mask);
            libc::sigismember(&raw const mask, signal) == 1
        }
    }

    fn file(len: u64) -> File {
        let file = tempfile::tempfile().expect("a file");
        file.set_len(len).expect("a length");
        file
    }

    fn run(mechanism: Mechanism, from: &File, to: impl AsFd) -> Result<Account, Error> {
        let source = Source::range(from, 0, 1 << 20).expect("a source");
        Driver::new(&Kernel::unprobed())
            .policy(Policy::only(mechanism))
            .run(&source, &Sink::new(to).expect("a sink"))
    }

    /// QUIRK(sendfile-sigpipe)
    #[test]
    fn sendfile_sigpipe_does_not_end_a_process_that_would_die_of_it() {
        let from = file(1 << 20);
        let gone = || UnixStream::pair().expect("a pair").0;
        match part().as_deref() {
            Some("bare") => {
                deadly_again(libc::SIGPIPE);
                let _deadly = rustix::fs::sendfile(gone(), &from, Some(&mut 0), 100);
            }
            Some(_) => {
                deadly_again(libc::SIGPIPE);
                for mechanism in [Mechanism::Sendfile, Mechanism::Splice, Mechanism::ReadWrite] {
                    let (read, pipe) = rustix::pipe::pipe().expect("a pipe");
                    drop(read);
                    for sink in [OwnedFd::from(gone()), pipe] {
                        let error = run(mechanism, &from, sink).expect_err("nobody is there");
                        assert_eq!(error.fault, Fault::PeerGone, "{mechanism}: {error}");
                        assert!(!is_blocked(libc::SIGPIPE), "{mechanism}");
                    }
                }
            }
            None => {
                let test = "sendfile_sigpipe_does_not_end_a_process_that_would_die_of_it";
                assert_eq!(played(test, "bare").signal(), Some(libc::SIGPIPE));
                assert_eq!(played(test, "shielded").code(), Some(0));
            }
        }
    }

    #[test]
    fn a_file_size_limit_is_an_error_and_does_not_end_the_process() {
        const LIMIT: u64 = 300_000;
        let from = file(0);
        rustix::io::pwrite(&from, &vec![7; 1 << 20], 0).expect("writes");
        let limit = || {
            let limit = Rlimit {
                current: Some(LIMIT),
                maximum: None,
            };
            setrlimit(Resource::Fsize, limit).expect("a limit");
            deadly_again(libc::SIGXFSZ);
        };
        match part().as_deref() {
            Some("bare") => {
                limit();
                let _deadly = rustix::io::pwrite(file(0), b"x", LIMIT);
            }
            Some(_) => {
                let sinks = [(); 5].map(|()| file(0));
                limit();
                for (mechanism, to) in Mechanism::ALL.into_iter().zip(sinks) {
                    let error = run(mechanism, &from, &to).expect_err("too large");
                    let len = to.metadata().expect("metadata").len();
                    assert_eq!(error.moved(), len, "{mechanism}: {error}");
                    let known = [Fault::Full, Fault::Refused].contains(&error.fault);
                    assert!(known, "{mechanism}: {error}");
                    if !matches!(mechanism, Mechanism::Clone | Mechanism::CopyRange) {
                        assert_eq!(error.fault, Fault::Full, "{mechanism}: {error}");
                        assert_eq!(error.errno, Some(Errno::FBIG), "{mechanism}");
                        assert_eq!(len, LIMIT, "{mechanism}");
                    }
                    assert!(!is_blocked(libc::SIGXFSZ), "{mechanism}");
                }
            }
            None => {
                let test = "a_file_size_limit_is_an_error_and_does_not_end_the_process";
                assert_eq!(played(test, "bare").signal(), Some(libc::SIGXFSZ));
                assert_eq!(played(test, "shielded").code(), Some(0));
            }
        }
    }
}
