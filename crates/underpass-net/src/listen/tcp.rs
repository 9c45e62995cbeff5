//! TCP listeners: one socket for each worker, all on the same address.
//!
//! The kernel distributes connections over listeners that share a port by `SO_REUSEPORT`. It would
//! also let a second instance of this program, started by the same user, share the port silently
//! and get half of the connections. So the first listener binds *without* that option, which fails
//! if the port is in use, and sets the option afterwards, for its siblings only.

use std::io;
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::ioctl_fionbio;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, sockopt};

use crate::error::Error;
use crate::limits::BACKLOG;

/// Whether an IPv6 listener accepts IPv4 connections.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Ipv4Mapped {
    /// Accepts them, if it listens on all addresses.
    Included,
    /// Leaves them to another listener.
    Excluded,
}

/// The maximum rate of a connection, in bytes per second.
pub(crate) type RateMax = Option<NonZeroU64>;

/// Binds `address` exclusively. For port 0 the kernel chooses a port.
pub(crate) fn bind_first(
    address: SocketAddr,
    ipv4_mapped: Ipv4Mapped,
    rate_max: RateMax,
) -> Result<OwnedFd, Error> {
    let socket = socket(address, ipv4_mapped, rate_max)?;
    bind(&socket, address)?;
    share_port(&socket, address)?;
    Ok(socket)
}

/// Binds another socket to the address of a [`first`] one, with its own queue.
pub(crate) fn bind_sibling(
    address: SocketAddr,
    ipv4_mapped: Ipv4Mapped,
    rate_max: RateMax,
) -> Result<OwnedFd, Error> {
    let socket = socket(address, ipv4_mapped, rate_max)?;
    share_port(&socket, address)?;
    bind(&socket, address)?;
    Ok(socket)
}

/// Sets options that accepted connections inherit, which saves a call for each.
pub(crate) fn set_options(socket: impl AsFd, rate_max: RateMax) -> io::Result<()> {
    ioctl_fionbio(&socket, true)?;
    if sockopt::socket_domain(&socket)? == AddressFamily::UNIX {
        return Ok(());
    }
    set_stream_options(&socket, rate_max)
}

/// Sets the options of every TCP connection.
pub(crate) fn set_stream_options(socket: impl AsFd, rate_max: RateMax) -> io::Result<()> {
    sockopt::set_tcp_nodelay(&socket, true)?;
    // Also without a limit: a reload may have removed one.
    let rate = rate_max.map_or(u64::MAX, |rate| rate.get());
    // No TCP_USER_TIMEOUT: it also resets peers that keep reading, but whose window never has room
    // for the whole next packet, which over loopback has 64 KiB.
    Ok(underpass::tcp::limit_pace(&socket, rate)?)
}

fn socket(
    address: SocketAddr,
    ipv4_mapped: Ipv4Mapped,
    rate_max: RateMax,
) -> Result<OwnedFd, Error> {
    let make = || -> io::Result<OwnedFd> {
        let family = match address.is_ipv6() {
            true => AddressFamily::INET6,
            false => AddressFamily::INET,
        };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(family, SocketType::STREAM, flags, None)?;
        sockopt::set_socket_reuseaddr(&socket, true)?;
        if address.is_ipv6() {
            sockopt::set_ipv6_v6only(&socket, ipv4_mapped == Ipv4Mapped::Excluded)?;
        }
        set_options(&socket, rate_max)?;
        Ok(socket)
    };
    make().map_err(|source| sorted(address, "socket", source))
}

fn share_port(socket: &OwnedFd, address: SocketAddr) -> Result<(), Error> {
    sockopt::set_socket_reuseport(socket, true)
        .map_err(|errno| sorted(address, "setsockopt(SO_REUSEPORT)", errno.into()))
}

fn bind(socket: &OwnedFd, address: SocketAddr) -> Result<(), Error> {
    rustix::net::bind(socket, &address).map_err(|errno| sorted(address, "bind", errno.into()))?;
    rustix::net::listen(socket, BACKLOG).map_err(|errno| sorted(address, "listen", errno.into()))
}

fn sorted(address: SocketAddr, call: &'static str, source: io::Error) -> Error {
    match source.kind() {
        io::ErrorKind::AddrInUse => Error::AddressTaken { address },
        io::ErrorKind::AddrNotAvailable => Error::AddressNotHere { address },
        io::ErrorKind::PermissionDenied => Error::PortForbidden { address },
        _ => Error::Listen {
            address,
            call,
            source,
        },
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    fn listen(address: SocketAddr, count: usize) -> Result<Vec<TcpListener>, Error> {
        let first = TcpListener::from(bind_first(address, Ipv4Mapped::Included, None)?);
        let bound = first.local_addr().unwrap();
        let mut all = vec![first];
        for _ in 1..count {
            all.push(bind_sibling(bound, Ipv4Mapped::Included, None)?.into());
        }
        Ok(all)
    }

    fn any_port() -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], 0))
    }

    #[test]
    fn a_second_instance_does_not_share_the_port() {
        let ours = listen(any_port(), 2).unwrap();
        let address = ours[0].local_addr().unwrap();
        let second = listen(address, 2);
        assert!(matches!(second, Err(Error::AddressTaken { .. })));
    }

    #[test]
    fn a_port_is_free_again_once_its_listeners_are_closed() {
        let ours = listen(any_port(), 2).unwrap();
        let address = ours[0].local_addr().unwrap();
        drop(ours);
        assert_eq!(listen(address, 1).unwrap().len(), 1);
    }

    #[test]
    fn every_listener_gets_its_share_of_connections() {
        let listeners = listen(any_port(), 2).unwrap();
        let address = listeners[0].local_addr().unwrap();
        // Distributed by a hash of the ports: all 64 on one side has a probability of 2^-63.
        let clients: Vec<_> = (0..64)
            .map(|_| TcpStream::connect(address).unwrap())
            .collect();
        let accepted: Vec<usize> = listeners
            .iter()
            .map(|listener| std::iter::from_fn(|| listener.accept().ok()).count())
            .collect();
        assert_eq!(accepted.iter().sum::<usize>(), clients.len());
        assert!(accepted.iter().all(|&count| count > 0), "{accepted:?}");
    }

    #[test]
    fn accepted_connections_inherit_the_options() {
        let listeners = listen(any_port(), 1).unwrap();
        let _client = TcpStream::connect(listeners[0].local_addr().unwrap()).unwrap();
        let (accepted, _) = listeners[0].accept().unwrap();
        assert!(accepted.nodelay().unwrap());
        assert_eq!(sockopt::tcp_user_timeout(&accepted), Ok(0));
    }
}
