//! A TLS session over a socket: records in and out, and the messages that control them.
//!
//! ```text
//!  handshake ──► session ──► poll_read   records are opened in place
//!                   │        turn        a batch is read, sealed, and sent by one call
//!                   │        close       close_notify
//!                   └── alerts, key updates, limits of keys
//! ```

mod receive;
mod secrets;
mod sending_key;

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use rustls::{AlertDescription, ContentType, SupportedCipherSuite};
use tokio::io::Interest;
use underpass::drive::tokio::{Stream, Turn, await_disk, gather};
use underpass::{Error, Fault, FileRange, Gathered, Outbox, SealedRecords, Waits, tcp};

use crate::io::buffers::WorkerBuffers;
use crate::io::socket::PlainSocket;
use crate::limits::{
    INPUT_BYTES_START, KEY_RECORDS_MAX, SEALED_BATCH_BYTES, SEALED_CAUTION_ALL_BYTES,
    SEALED_CAUTION_BYTES, SEALED_COST, SEALED_TURN_BYTES_MIN,
};
use crate::tls::error::SessionFault;
use crate::tls::info::TlsInfo;
use crate::tls::message_rate::MessageRate;
use crate::tls::offload::{PendingOffload, Sealing};
use crate::tls::records::{CONTENT_BYTES_MAX, Opener, RECORD_BYTES_MAX, Sealer};
use crate::tls::shared::{AlertDirection, TlsShared};

pub(crate) use secrets::KernelSecrets;

/// A session whose handshake is complete. Its socket is passed to every call.
pub(crate) struct TlsSession {
    state: RefCell<SessionState>,
    info: Rc<TlsInfo>,
}

/// The result of a handshake.
pub(crate) struct HandshakeResult {
    pub(crate) opener: Opener,
    pub(crate) sealer: Sealer,
    /// The key of the sealer, if kernel TLS may take over.
    pub(crate) offload: Option<PendingOffload>,
    pub(crate) suite: SupportedCipherSuite,
    pub(crate) secrets: KernelSecrets,
    /// Records of the handshake that have not been sent.
    pub(crate) unsent: SealedRecords,
    /// Input received after the handshake.
    pub(crate) received: Vec<u8>,
    pub(crate) info: TlsInfo,
    pub(crate) shared: Arc<TlsShared>,
}

struct SessionState {
    opener: Opener,
    sealing: Sealing,
    /// Present until the first long range starts.
    offload: Option<PendingOffload>,
    suite: SupportedCipherSuite,
    /// Derives the next keys.
    secrets: KernelSecrets,
    unsent: SealedRecords,
    /// The start of an incomplete record; before the first read it may include whole records.
    torn: Vec<u8>,
    /// Opened data that was not requested yet.
    opened: Vec<u8>,
    /// The start of an incomplete handshake message.
    message: Vec<u8>,
    /// The peer has requested a key update, which must happen before the next data.
    is_update_owed: bool,
    input: InputState,
    messages: MessageRate,
    /// Bytes left to send record by record since the socket was full.
    caution: u64,
    /// The limit for one key.
    key_records_max: u64,
    shared: Arc<TlsShared>,
}

/// The handling of received bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum InputState {
    /// They are opened.
    Opened,
    /// The peer has ended its side.
    Ended,
    /// The peer broke the protocol, or reported that we did.
    Broken,
    /// They are discarded: the connection is being closed.
    Discarded,
}

const UNEXPECTED: SessionFault = SessionFault::Peer(AlertDescription::UnexpectedMessage);

/// Handshake messages (RFC 8446, section 4).
const CLIENT_HELLO: u8 = 1;
const NEW_SESSION_TICKET: u8 = 4;
const KEY_UPDATE: u8 = 24;

/// The maximum bytes of a session ticket that a client skips; ours have about 200.
const TICKET_BYTES_MAX: usize = 64 << 10;

/// A KeyUpdate without its last byte, which requests one in return or not.
const KEY_UPDATE_HEAD: [u8; 4] = [KEY_UPDATE, 0, 0, 1];

impl TlsSession {
    pub(crate) fn new(result: HandshakeResult) -> TlsSession {
        TlsSession {
            info: Rc::new(result.info),
            state: RefCell::new(SessionState {
                opener: result.opener,
                sealing: Sealing::UserSpace(result.sealer),
                offload: result.offload,
                suite: result.suite,
                secrets: result.secrets,
                unsent: result.unsent,
                torn: result.received,
                opened: Vec::new(),
                message: Vec::new(),
                is_update_owed: false,
                input: InputState::Opened,
                messages: MessageRate::default(),
                caution: 0,
                key_records_max: KEY_RECORDS_MAX,
                shared: result.shared,
            }),
        }
    }

    /// Returns the parameters agreed in the handshake.
    pub(crate) fn info(&self) -> &Rc<TlsInfo> {
        &self.info
    }

    /// Reads once, appending to `room`. Returns 0 at the end of the input: after close_notify, or
    /// if the peer has closed its side without it. The protocol above detects missing data.
    pub(crate) fn poll_read(
        &self,
        socket: &PlainSocket,
        task: &mut Context<'_>,
        room: &mut Vec<u8>,
    ) -> Poll<io::Result<usize>> {
        self.read(socket, room, |room| socket.poll_read(task, room))
    }

    /// Reads once without waiting, whatever readiness the event loop has recorded.
    pub(crate) fn read_now(&self, socket: &PlainSocket, room: &mut Vec<u8>) -> io::Result<usize> {
        match self.read(socket, room, |room| Poll::Ready(socket.receive(room))) {
            Poll::Ready(read) => read,
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    fn read(
        &self,
        socket: &PlainSocket,
        room: &mut Vec<u8>,
        mut receive: impl FnMut(&mut Vec<u8>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        let start = room.len();
        let mut state = self.state.borrow_mut();
        if !state.opened.is_empty() {
            room.append(&mut std::mem::take(&mut state.opened));
            return Poll::Ready(Ok(room.len() - start));
        }
        loop {
            match state.input {
                InputState::Opened => {}
                InputState::Ended => return Poll::Ready(Ok(0)),
                InputState::Broken => return Poll::Ready(Err(io::ErrorKind::InvalidData.into())),
                InputState::Discarded => return receive(room),
            }
            state.open(socket, room, start)?;
            if room.len() > start {
                return Poll::Ready(Ok(room.len() - start));
            }
            if state.input == InputState::Opened && ready!(receive(room))? == 0 {
                state.input = InputState::Ended;
                let count = &state.shared.unannounced_ends;
                count.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

impl TlsSession {
    /// Sends one turn of an outbox, in batches that are read and sealed in buffers of the worker.
    /// Cancel safe: sealed records are sent first the next time.
    ///
    /// # Errors
    /// As [`underpass::drive::tokio::Sender::turn`].
    pub(crate) async fn turn(
        &self,
        socket: &PlainSocket,
        outbox: &mut Outbox,
        buffers: &WorkerBuffers,
        bytes_max: u64,
    ) -> Result<Turn, Error> {
        let mut left = (bytes_max / SEALED_COST).max(SEALED_TURN_BYTES_MIN);
        loop {
            // The borrow ends before any wait.
            let sealed = self
                .state
                .borrow_mut()
                .seal(socket, outbox, buffers, left)?;
            match sealed {
                SealedBatch::Nothing => return Ok(Turn::Empty),
                SealedBatch::Later => {
                    let heard = self.state.borrow_mut().listen(socket, buffers);
                    heard.map_err(|_| outbox.error(Fault::PeerGone, None))?;
                    return Ok(Turn::More);
                }
                SealedBatch::Cold(range) => {
                    await_disk(outbox, &range).await;
                    continue;
                }
                SealedBatch::Bytes(bytes) => left = left.saturating_sub(bytes),
            }
            let sent = self.state.borrow_mut().send_owed(socket, outbox, buffers)?;
            if sent == SendOutcome::Blocked {
                let ready = Stream::ready(socket, Interest::WRITABLE).await;
                ready.map_err(|error| errno_of(&error))?;
            }
        }
    }

    /// Announces the end of our side (close_notify), if the socket accepts it immediately, and
    /// stops opening input.
    pub(crate) fn close(&self, socket: &PlainSocket) -> io::Result<()> {
        let mut state = self.state.borrow_mut();
        let input = std::mem::replace(&mut state.input, InputState::Discarded);
        if matches!(input, InputState::Opened | InputState::Ended) {
            state.push_alert(AlertLevel::Warning, AlertDescription::CloseNotify);
        }
        state.send(socket).map(drop)
    }
}

/// The result of sealing a batch.
enum SealedBatch {
    /// Records wait to be sent, with this many new bytes.
    Bytes(u64),
    /// No data is pending.
    Nothing,
    /// The turn is over.
    Later,
    /// This range must be read from the disk first.
    Cold(FileRange),
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum SendOutcome {
    All,
    Blocked,
}

impl SessionState {
    /// Reads messages from a peer that is receiving data: it may request a new key, or report a
    /// failure. Its data waits for the protocol, and later messages for their turn.
    fn listen(&mut self, socket: &PlainSocket, buffers: &WorkerBuffers) -> io::Result<()> {
        if self.input != InputState::Opened || !self.opened.is_empty() {
            return Ok(());
        }
        let mut room = buffers.spare_input.take();
        room.reserve(INPUT_BYTES_START);
        let heard = match socket.receive(&mut room) {
            Ok(1..) => self.open(socket, &mut room, 0),
            // The next read or write reports it.
            Ok(0) | Err(_) => Ok(()),
        };
        self.opened.extend_from_slice(&room);
        room.clear();
        if room.capacity() <= INPUT_BYTES_START {
            buffers.spare_input.replace(room);
        }
        heard
    }

    /// Opens the records in `room` from `start` on, after `torn`, and leaves their content there.
    fn open(&mut self, socket: &PlainSocket, room: &mut Vec<u8>, start: usize) -> io::Result<()> {
        let answers = self.unsent.unsent().len();
        let mut opened = match self.torn.is_empty() {
            true => self.open_in_place(room, start),
            false => {
                let mut records = std::mem::take(&mut self.torn);
                records.extend_from_slice(&room[start..]);
                room.truncate(start);
                let opened = self.open_in_place(&mut records, 0);
                room.extend_from_slice(&records);
                opened
            }
        };
        // Requests that arrive while records wait get one response (RFC 8446, section 4.6.3), with
        // the next data.
        if self.is_update_owed && self.has_sent_all() && opened.is_ok() {
            opened = self.update_key();
        }
        if let Err(fault) = opened {
            room.truncate(start);
            self.torn = Vec::new();
            self.input = InputState::Broken;
            if let SessionFault::Peer(alert) = fault {
                self.push_alert(AlertLevel::Fatal, alert);
            }
        }
        // Sends responses as far as the socket accepts them; the rest is sent with the next data.
        let is_kernel = matches!(self.sealing, Sealing::Kernel(_));
        if is_kernel || self.unsent.unsent().len() > answers {
            let _ = self.send(socket);
        }
        Ok(opened?)
    }

    fn open_in_place(&mut self, records: &mut Vec<u8>, start: usize) -> Result<(), SessionFault> {
        let (mut from, mut to) = (start, start);
        while self.input == InputState::Opened
            && let Some(length) = self
                .opener
                .length(&records[from..])
                .map_err(SessionFault::Peer)?
        {
            let opened = self.opener.open(&mut records[from..from + length]);
            let (kind, content) = opened.map_err(SessionFault::Peer)?;
            let content = from + content.start..from + content.end;
            let is_expected = kind == ContentType::ApplicationData && self.message.is_empty();
            if is_expected && !content.is_empty() {
                let count = content.len();
                records.copy_within(content, to);
                to += count;
            } else {
                let message = records[content].to_vec();
                self.heed(kind, &message)?;
            }
            from += length;
        }
        if self.input == InputState::Opened {
            self.torn = records[from..].to_vec();
        }
        records.truncate(to);
        Ok(())
    }

    /// Handles a record that is not data, or that arrives where no data is allowed.
    fn heed(&mut self, kind: ContentType, content: &[u8]) -> Result<(), SessionFault> {
        let is_whole = self.message.is_empty();
        match (kind, content) {
            _ if !self.messages.admit(Instant::now()) => Err(UNEXPECTED),
            (ContentType::Handshake, [_, ..]) => self.heed_message(content),
            // No data may separate the parts of a message (RFC 8446, section 5.1).
            (ContentType::ApplicationData, []) if is_whole => Ok(()),
            (ContentType::Alert, [level, description]) if is_whole => {
                self.heed_alert(*level, AlertDescription::from(*description))
            }
            _ => Err(UNEXPECTED),
        }
    }

    fn heed_alert(&mut self, level: u8, alert: AlertDescription) -> Result<(), SessionFault> {
        let alerts = &self.shared.alerts;
        alerts.record(AlertDirection::Received, u8::from(alert));
        // The level has no meaning in TLS 1.3 (RFC 8446, section 6).
        let is_warning = match self.suite.tls13() {
            Some(_) => alert == AlertDescription::UserCanceled,
            None => level == AlertLevel::Warning as u8,
        };
        match alert {
            AlertDescription::CloseNotify => self.input = InputState::Ended,
            _ if is_warning => {}
            alert => return Err(SessionFault::Told(alert)),
        }
        Ok(())
    }

    /// Handles a handshake message, or a part of one. In TLS 1.3 only KeyUpdate is allowed, and to
    /// a server NewSessionTicket, which is ignored: our clients resume no session.
    fn heed_message(&mut self, part: &[u8]) -> Result<(), SessionFault> {
        if self.suite.tls13().is_none() {
            return self.refuse_renegotiation(part);
        }
        self.message.extend_from_slice(part);
        if matches!(self.secrets, KernelSecrets::Client(_)) && self.message[0] == NEW_SESSION_TICKET
        {
            return self.skip_tickets();
        }
        match self.message[..] {
            _ if KEY_UPDATE_HEAD.starts_with(&self.message) => return Ok(()),
            [KEY_UPDATE, 0, 0, 1, asked @ (0 | 1)] => self.is_update_owed |= asked == 1,
            [KEY_UPDATE, 0, 0, 1, _] => {
                return Err(SessionFault::Peer(AlertDescription::IllegalParameter));
            }
            // A record must end at a key change (RFC 8446, section 5.1).
            [KEY_UPDATE, 0, 0, 1, ..] => return Err(UNEXPECTED),
            [KEY_UPDATE, ..] => return Err(SessionFault::Peer(AlertDescription::DecodeError)),
            _ => return Err(UNEXPECTED),
        }
        self.message.clear();
        let next = self.secrets.update_receiving();
        let next = next.and_then(|next| Opener::new(self.suite, next));
        self.opener = next.map_err(|_| SessionFault::Peer(AlertDescription::InternalError))?;
        Ok(())
    }

    /// Drops whole session tickets, and keeps the start of an incomplete one.
    fn skip_tickets(&mut self) -> Result<(), SessionFault> {
        while let [kind, high, middle, low, rest @ ..] = &self.message[..] {
            let length = u32::from_be_bytes([0, *high, *middle, *low]) as usize;
            if *kind != NEW_SESSION_TICKET || length > TICKET_BYTES_MAX {
                return Err(UNEXPECTED);
            }
            if rest.len() < length {
                break;
            }
            self.message.drain(..4 + length);
        }
        Ok(())
    }

    /// Responds with a warning (RFC 5246, section 7.2.2), unless the previous one is still unsent.
    fn refuse_renegotiation(&mut self, message: &[u8]) -> Result<(), SessionFault> {
        if message[0] != CLIENT_HELLO {
            return Err(UNEXPECTED);
        }
        if self.has_sent_all() {
            self.push_alert(AlertLevel::Warning, AlertDescription::NoRenegotiation);
        }
        Ok(())
    }

    /// Returns whether no record waits to be sent.
    fn has_sent_all(&self) -> bool {
        let waits = match &self.sealing {
            Sealing::UserSpace(_) => false,
            Sealing::Kernel(kernel) => kernel.waits(),
        };
        self.unsent.is_empty() && !waits
    }

    fn push_alert(&mut self, level: AlertLevel, alert: AlertDescription) {
        let number = u8::from(alert);
        self.shared.alerts.record(AlertDirection::Sent, number);
        // If this fails, the peer sees the connection end without it.
        let _ = self.push(ContentType::Alert, &[level as u8, number], 0);
    }

    fn push(&mut self, kind: ContentType, content: &[u8], owed: u64) -> Result<(), rustls::Error> {
        let sealer = match &mut self.sealing {
            Sealing::UserSpace(sealer) => sealer,
            Sealing::Kernel(kernel) => {
                kernel.push(kind, content);
                return Ok(());
            }
        };
        let form = sealer.form();
        let length = form.before() + content.len() + form.behind();
        self.unsent
            .push(length, owed, |record| sealer.seal(kind, content, record))
    }

    /// Seals the next bytes of an outbox, at most `most`, unless data records already wait.
    fn seal(
        &mut self,
        socket: &PlainSocket,
        outbox: &mut Outbox,
        buffers: &WorkerBuffers,
        most: u64,
    ) -> Result<SealedBatch, Error> {
        if self.unsent.owe() {
            return Ok(SealedBatch::Bytes(0));
        }
        if outbox.is_empty() {
            return Ok(SealedBatch::Nothing);
        }
        if most == 0 {
            return Ok(SealedBatch::Later);
        }
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let most = most.min(self.batch(socket, outbox, buffers));
        let mut buffer = buffers.plaintext.borrow_mut();
        buffer.resize(SEALED_BATCH_BYTES, 0);
        let count = match gather(outbox, &buffers.policy, 0, &mut buffer[..most])? {
            Gathered::Cold(range) => return Ok(SealedBatch::Cold(range)),
            Gathered::Bytes(count) => count,
        };
        self.unsent.borrow(buffers.sealed.take());
        for content in buffer[..count].chunks(CONTENT_BYTES_MAX) {
            let sealed = self.renew_key().and_then(|()| {
                self.push(ContentType::ApplicationData, content, content.len() as u64)
            });
            // It fails only if the session has failed.
            sealed.map_err(|_| outbox.error(Fault::PeerGone, None))?;
            self.messages.entitle();
        }
        Ok(SealedBatch::Bytes(count as u64))
    }

    /// Returns the bytes to seal at a time: the room in the socket, or one record.
    fn batch(&self, socket: &PlainSocket, outbox: &Outbox, buffers: &WorkerBuffers) -> usize {
        let is_short = outbox.unsent(CONTENT_BYTES_MAX as u64).next().is_none();
        if is_short || self.caution > 0 || buffers.sealed_caution.get() > 0 {
            return CONTENT_BYTES_MAX;
        }
        let room = tcp::send_room(socket).unwrap_or(0);
        let records = usize::try_from(room).unwrap_or(usize::MAX) / CONTENT_BYTES_MAX;
        (records.max(1) * CONTENT_BYTES_MAX).min(SEALED_BATCH_BYTES)
    }

    /// Sends records until none is left or the socket is full, and records the progress.
    fn send_owed(
        &mut self,
        socket: &PlainSocket,
        outbox: &mut Outbox,
        buffers: &WorkerBuffers,
    ) -> Result<SendOutcome, Error> {
        while !self.unsent.is_empty() {
            let bytes = self.unsent.unsent();
            let sent = socket.try_io(Interest::WRITABLE, || {
                Ok(send(socket, bytes, SendFlags::NOSIGNAL)?)
            });
            match sent {
                Ok(count) => {
                    self.caution = self.caution.saturating_sub(count as u64);
                    let all = buffers.sealed_caution.get();
                    buffers.sealed_caution.set(all.saturating_sub(count as u64));
                    let owed = self.unsent.advance(count);
                    outbox.sent_from_buffer(Ok(owed), Waits::Polls)?;
                }
                Err(error) => {
                    let wait = outbox.sent_from_buffer(Err(errno_of(&error)), Waits::Polls)?;
                    if wait.is_some() {
                        self.caution = SEALED_CAUTION_BYTES;
                        // The socket had room, but TCP's memory is short, for all sockets.
                        if self.unsent.unsent().len() > RECORD_BYTES_MAX {
                            buffers.sealed_caution.set(SEALED_CAUTION_ALL_BYTES);
                        }
                        buffers.sealed.replace(self.unsent.shrink());
                        return Ok(SendOutcome::Blocked);
                    }
                }
            }
        }
        self.unsent
            .lend()
            .map(|buffer| buffers.sealed.replace(buffer));
        Ok(SendOutcome::All)
    }

    /// Sends records without data, as far as the socket accepts them immediately.
    fn send(&mut self, socket: &PlainSocket) -> io::Result<()> {
        while !self.unsent.is_empty() && !self.unsent.owe() {
            let bytes = self.unsent.unsent();
            let sent = socket.try_io(Interest::WRITABLE, || {
                Ok(send(socket, bytes, SendFlags::NOSIGNAL)?)
            })?;
            self.unsent.advance(sent);
        }
        match &mut self.sealing {
            Sealing::Kernel(kernel) => kernel.send(socket),
            Sealing::UserSpace(_) => Ok(()),
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum AlertLevel {
    Warning = 1,
    Fatal = 2,
}

/// Converts the event loop's error for a full socket to `EAGAIN`.
fn errno_of(error: &io::Error) -> Errno {
    match error.kind() {
        io::ErrorKind::WouldBlock => Errno::AGAIN,
        _ => Errno::from_io_error(error).unwrap_or(Errno::IO),
    }
}

#[cfg(test)]
mod tests;
