//! Takes the port: one listener for each worker, all on the same address.
//!
//! The kernel spreads connections over listeners that share a port by `SO_REUSEPORT`. It would
//! also let a second instance of this program, started by the same user, share the port silently
//! and take half of the connections. So the first listener takes the port *without* that option,
//! which fails if anybody has it, and turns the option on afterwards, for its siblings only.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::sockopt;
use socket2::{Domain, Protocol, SockRef, Socket, Type};

use crate::error::Error;
use crate::limits::ConnectionLimits;

/// Which addresses of version 4 a listener on one of version 6 takes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Ipv4Mapped {
    /// Those of the same port, where it listens on all addresses.
    Included,
    /// None: another listener has them.
    Excluded,
}

/// Takes `address`: nobody else has it. Where port 0 is asked for, the kernel chooses one.
pub(crate) fn bind_first(
    address: SocketAddr,
    ipv4_mapped: Ipv4Mapped,
    limits: &ConnectionLimits,
) -> Result<OwnedFd, Error> {
    let socket = socket(address, ipv4_mapped, limits)?;
    bind(&socket, address, limits)?;
    socket
        .set_reuse_port(true)
        .map_err(|source| sorted(address, "setsockopt(SO_REUSEPORT)", source))?;
    Ok(socket.into())
}

/// One more listener on the address of a [`first`] one, with its own queue.
pub(crate) fn bind_sibling(
    address: SocketAddr,
    ipv4_mapped: Ipv4Mapped,
    limits: &ConnectionLimits,
) -> Result<OwnedFd, Error> {
    let socket = socket(address, ipv4_mapped, limits)?;
    socket
        .set_reuse_port(true)
        .map_err(|source| sorted(address, "setsockopt(SO_REUSEPORT)", source))?;
    bind(&socket, address, limits)?;
    Ok(socket.into())
}

/// Sets what accepted connections inherit, which saves setting it on each.
pub(crate) fn set_options(socket: &SockRef<'_>, limits: &ConnectionLimits) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    if socket.domain()? == Domain::UNIX {
        return Ok(());
    }
    set_stream_options(&**socket, limits)?;
    Ok(underpass::tcp::defer_accept(
        &**socket,
        limits.defer_accept,
    )?)
}

/// Sets what every connection of TCP has.
pub(crate) fn set_stream_options(socket: impl AsFd, limits: &ConnectionLimits) -> io::Result<()> {
    sockopt::set_tcp_nodelay(&socket, true)?;
    // Without a limit too: a reload may have removed one.
    let rate = limits.rate_max.map_or(u64::MAX, |rate| rate.get());
    underpass::tcp::limit_pace(&socket, rate)?;
    let timeout = limits.acknowledge_timeout.as_millis();
    sockopt::set_tcp_user_timeout(&socket, u32::try_from(timeout).unwrap_or(u32::MAX))?;
    Ok(())
}

fn socket(
    address: SocketAddr,
    ipv4_mapped: Ipv4Mapped,
    limits: &ConnectionLimits,
) -> Result<Socket, Error> {
    let make = || -> io::Result<Socket> {
        let (domain, protocol) = (Domain::for_address(address), Some(Protocol::TCP));
        let socket = Socket::new(domain, Type::STREAM.nonblocking(), protocol)?;
        socket.set_reuse_address(true)?;
        if address.is_ipv6() {
            socket.set_only_v6(ipv4_mapped == Ipv4Mapped::Excluded)?;
        }
        set_options(&SockRef::from(&socket), limits)?;
        Ok(socket)
    };
    make().map_err(|source| sorted(address, "socket", source))
}

fn bind(socket: &Socket, address: SocketAddr, limits: &ConnectionLimits) -> Result<(), Error> {
    socket
        .bind(&address.into())
        .map_err(|source| sorted(address, "bind", source))?;
    socket
        .listen(limits.backlog)
        .map_err(|source| sorted(address, "listen", source))
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

    fn listen(
        address: SocketAddr,
        count: usize,
        limits: &ConnectionLimits,
    ) -> Result<Vec<TcpListener>, Error> {
        let first = TcpListener::from(bind_first(address, Ipv4Mapped::Included, limits)?);
        let bound = first.local_addr().unwrap();
        let mut all = vec![first];
        for _ in 1..count {
            all.push(bind_sibling(bound, Ipv4Mapped::Included, limits)?.into());
        }
        Ok(all)
    }

    fn any_port() -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], 0))
    }

    #[test]
    fn a_second_instance_does_not_share_the_port() {
        let limits = ConnectionLimits::default();
        let ours = listen(any_port(), 2, &limits).unwrap();
        let address = ours[0].local_addr().unwrap();
        let second = listen(address, 2, &limits);
        assert!(matches!(second, Err(Error::AddressTaken { .. })));
    }

    #[test]
    fn a_port_is_free_again_once_its_listeners_are_closed() {
        let limits = ConnectionLimits::default();
        let ours = listen(any_port(), 2, &limits).unwrap();
        let address = ours[0].local_addr().unwrap();
        drop(ours);
        assert_eq!(listen(address, 1, &limits).unwrap().len(), 1);
    }

    #[test]
    fn every_listener_gets_its_share_of_connections() {
        let listeners = listen(any_port(), 2, &ConnectionLimits::default()).unwrap();
        let address = listeners[0].local_addr().unwrap();
        // Spread by a hash of the ports: 64 connections all to one side is a chance of 2^-63.
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
        let limits = ConnectionLimits::default();
        let listeners = listen(any_port(), 1, &limits).unwrap();
        let _client = TcpStream::connect(listeners[0].local_addr().unwrap()).unwrap();
        let (accepted, _) = listeners[0].accept().unwrap();
        let accepted = SockRef::from(&accepted);
        assert!(accepted.tcp_nodelay().unwrap());
        assert_eq!(
            accepted.tcp_user_timeout().unwrap(),
            Some(limits.acknowledge_timeout)
        );
    }
}
