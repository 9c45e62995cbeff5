//! The transport of a connection: a socket, and TLS on it if the server has TLS.

use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::error::{Error, ErrorContext, Result};
use crate::tls::{TlsClient, TlsStream};

/// A server on the loopback accepts a connection immediately or not at all.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The limit for a server to read a request from its socket.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);

/// The address of a server, and its TLS settings.
#[derive(Clone, Debug)]
pub(crate) struct ServerAddress {
    pub(crate) socket: SocketAddr,
    /// `None`: plain HTTP.
    pub(crate) tls: Option<TlsClient>,
}

pub(super) struct ClientTransport {
    stream: TcpStream,
    security: TransportSecurity,
}

enum TransportSecurity {
    Plain,
    /// The handshake has not started, and has not taken a ticket yet.
    Client(TlsClient),
    Tls(Box<TlsStream>),
}

impl ClientTransport {
    /// Opens a connection, without the TLS handshake.
    pub(super) fn connect(address: &ServerAddress) -> Result<ClientTransport> {
        let context = || format!("connecting to {}", address.socket);
        let stream = TcpStream::connect_timeout(&address.socket, CONNECT_TIMEOUT);
        let stream = stream.context(context)?;
        stream.set_nodelay(true).context(context)?;
        stream.set_nonblocking(true).context(context)?;
        let tls = address.tls.clone();
        Ok(ClientTransport {
            stream,
            security: tls.map_or(TransportSecurity::Plain, TransportSecurity::Client),
        })
    }

    pub(super) fn is_shaking(&self) -> bool {
        match &self.security {
            TransportSecurity::Plain => false,
            TransportSecurity::Client(_) => true,
            TransportSecurity::Tls(tls) => tls.is_shaking(),
        }
    }

    /// Continues the handshake, if it is not complete.
    pub(super) fn shake(&mut self) -> Result<()> {
        if let TransportSecurity::Client(tls) = &self.security {
            self.security = TransportSecurity::Tls(Box::new(tls.connect()?));
        }
        match &mut self.security {
            TransportSecurity::Tls(tls) => tls.shake(&self.stream),
            _ => Ok(()),
        }
    }

    /// Completes the handshake, each part of which may take this long.
    pub(super) fn complete_handshake(&mut self, limit: Duration) -> Result<()> {
        while self.is_shaking() {
            match self.shake() {
                Err(error) if error.would_block() => wait(self, PollFlags::IN, limit)?,
                done => done?,
            }
        }
        Ok(())
    }

    pub(super) fn is_encrypted(&self) -> bool {
        !matches!(self.security, TransportSecurity::Plain)
    }

    pub(super) fn is_resumed(&self) -> bool {
        matches!(&self.security, TransportSecurity::Tls(tls) if tls.is_resumed())
    }

    /// Whether nothing can be received before the socket is readable.
    pub(super) fn is_drained(&self) -> bool {
        match &self.security {
            TransportSecurity::Tls(tls) => tls.is_drained(),
            _ => true,
        }
    }

    /// Sends a request, and waits for a server that doesn't receive it.
    pub(super) fn send(&mut self, request: &[u8]) -> Result<()> {
        let TransportSecurity::Tls(tls) = &mut self.security else {
            return send_all(&self.stream, request);
        };
        tls.seal(request)?;
        loop {
            match tls.flush(&self.stream) {
                Err(error) if error.would_block() => {
                    wait(&self.stream, PollFlags::OUT, SEND_TIMEOUT)?;
                }
                sent => return sent,
            }
        }
    }

    /// Sends what the socket takes without waiting, or all of it under TLS, and returns how much
    /// that is.
    pub(super) fn send_part(&mut self, request: &[u8]) -> Result<usize> {
        if self.is_encrypted() {
            return self.send(request).map(|()| request.len());
        }
        match retry_on_intr(|| send(&self.stream, request, SendFlags::NOSIGNAL)) {
            Err(Errno::AGAIN) => Ok(0),
            sent => sent.context(|| "sending a request".into()),
        }
    }

    /// Receives at least one byte; the end of the stream is an error here.
    pub(super) fn receive(&mut self, space: &mut [u8]) -> Result<usize> {
        match &mut self.security {
            TransportSecurity::Tls(tls) => tls.receive(&self.stream, space),
            _ => receive(&self.stream, space, RecvFlags::empty()),
        }
    }

    /// Discards a part of the `left` bytes that are owed, at most as much as `space` has room for,
    /// and returns how much. Without TLS the kernel does it.
    pub(super) fn discard(&mut self, left: u64, space: &mut [u8]) -> Result<u64> {
        let wanted = usize::try_from(left).unwrap_or(usize::MAX).min(space.len());
        let got = match &mut self.security {
            TransportSecurity::Tls(tls) => tls.receive(&self.stream, &mut space[..wanted]),
            _ => receive(&self.stream, &mut space[..wanted], RecvFlags::TRUNC),
        };
        got.map(|got| got as u64)
    }

    /// Receives the end of the connection behind a whole response.
    pub(super) fn end(&mut self) -> Result<()> {
        if let TransportSecurity::Tls(tls) = &mut self.security {
            return tls.end(&self.stream);
        }
        let end = retry_on_intr(|| recv(&self.stream, &mut [0], RecvFlags::empty()));
        match end.context(|| "waiting for the end of a connection".into())? {
            (_, 0) => Ok(()),
            _ => Err(Error::Answer("more bytes than announced".into())),
        }
    }

    /// Receives where nothing is owed: a session ticket is in order, everything else an error.
    pub(super) fn idle(&mut self) -> Result<()> {
        if let TransportSecurity::Tls(tls) = &mut self.security {
            return tls.idle(&self.stream);
        }
        receive(&self.stream, &mut [0], RecvFlags::empty())?;
        Err(Error::Answer("more bytes than announced".into()))
    }

    /// Whether the server has sent something, or closed the connection.
    pub(super) fn is_readable(&self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let peeked = recv(&self.stream, &mut [0], flags);
        !self.is_drained() || !matches!(peeked, Err(Errno::AGAIN | Errno::INTR))
    }
}

impl AsFd for ClientTransport {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// Waits until a socket is readable or writable.
pub(super) fn wait(socket: &impl AsFd, events: PollFlags, limit: Duration) -> Result<()> {
    let mut ready = [PollFd::new(socket, events)];
    let ready = poll(&mut ready, Timespec::try_from(limit).ok().as_ref());
    match ready.context(|| "waiting for the server".into())? {
        0 => Err(Error::Answer(format!("nothing is received for {limit:?}"))),
        _ => Ok(()),
    }
}

fn send_all(stream: &TcpStream, mut bytes: &[u8]) -> Result<()> {
    while !bytes.is_empty() {
        match retry_on_intr(|| send(stream, bytes, SendFlags::NOSIGNAL)) {
            Err(Errno::AGAIN) => wait(stream, PollFlags::OUT, SEND_TIMEOUT)?,
            sent => bytes = &bytes[sent.context(|| "sending a request".into())?..],
        }
    }
    Ok(())
}

fn receive(stream: &TcpStream, space: &mut [u8], flags: RecvFlags) -> Result<usize> {
    let received = retry_on_intr(|| recv(stream, &mut *space, flags));
    match received.context(|| "receiving a response".into())? {
        (_, 0) => Err(Error::Answer("the server closed the connection".into())),
        (_, got) => Ok(got),
    }
}

#[cfg(test)]
impl From<SocketAddr> for ServerAddress {
    fn from(socket: SocketAddr) -> ServerAddress {
        ServerAddress { socket, tls: None }
    }
}
