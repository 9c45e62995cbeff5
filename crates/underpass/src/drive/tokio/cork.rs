//! Packets that wait until they are full, and how much may wait for bbr.

use rustix::net::sockopt::{set_tcp_cork, tcp_congestion};

use super::stream::Stream;
use crate::sys::{self, SocketOption};
use crate::tcp;
use crate::vocabulary::endpoint::EndpointKind;
use crate::vocabulary::limits::{
    CORKED_BYTES_MIN, CORKED_BYTES_MIN_UNDER_BBR, NEAR_ROUND_TRIP_MAX, UNSENT_BYTES_MAX_UNDER_BBR,
};

/// Whether packets of a socket that are not full wait for more data (`TCP_CORK`, tcp(7)). A socket
/// that refuses sends the same bytes in more packets.
#[derive(Debug, Default)]
pub(super) struct Cork {
    is_in: bool,
    /// For how many bytes it pays, once the socket has been looked at.
    bytes_min: Option<u64>,
}

impl Cork {
    /// Holds them back if that pays for so many bytes to a socket of this kind. The first time, it
    /// also limits what waits in a socket under bbr whose peer is near.
    pub(super) fn put_in<S: Stream>(&mut self, sink: &S, kind: EndpointKind, owed: u64) {
        let bytes_min = *self.bytes_min.get_or_insert_with(|| adapt(sink, kind));
        if owed >= bytes_min && !self.is_in {
            let _ = set_tcp_cork(sink.descriptor(), true);
            self.is_in = true;
        }
    }

    /// Has them leave.
    pub(super) fn pull<S: Stream>(&mut self, sink: &S) {
        if self.is_in {
            let _ = set_tcp_cork(sink.descriptor(), false);
            self.is_in = false;
        }
    }
}

/// Prepares a socket for large ranges. Returns for how many bytes a cork pays.
// QUIRK(large-ranges-under-bbr): on Linux 6.18 over loopback, up to 4 MiB take up to 2.5 times the
// processor time under bbr if they are corked. Of whatever length, they take up to twice as much if
// the socket's buffer is full of bytes that wait for their time. The limit against that costs a
// twentieth of the rate on a path with a round trip of 40 ms, loss and a busy sender.
fn adapt<S: Stream>(sink: &S, kind: EndpointKind) -> u64 {
    let socket = sink.descriptor();
    match kind {
        EndpointKind::Tcp | EndpointKind::TcpKernelTls => match tcp_congestion(socket) {
            Ok(name) if name.starts_with("bbr") => {
                if tcp::round_trip(socket).is_ok_and(|span| span < NEAR_ROUND_TRIP_MAX) {
                    let most = UNSENT_BYTES_MAX_UNDER_BBR.to_ne_bytes();
                    // Without it, it costs more.
                    let _ = sys::set_option(socket, SocketOption::UnsentMax, &most);
                }
                CORKED_BYTES_MIN_UNDER_BBR
            }
            _ => CORKED_BYTES_MIN,
        },
        _ => u64::MAX,
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::time::Duration;

    use rustix::net::sockopt::{set_tcp_congestion, tcp_cork};

    use super::*;
    use crate::drive::tokio::stream::AlwaysReady;

    /// What may wait in a socket, whether it is corked, once it was prepared for so many bytes, and
    /// its round trip.
    fn prepared(congestion: &str, owed: u64) -> (u32, bool, Duration) {
        let (socket, _peer) = tcp::loopback_pair().expect("a connection");
        set_tcp_congestion(&socket, congestion).expect("congestion control");
        Cork::default().put_in(&AlwaysReady(socket.as_fd()), EndpointKind::Tcp, owed);
        let mut most = [0; 4];
        sys::option(socket.as_fd(), SocketOption::UnsentMax, &mut most).expect("an option");
        let is_corked = tcp_cork(&socket).expect("an option");
        let span = tcp::round_trip(&socket).expect("an option");
        (u32::from_ne_bytes(most), is_corked, span)
    }

    #[test]
    fn without_bbr_nothing_but_the_cork_is_set() {
        for (owed, is_large) in [(CORKED_BYTES_MIN, true), (CORKED_BYTES_MIN - 1, false)] {
            let (most, is_corked, _) = prepared("reno", owed);
            // 0 is the system's value, which is no limit.
            assert_eq!((most, is_corked), (0, is_large), "{owed}");
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
            let (most, is_corked, span) = prepared("bbr", owed);
            assert!(span > Duration::ZERO);
            let limit = match span < NEAR_ROUND_TRIP_MAX {
                true => UNSENT_BYTES_MAX_UNDER_BBR,
                false => 0,
            };
            assert_eq!((most, is_corked), (limit, is_large), "{owed}");
        }
    }
}
