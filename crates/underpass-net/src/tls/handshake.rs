//! The stage between admission and the protocol on a listener with TLS.

use std::cell::Cell;
use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::sync::Arc;

use rustix::net::sockopt::set_tcp_quickack;
use rustix::net::{SendFlags, send};
use rustls::server::{Acceptor, UnbufferedServerConnection};
use rustls::unbuffered::{ConnectionState, EncodeError, InsufficientSizeError, UnbufferedStatus};
use rustls::{
    AlertDescription, HandshakeKind as RustlsKind, InvalidMessage, PeerMisbehaved, ProtocolVersion,
};
use tokio::io::Interest;
use tokio::task::spawn_blocking;
use underpass::SealedRecords;
use underpass::drive::tokio::Stream;

use crate::connection::socket::PlainSocket;
use crate::connection::step_gate::StepGate;
use crate::connection::wait::WhileDraining;
use crate::connection::{Connection, ReadOutcome};
use crate::error::ConnectionError;
use crate::limits::{HANDSHAKE_BYTES_MAX, INPUT_BYTES_START};
use crate::tls::acceptor::TlsAcceptor;
use crate::tls::error::HandshakeError;
use crate::tls::info::{Handshake, HandshakeKind, TlsInfo, iana_name};
use crate::tls::offload::{Offload, PendingOffload};
use crate::tls::reading::{SignatureCost, identity};
use crate::tls::records::{HEADER_BYTES, Opener, RECORD_BYTES_MAX, RecordForm, Sealer};
use crate::tls::session::{HandshakeResult, TlsSession};
use crate::tls::settings::TlsVersion;
use crate::tls::shared::{AlertDirection, TlsShared};

/// The first byte of a handshake record (RFC 8446, section 5.1).
const HANDSHAKE_RECORD: u8 = 22;
const CHANGE_CIPHER_SPEC_RECORD: u8 = 20;
const ALERT_RECORD: u8 = 21;

/// A suite of no cipher, by which a client says that it has tried a higher version before (RFC
/// 7507).
const FALLBACK_SCSV: u16 = 0x5600;

/// Returns the record of a fatal alert, before anything is encrypted.
fn alert_record(alert: AlertDescription) -> [u8; 7] {
    [ALERT_RECORD, 3, 3, 0, 2, 2, u8::from(alert)]
}

/// The client offers a lower version than it could have: somebody may have cut off its first
/// attempt.
const INAPPROPRIATE_FALLBACK: rustls::Error =
    rustls::Error::PeerMisbehaved(PeerMisbehaved::AttemptedDowngradeToTls12WhenTls13IsSupported);

impl Connection {
    /// Shakes hands.
    ///
    /// # Errors
    /// [`HandshakeError`]. An alert has been sent; [`Connection::close`] lets it arrive.
    pub(crate) async fn handshake(
        &mut self,
        acceptor: &TlsAcceptor,
    ) -> Result<Handshake, HandshakeError> {
        self.start_request_deadline(self.worker().limits.handshake_timeout);
        while self.input().is_empty() {
            match self.fill(WhileDraining::Ends).await {
                Ok(ReadOutcome::Bytes(_)) => {}
                Ok(ReadOutcome::End) => return Err(HandshakeError::PeerGone),
                Err(error) => return Err(failure(error)),
            }
        }
        if self.input()[0] != HANDSHAKE_RECORD {
            return Ok(Handshake::Plain);
        }
        let first = self.input().to_vec();
        self.consume(first.len());
        let state = self.state();
        let handshake = HandshakeInProgress::new(acceptor, state.transport.socket(), first)?;
        let shaking = handshake.run(&state.worker.handshakes);
        let connections = &state.worker.connections;
        let shaken = state
            .wait
            .until(connections, WhileDraining::Continues, shaking)
            .await;
        let result = shaken.map_err(failure)??;
        self.state()
            .transport
            .secure(Box::new(TlsSession::new(result)));
        Ok(Handshake::Complete)
    }
}

fn failure(error: ConnectionError) -> HandshakeError {
    match error {
        ConnectionError::TimedOut => HandshakeError::Late,
        ConnectionError::Stopped | ConnectionError::Evicted => HandshakeError::Closed,
        _ => HandshakeError::PeerGone,
    }
}

/// A handshake in progress.
pub(crate) struct HandshakeInProgress<'s> {
    machine: HandshakeMachine,
    shared: Arc<TlsShared>,
    socket: &'s PlainSocket,
    cost: SignatureCost,
}

/// What is known of a handshake, apart from its socket.
struct HandshakeMachine {
    connection: UnbufferedServerConnection,
    /// Records that have come and are not used up.
    received: Vec<u8>,
    /// How much of it rustls has seen: one record more each time that it asks for more, so that
    /// everything behind the handshake is the session's.
    shown: usize,
    /// Records that have not been sent.
    unsent: Vec<u8>,
    /// Reads the client's hello beside `connection`, which does not tell the name in it; none once
    /// that is done.
    hello: Option<Acceptor>,
    /// The name that the client asks for.
    server_name: Option<Box<str>>,
    /// Whether the client says that it has tried a higher version before.
    is_fallback: bool,
    /// The highest version that is spoken here.
    version_max: TlsVersion,
    offload: Option<Arc<Offload>>,
}

/// A handshake after a step, and what came of that.
type AdvancedHandshake<'s> = (
    HandshakeInProgress<'s>,
    Result<HandshakeStep, rustls::Error>,
);

/// What rustls wants next.
enum HandshakeStep {
    /// It has made progress, and goes on at once.
    Again,
    /// More has to come from the peer.
    Receive,
    Complete,
}

impl<'s> HandshakeInProgress<'s> {
    /// Begins with what has come already.
    pub(crate) fn new(
        acceptor: &TlsAcceptor,
        socket: &'s PlainSocket,
        received: Vec<u8>,
    ) -> Result<HandshakeInProgress<'s>, HandshakeError> {
        Ok(HandshakeInProgress {
            machine: HandshakeMachine::new(acceptor, received)?,
            shared: Arc::clone(acceptor.shared()),
            socket,
            cost: acceptor.signature_cost(),
        })
    }

    /// Shakes hands; steps that compute pass the gate. Cancelling ends the connection.
    pub(crate) async fn run(mut self, gate: &StepGate) -> Result<HandshakeResult, HandshakeError> {
        loop {
            while self.machine.next_record().is_none() {
                self.flush().await?;
                self.receive().await?;
            }
            let step;
            (self, step) = gate.pass(self.advance()).await?;
            match step {
                Ok(HandshakeStep::Complete) => break,
                Ok(_) => {}
                Err(error) => return Err(self.fail(error).await),
            }
        }
        // Of TLS 1.2 the end of the handshake has to be sent; the tickets of 1.3 leave with the
        // first response.
        if self.machine.connection.protocol_version() != Some(ProtocolVersion::TLSv1_3) {
            self.flush().await?;
        }
        // A client with Nagle's algorithm holds its request back until the end of its handshake is
        // acknowledged, which the kernel would do 40 ms later.
        if self.machine.received.is_empty() {
            let _not_tcp = set_tcp_quickack(self.socket, true);
        }
        let finished = self.machine.finish(self.shared);
        finished.map_err(|error| HandshakeError::Failed(error.to_string()))
    }

    /// Goes on with what has come: there may be a signature to make. One that takes long is made by
    /// a thread of the blocking pool.
    async fn advance(self) -> Result<AdvancedHandshake<'s>, HandshakeError> {
        let HandshakeInProgress {
            mut machine,
            shared,
            socket,
            cost,
        } = self;
        let advance = move || (machine.advance(), machine);
        let (step, machine) = match cost {
            SignatureCost::Low => advance(),
            SignatureCost::High => spawn_blocking(advance)
                .await
                .map_err(|error| HandshakeError::Failed(error.to_string()))?,
        };
        let handshake = HandshakeInProgress {
            machine,
            shared,
            socket,
            cost,
        };
        Ok((handshake, step))
    }

    /// Sends the alert for an error.
    async fn fail(&mut self, error: rustls::Error) -> HandshakeError {
        // What comes next is the alert: in a record of its own, or encrypted behind a ServerHello.
        // rustls must not be asked for more, it would panic. Of some errors it reports none.
        let mut start = self.machine.unsent.len();
        let _ = self.machine.step();
        while let Some(&(HANDSHAKE_RECORD | CHANGE_CIPHER_SPEC_RECORD)) =
            self.machine.unsent.get(start)
        {
            start = self.machine.unsent.len();
            let _ = self.machine.step();
        }
        if self.machine.unsent.len() == start
            && self.machine.connection.protocol_version().is_none()
        {
            let record = alert_record(AlertDescription::DecodeError);
            self.machine.unsent.extend(record);
        }
        self.machine.correct_alert(start, &error);
        self.count_alert(start, &error);
        let _ = self.flush().await;
        match error {
            rustls::Error::AlertReceived(alert) => HandshakeError::Alert(format!("{alert:?}")),
            error => HandshakeError::Failed(error.to_string()),
        }
    }

    /// Counts the alert that ends the handshake: one from the peer, or ours in the record that
    /// begins at `start`. If that record is encrypted, the alert is derived from `error`.
    fn count_alert(&self, start: usize, error: &rustls::Error) {
        use AlertDescription as Alert;
        let alerts = &self.shared.alerts;
        if let rustls::Error::AlertReceived(alert) = error {
            return alerts.record(AlertDirection::Received, u8::from(*alert));
        }
        let number = match (&self.machine.unsent[start..], error) {
            ([], _) => return,
            ([ALERT_RECORD, _, _, 0, 2, _, number], _) => *number,
            (_, rustls::Error::NoCertificatesPresented) => u8::from(Alert::CertificateRequired),
            (_, rustls::Error::InvalidCertificate(why)) => Alert::from(why.clone()).into(),
            (_, rustls::Error::NoApplicationProtocol) => Alert::NoApplicationProtocol.into(),
            (_, rustls::Error::DecryptError) => u8::from(Alert::BadRecordMac),
            (_, rustls::Error::InvalidMessage(_)) => u8::from(Alert::DecodeError),
            _ => u8::MAX,
        };
        alerts.record(AlertDirection::Sent, number);
    }

    async fn receive(&mut self) -> Result<(), HandshakeError> {
        if self.machine.received.len() >= HANDSHAKE_BYTES_MAX {
            return Err(self
                .fail(InvalidMessage::HandshakePayloadTooLarge.into())
                .await);
        }
        self.machine.received.reserve(INPUT_BYTES_START);
        let (socket, received) = (self.socket, &mut self.machine.received);
        match poll_fn(|task| socket.poll_read(task, received)).await {
            Ok(1..) => Ok(()),
            Ok(0) | Err(_) => Err(HandshakeError::PeerGone),
        }
    }

    async fn flush(&mut self) -> Result<(), HandshakeError> {
        while !self.machine.unsent.is_empty() {
            let call = || {
                Ok(send(
                    self.socket,
                    &self.machine.unsent,
                    SendFlags::NOSIGNAL,
                )?)
            };
            match self.socket.try_io(Interest::WRITABLE, call) {
                Ok(count) => drop(self.machine.unsent.drain(..count)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let ready = Stream::ready(self.socket, Interest::WRITABLE).await;
                    ready.map_err(|_| HandshakeError::PeerGone)?;
                }
                Err(_) => return Err(HandshakeError::PeerGone),
            }
        }
        Ok(())
    }
}

impl HandshakeMachine {
    fn new(acceptor: &TlsAcceptor, received: Vec<u8>) -> Result<HandshakeMachine, HandshakeError> {
        let connection = acceptor.session();
        Ok(HandshakeMachine {
            connection: connection.map_err(|error| HandshakeError::Failed(error.to_string()))?,
            received,
            shown: 0,
            unsent: Vec::new(),
            hello: Some(Acceptor::default()),
            server_name: None,
            is_fallback: false,
            version_max: acceptor.version_max(),
            offload: acceptor.offload().cloned(),
        })
    }

    /// The length of the next record, once it is complete.
    fn next_record(&self) -> Option<usize> {
        record_length(&self.received[self.shown..])
    }

    /// Goes on until more has to come, or the handshake is complete.
    fn advance(&mut self) -> Result<HandshakeStep, rustls::Error> {
        loop {
            let step = self.step()?;
            let is_lower = self.version_max == TlsVersion::Tls13
                && self.connection.protocol_version() == Some(ProtocolVersion::TLSv1_2);
            if self.is_fallback && is_lower {
                // Nothing was sent yet: the ServerHello is replaced by the alert.
                self.unsent.clear();
                return Err(INAPPROPRIATE_FALLBACK);
            }
            match (step, self.next_record()) {
                (HandshakeStep::Again, _) => {}
                (HandshakeStep::Receive, Some(length)) => self.show(length),
                (step, _) => return Ok(step),
            }
        }
    }

    /// Replaces the alert that begins at `start` where RFCs have another one for the error.
    fn correct_alert(&mut self, start: usize, error: &rustls::Error) {
        let corrected = match (&self.unsent[start..], error) {
            (_, error) if *error == INAPPROPRIATE_FALLBACK => {
                AlertDescription::InappropriateFallback
            }
            // rustls has a certificate without a common algorithm for a matter of access (RFC 5246,
            // section 7.4.1.3; RFC 8446, section 4.1.1).
            ([ALERT_RECORD, _, _, 0, 2, _, number], rustls::Error::General(_))
                if *number == u8::from(AlertDescription::AccessDenied) =>
            {
                AlertDescription::HandshakeFailure
            }
            _ => return,
        };
        self.unsent.truncate(start);
        self.unsent.extend(alert_record(corrected));
    }

    fn step(&mut self) -> Result<HandshakeStep, rustls::Error> {
        let shown = &mut self.received[..self.shown];
        let UnbufferedStatus { discard, state, .. } = self.connection.process_tls_records(shown);
        let step = match state {
            Err(error) => Err(error),
            Ok(ConnectionState::EncodeTlsData(mut data)) => {
                let start = self.unsent.len();
                if let Err(EncodeError::InsufficientSize(InsufficientSizeError { required_size })) =
                    data.encode(&mut [])
                {
                    self.unsent.resize(start + required_size, 0);
                    let encoded = data.encode(&mut self.unsent[start..]);
                    self.unsent.truncate(start + encoded.unwrap_or(0));
                }
                Ok(HandshakeStep::Again)
            }
            // Sent before anything is received.
            Ok(ConnectionState::TransmitTlsData(data)) => {
                data.done();
                Ok(HandshakeStep::Again)
            }
            Ok(ConnectionState::BlockedHandshake) => Ok(HandshakeStep::Receive),
            Ok(ConnectionState::WriteTraffic(_)) => Ok(HandshakeStep::Complete),
            Ok(_) => Err(rustls::Error::HandshakeNotComplete),
        };
        self.received.drain(..discard);
        self.shown -= discard;
        step
    }

    /// Has rustls see one record more.
    fn show(&mut self, length: usize) {
        let mut record = &self.received[self.shown..self.shown + length];
        self.shown += length;
        let Some(hello) = &mut self.hello else {
            return;
        };
        while hello.read_tls(&mut record).is_ok_and(|read| read > 0) {
            let accepted = match hello.accept() {
                Ok(None) => continue,
                accepted => accepted.ok().flatten(),
            };
            if let Some(accepted) = &accepted {
                let hello = accepted.client_hello();
                self.server_name = hello.server_name().map(Box::from);
                let mut suites = hello.cipher_suites().iter();
                self.is_fallback = suites.any(|suite| u16::from(*suite) == FALLBACK_SCSV);
            }
            self.hello = None;
            return;
        }
    }

    /// Takes the secrets out of rustls.
    fn finish(self, shared: Arc<TlsShared>) -> Result<HandshakeResult, rustls::Error> {
        let suite = self.connection.negotiated_cipher_suite();
        let suite = suite.ok_or(rustls::Error::HandshakeNotComplete)?;
        let client = self.connection.peer_certificates();
        let info = TlsInfo {
            version: match suite.tls13() {
                Some(_) => TlsVersion::Tls13,
                None => TlsVersion::Tls12,
            },
            cipher_suite: suite.suite().as_str().map_or("", iana_name),
            server_name: self.server_name,
            handshake: match self.connection.handshake_kind() {
                Some(RustlsKind::Resumed) => HandshakeKind::Resumed,
                _ => HandshakeKind::Full,
            },
            client: client.and_then(|chain| chain.first().map(identity)),
            sealed_by: Cell::default(),
        };
        let (extracted, secrets) = self.connection.dangerous_into_kernel_connection()?;
        let form = RecordForm::of(suite, &extracted.tx.1);
        let mut unsent = SealedRecords::default();
        if !self.unsent.is_empty() {
            let sealed = unsent.push(self.unsent.len(), 0, |records| {
                records.copy_from_slice(&self.unsent);
                Ok::<_, Infallible>(())
            });
            match sealed {
                Ok(()) => {}
                Err(never) => match never {},
            }
        }
        let offload = self.offload;
        let offload = offload.map(|offload| PendingOffload::new(&offload, suite, &extracted.tx));
        Ok(HandshakeResult {
            offload,
            opener: Opener::new(suite, extracted.rx)?,
            sealer: Sealer::new(form, extracted.tx)?,
            suite,
            secrets,
            unsent,
            received: self.received,
            info,
            shared,
        })
    }
}

/// What the beginning of a connection comes to that arrives in these parts: the name that the
/// client asks for, or an error.
#[cfg(any(test, feature = "fuzz"))]
pub(crate) fn verdict(
    acceptor: &TlsAcceptor,
    parts: &mut dyn Iterator<Item = &[u8]>,
) -> Result<Option<Box<str>>, String> {
    let machine = HandshakeMachine::new(acceptor, Vec::new());
    let mut machine = machine.map_err(|error| error.to_string())?;
    loop {
        let step = machine.advance().map_err(|error| error.to_string())?;
        match (step, parts.next()) {
            (HandshakeStep::Complete, _) | (_, None) => return Ok(machine.server_name),
            (_, Some(part)) => machine.received.extend_from_slice(part),
        }
    }
}

/// The length of the record that `bytes` begin with, once it is complete. What no record may be is
/// shown to rustls, which knows the alert.
fn record_length(bytes: &[u8]) -> Option<usize> {
    let [_, _, _, high, low, ..] = bytes else {
        return None;
    };
    let length = HEADER_BYTES + usize::from(u16::from_be_bytes([*high, *low]));
    match length > RECORD_BYTES_MAX {
        true => Some(bytes.len()),
        false => Some(length).filter(|length| *length <= bytes.len()),
    }
}
