//! Packets that wait until they are full.

use rustix::net::sockopt::{set_tcp_cork, tcp_congestion};

use super::stream::Stream;
use crate::vocabulary::endpoint::EndpointKind;
use crate::vocabulary::limits::{CORKED_BYTES_MIN, CORKED_BYTES_MIN_UNDER_BBR};

/// Whether packets of a socket that are not full wait for more data (`TCP_CORK`, tcp(7)). A socket
/// that refuses sends the same bytes in more packets.
#[derive(Debug, Default)]
pub(super) struct Cork {
    is_in: bool,
    /// For how many bytes it pays, once the socket has been looked at.
    bytes_min: Option<u64>,
}

impl Cork {
    /// Holds them back if that pays for so many bytes to a socket of this kind.
    pub(super) fn put_in<S: Stream>(&mut self, sink: &S, kind: EndpointKind, owed: u64) {
        let bytes_min = *self.bytes_min.get_or_insert_with(|| bytes_min(sink, kind));
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

// QUIRK(cork-under-bbr): on Linux 6.18 over loopback, up to 8 MiB take 1.4 to 2.5 times the
// processor time under bbr if they are corked, 32 MiB a little more, 100 MiB and 1 GiB less.
fn bytes_min<S: Stream>(sink: &S, kind: EndpointKind) -> u64 {
    let is_bbr = || tcp_congestion(sink.descriptor()).is_ok_and(|name| name.starts_with("bbr"));
    match kind {
        EndpointKind::Tcp | EndpointKind::TcpKernelTls if is_bbr() => CORKED_BYTES_MIN_UNDER_BBR,
        EndpointKind::Tcp | EndpointKind::TcpKernelTls => CORKED_BYTES_MIN,
        _ => u64::MAX,
    }
}
