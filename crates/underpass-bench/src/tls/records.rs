//! The records of a connection, opened, or skipped by the length in their header.
//!
//! ```text
//!  TLS 1.3             header 5 │            content │ type 1 │ tag 16
//!  TLS 1.2, GCM        header 5 │ explicit nonce 8 │ content │ tag 16
//!  TLS 1.2, ChaCha20   header 5 │            content │ tag 16
//! ```
//!
//! A skipped record is discarded by the kernel, and counted: its number is a part of the nonce of
//! the next one that is opened, which fails if one was missed. Padding other than that of the last
//! record that was opened, and a message among the skipped ones, make the sum of lengths wrong.

use std::net::TcpStream;
use std::ops::Range;

use rustix::buffer::spare_capacity;
use rustix::io::retry_on_intr;
use rustix::net::{RecvFlags, recv};
use rustls::client::ClientConnectionData;
use rustls::crypto::cipher::{
    AeadKey, InboundOpaqueMessage, Iv, MessageDecrypter, MessageEncrypter, OutboundChunks,
    OutboundPlainMessage,
};
use rustls::kernel::KernelConnection;
use rustls::{
    ConnectionTrafficSecrets, ContentType, ExtractedSecrets, ProtocolVersion, SupportedCipherSuite,
};

use crate::error::{Error, ErrorContext, Result};

const HEADER_BYTES: usize = 5;
const CONTENT_BYTES_MAX: usize = 16 << 10;
const TAG_BYTES: usize = 16;
const EXPLICIT_NONCE_BYTES: usize = 8;

/// The longest record, of TLS 1.2 (RFC 5246, section 6.2.3).
const RECORD_BYTES_MAX: usize = HEADER_BYTES + CONTENT_BYTES_MAX + 2048;

const KEY_UPDATE: u8 = 24;
const NEW_SESSION_TICKET: u8 = 4;
const CLOSE_NOTIFY: u8 = 0;

/// The first byte of a record with data.
const APPLICATION_DATA: u8 = 23;

pub(crate) struct RecordStream {
    decrypter: Box<dyn MessageDecrypter>,
    encrypter: Box<dyn MessageEncrypter>,
    /// Of the next record in each direction.
    number_in: u64,
    number_out: u64,
    is_tls13: bool,
    explicit_nonce_bytes: usize,
    /// Of the last record that was opened. Java pads each with 16 bytes.
    padding: usize,
    /// Takes tickets.
    kernel: KernelConnection<ClientConnectionData>,
    is_resumed: bool,
    /// What has come; from `start` on nobody has looked at it.
    received: Vec<u8>,
    start: usize,
    /// Content in `received` that was not taken.
    opened: Range<usize>,
    /// Bytes that are left of a record that is skipped, and its content.
    skip: usize,
    skipped: u64,
}

/// What was in a record.
#[derive(Debug, PartialEq, Eq)]
enum RecordKind {
    Data,
    Ticket,
    CloseNotify,
}

impl RecordStream {
    /// The most that a record holds.
    pub(crate) const CONTENT_BYTES_MAX: usize = CONTENT_BYTES_MAX;

    pub(super) fn new(
        secrets: ExtractedSecrets,
        kernel: KernelConnection<ClientConnectionData>,
        received: Vec<u8>,
        is_resumed: bool,
    ) -> Result<RecordStream, rustls::Error> {
        let suite = kernel.negotiated_cipher_suite();
        let is_chacha20 = matches!(
            secrets.rx.1,
            ConnectionTrafficSecrets::Chacha20Poly1305 { .. }
        );
        let (number_in, secret_in) = secrets.rx;
        let (number_out, secret_out) = secrets.tx;
        let (key_in, iv_in) = parts(secret_in)?;
        let (key_out, iv_out) = parts(secret_out)?;
        let (decrypter, mut encrypter) = match suite {
            SupportedCipherSuite::Tls13(suite) => (
                suite.aead_alg.decrypter(key_in, iv_in),
                suite.aead_alg.encrypter(key_out, iv_out),
            ),
            SupportedCipherSuite::Tls12(suite) => {
                let fixed = suite.aead_alg.key_block_shape().fixed_iv_len;
                let (iv, extra) = iv_out.as_ref().split_at(fixed);
                (
                    suite.aead_alg.decrypter(key_in, &iv_in.as_ref()[..fixed]),
                    suite.aead_alg.encrypter(key_out, iv, extra),
                )
            }
        };
        // The key of AES-GCM takes the first nonce that it sees for that of number 0. Where rustls
        // has used that number, it is shown the nonce again, and what it makes of it is dropped.
        if number_out > 0 {
            drop(encrypter.encrypt(message(&[]), 0)?);
        }
        let is_tls13 = suite.tls13().is_some();
        Ok(RecordStream {
            decrypter,
            encrypter,
            number_in,
            number_out,
            is_tls13,
            explicit_nonce_bytes: match is_tls13 || is_chacha20 {
                true => 0,
                false => EXPLICIT_NONCE_BYTES,
            },
            padding: 0,
            kernel,
            is_resumed,
            received,
            start: 0,
            opened: 0..0,
            skip: 0,
            skipped: 0,
        })
    }

    pub(crate) fn is_resumed(&self) -> bool {
        self.is_resumed
    }

    /// Whether nothing more can be received before the socket is readable.
    pub(crate) fn is_drained(&self) -> bool {
        self.opened.is_empty() && self.start == self.received.len()
    }

    /// Makes a record of all of it, to be sent next.
    pub(crate) fn seal(&mut self, content: &[u8]) -> Result<Vec<u8>> {
        let sealed = self.encrypter.encrypt(message(content), self.number_out);
        let sealed = sealed.map_err(|error| Error::Answer(format!("sealing: {error}")))?;
        self.number_out += 1;
        Ok(sealed.encode())
    }

    /// Receives at least one byte of content; the end of the stream is an error.
    pub(crate) fn receive(&mut self, stream: &TcpStream, space: &mut [u8]) -> Result<usize> {
        while self.opened.is_empty() {
            match self.open_next(stream)? {
                Some(RecordKind::Data | RecordKind::Ticket) => {}
                Some(RecordKind::CloseNotify) | None => return Err(closed()),
            }
        }
        let count = space.len().min(self.opened.len());
        let from = self.opened.start;
        space[..count].copy_from_slice(&self.received[from..from + count]);
        self.opened.start += count;
        Ok(count)
    }

    /// Discards whole records without opening them, about as much as `space` holds at a time, and
    /// returns how much content they had. More than `left` is an error.
    pub(crate) fn discard(
        &mut self,
        stream: &TcpStream,
        left: u64,
        space: &mut [u8],
    ) -> Result<u64> {
        let mut done = self.opened.len() as u64;
        if done > left {
            return Err(too_much());
        }
        self.opened = 0..0;
        while done < left && (done == 0 || done < space.len() as u64) {
            match self.skip_record(stream, left - done, space) {
                Ok(content) => done += content,
                Err(error) if error.would_block() && done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// Takes what comes where nothing is owed: tickets.
    pub(crate) fn idle(&mut self, stream: &TcpStream) -> Result<()> {
        loop {
            match self.open_next(stream)? {
                Some(RecordKind::Data) if self.opened.is_empty() => {}
                Some(RecordKind::Ticket) => {}
                Some(RecordKind::Data) => return Err(too_much()),
                Some(RecordKind::CloseNotify) | None => return Err(closed()),
            }
        }
    }

    /// Receives the end of the connection behind a whole response.
    pub(crate) fn end(&mut self, stream: &TcpStream) -> Result<()> {
        while let Some(kind) = self.open_next(stream)? {
            if kind == RecordKind::Data && !self.opened.is_empty() {
                return Err(too_much());
            }
        }
        Ok(())
    }

    /// Skips a record, and returns its content, of which there may be this much at most.
    fn skip_record(&mut self, stream: &TcpStream, most: u64, space: &mut [u8]) -> Result<u64> {
        if self.skip == 0 {
            self.receive_header(stream)?;
            let length = self.header()?;
            if self.received[self.start] != APPLICATION_DATA {
                return Err(Error::Answer("no data where a body is expected".into()));
            }
            let content = length.checked_sub(self.overhead());
            self.skipped = content.ok_or_else(|| Error::Answer("a short record".into()))? as u64;
            if self.skipped > most {
                return Err(too_much());
            }
            self.skip = length;
            self.start += HEADER_BYTES;
            self.number_in += 1;
        }
        let buffered = self.skip.min(self.received.len() - self.start);
        self.start += buffered;
        self.skip -= buffered;
        while self.skip > 0 {
            let wanted = self.skip.min(space.len());
            let got = retry_on_intr(|| recv(stream, &mut space[..wanted], RecvFlags::TRUNC));
            match got.context(|| "receiving a response".into())? {
                (_, 0) => return Err(closed()),
                (_, got) => self.skip -= got,
            }
        }
        Ok(self.skipped)
    }

    /// Receives no more than a header, so that the kernel can discard what follows it.
    fn receive_header(&mut self, stream: &TcpStream) -> Result<()> {
        self.received.drain(..self.start);
        self.start = 0;
        let mut header = [0; HEADER_BYTES];
        while let have @ ..HEADER_BYTES = self.received.len() {
            let room = &mut header[have..];
            let got = retry_on_intr(|| recv(stream, &mut *room, RecvFlags::empty()));
            match got.context(|| "receiving a response".into())? {
                (_, 0) => return Err(closed()),
                (_, got) => self.received.extend_from_slice(&room[..got]),
            }
        }
        Ok(())
    }

    /// Opens the next record. `None`: the stream has ended between two records.
    fn open_next(&mut self, stream: &TcpStream) -> Result<Option<RecordKind>> {
        loop {
            let have = self.received.len() - self.start;
            if have >= HEADER_BYTES {
                let length = HEADER_BYTES + self.header()?;
                if have >= length {
                    return self.open(length).map(Some);
                }
            }
            self.received.drain(..self.start);
            self.start = 0;
            self.received.reserve(RECORD_BYTES_MAX);
            let room = || {
                recv(
                    stream,
                    spare_capacity(&mut self.received),
                    RecvFlags::empty(),
                )
            };
            match retry_on_intr(room).context(|| "receiving a response".into())? {
                (_, 0) if have == 0 => return Ok(None),
                (_, 0) => return Err(closed()),
                _ => {}
            }
        }
    }

    /// The length of the next record behind its header.
    fn header(&self) -> Result<usize> {
        let header = &self.received[self.start..self.start + HEADER_BYTES];
        let length = usize::from(u16::from_be_bytes([header[3], header[4]]));
        match length <= RECORD_BYTES_MAX - HEADER_BYTES {
            true => Ok(length),
            false => Err(Error::Answer(format!("a record of {length} bytes"))),
        }
    }

    /// What a record with data has besides its content and its header.
    fn overhead(&self) -> usize {
        usize::from(self.is_tls13) + self.explicit_nonce_bytes + TAG_BYTES + self.padding
    }

    /// Opens a record of this length where it lies.
    fn open(&mut self, length: usize) -> Result<RecordKind> {
        let record = &mut self.received[self.start..self.start + length];
        let (header, sealed) = record.split_at_mut(HEADER_BYTES);
        let message = InboundOpaqueMessage::new(header[0].into(), ProtocolVersion::TLSv1_2, sealed);
        let opened = self.decrypter.decrypt(message, self.number_in);
        let opened = opened.map_err(|error| {
            Error::Answer(format!(
                "record {} cannot be opened: {error}",
                self.number_in
            ))
        })?;
        let (kind, count) = (opened.typ, opened.payload.len());
        let from = self.start + HEADER_BYTES + self.explicit_nonce_bytes;
        let content = from..from + count;
        self.number_in += 1;
        self.start += length;
        match (kind, &self.received[content.clone()]) {
            (ContentType::ApplicationData, _) => {
                self.padding = 0;
                self.padding = length - HEADER_BYTES - self.overhead() - count;
                self.opened = content;
                Ok(RecordKind::Data)
            }
            (ContentType::Alert, [_, CLOSE_NOTIFY]) => Ok(RecordKind::CloseNotify),
            (ContentType::Alert, alert) => Err(Error::Answer(format!(
                "the server sends the alert {}",
                alert.last().copied().unwrap_or_default()
            ))),
            (ContentType::Handshake, _) => self.take_tickets(content),
            (kind, _) => Err(Error::Answer(format!("a record of the type {kind:?}"))),
        }
    }

    /// Takes the tickets that a record consists of (RFC 8446, section 4.6.1).
    fn take_tickets(&mut self, content: Range<usize>) -> Result<RecordKind> {
        let mut messages = &self.received[content];
        while let [kind, high, middle, low, rest @ ..] = messages {
            let length = u32::from_be_bytes([0, *high, *middle, *low]) as usize;
            let whole = rest.split_at_checked(length);
            let (message, others) = whole.ok_or_else(|| unexpected(*kind))?;
            if *kind != NEW_SESSION_TICKET || !self.is_tls13 {
                return Err(unexpected(*kind));
            }
            let taken = self.kernel.handle_new_session_ticket(message);
            taken.map_err(|error| Error::Answer(format!("a malformed ticket: {error}")))?;
            messages = others;
        }
        Ok(RecordKind::Ticket)
    }
}

fn parts(secrets: ConnectionTrafficSecrets) -> Result<(AeadKey, Iv), rustls::Error> {
    match secrets {
        ConnectionTrafficSecrets::Aes128Gcm { key, iv }
        | ConnectionTrafficSecrets::Aes256Gcm { key, iv }
        | ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => Ok((key, iv)),
        _ => Err(rustls::Error::General("a cipher that is not known".into())),
    }
}

fn message(content: &[u8]) -> OutboundPlainMessage<'_> {
    OutboundPlainMessage {
        typ: ContentType::ApplicationData,
        version: ProtocolVersion::TLSv1_2,
        payload: OutboundChunks::Single(content),
    }
}

fn closed() -> Error {
    Error::Answer("the server closed the connection".into())
}

fn too_much() -> Error {
    Error::Answer("more bytes than announced".into())
}

fn unexpected(kind: u8) -> Error {
    Error::Answer(match kind {
        KEY_UPDATE => "the server changes its key (KeyUpdate), and this client cannot".into(),
        kind => format!("a handshake message of the type {kind}"),
    })
}
