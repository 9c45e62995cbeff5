//! A connection of this process to itself.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};

/// Opens a TCP connection over the loopback interface and returns both ends.
pub(crate) fn tcp_pair() -> io::Result<(TcpStream, TcpStream)> {
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
