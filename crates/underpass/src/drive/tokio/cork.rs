//! Corking: packets that wait until they are full, and limits on buffered bytes under bbr.

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use rustix::net::sockopt::{set_tcp_cork, tcp_congestion};
use rustix::net::{SocketAddrAny, getpeername, getsockname};

use super::stream::Stream;
use crate::sys::{self, SocketOption};
use crate::vocabulary::endpoint::EndpointKind;
use crate::vocabulary::limits::{
    CORKED_BYTES_MIN, CORKED_BYTES_MIN_UNDER_BBR, TURN_BYTES_MAX_UNDER_BBR,
    UNSENT_BYTES_MAX_UNDER_BBR,
};

/// Whether packets of a socket that are not full wait for more data (`TCP_CORK`, tcp(7)). A socket
/// that rejects the option sends the same bytes in more packets.
#[derive(Debug, Default)]
pub(super) struct Cork {
    is_in: bool,
    /// The settings of the socket, once determined.
    pays: Option<Pays>,
}

/// The settings for large ranges to a socket.
#[derive(Clone, Copy, Debug)]
struct Pays {
    /// The smallest range that is worth a cork.
    corked_bytes_min: u64,
    /// The largest turn.
    turn_bytes_max: u64,
}

impl Cork {
    /// Corks the socket if that pays for `owed` bytes to a socket of this kind. The first time, it
    /// also limits the bytes buffered in a socket under bbr whose peer is on the same machine.
    pub(super) fn put_in<S: Stream>(&mut self, sink: &S, kind: EndpointKind, owed: u64) {
        let pays = *self.pays.get_or_insert_with(|| adapt(sink, kind));
        if owed >= pays.corked_bytes_min && !self.is_in {
            let _ = set_tcp_cork(sink.descriptor(), true);
            self.is_in = true;
        }
    }

    /// Uncorks the socket: the held packets leave.
    pub(super) fn pull<S: Stream>(&mut self, sink: &S) {
        if self.is_in {
            let _ = set_tcp_cork(sink.descriptor(), false);
            self.is_in = false;
        }
    }

    /// Sends the bytes buffered in a limited socket: a packet that is not full may use up the
    /// limit, and would wait for the kernel's timer.
    pub(super) fn push<S: Stream>(&self, sink: &S) {
        if self.turn_bytes_max() < u64::MAX {
            let _ = set_tcp_cork(sink.descriptor(), false);
            if self.is_in {
                let _ = set_tcp_cork(sink.descriptor(), true);
            }
        }
    }

    /// Returns the largest turn that pays.
    pub(super) fn turn_bytes_max(&self) -> u64 {
        self.pays.map_or(u64::MAX, |pays| pays.turn_bytes_max)
    }
}

/// Prepares a socket for large ranges.
// QUIRK(large-ranges-under-bbr): on Linux 6.18 over loopback, ranges take up to twice the processor
// time under bbr if the socket is not empty by its next turn; on some processors, ranges of up to
// 100 MiB to a few peers do so too if they are corked.
fn adapt<S: Stream>(sink: &S, kind: EndpointKind) -> Pays {
    let socket = sink.descriptor();
    let mut pays = Pays {
        corked_bytes_min: CORKED_BYTES_MIN,
        turn_bytes_max: u64::MAX,
    };
    match kind {
        EndpointKind::Tcp | EndpointKind::TcpKernelTls => {
            if tcp_congestion(socket).is_ok_and(|name| name.starts_with("bbr")) {
                pays.corked_bytes_min = CORKED_BYTES_MIN_UNDER_BBR;
                if is_on_this_machine(socket) {
                    pays.turn_bytes_max = TURN_BYTES_MAX_UNDER_BBR;
                    let most = UNSENT_BYTES_MAX_UNDER_BBR.to_ne_bytes();
                    // Without this limit, it costs more.
                    let _ = sys::set_option(socket, SocketOption::UnsentMax, &most);
                }
            }
        }
        _ => pays.corked_bytes_min = u64::MAX,
    }
    pays
}

/// Returns whether the peer of a socket has the same address: no packet leaves the machine.
fn is_on_this_machine(socket: BorrowedFd<'_>) -> bool {
    let ip = |name: SocketAddrAny| SocketAddr::try_from(name).ok().map(|name| name.ip());
    let ours = getsockname(socket).ok().and_then(ip);
    let peers = getpeername(socket).ok().flatten().and_then(ip);
    ours.is_some() && ours == peers
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::fd::AsFd;

    use rustix::io::{Errno, ioctl_fionread};
    use rustix::net::SendFlags;
    use rustix::net::sockopt::{set_tcp_congestion, tcp_cork};
    use rustix::pipe::{SpliceFlags, fcntl_setpipe_size, pipe, splice};

    use underpass_testkit::wait_until;

    use super::*;
    use crate::drive::tokio::stream::AlwaysReady;
    use crate::tcp;
    use crate::vocabulary::limits::PIPE_BYTES;

    /// Prepares a socket for `owed` bytes; returns its limit on unsent bytes, whether it is corked,
    /// and its largest turn.
    fn prepared(congestion: &str, owed: u64) -> (u32, bool, u64) {
        let (socket, _peer) = tcp::loopback_pair().expect("a connection");
        set_tcp_congestion(&socket, congestion).expect("congestion control");
        let mut cork = Cork::default();
        cork.put_in(&AlwaysReady(socket.as_fd()), EndpointKind::Tcp, owed);
        let mut most = [0; 4];
        sys::option(socket.as_fd(), SocketOption::UnsentMax, &mut most).expect("an option");
        let is_corked = tcp_cork(&socket).expect("an option");
        (u32::from_ne_bytes(most), is_corked, cork.turn_bytes_max())
    }

    #[test]
    fn without_bbr_nothing_but_the_cork_is_set() {
        for (owed, is_large) in [(CORKED_BYTES_MIN, true), (CORKED_BYTES_MIN - 1, false)] {
            // 0 is the system default: no limit.
            assert_eq!(prepared("reno", owed), (0, is_large, u64::MAX), "{owed}");
        }
    }

    /// QUIRK(large-ranges-under-bbr)
    #[test]
    #[ignore = "needs bbr; run by cargo xtask test"]
    fn large_ranges_under_bbr_wait_in_the_server() {
        for (owed, is_large) in [
            (CORKED_BYTES_MIN_UNDER_BBR, true),
            (CORKED_BYTES_MIN_UNDER_BBR - 1, false),
        ] {
            let limits = (
                UNSENT_BYTES_MAX_UNDER_BBR,
                is_large,
                TURN_BYTES_MAX_UNDER_BBR,
            );
            assert_eq!(prepared("bbr", owed), limits, "{owed}");
        }
    }

    /// QUIRK(large-ranges-under-bbr)
    #[test]
    #[ignore = "needs bbr; run by cargo xtask test"]
    fn a_packet_that_is_not_full_leaves_before_the_socket_is_waited_for() {
        let (mut socket, mut peer) = tcp::loopback_pair().expect("a connection");
        set_tcp_congestion(&socket, "bbr").expect("congestion control");
        // Packets are half the peer's window until that has grown.
        for _ in 0..64 {
            socket.write_all(&[7; 1 << 15]).expect("room");
            peer.read_exact(&mut [0; 1 << 15]).expect("content");
        }
        wait_until("acknowledgement", || {
            tcp::reached(&socket).is_ok_and(|one| one.outstanding == tcp::Outstanding::Nothing)
        });
        let mut cork = Cork::default();
        let sink = AlwaysReady(socket.as_fd());
        cork.put_in(&sink, EndpointKind::Tcp, CORKED_BYTES_MIN);
        socket.set_nonblocking(true).expect("an option");
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(&[7; 1 << 18]).expect("content");
        // The kernel splits it into calls of 16 pages, the first of which starts within a page.
        let mut at = 2048;
        let (output, input) = pipe().expect("a pipe");
        fcntl_setpipe_size(&input, PIPE_BYTES).expect("a size");
        let flags = SpliceFlags::empty();
        splice(&file, Some(&mut at), &input, None, 1 << 17, flags).expect("pages");
        let head = rustix::net::send(&socket, b"head", SendFlags::MORE);
        assert_eq!(head, Ok(4));
        let send = || splice(&output, None, &socket, None, 1 << 17, flags);
        assert_eq!(send(), Ok((1 << 16) - 2048));
        assert_eq!(send(), Err(Errno::AGAIN));
        let arrived = || ioctl_fionread(&peer).expect("a number");
        assert_eq!(arrived(), 0);
        cork.push(&sink);
        assert_eq!(arrived(), 4 + (1 << 16) - 2048);
    }
}
