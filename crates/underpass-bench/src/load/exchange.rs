//! One connection of the client: a request out, a response in, nothing copied.
//!
//! Only the head of a response, and what arrives with it, is received into memory. The kernel
//! discards the rest of the body (`MSG_TRUNC`), but it is counted: the client costs little compared
//! with the server, and a body that is too short or too long is an error.

use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use sha2::{Digest as _, Sha256};

use super::request::{ConnectionReuse, RequestTarget};
use super::response::parse_head;
use crate::content::Sha256Hash;
use crate::error::{Error, ErrorContext, Result};

/// The longest head that is accepted. It is longer than usual heads, and a page, so that most of
/// the body is left for `MSG_TRUNC`.
const HEAD_BYTES_MAX: usize = 4096;

/// One receive of a body that is hashed.
const HASHED_BYTES_MAX: usize = 256 << 10;

/// A server on the loopback accepts a connection at once or not at all.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Where bodies go.
pub(crate) struct BodySink {
    /// Its length bounds one receive. Where bodies are discarded, its pages stay untouched.
    space: Vec<u8>,
    hash: Option<Sha256>,
}

/// How far an exchange is after one receive.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ReceiveProgress {
    Complete,
    Partial,
}

enum ExchangeState {
    Idle,
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
    stream: TcpStream,
    head: Box<[u8; HEAD_BYTES_MAX]>,
    state: ExchangeState,
    body_bytes: u64,
    reuse: ConnectionReuse,
    /// When the current request was due.
    pub(crate) since: Instant,
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

    /// The hash of what was received since the last call, if it was hashed.
    pub(super) fn finish(&mut self) -> Option<Sha256Hash> {
        Some(self.hash.as_mut()?.finalize_reset().into())
    }
}

impl ClientExchange {
    pub(crate) fn connect(address: SocketAddr) -> Result<ClientExchange> {
        let context = || format!("connecting to {address}");
        let stream = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT).context(context)?;
        stream.set_nodelay(true).context(context)?;
        stream.set_nonblocking(true).context(context)?;
        let head = Box::new([0; HEAD_BYTES_MAX]);
        Ok(ClientExchange {
            stream,
            head,
            state: ExchangeState::Idle,
            body_bytes: 0,
            reuse: ConnectionReuse::KeepAlive,
            since: Instant::now(),
        })
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
        let mut byte = [0];
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        !matches!(
            rustix::net::recv(&self.stream, &mut byte, flags),
            Err(Errno::AGAIN | Errno::INTR)
        )
    }

    /// Sends a request. A socket that doesn't accept these few hundred bytes on an idle connection
    /// is broken.
    pub(crate) fn begin(&mut self, target: &RequestTarget, due: Instant) -> Result<()> {
        debug_assert!(self.is_idle(), "one request at a time");
        let sent = rustix::net::send(&self.stream, &target.request, SendFlags::NOSIGNAL)
            .context(|| "sending a request".into())?;
        if sent != target.request.len() {
            return Err(Error::Answer(format!(
                "the server accepts {sent} bytes of a request"
            )));
        }
        self.since = due;
        self.body_bytes = target.body_bytes;
        self.reuse = target.reuse;
        self.state = ExchangeState::Head { received: 0 };
        Ok(())
    }

    pub(crate) fn advance(&mut self, body: &mut BodySink) -> Result<ReceiveProgress> {
        let progress = match self.state {
            ExchangeState::Idle => return Err(self.unasked()),
            ExchangeState::Head { received } => self.receive_head(received, body),
            ExchangeState::Body { left } => self.receive_body(left, body),
            ExchangeState::Ending => self.end(),
        };
        match progress {
            Err(Error::System { source, .. })
                if source.kind() == std::io::ErrorKind::WouldBlock =>
            {
                Ok(ReceiveProgress::Partial)
            }
            Ok(ReceiveProgress::Complete) => {
                self.state = ExchangeState::Idle;
                Ok(ReceiveProgress::Complete)
            }
            other => other,
        }
    }

    fn receive_head(&mut self, received: usize, body: &mut BodySink) -> Result<ReceiveProgress> {
        let space = &mut self.head[received..];
        let got = receive(&self.stream, space, RecvFlags::empty())?;
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
        let start = &self.head[head.head_bytes..received];
        body.hash.iter_mut().for_each(|hash| hash.update(start));
        let with_head = (received - head.head_bytes) as u64;
        let left = self.body_bytes.checked_sub(with_head);
        self.owe(left.ok_or_else(|| Error::Answer("more bytes than announced".into()))?)
    }

    fn receive_body(&mut self, left: u64, body: &mut BodySink) -> Result<ReceiveProgress> {
        let wanted = usize::try_from(left)
            .unwrap_or(usize::MAX)
            .min(body.space.len());
        let flags = match body.hash {
            Some(_) => RecvFlags::empty(),
            None => RecvFlags::TRUNC,
        };
        let got = receive(&self.stream, &mut body.space[..wanted], flags)?;
        let received = &body.space[..got];
        body.hash.iter_mut().for_each(|hash| hash.update(received));
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

    fn end(&self) -> Result<ReceiveProgress> {
        let mut byte = [0];
        match rustix::net::recv(&self.stream, &mut byte, RecvFlags::empty()) {
            Ok((_, 0)) => Ok(ReceiveProgress::Complete),
            Ok(_) => Err(Error::Answer("more bytes than announced".into())),
            Err(Errno::AGAIN | Errno::INTR) => Ok(ReceiveProgress::Partial),
            Err(errno) => Err(errno).context(|| "waiting for the end of a connection".into()),
        }
    }

    fn unasked(&self) -> Error {
        let mut byte = [0];
        match receive(&self.stream, &mut byte, RecvFlags::empty()) {
            Ok(_) => Error::Answer("more bytes than announced".into()),
            Err(error) => error,
        }
    }
}

impl AsFd for ClientExchange {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// Receives at least one byte; the end of the stream is an error here.
fn receive(stream: &TcpStream, space: &mut [u8], flags: RecvFlags) -> Result<usize> {
    loop {
        match rustix::net::recv(stream, &mut *space, flags) {
            Ok((_, 0)) => return Err(Error::Answer("the server closed the connection".into())),
            Ok((_, got)) => return Ok(got),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno).context(|| "receiving a response".into()),
        }
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
        let mut exchange = ClientExchange::connect(address)?;
        let (mut peer, _) = listener.accept().unwrap();
        let target = RequestTarget::get(address, "/x", body_bytes, reuse);
        exchange.begin(&target, Instant::now())?;
        peer.read_exact(&mut vec![0; target.request.len()]).unwrap();
        for piece in answer {
            peer.write_all(piece).unwrap();
        }
        drop(peer);
        exchange.stream.set_nonblocking(false).unwrap();
        let mut discard = BodySink::discard(16);
        while exchange.advance(&mut discard)? == ReceiveProgress::Partial {}
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
