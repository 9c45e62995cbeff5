//! A TLS session over a socket: records in and out.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io::{self, BufRead, IoSlice, Write};
use std::os::fd::AsFd;
use std::task::{Context, Poll, ready};

use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use rustls::server::ServerConnection;
use rustls::{HandshakeKind as RustlsKind, ProtocolVersion};
use tokio::io::Interest;
use underpass::drive::tokio::{FileReceiver, Stream, Turn, await_disk, gather};
use underpass::{Error, Gathered, Outbox, Policy, Waits};

use crate::connection::socket::PlainSocket;
use crate::limits::{INPUT_BYTES_START, SEALED_BATCH_BYTES, SEALED_COST};
use crate::tls::info::{HandshakeKind, TlsInfo};
use crate::tls::settings::TlsVersion;

/// A session, from its first byte on. Its socket is passed to every call.
pub(crate) struct TlsSession {
    connection: RefCell<ServerConnection>,
    /// Bytes of the outbox that are in records, and not all of these have left.
    sealed: Cell<u64>,
    /// Whether what comes is still opened.
    input: Cell<InputState>,
    info: Option<Box<TlsInfo>>,
}

/// What happens to bytes of the peer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum InputState {
    /// They are opened.
    Opened,
    /// They are of no interest: the connection is being closed, or the peer broke the protocol.
    Discarded,
}

impl TlsSession {
    /// A session that nothing has been received in.
    pub(crate) fn new(mut connection: ServerConnection) -> TlsSession {
        // What is sealed at a time is bounded by a batch.
        connection.set_buffer_limit(None);
        TlsSession {
            connection: RefCell::new(connection),
            sealed: Cell::new(0),
            input: Cell::new(InputState::Opened),
            info: None,
        }
    }

    /// What was agreed, once the handshake is complete.
    pub(crate) fn info(&self) -> Option<&TlsInfo> {
        self.info.as_deref()
    }

    /// Shakes hands; `first` has been received already. Cancelling ends the session.
    ///
    /// # Errors
    /// Those of the socket; `UnexpectedEof` where the peer ends early, `InvalidData` with the
    /// error of rustls. An alert has been sent then, if the socket took it.
    pub(crate) async fn shake(&mut self, socket: &PlainSocket, first: &[u8]) -> io::Result<()> {
        self.feed(socket, first)?;
        while !self.is_complete() {
            self.flush(socket).await?;
            if self.is_complete() {
                break;
            }
            if poll_fn(|task| self.poll_feed(socket, task)).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        let connection = self.connection.get_mut();
        // Of TLS 1.2 the end of the handshake is still to be sent. The tickets of 1.3 leave with
        // the first response.
        let version = match connection.protocol_version() {
            Some(ProtocolVersion::TLSv1_3) => TlsVersion::Tls13,
            _ => TlsVersion::Tls12,
        };
        let suite = connection.negotiated_cipher_suite();
        let name = suite.and_then(|suite| suite.suite().as_str());
        self.info = Some(Box::new(TlsInfo {
            version,
            cipher_suite: name.map_or("", |name| iana_name(name)),
            server_name: connection.server_name().map(Box::from),
            handshake: match connection.handshake_kind() {
                Some(RustlsKind::Resumed) => HandshakeKind::Resumed,
                _ => HandshakeKind::Full,
            },
        }));
        match version {
            TlsVersion::Tls12 => self.flush(socket).await,
            TlsVersion::Tls13 => Ok(()),
        }
    }

    fn is_complete(&self) -> bool {
        !self.connection.borrow().is_handshaking()
    }

    /// Reads once, behind what is in `room`. 0 is the end of the input: the peer has closed its
    /// side, with an alert or without.
    pub(crate) fn poll_read(
        &self,
        socket: &PlainSocket,
        task: &mut Context<'_>,
        room: &mut Vec<u8>,
    ) -> Poll<io::Result<usize>> {
        loop {
            if let Some(read) = self.read_opened(room) {
                return Poll::Ready(read);
            }
            let fed = ready!(self.poll_feed(socket, task))?;
            if self.input.get() == InputState::Discarded {
                return Poll::Ready(Ok(fed));
            }
        }
    }

    /// The same at once, whatever the event loop knows.
    pub(crate) fn read_now(&self, socket: &PlainSocket, room: &mut Vec<u8>) -> io::Result<usize> {
        loop {
            if let Some(read) = self.read_opened(room) {
                return read;
            }
            let mut records = Vec::with_capacity(INPUT_BYTES_START);
            socket.receive(&mut records)?;
            self.feed(socket, &records)?;
        }
    }

    /// Takes bytes that are opened; `None` where more has to be received.
    fn read_opened(&self, room: &mut Vec<u8>) -> Option<io::Result<usize>> {
        if self.input.get() == InputState::Discarded {
            return None;
        }
        let mut connection = self.connection.borrow_mut();
        let mut reader = connection.reader();
        match reader.fill_buf() {
            Ok(opened) => {
                let count = opened.len().min(room.capacity() - room.len());
                room.extend_from_slice(&opened[..count]);
                reader.consume(count);
                Some(Ok(count))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            // The peer closed without an alert: what was being read may be cut off, which the
            // protocol sees by its framing.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Some(Ok(0)),
            Err(error) => Some(Err(error)),
        }
    }

    /// Receives records once and opens them. Returns how many bytes came.
    fn poll_feed(&self, socket: &PlainSocket, task: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut records = Vec::with_capacity(INPUT_BYTES_START);
        let received = ready!(socket.poll_read(task, &mut records))?;
        self.feed(socket, &records)?;
        Poll::Ready(Ok(received))
    }

    /// Opens records; none are the end of the input. What has to be answered (a key update, an
    /// alert) is sent as far as the socket takes it.
    fn feed(&self, socket: &PlainSocket, mut records: &[u8]) -> io::Result<()> {
        if self.input.get() == InputState::Discarded {
            return Ok(());
        }
        let fed = loop {
            let mut connection = self.connection.borrow_mut();
            if let Err(error) = connection.read_tls(&mut records) {
                break Err(error);
            }
            if let Err(error) = connection.process_new_packets() {
                break Err(io::Error::new(io::ErrorKind::InvalidData, error));
            }
            if records.is_empty() {
                break Ok(());
            }
        };
        if fed.is_err() {
            self.input.set(InputState::Discarded);
        }
        // Of no consequence if it fails: the next read or write meets the same error.
        if fed.is_err() || (self.is_complete() && self.sealed.get() == 0 && self.owes_reply()) {
            let _ = self.send(socket);
        }
        fed
    }

    /// Whether there are records although nothing of the outbox is sealed, and it has been sent
    /// something before: tickets wait for the first response.
    fn owes_reply(&self) -> bool {
        self.info.is_some() && self.connection.borrow().wants_write()
    }

    /// Sends records until none is left, or the socket is full. Returns how many calls it took.
    fn send(&self, socket: &PlainSocket) -> (u64, io::Result<()>) {
        let mut calls = 0;
        let mut connection = self.connection.borrow_mut();
        while connection.wants_write() {
            let call = || connection.write_tls(&mut RecordWriter(socket));
            match socket.try_io(Interest::WRITABLE, call) {
                Ok(_) => calls += 1,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return (calls, Err(error)),
            }
        }
        (calls, Ok(()))
    }

    /// Sends records until none is left. Cancel safe.
    async fn flush(&self, socket: &PlainSocket) -> io::Result<()> {
        loop {
            match self.send(socket).1 {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    Stream::ready(socket, Interest::WRITABLE).await?;
                }
                sent => return sent,
            }
        }
    }

    /// Sends one turn of an outbox, in batches that are read into `buffer`. Cancel safe: what is
    /// sealed leaves first the next time, and is not sealed again.
    ///
    /// # Errors
    /// As [`underpass::drive::tokio::Sender::turn`].
    pub(crate) async fn turn(
        &self,
        socket: &PlainSocket,
        outbox: &mut Outbox,
        policy: &Policy,
        buffer: &RefCell<Vec<u8>>,
        bytes_max: u64,
    ) -> Result<Turn, Error> {
        let mut left = (bytes_max / SEALED_COST).max(SEALED_BATCH_BYTES as u64);
        loop {
            if self.sealed.get() == 0 {
                if outbox.is_empty() {
                    return Ok(Turn::Empty);
                }
                if left == 0 {
                    tokio::task::yield_now().await;
                    return Ok(Turn::More);
                }
                let most = usize::try_from(left).unwrap_or(usize::MAX);
                if let Some(range) = self.seal(outbox, policy, buffer, most)? {
                    await_disk(outbox, &range).await;
                    continue;
                }
                left = left.saturating_sub(self.sealed.get());
            }
            let (calls, sent) = self.send(socket);
            outbox.advance(0, calls);
            match sent {
                Ok(()) => outbox.advance(self.sealed.take(), 0),
                Err(error) => {
                    let errno = Err(errno_of(&error));
                    if outbox.sent_from_buffer(errno, Waits::Polls)?.is_some() {
                        let ready = Stream::ready(socket, Interest::WRITABLE).await;
                        ready.map_err(|error| errno_of(&error))?;
                    }
                }
            }
        }
    }

    /// Makes records of the next bytes, at most `most`. Returns the range that has to be read from
    /// the disk first, if nothing is to be had without.
    fn seal(
        &self,
        outbox: &mut Outbox,
        policy: &Policy,
        buffer: &RefCell<Vec<u8>>,
        most: usize,
    ) -> Result<Option<underpass::FileRange>, Error> {
        let mut buffer = buffer.borrow_mut();
        buffer.resize(SEALED_BATCH_BYTES, 0);
        let room = &mut buffer[..most.min(SEALED_BATCH_BYTES)];
        let count = match gather(outbox, policy, 0, room)? {
            Gathered::Cold(range) => return Ok(Some(range)),
            Gathered::Bytes(count) => count,
        };
        let mut connection = self.connection.borrow_mut();
        let written = connection.writer().write_all(&buffer[..count]);
        // It fails where the session has, which the peer was told by an alert.
        written.map_err(|_| outbox.error(underpass::Fault::PeerGone, None))?;
        self.sealed.set(count as u64);
        Ok(None)
    }

    /// Receives one turn of a body into a file. Cancel safe.
    pub(crate) async fn receive<F: AsFd>(
        &self,
        socket: &PlainSocket,
        body: &mut FileReceiver<F>,
        bytes_max: u64,
    ) -> Result<Turn, Error> {
        let stop_at = body.left().saturating_sub(bytes_max.max(1));
        while body.left() > stop_at {
            // No more than belongs to the body: what follows stays in the session.
            let most = usize::try_from(body.left())
                .map_or(INPUT_BYTES_START, |left| left.min(INPUT_BYTES_START));
            let mut opened = Vec::with_capacity(most);
            let read = poll_fn(|task| self.poll_read(socket, task, &mut opened)).await;
            match read {
                Ok(0) => return Err(body.error(underpass::Fault::Truncated, None)),
                Ok(_) => body.push(&opened).map(drop)?,
                Err(error) => {
                    return Err(body.error(underpass::Fault::PeerGone, Some(errno_of(&error))));
                }
            }
            tokio::task::consume_budget().await;
        }
        match body.left() {
            0 => Ok(Turn::Empty),
            _ => {
                tokio::task::yield_now().await;
                Ok(Turn::More)
            }
        }
    }

    /// Announces the end of what we send (close_notify), as far as the socket takes it at once,
    /// and opens nothing any more.
    pub(crate) fn close(&self, socket: &PlainSocket) -> io::Result<()> {
        if self.input.replace(InputState::Discarded) == InputState::Opened {
            self.connection.borrow_mut().send_close_notify();
        }
        self.send(socket).1
    }
}

/// The event loop reports a socket that is full in its own way.
fn errno_of(error: &io::Error) -> Errno {
    match error.kind() {
        io::ErrorKind::WouldBlock => Errno::AGAIN,
        _ => Errno::from_io_error(error).unwrap_or(Errno::IO),
    }
}

/// The name that IANA has for what rustls calls `TLS13_AES_128_GCM_SHA256`.
fn iana_name(name: &'static str) -> &'static str {
    match name {
        "TLS13_AES_128_GCM_SHA256" => "TLS_AES_128_GCM_SHA256",
        "TLS13_AES_256_GCM_SHA384" => "TLS_AES_256_GCM_SHA384",
        "TLS13_CHACHA20_POLY1305_SHA256" => "TLS_CHACHA20_POLY1305_SHA256",
        name => name,
    }
}

/// Sends many records by one call.
struct RecordWriter<'s>(&'s PlainSocket);

impl Write for RecordWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, records: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut nothing = SendAncillaryBuffer::default();
        let sent = sendmsg(self.0, records, &mut nothing, SendFlags::NOSIGNAL)?;
        Ok(sent)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
