//! One connection of the client: a request out, a response in, nothing copied.
//!
//! Only the head of a response, and what arrives with it, is received into memory. The kernel
//! discards the rest of the body (`MSG_TRUNC`), but it is counted: the client costs little compared
//! with the server, and a body that is too short or too long is an error. Under TLS all of it is
//! decrypted.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use sha2::{Digest as _, Sha256};

use super::request::{ConnectionReuse, RequestTarget};
use super::response::parse_head;
use super::transport::{ClientTransport, ServerAddress, wait};
use crate::content::Sha256Hash;
use crate::error::{Error, Result};

/// The longest head that is accepted. It is longer than usual heads, and a page, so that most of
/// the body is left for `MSG_TRUNC`.
const HEAD_BYTES_MAX: usize = 4096;

/// One receive of a body that is hashed.
const HASHED_BYTES_MAX: usize = 256 << 10;

/// Within this time something of a response arrives that is waited for by itself.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) struct BodySink {
    /// Its length bounds one receive. Where bodies are discarded, its pages stay untouched.
    space: Vec<u8>,
    hash: Option<Sha256>,
}

/// The state of an exchange after one receive.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ReceiveProgress {
    Complete,
    Partial,
}

enum ExchangeState {
    Idle,
    /// A handshake goes first.
    Handshake {
        request: Vec<u8>,
    },
    Head {
        received: usize,
    },
    Body {
        left: u64,
    },
    /// All has arrived except the end of the connection.
    Ending,
}

pub(crate) struct ClientExchange {
    transport: ClientTransport,
    head: Box<[u8; HEAD_BYTES_MAX]>,
    state: ExchangeState,
    body_bytes: u64,
    reuse: ConnectionReuse,
    /// When the current request was due, and how long the head of its response then took.
    pub(crate) since: Instant,
    pub(crate) head_after: Duration,
}

impl BodySink {
    /// The kernel discards all of them (`MSG_TRUNC`).
    pub(crate) fn discard(bytes_max: usize) -> BodySink {
        BodySink {
            space: vec![0; bytes_max],
            hash: None,
        }
    }

    /// They are hashed.
    pub(super) fn hash() -> BodySink {
        BodySink {
            space: vec![0; HASHED_BYTES_MAX],
            hash: Some(Sha256::new()),
        }
    }

    /// The hash of the bytes received since the last call, if they were hashed.
    pub(super) fn finish(&mut self) -> Option<Sha256Hash> {
        Some(self.hash.as_mut()?.finalize_reset().into())
    }
}

impl ClientExchange {
    /// Opens a connection; where the server has TLS, the first request begins with a handshake.
    pub(crate) fn connect(address: &ServerAddress) -> Result<ClientExchange> {
        Ok(ClientExchange {
            transport: ClientTransport::connect(address)?,
            head: Box::new([0; HEAD_BYTES_MAX]),
            state: ExchangeState::Idle,
            body_bytes: 0,
            reuse: ConnectionReuse::KeepAlive,
            since: Instant::now(),
            head_after: Duration::ZERO,
        })
    }

    /// The same with a complete handshake.
    pub(crate) fn connect_ready(address: &ServerAddress) -> Result<ClientExchange> {
        let mut exchange = ClientExchange::connect(address)?;
        exchange.transport.complete_handshake(RESPONSE_TIMEOUT)?;
        Ok(exchange)
    }

    /// Whether a session was resumed.
    pub(super) fn is_resumed(&self) -> bool {
        self.transport.is_resumed()
    }

    /// Requests this and waits until the response is complete.
    pub(super) fn fetch(&mut self, target: &RequestTarget, body: &mut BodySink) -> Result<()> {
        self.begin(target, Instant::now())?;
        while self.advance(body)? == ReceiveProgress::Partial {
            self.wait()?;
        }
        Ok(())
    }

    fn wait(&self) -> Result<()> {
        wait(self, PollFlags::IN, RESPONSE_TIMEOUT)
    }

    /// Whether the server was asked to close the connection, and did.
    pub(crate) fn is_over(&self) -> bool {
        self.is_idle() && self.reuse == ConnectionReuse::PerRequest
    }

    /// The bytes of body that the last request is owed.
    pub(crate) fn body_bytes(&self) -> u64 {
        self.body_bytes
    }

    /// Whether the head of a response has arrived whole and the body has not.
    pub(crate) fn is_in_body(&self) -> bool {
        matches!(self.state, ExchangeState::Body { .. })
    }

    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.state, ExchangeState::Idle)
    }

    /// Whether the server has closed a connection on which nothing is owed.
    pub(crate) fn has_ended(&self) -> bool {
        self.transport.is_readable()
    }

    pub(crate) fn begin(&mut self, target: &RequestTarget, due: Instant) -> Result<()> {
        debug_assert!(self.is_idle(), "one request at a time");
        self.since = due;
        self.body_bytes = target.body_bytes;
        self.reuse = target.reuse;
        if self.transport.is_shaking() {
            let request = target.request.clone();
            self.state = ExchangeState::Handshake { request };
            return match self.shake() {
                Err(error) if error.would_block() => Ok(()),
                done => done,
            };
        }
        self.transport.send(&target.request)?;
        self.state = ExchangeState::Head { received: 0 };
        Ok(())
    }

    /// Receives what there is, up to the room of `body`.
    pub(crate) fn advance(&mut self, body: &mut BodySink) -> Result<ReceiveProgress> {
        loop {
            match self.advance_once(body) {
                Err(error) if error.would_block() => return Ok(ReceiveProgress::Partial),
                Ok(ReceiveProgress::Complete) => {
                    self.state = ExchangeState::Idle;
                    return match self.transport.is_drained() {
                        true => Ok(ReceiveProgress::Complete),
                        false => self.check_rest(),
                    };
                }
                // Nothing else reports what the transport has already received.
                Ok(ReceiveProgress::Partial) if !self.transport.is_drained() => {}
                other => return other,
            }
        }
    }

    fn advance_once(&mut self, body: &mut BodySink) -> Result<ReceiveProgress> {
        match &self.state {
            ExchangeState::Idle => {
                self.transport.idle()?;
                Ok(ReceiveProgress::Partial)
            }
            ExchangeState::Handshake { .. } => {
                self.shake()?;
                Ok(ReceiveProgress::Partial)
            }
            &ExchangeState::Head { received } => self.receive_head(received, body),
            &ExchangeState::Body { left } => self.receive_body(left, body),
            ExchangeState::Ending => {
                self.transport.end()?;
                Ok(ReceiveProgress::Complete)
            }
        }
    }

    /// Checks that nothing follows the end of a response.
    fn check_rest(&mut self) -> Result<ReceiveProgress> {
        match self.transport.idle() {
            Err(error) if error.would_block() => Ok(ReceiveProgress::Complete),
            rest => rest.map(|()| ReceiveProgress::Complete),
        }
    }

    /// Completes the handshake and sends the request behind it.
    fn shake(&mut self) -> Result<()> {
        if let ExchangeState::Handshake { request } = &self.state {
            self.transport.shake()?;
            self.transport.send(request)?;
            self.state = ExchangeState::Head { received: 0 };
        }
        Ok(())
    }

    fn receive_head(&mut self, received: usize, body: &mut BodySink) -> Result<ReceiveProgress> {
        let space = &mut self.head[received..];
        let got = self.transport.receive(space)?;
        let received = received + got;
        let Some(head) = parse_head(&self.head[..received], self.reuse)? else {
            self.state = ExchangeState::Head { received };
            return match received {
                HEAD_BYTES_MAX => Err(Error::Answer(format!("a head over {HEAD_BYTES_MAX} bytes"))),
                _ => Ok(ReceiveProgress::Partial),
            };
        };
        if head.body_bytes != self.body_bytes {
            let owed = self.body_bytes;
            let what = format!(
                "announces {} bytes where {owed} are expected",
                head.body_bytes
            );
            return Err(Error::Answer(what));
        }
        self.head_after = self.since.elapsed();
        let start = &self.head[head.head_bytes..received];
        body.hash.iter_mut().for_each(|hash| hash.update(start));
        let with_head = (received - head.head_bytes) as u64;
        let left = self.body_bytes.checked_sub(with_head);
        self.owe(left.ok_or_else(|| Error::Answer("more bytes than announced".into()))?)
    }

    fn receive_body(&mut self, left: u64, body: &mut BodySink) -> Result<ReceiveProgress> {
        if body.hash.is_none() {
            let got = self.transport.discard(left, &mut body.space)?;
            return self.owe(left - got);
        }
        let wanted = usize::try_from(left).unwrap_or(usize::MAX);
        let wanted = wanted.min(body.space.len());
        let got = self.transport.receive(&mut body.space[..wanted])?;
        body.hash
            .iter_mut()
            .for_each(|hash| hash.update(&body.space[..got]));
        self.owe(left - got as u64)
    }

    fn owe(&mut self, left: u64) -> Result<ReceiveProgress> {
        self.state = ExchangeState::Body { left };
        match (left, self.reuse) {
            (0, ConnectionReuse::KeepAlive) => Ok(ReceiveProgress::Complete),
            (0, ConnectionReuse::PerRequest) => {
                self.state = ExchangeState::Ending;
                Ok(ReceiveProgress::Partial)
            }
            _ => Ok(ReceiveProgress::Partial),
        }
    }
}

impl AsFd for ClientExchange {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.transport.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    /// Plays a script against one exchange: the answer in pieces, each sent whole.
    fn play(answer: &[&[u8]], body_bytes: u64) -> Result<()> {
        play_on(ConnectionReuse::KeepAlive, answer, body_bytes)
    }

    fn play_on(reuse: ConnectionReuse, answer: &[&[u8]], body_bytes: u64) -> Result<()> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut exchange = ClientExchange::connect(&address.into())?;
        let (mut peer, _) = listener.accept().unwrap();
        let target = RequestTarget::get(address, "/x", body_bytes, reuse);
        exchange.begin(&target, Instant::now())?;
        peer.read_exact(&mut vec![0; target.request.len()]).unwrap();
        for piece in answer {
            peer.write_all(piece).unwrap();
        }
        drop(peer);
        let mut discard = BodySink::discard(16);
        while exchange.advance(&mut discard)? == ReceiveProgress::Partial {
            exchange.wait()?;
        }
        Ok(())
    }

    const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 70\r\n\r\n";

    #[test]
    fn a_body_is_counted_to_its_last_byte_however_it_arrives() {
        play(&[HEAD, &[7; 70]], 70).unwrap();
        play(&[&HEAD[..9], &HEAD[9..], &[7; 69], &[7]], 70).unwrap();
    }

    #[test]
    fn where_the_server_is_to_close_its_end_belongs_to_the_answer() {
        play_on(ConnectionReuse::PerRequest, &[HEAD, &[7; 70]], 70).unwrap();
        let said = b"HTTP/1.1 200 OK\r\nContent-Length: 70\r\nConnection: close\r\n\r\n";
        play_on(ConnectionReuse::PerRequest, &[said, &[7; 70]], 70).unwrap();
        let more = play_on(ConnectionReuse::PerRequest, &[HEAD, &[7; 71]], 70);
        assert!(matches!(more, Err(Error::Answer(_))));
    }

    #[test]
    fn a_short_body_is_an_error() {
        assert!(matches!(play(&[HEAD, &[7; 69]], 70), Err(Error::Answer(_))));
    }

    #[test]
    fn a_length_other_than_owed_is_an_error() {
        assert!(matches!(play(&[HEAD, &[7; 70]], 71), Err(Error::Answer(_))));
    }

    #[test]
    fn bytes_beyond_the_announced_are_an_error() {
        let mut all = HEAD.to_vec();
        all.extend([7; 71]);
        assert!(matches!(play(&[&all], 70), Err(Error::Answer(_))));
    }
}
