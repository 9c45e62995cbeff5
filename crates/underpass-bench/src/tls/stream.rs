//! A client connection of rustls on a socket that does not block.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;

use rustls::{ClientConnection, HandshakeKind};

use crate::error::{Error, ErrorContext, Result};

pub(crate) struct TlsStream {
    connection: ClientConnection,
    /// Decrypted bytes that nobody has taken yet.
    decrypted_bytes: usize,
}

impl TlsStream {
    pub(super) fn new(connection: ClientConnection) -> TlsStream {
        TlsStream {
            connection,
            decrypted_bytes: 0,
        }
    }

    pub(crate) fn is_shaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    pub(crate) fn is_resumed(&self) -> bool {
        self.connection.handshake_kind() == Some(HandshakeKind::Resumed)
    }

    /// Whether nothing can be received before the socket is readable.
    pub(crate) fn is_drained(&self) -> bool {
        self.decrypted_bytes == 0
    }

    /// Continues the handshake. An error of the kind `WouldBlock` waits for the server.
    pub(crate) fn shake(&mut self, stream: &TcpStream) -> Result<()> {
        loop {
            self.flush(stream)?;
            if !self.is_shaking() {
                return Ok(());
            }
            if self.fill(stream)? == 0 {
                let what = "the server closed the connection in the handshake";
                return Err(Error::Answer(what.into()));
            }
        }
    }

    /// Encrypts bytes, which [`flush`](Self::flush) sends.
    pub(crate) fn seal(&mut self, bytes: &[u8]) -> Result<()> {
        let sealed = self.connection.writer().write_all(bytes);
        sealed.context(|| "encrypting a request".into())
    }

    /// Sends encrypted bytes. An error of the kind `WouldBlock` means that the socket is full.
    pub(crate) fn flush(&mut self, mut stream: &TcpStream) -> Result<()> {
        while self.connection.wants_write() {
            let sent = self.connection.write_tls(&mut stream);
            sent.context(|| "sending to the server".into())?;
        }
        Ok(())
    }

    /// Receives at least one byte. The end of the stream is an error.
    pub(crate) fn receive(&mut self, stream: &TcpStream, space: &mut [u8]) -> Result<usize> {
        while self.is_drained() {
            if self.fill(stream)? == 0 {
                return Err(Error::Answer("the server closed the connection".into()));
            }
        }
        let got = self.connection.reader().read(space);
        let got = got.context(|| "receiving a response".into())?;
        self.decrypted_bytes -= got;
        Ok(got)
    }

    /// Receives the end of the connection after a complete response.
    pub(crate) fn end(&mut self, stream: &TcpStream) -> Result<()> {
        while self.is_drained() {
            if self.fill(stream)? == 0 {
                return Ok(());
            }
        }
        Err(too_much())
    }

    /// Receives session tickets; anything else is an error.
    pub(crate) fn idle(&mut self, stream: &TcpStream) -> Result<()> {
        while self.is_drained() {
            if self.fill(stream)? == 0 {
                return Err(Error::Answer("the server closed the connection".into()));
            }
        }
        Err(too_much())
    }

    /// Receives and decrypts; returns 0 at the end of the connection.
    fn fill(&mut self, mut stream: &TcpStream) -> Result<usize> {
        let received = loop {
            match self.connection.read_tls(&mut stream) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                received => break received.context(|| "receiving from the server".into())?,
            }
        };
        let state = self.connection.process_new_packets();
        let state = state.map_err(|error| Error::Answer(format!("TLS: {error}")))?;
        self.decrypted_bytes = state.plaintext_bytes_to_read();
        Ok(match state.peer_has_closed() {
            true => self.decrypted_bytes,
            false => received,
        })
    }
}

fn too_much() -> Error {
    Error::Answer("more bytes than announced".into())
}
