//! System calls that rustix lacks, and the only `unsafe` of this crate. Nothing here decides,
//! retries or falls back.

#![allow(unsafe_code)]

pub(crate) mod signals;

use std::os::fd::{AsRawFd, BorrowedFd};

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

/// Makes the call on descriptors −1. `EBADF` means that it exists and is allowed.
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
        // Success without a descriptor is no kernel's answer: whatever stands in front of this one
        // does not make the call.
        Errno::NOSYS
    }
}

/// Whether the kernel encrypts this TCP socket's records (`getsockopt(TCP_ULP)` returns "tls").
pub(crate) fn tcp_ulp_is_tls(socket: BorrowedFd<'_>) -> bool {
    let mut name = [0_u8; 16];
    let mut len = name.len() as libc::socklen_t;
    // SAFETY: `name` and `len` are valid for writes, and `len` holds the size of `name`.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_ULP,
            name.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    result == 0 && name.starts_with(b"tls\0")
}

/// `setsockopt(TCP_ULP, "tls")`.
pub(crate) fn attach_tls(socket: BorrowedFd<'_>) -> Result<(), Errno> {
    set_option(socket, libc::IPPROTO_TCP, libc::TCP_ULP, b"tls")
}

/// A direction of a kernel TLS socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TlsDirection {
    Send,
    Receive,
}

/// `setsockopt(SOL_TLS, TLS_TX or TLS_RX, info)`; `info` is a `struct tls12_crypto_info_…`.
pub(crate) fn install_tls_keys(
    socket: BorrowedFd<'_>,
    direction: TlsDirection,
    info: &[u8],
) -> Result<(), Errno> {
    let direction = match direction {
        TlsDirection::Send => libc::TLS_TX,
        TlsDirection::Receive => libc::TLS_RX,
    };
    set_option(socket, libc::SOL_TLS, direction, info)
}

/// `setsockopt(SO_MAX_PACING_RATE, bytes per second)`, eight bytes since Linux 4.20.
pub(crate) fn set_pacing_rate_max(
    socket: BorrowedFd<'_>,
    bytes_per_second: u64,
) -> Result<(), Errno> {
    let value = bytes_per_second.to_ne_bytes();
    set_option(socket, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, &value)
}

/// `setsockopt(TCP_DEFER_ACCEPT)`.
pub(crate) fn set_defer_accept(socket: BorrowedFd<'_>, seconds: i32) -> Result<(), Errno> {
    let value = seconds.to_ne_bytes();
    set_option(socket, libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, &value)
}

/// `getsockopt(TCP_INFO)` into `info`; returns how many bytes this kernel has of it.
pub(crate) fn tcp_info(socket: BorrowedFd<'_>, info: &mut [u8]) -> Result<usize, Errno> {
    let mut len = info.len() as libc::socklen_t;
    // SAFETY: `info` and `len` are valid for writes, and `len` holds the size of `info`.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    if result == 0 {
        Ok(len as usize)
    } else {
        Err(last_errno())
    }
}

fn set_option(socket: BorrowedFd<'_>, level: i32, name: i32, value: &[u8]) -> Result<(), Errno> {
    let (bytes, len) = (value.as_ptr().cast(), value.len() as libc::socklen_t);
    // SAFETY: `bytes` is valid for reads of `len` bytes during the call, which only reads them and
    // checks them itself.
    let result = unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, bytes, len) };
    if result == 0 {
        Ok(())
    } else {
        Err(last_errno())
    }
}

/// Pages of a file's range that are in the page cache, cachestat(2), Linux 6.5.
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
    if result == 0 {
        Ok(cached[0])
    } else {
        Err(last_errno())
    }
}

fn last_errno() -> Errno {
    let code = std::io::Error::last_os_error()
        .raw_os_error()
        .unwrap_or(libc::EIO);
    Errno::from_raw_os_error(code)
}
