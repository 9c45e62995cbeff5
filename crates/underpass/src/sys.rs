//! System calls that rustix lacks, and the only `unsafe` of this crate. Nothing here decides,
//! retries or falls back.

#![allow(unsafe_code)]

use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use rustix::io::Errno;

/// `struct file_clone_range` of linux/fs.h.
#[repr(C)]
struct FileCloneRange {
    src_fd: i64,
    src_offset: u64,
    src_length: u64,
    dest_offset: u64,
}

const FICLONERANGE: rustix::ioctl::Opcode =
    rustix::ioctl::opcode::write::<FileCloneRange>(0x94, 13);

/// `ioctl(sink, FICLONERANGE, {source, from, len, to})`, ioctl_ficlonerange(2).
pub(crate) fn clone_range(
    source: BorrowedFd<'_>,
    sink: BorrowedFd<'_>,
    from: u64,
    to: u64,
    len: u64,
) -> Result<(), Errno> {
    let range = FileCloneRange {
        src_fd: i64::from(source.as_raw_fd()),
        src_offset: from,
        src_length: len,
        dest_offset: to,
    };
    // SAFETY: the opcode takes a pointer to a `file_clone_range`, which the kernel only reads; its
    // layout is the one above; `source` stays open for the whole call because it is borrowed.
    unsafe {
        let call = rustix::ioctl::Setter::<FICLONERANGE, FileCloneRange>::new(range);
        rustix::ioctl::ioctl(sink, call)
    }
}

/// A call that can be made on descriptors −1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Probe {
    FileClone,
    CopyFileRange,
    Sendfile,
    Splice,
    Read,
}

/// Makes the call on descriptors −1. `EBADF` means that it exists and is permitted.
pub(crate) fn probe(call: Probe) -> Errno {
    let null = std::ptr::null_mut::<u8>();
    // SAFETY: descriptor −1 is never open, so that the calls fail before they look at their other
    // arguments, which are null pointers where pointers are expected: "no offset".
    let result = unsafe {
        match call {
            Probe::FileClone => libc::syscall(libc::SYS_ioctl, -1, FICLONERANGE, null),
            Probe::CopyFileRange => {
                libc::syscall(libc::SYS_copy_file_range, -1, null, -1, null, 1_usize, 0)
            }
            Probe::Sendfile => libc::syscall(libc::SYS_sendfile, -1, -1, null, 1_usize),
            Probe::Splice => libc::syscall(libc::SYS_splice, -1, null, -1, null, 1_usize, 0),
            Probe::Read => libc::syscall(libc::SYS_read, -1, null, 1_usize),
        }
    };
    if result == -1 {
        last_errno()
    } else {
        // No kernel succeeds without a descriptor: an interceptor, such as a seccomp filter,
        // answered without making the call.
        Errno::NOSYS
    }
}

/// An option of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SocketOption {
    /// `SO_MAX_PACING_RATE`: bytes per second, in eight bytes since Linux 4.20.
    PacingRateMax,
    /// `TCP_NOTSENT_LOWAT`: bytes.
    #[cfg(feature = "tokio")]
    UnsentMax,
    /// `TCP_INFO`: a `struct tcp_info`.
    TcpInfo,
    /// `SO_MEMINFO`: 32-bit words.
    MemoryInfo,
    /// `TCP_ULP`: the name of a protocol.
    UpperProtocol,
    /// `TLS_TX`: a `struct tls12_crypto_info_…`.
    TlsSend,
    /// `TLS_RX`: the same.
    TlsReceive,
}

impl SocketOption {
    const fn level_and_name(self) -> (libc::c_int, libc::c_int) {
        match self {
            Self::PacingRateMax => (libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE),
            #[cfg(feature = "tokio")]
            Self::UnsentMax => (libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT),
            Self::TcpInfo => (libc::IPPROTO_TCP, libc::TCP_INFO),
            Self::MemoryInfo => (libc::SOL_SOCKET, libc::SO_MEMINFO),
            Self::UpperProtocol => (libc::IPPROTO_TCP, libc::TCP_ULP),
            Self::TlsSend => (libc::SOL_TLS, libc::TLS_TX),
            Self::TlsReceive => (libc::SOL_TLS, libc::TLS_RX),
        }
    }
}

/// Calls `setsockopt(2)`.
pub(crate) fn set_option(
    socket: BorrowedFd<'_>,
    option: SocketOption,
    value: &[u8],
) -> Result<(), Errno> {
    let (level, name) = option.level_and_name();
    let (bytes, len) = (value.as_ptr().cast(), value.len() as libc::socklen_t);
    // SAFETY: `bytes` is valid for reads of `len` bytes during the call, which only reads them and
    // checks them itself.
    succeeded(unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, bytes, len) })
}

/// Calls `getsockopt(2)` into `value`; returns the number of bytes this kernel provides.
pub(crate) fn option(
    socket: BorrowedFd<'_>,
    option: SocketOption,
    value: &mut [u8],
) -> Result<usize, Errno> {
    let (level, name) = option.level_and_name();
    let (bytes, mut len) = (value.as_mut_ptr().cast(), value.len() as libc::socklen_t);
    // SAFETY: `bytes` and `len` are valid for writes, and `len` holds the size of `value`.
    succeeded(unsafe { libc::getsockopt(socket.as_raw_fd(), level, name, bytes, &raw mut len) })?;
    Ok(len as usize)
}

/// Sends a non-data TLS record: sendmsg(2) with `TLS_SET_RECORD_TYPE`.
pub(crate) fn send_record(
    socket: BorrowedFd<'_>,
    record_type: u8,
    content: &[u8],
) -> Result<usize, Errno> {
    /// A `struct cmsghdr` followed by one byte; `usize` aligns it.
    const CONTROL_WORDS: usize = 4;
    let mut control = [0_usize; CONTROL_WORDS];
    let mut part = libc::iovec {
        iov_base: content.as_ptr().cast_mut().cast(),
        iov_len: content.len(),
    };
    // SAFETY: all-zero is a valid `msghdr`; `part` and `control` outlive the call, which only reads
    // them and `content`. CMSG_FIRSTHDR points into `control`, which has room for a header and
    // CMSG_SPACE(1), is aligned for it, and is initialised.
    let sent = unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = libc::CMSG_SPACE(1) as _;
        debug_assert!(libc::CMSG_SPACE(1) as usize <= size_of_val(&control));
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_TLS;
        (*header).cmsg_type = libc::TLS_SET_RECORD_TYPE;
        (*header).cmsg_len = libc::CMSG_LEN(1) as _;
        *libc::CMSG_DATA(header) = record_type;
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        libc::sendmsg(socket.as_raw_fd(), &raw const message, flags)
    };
    usize::try_from(sent).map_err(|_| last_errno())
}

/// Overwrites a secret with zeros; the compiler does not elide this.
pub(crate) fn wipe(secret: &mut [u8]) {
    // SAFETY: the slice is valid for writes of its length.
    unsafe { libc::explicit_bzero(secret.as_mut_ptr().cast(), secret.len()) };
}

/// Returns the cached pages of a file's range, cachestat(2), Linux 6.5.
#[cfg(feature = "tokio")]
pub(crate) fn cached_pages(file: BorrowedFd<'_>, from: u64, len: u64) -> Result<u64, Errno> {
    /// The same number on every architecture, as for all calls since 2019.
    const SYS_CACHESTAT: libc::c_long = 451;
    let range = [from, len];
    let mut cached = [0_u64; 5];
    // SAFETY: `range` is a `struct cachestat_range` (two u64), `cached` a `struct cachestat` (five
    // u64, the first one `nr_cache`); both outlive the call.
    let result = unsafe {
        libc::syscall(
            SYS_CACHESTAT,
            file.as_raw_fd(),
            range.as_ptr(),
            cached.as_mut_ptr(),
            0,
        )
    };
    succeeded(result).map(|()| cached[0])
}

fn succeeded(result: impl Into<i64>) -> Result<(), Errno> {
    match result.into() {
        0 => Ok(()),
        _ => Err(last_errno()),
    }
}

fn last_errno() -> Errno {
    let code = std::io::Error::last_os_error()
        .raw_os_error()
        .unwrap_or(libc::EIO);
    Errno::from_raw_os_error(code)
}

/// Keeps the signal from this thread until dropped. Must not be held across an await.
///
/// QUIRK(sendfile-sigpipe): sendfile and splice have no MSG_NOSIGNAL; into a closed connection they
/// raise SIGPIPE, and beyond RLIMIT_FSIZE every write raises SIGXFSZ; both end the process by
/// default. A program that ignores them (every Rust binary ignores SIGPIPE) pays for one
/// `sigaction`; in others the signal is blocked for this thread while calls are made, and signals
/// that they left pending are discarded.
#[derive(Debug)]
pub(crate) struct SignalGuard {
    guarded: Option<Guarded>,
}

#[derive(Debug)]
struct Guarded {
    before: libc::sigset_t,
    /// The signal, unless it was pending before.
    ours: libc::sigset_t,
}

/// A signal that calls may raise and that the program does not ignore.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnignoredSignal(libc::c_int);

impl UnignoredSignal {
    /// Returns the signal, unless the program ignores it now.
    pub(crate) fn unless_ignored(signal: libc::c_int) -> Option<Self> {
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

/// Returns whether this process ignores a signal, given by its number. One that was ignored when
/// the program started (nohup, a script's background job) should stay ignored. Does not block.
pub fn is_ignored(signal: i32) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: a null new action only queries; `action` is valid for writes, and all-zero is valid.
    let action = unsafe {
        libc::sigaction(signal, ptr::null(), action.as_mut_ptr());
        action.assume_init()
    };
    action.sa_sigaction == libc::SIG_IGN
}

/// Returns whether this process may write files of a limited size only (`RLIMIT_FSIZE`,
/// getrlimit(2)): otherwise no write raises SIGXFSZ. Does not block.
pub(crate) fn is_file_size_limited() -> bool {
    let mut limit = MaybeUninit::<libc::rlimit>::zeroed();
    // SAFETY: `limit` is valid for writes, and all-zero is valid.
    let limit = unsafe {
        libc::getrlimit(libc::RLIMIT_FSIZE, limit.as_mut_ptr());
        limit.assume_init()
    };
    limit.rlim_cur != libc::RLIM_INFINITY
}

static IS_STDOUT_CLOSED: AtomicBool = AtomicBool::new(false);
static IS_STDERR_CLOSED: AtomicBool = AtomicBool::new(false);

/// Called before `main`, and before std opens /dev/null in place of a closed stream.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK_AT_OUTPUTS: extern "C" fn() = {
    extern "C" fn look() {
        for (stream, is_closed) in [
            (libc::STDOUT_FILENO, &IS_STDOUT_CLOSED),
            (libc::STDERR_FILENO, &IS_STDERR_CLOSED),
        ] {
            // SAFETY: the call takes no pointers, and fails where the descriptor is not open.
            let flags = unsafe { libc::fcntl(stream, libc::F_GETFD) };
            is_closed.store(flags < 0, Relaxed);
        }
    }
    look
};

/// Whether standard output was closed when the program started (`>&-`). What is written to it is
/// lost, and no error says so. Does not block.
pub fn is_stdout_closed() -> bool {
    IS_STDOUT_CLOSED.load(Relaxed)
}

/// Whether standard error was closed when the program started (`2>&-`). What is written to it is
/// lost, and no error says so. Does not block.
pub fn is_stderr_closed() -> bool {
    IS_STDERR_CLOSED.load(Relaxed)
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

/// Discards the signals our calls left pending, so that restoring the mask does not deliver them.
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

    /// Selects the part that a child process plays: signals affect the whole process.
    const PART: &str = "UNDERPASS_TEST_SIGNALS_PART";

    /// Runs one test again, in a process that plays `part`.
    fn played(test: &str, part: &str) -> ExitStatus {
        Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", &format!("sys::tests::{test}")])
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
        // SAFETY: a null new mask only queries; `mask` is valid for writes.
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
