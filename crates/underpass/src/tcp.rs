//! The pacing rate of a TCP connection, and the bytes its peer has acknowledged.
//!
//! A socket buffers megabytes before its peer has received any of them. Bytes written to the socket
//! therefore show neither a rate nor a slow reader: the kernel limits the rate
//! (`SO_MAX_PACING_RATE`) and reports the progress of the reader (`TCP_INFO`).

use std::array;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::io::Errno;

use crate::sys::{self, SocketOption};

/// The bytes that a peer has acknowledged.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Reached {
    /// Bytes acknowledged since the connection started.
    pub acknowledged: u64,
    /// Whether bytes are in flight or wait in the socket.
    pub outstanding: Outstanding,
}

/// Whether a socket holds bytes that its peer has not acknowledged.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Outstanding {
    /// The peer has acknowledged everything.
    Nothing,
    /// Some bytes are not acknowledged: the peer or the network is slow.
    Something,
}

/// Limits the sending rate of a socket to `bytes_per_second`, TCP headers included
/// (`SO_MAX_PACING_RATE`, socket(7)). Connections that a limited listener accepts inherit the
/// limit, each for itself. Does not block.
///
/// # Errors
/// The error of setsockopt(2); the socket is unchanged.
pub fn limit_pace(socket: impl AsFd, bytes_per_second: u64) -> Result<(), Errno> {
    let value = bytes_per_second.to_ne_bytes();
    sys::set_option(socket.as_fd(), SocketOption::PacingRateMax, &value)
}

/// Opens a connection of this process to itself over the loopback interface, to test the features
/// of its sockets, and returns both ends.
///
/// # Errors
/// Those of bind(2), connect(2) and accept(2); `ConnectionRefused` if another process connected
/// first.
pub fn loopback_pair() -> io::Result<(TcpStream, TcpStream)> {
    let any = |ip| SocketAddr::new(ip, 0);
    let addresses = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()].map(any);
    let listener = TcpListener::bind(&addresses[..])?;
    let ours = TcpStream::connect(listener.local_addr()?)?;
    let (theirs, from) = listener.accept()?;
    if from == ours.local_addr()? {
        Ok((ours, theirs))
    } else {
        let other = "another process connected first";
        Err(io::Error::new(io::ErrorKind::ConnectionRefused, other))
    }
}

/// Returns the bytes that the peer has acknowledged (`TCP_INFO`, tcp(7)). Does not block.
///
/// # Errors
/// The error of getsockopt(2); `EOPNOTSUPP` for a socket that is not TCP.
pub fn reached(socket: impl AsFd) -> Result<Reached, Errno> {
    let info = info(socket)?;
    let acknowledged = u64::from_ne_bytes(array::from_fn(|byte| info[ACKNOWLEDGED_AT + byte]));
    let nothing = word(&info, UNACKNOWLEDGED_AT) == 0 && word(&info, NOT_SENT_AT) == 0;
    let outstanding = match nothing {
        true => Outstanding::Nothing,
        false => Outstanding::Something,
    };
    Ok(Reached {
        acknowledged,
        outstanding,
    })
}

/// The answers of a peer to what was sent to it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Silence {
    /// Retransmissions and window probes since the last answer.
    pub unanswered: u32,
    /// The time since anything last arrived.
    pub heard_before: Duration,
}

/// Returns whether a peer answers, even if it only acknowledges that it takes nothing now
/// (`TCP_INFO`, tcp(7)). Does not block.
///
/// # Errors
/// The error of getsockopt(2); `EOPNOTSUPP` for a socket that is not TCP.
pub fn silence(socket: impl AsFd) -> Result<Silence, Errno> {
    let info = info(socket)?;
    let millis = word(&info, LAST_DATA_AT).min(word(&info, LAST_ACKNOWLEDGEMENT_AT));
    Ok(Silence {
        unanswered: u32::from(info[RETRANSMITS_AT]) + u32::from(info[PROBES_AT]),
        heard_before: Duration::from_millis(millis.into()),
    })
}

fn info(socket: impl AsFd) -> Result<[u8; INFO_BYTES], Errno> {
    let mut info = [0; INFO_BYTES];
    match sys::option(socket.as_fd(), SocketOption::TcpInfo, &mut info)? {
        INFO_BYTES => Ok(info),
        _ => Err(Errno::OPNOTSUPP),
    }
}

fn word(info: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(array::from_fn(|byte| info[at + byte]))
}

/// Returns the approximate number of bytes the socket accepts (`SO_MEMINFO`): half of its remaining
/// memory, since packets need more memory than they have bytes. Does not block.
///
/// # Errors
/// The error of getsockopt(2); `EOPNOTSUPP` if the kernel does not report it.
pub fn send_room(socket: impl AsFd) -> Result<u64, Errno> {
    let mut info = [0; MEMORY_BYTES];
    let known = sys::option(socket.as_fd(), SocketOption::MemoryInfo, &mut info)?;
    if known < MEMORY_BYTES {
        return Err(Errno::OPNOTSUPP);
    }
    let room = word(&info, SEND_BUFFER_AT).saturating_sub(word(&info, QUEUED_AT));
    Ok(u64::from(room / 2))
}

/// Offsets within the result of `SO_MEMINFO` (linux/sock_diag.h): `SK_MEMINFO_SNDBUF` and
/// `SK_MEMINFO_WMEM_QUEUED`, 32-bit words. Both exist since Linux 4.12.
const SEND_BUFFER_AT: usize = 3 * 4;
const QUEUED_AT: usize = 5 * 4;
const MEMORY_BYTES: usize = 6 * 4;

/// Offsets within `struct tcp_info` of linux/tcp.h: `tcpi_retransmits`, `tcpi_probes`,
/// `tcpi_unacked` (packets), `tcpi_last_data_recv`, `tcpi_last_ack_recv` (ms), `tcpi_bytes_acked`,
/// `tcpi_notsent_bytes`. All exist since Linux 4.6.
const RETRANSMITS_AT: usize = 2;
const PROBES_AT: usize = 3;
const UNACKNOWLEDGED_AT: usize = 24;
const LAST_DATA_AT: usize = 52;
const LAST_ACKNOWLEDGEMENT_AT: usize = 56;
const ACKNOWLEDGED_AT: usize = 120;
const NOT_SENT_AT: usize = 144;
const INFO_BYTES: usize = 148;

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use rustix::net::sockopt::set_socket_send_buffer_size;

    use super::*;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (listener.accept().unwrap().0, client)
    }

    #[test]
    fn what_the_peer_has_read_is_acknowledged_and_what_it_cannot_take_is_outstanding() {
        let (mut server, mut client) = pair();
        server.write_all(&[1; 1000]).unwrap();
        client.read_exact(&mut [0; 1000]).unwrap();
        // The acknowledgement may be delayed.
        let first = underpass_testkit::wait_for("acknowledgement", || {
            let first = reached(&server).unwrap();
            (first.outstanding == Outstanding::Nothing).then_some(first)
        });
        assert_eq!(first.acknowledged, 1000);
        let silence = silence(&server).unwrap();
        assert_eq!(silence.unanswered, 0);
        assert!(
            silence.heard_before < underpass_testkit::WAIT_MAX,
            "{silence:?}"
        );
        server.set_nonblocking(true).unwrap();
        let mut sent = 0;
        while let Ok(count) = server.write(&[2; 1 << 16]) {
            sent += count as u64;
        }
        let full = reached(&server).unwrap();
        assert_eq!(full.outstanding, Outstanding::Something);
        assert!(full.acknowledged < 1000 + sent, "{full:?} of {sent}");
    }

    #[test]
    fn the_room_falls_as_a_socket_fills_and_comes_back() {
        let (mut server, mut client) = pair();
        // The kernel does not change a size that was set.
        set_socket_send_buffer_size(&server, 100_000).unwrap();
        server.set_nonblocking(true).unwrap();
        let empty = send_room(&server).unwrap();
        assert!(empty >= 50_000, "{empty}");
        let (mut sent, mut rooms) = (0, vec![empty]);
        // Acknowledged bytes make room again, until the client's buffer is full too.
        underpass_testkit::wait_until("no room", || {
            while let Ok(count) = server.write(&[2; 10_000]) {
                sent += count;
                rooms.push(send_room(&server).unwrap());
            }
            send_room(&server) == Ok(0)
        });
        assert!(
            rooms.iter().any(|room| (1..empty).contains(room)),
            "{rooms:?}"
        );
        client.read_exact(&mut vec![0; sent]).unwrap();
        underpass_testkit::wait_until("room", || send_room(&server) == Ok(empty));
    }

    #[test]
    fn what_is_no_tcp_socket_is_refused() {
        let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert_eq!(reached(&socket), Err(Errno::OPNOTSUPP));
    }
}
