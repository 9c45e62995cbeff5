//! A handshake on a socket that never blocks.

use std::net::TcpStream;

use rustix::buffer::spare_capacity;
use rustix::io::retry_on_intr;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustls::HandshakeKind;
use rustls::client::UnbufferedClientConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, InsufficientSizeError, UnbufferedStatus};

use super::records::RecordStream;
use crate::error::{Error, ErrorContext, Result};

/// A certificate and what is around it.
const RECEIVE_BYTES: usize = 8 << 10;

/// A record that TLS 1.3 sends in between for old devices on the way (RFC 8446, appendix D.4).
const CHANGE_CIPHER_SPEC_BYTES: usize = 6;

pub(crate) struct TlsHandshake {
    /// `None` once it is complete.
    connection: Option<UnbufferedClientConnection>,
    received: Vec<u8>,
    unsent: Vec<u8>,
}

/// The part of a full handshake for which a server has to sign.
pub(crate) struct HandshakeOpening {
    /// The client's first message.
    pub(crate) hello: Vec<u8>,
    /// The length of what the server sends before it waits for the client again.
    pub(crate) answer_bytes: usize,
}

/// What rustls wants next.
enum ClientHandshakeStep {
    /// It has made progress, and goes on at once.
    Again,
    /// More has to come from the server.
    Receive,
    Complete,
}

impl TlsHandshake {
    pub(super) fn new(connection: UnbufferedClientConnection) -> TlsHandshake {
        TlsHandshake {
            connection: Some(connection),
            received: Vec::new(),
            unsent: Vec::new(),
        }
    }

    /// Goes on as far as the socket has something; returns the records behind a complete handshake.
    /// An error of the kind `WouldBlock`: something has to come from the server.
    pub(crate) fn advance(&mut self, stream: &TcpStream) -> Result<Option<RecordStream>> {
        let Some(mut connection) = self.connection.take() else {
            return Ok(None);
        };
        let advanced = self.advance_with(&mut connection, stream);
        match advanced {
            Ok(()) => self.finish(connection).map(Some),
            Err(error) => {
                self.connection = Some(connection);
                Err(error)
            }
        }
    }

    /// Goes on until the server has sent all that it sends without an answer to it, and no further,
    /// on a socket that blocks.
    pub(crate) fn open(mut self, stream: &TcpStream) -> Result<HandshakeOpening> {
        let mut opening = HandshakeOpening {
            hello: Vec::new(),
            answer_bytes: 0,
        };
        let Some(mut connection) = self.connection.take() else {
            return Ok(opening);
        };
        loop {
            let step = self.step(&mut connection).map_err(failed)?;
            match step {
                ClientHandshakeStep::Again => continue,
                ClientHandshakeStep::Complete => return Ok(opening),
                ClientHandshakeStep::Receive if opening.hello.is_empty() => {
                    opening.hello = self.unsent.clone();
                    self.flush(stream)?;
                }
                // TLS 1.2 waits for more once the client has sent its share.
                ClientHandshakeStep::Receive if self.unsent.len() > CHANGE_CIPHER_SPEC_BYTES => {
                    return Ok(opening);
                }
                ClientHandshakeStep::Receive => {}
            }
            opening.answer_bytes += self.receive(stream)?;
        }
    }

    fn advance_with(
        &mut self,
        connection: &mut UnbufferedClientConnection,
        stream: &TcpStream,
    ) -> Result<()> {
        loop {
            match self.step(connection).map_err(failed)? {
                ClientHandshakeStep::Again => {}
                ClientHandshakeStep::Complete => return self.flush(stream),
                ClientHandshakeStep::Receive => {
                    self.flush(stream)?;
                    self.receive(stream)?;
                }
            }
        }
    }

    /// Receives at least a byte, and returns how many.
    fn receive(&mut self, stream: &TcpStream) -> Result<usize> {
        self.received.reserve(RECEIVE_BYTES);
        let (received, flags) = (&mut self.received, RecvFlags::empty());
        let got = retry_on_intr(|| recv(stream, spare_capacity(received), flags));
        match got.context(|| "receiving a handshake".into())? {
            (_, 0) => {
                let what = "the server closed the connection in the handshake";
                Err(Error::Answer(what.into()))
            }
            (_, got) => Ok(got),
        }
    }

    fn step(
        &mut self,
        connection: &mut UnbufferedClientConnection,
    ) -> Result<ClientHandshakeStep, rustls::Error> {
        let UnbufferedStatus { discard, state, .. } =
            connection.process_tls_records(&mut self.received);
        let step = match state? {
            ConnectionState::EncodeTlsData(mut data) => {
                if let Err(EncodeError::InsufficientSize(InsufficientSizeError { required_size })) =
                    data.encode(&mut [])
                {
                    let start = self.unsent.len();
                    self.unsent.resize(start + required_size, 0);
                    let encoded = data.encode(&mut self.unsent[start..]);
                    self.unsent.truncate(start + encoded.unwrap_or(0));
                }
                ClientHandshakeStep::Again
            }
            // Sent before anything is received.
            ConnectionState::TransmitTlsData(data) => {
                data.done();
                ClientHandshakeStep::Again
            }
            ConnectionState::BlockedHandshake => ClientHandshakeStep::Receive,
            ConnectionState::WriteTraffic(_) => ClientHandshakeStep::Complete,
            _ => return Err(rustls::Error::HandshakeNotComplete),
        };
        self.received.drain(..discard);
        Ok(step)
    }

    /// A socket that doesn't accept so few bytes in a handshake is broken.
    fn flush(&mut self, stream: &TcpStream) -> Result<()> {
        if self.unsent.is_empty() {
            return Ok(());
        }
        let sent = send(stream, &self.unsent, SendFlags::NOSIGNAL);
        let sent = sent.context(|| "sending a handshake".into())?;
        if sent != self.unsent.len() {
            let what = format!("the server accepts {sent} bytes of a handshake");
            return Err(Error::Answer(what));
        }
        self.unsent.clear();
        Ok(())
    }

    fn finish(&mut self, connection: UnbufferedClientConnection) -> Result<RecordStream> {
        let is_resumed = connection.handshake_kind() == Some(HandshakeKind::Resumed);
        let (secrets, kernel) = connection
            .dangerous_into_kernel_connection()
            .map_err(failed)?;
        let received = std::mem::take(&mut self.received);
        RecordStream::new(secrets, kernel, received, is_resumed).map_err(failed)
    }
}

fn failed(error: rustls::Error) -> Error {
    Error::Answer(format!("the handshake failed: {error}"))
}
