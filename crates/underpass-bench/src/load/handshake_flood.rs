//! Clients that begin a handshake and never finish it, which costs them next to nothing and the
//! server a signature.
//!
//! ```text
//!  connect ─► ClientHello ─► the server's answer, up to its last byte ─► reset ─► connect …
//! ```
//!
//! The ClientHello is always the same one, so that this program calculates nothing. A server draws
//! its random number and its key share anew, and signs, for each.

use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{Timespec, epoll};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{RecvFlags, SendFlags, recv, send, sockopt};

use super::transport::ServerAddress;
use crate::error::{Error, ErrorContext, Result};
use crate::tls::HandshakeOpening;

const TIMEOUT: Duration = Duration::from_secs(5);

/// A certificate and what is around it.
const RECEIVE_BYTES: usize = 8 << 10;

/// The type of a record with a message of a handshake (RFC 8446, section 5.1).
const HANDSHAKE_RECORD: u8 = 22;

/// By so much an answer may be shorter than the first one: signatures of ECDSA differ in length.
const SHORTER_BYTES_MAX: usize = 16;

/// Connections each of which is replaced as soon as the server has answered its ClientHello.
pub(crate) struct HandshakeFlood {
    address: SocketAddr,
    opening: HandshakeOpening,
    epoll: OwnedFd,
    attempts: Vec<HandshakeAttempt>,
    answered: u64,
}

struct HandshakeAttempt {
    stream: TcpStream,
    received: usize,
}

impl HandshakeFlood {
    /// Begins so many handshakes with a server that has TLS.
    pub(crate) fn open(address: &ServerAddress, connections: usize) -> Result<HandshakeFlood> {
        let tls = address.tls.as_ref();
        let tls = tls.ok_or_else(|| Error::Setting("handshakes need TLS".into()))?;
        let stream = connect(address.socket)?;
        let limited = stream.set_read_timeout(Some(TIMEOUT));
        limited.context(|| "limiting the time of a handshake".into())?;
        let opening = tls.handshake()?.open(&stream)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC);
        let mut flood = HandshakeFlood {
            address: address.socket,
            opening,
            epoll: epoll.context(|| "creating epoll".into())?,
            attempts: Vec::with_capacity(connections),
            answered: 0,
        };
        for number in 0..connections {
            let attempt = flood.attempt(number)?;
            flood.attempts.push(attempt);
        }
        Ok(flood)
    }

    /// Handshakes that the server has answered.
    pub(crate) fn answered(&self) -> u64 {
        self.answered
    }

    /// Receives on one connection that has something, and replaces it if that is all: other
    /// connections of this program never wait for more than one.
    pub(super) fn advance(&mut self) -> Result<()> {
        let mut events = [epoll::Event {
            flags: epoll::EventFlags::empty(),
            data: epoll::EventData::new_u64(0),
        }];
        let at_once = Timespec::default();
        match epoll::wait(&self.epoll, &mut events, Some(&at_once)) {
            Ok(0) | Err(Errno::INTR) => return Ok(()),
            waited => drop(waited.context(|| "waiting for handshakes".into())?),
        }
        let number = usize::try_from(events[0].data.u64()).unwrap_or(usize::MAX);
        let attempt = &mut self.attempts[number];
        let mut space = [0; RECEIVE_BYTES];
        let got = retry_on_intr(|| recv(&attempt.stream, &mut space, RecvFlags::DONTWAIT));
        let (_, got) = got.context(|| "receiving a handshake".into())?;
        if got == 0 || (attempt.received == 0 && space[0] != HANDSHAKE_RECORD) {
            return Err(Error::Answer("the server rejects a handshake".into()));
        }
        attempt.received += got;
        if attempt.received + SHORTER_BYTES_MAX >= self.opening.answer_bytes {
            self.answered += 1;
            self.attempts[number] = self.attempt(number)?;
        }
        Ok(())
    }

    /// A new connection with a ClientHello. Closing it resets it, so that no port stays occupied.
    fn attempt(&self, number: usize) -> Result<HandshakeAttempt> {
        let context = || format!("beginning a handshake with {}", self.address);
        let stream = connect(self.address)?;
        sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).context(context)?;
        let hello = &self.opening.hello;
        let sent = retry_on_intr(|| send(&stream, hello, SendFlags::NOSIGNAL));
        if sent.context(context)? != hello.len() {
            return Err(Error::Answer("the server accepts a part of a hello".into()));
        }
        let data = epoll::EventData::new_u64(number as u64);
        let added = epoll::add(&self.epoll, &stream, data, epoll::EventFlags::IN);
        added.context(context)?;
        Ok(HandshakeAttempt {
            stream,
            received: 0,
        })
    }
}

/// Readable while one of the connections is.
impl AsFd for HandshakeFlood {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

fn connect(address: SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, TIMEOUT);
    let stream = stream.context(|| format!("connecting to {address}"))?;
    let set = stream.set_nodelay(true);
    set.context(|| format!("connecting to {address}"))?;
    Ok(stream)
}
