//! SIGPIPE and SIGXFSZ must not kill a process that asked for an error.
//!
//! QUIRK(sendfile-sigpipe): sendfile and splice have no MSG_NOSIGNAL; towards a closed connection
//! they raise SIGPIPE, and beyond RLIMIT_FSIZE every write raises SIGXFSZ; both end the process
//! by default. A program that ignores them (every Rust binary ignores SIGPIPE) pays for one look;
//! in others the signal is blocked for this thread while calls are made, and what they made
//! pending is taken back.

use std::mem::MaybeUninit;
use std::ptr;

use crate::endpoint::{Kind, Offsets};

/// While it lives, the signal does not reach this thread. Not to be held across an await.
#[derive(Debug)]
pub(crate) struct Shield {
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

impl Shield {
    /// Against what a call towards such a sink may raise.
    pub(crate) fn towards(sink: Kind) -> Self {
        let signal = match sink.offsets() {
            Offsets::Explicit => libc::SIGXFSZ,
            Offsets::None => libc::SIGPIPE,
        };
        Self {
            guarded: (!is_ignored(signal)).then(|| block(signal)),
        }
    }
}

impl Drop for Shield {
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
