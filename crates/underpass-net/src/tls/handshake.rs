//! A TLS handshake on a socket, as the server or as the client.

pub(crate) mod client;

use std::cell::Cell;
use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::sync::Arc;

use rustix::net::sockopt::set_tcp_quickack;
use rustix::net::{SendFlags, send};
use rustls::client::UnbufferedClientConnection;
use rustls::server::{Acceptor, UnbufferedServerConnection};
use rustls::unbuffered::{ConnectionState, EncodeError, InsufficientSizeError, UnbufferedStatus};
use rustls::{
    AlertDescription, CommonState, HandshakeKind as RustlsKind, InvalidMessage, PeerMisbehaved,
    ProtocolVersion,
};
use tokio::io::Interest;
use tokio::task::spawn_blocking;
use underpass::SealedRecords;
use underpass::drive::tokio::Stream;

use crate::io::socket::PlainSocket;
use crate::io::step_gate::StepGate;
use crate::limits::{HANDSHAKE_BYTES_MAX, INPUT_BYTES_START};
use crate::tls::acceptor::TlsAcceptor;
use crate::tls::error::HandshakeError;
use crate::tls::handshake::client::{TlsConnector, WRONG_KEY};
use crate::tls::info::{HandshakeKind, TlsInfo, iana_name};
use crate::tls::offload::{Offload, PendingOffload};
use crate::tls::reading::{SignatureCost, identity, key_sha256};
use crate::tls::records::{HEADER_BYTES, Opener, RECORD_BYTES_MAX, RecordForm, Sealer};
use crate::tls::session::{HandshakeResult, KernelSecrets};
use crate::tls::settings::TlsVersion;
use crate::tls::shared::{AlertDirection, TlsShared};

/// The first byte of a handshake record (RFC 8446, section 5.1).
pub(crate) const HANDSHAKE_RECORD: u8 = 22;
const CHANGE_CIPHER_SPEC_RECORD: u8 = 20;
const ALERT_RECORD: u8 = 21;

/// A signalling suite with which a client reports that it has tried a higher version before (RFC
/// 7507).
const FALLBACK_SCSV: u16 = 0x5600;

/// The client offers a lower version than it supports: an attacker may have blocked its first
/// attempt.
const INAPPROPRIATE_FALLBACK: rustls::Error =
    rustls::Error::PeerMisbehaved(PeerMisbehaved::AttemptedDowngradeToTls12WhenTls13IsSupported);

/// A handshake in progress.
pub(crate) struct HandshakeInProgress<'s> {
    machine: HandshakeMachine,
    shared: Arc<TlsShared>,
    socket: &'s PlainSocket,
    cost: SignatureCost,
}

/// The side of a handshake that is ours.
enum HandshakeSide {
    Server(Box<UnbufferedServerConnection>),
    Client(Box<UnbufferedClientConnection>),
}

impl HandshakeSide {
    fn common(&self) -> &CommonState {
        match self {
            HandshakeSide::Server(connection) => connection,
            HandshakeSide::Client(connection) => connection,
        }
    }
}

/// The state of a handshake, apart from its socket.
struct HandshakeMachine {
    side: HandshakeSide,
    /// Records that have been received and not used yet.
    received: Vec<u8>,
    /// The length that rustls has seen: one record more each time that it needs input, so that
    /// everything after the handshake is left to the session.
    shown: usize,
    /// Records that have not been sent.
    unsent: Vec<u8>,
    /// Whether the next record may be unencrypted: so far there were only handshake records.
    is_clear: bool,
    /// Parses the client's hello in parallel to `connection`, which does not expose the name in it;
    /// none once that is done.
    hello: Option<Acceptor>,
    /// The name that the client requests.
    server_name: Option<Box<str>>,
    /// Whether the client reports that it has tried a higher version before.
    is_fallback: bool,
    speaks_tls13: bool,
    offload: Option<Arc<Offload>>,
    /// Whether a step was made, or input is needed for the first: the client speaks first.
    is_started: bool,
}

/// A handshake after a step, and the result of the step.
type AdvancedHandshake<'s> = (
    HandshakeInProgress<'s>,
    Result<HandshakeStep, rustls::Error>,
);

/// The next action that rustls needs.
enum HandshakeStep {
    /// Another step: it has made progress.
    Again,
    /// More input from the peer.
    Receive,
    Complete,
}

impl<'s> HandshakeInProgress<'s> {
    /// Creates a server's handshake, with the input received so far.
    pub(crate) fn accepting(
        acceptor: &TlsAcceptor,
        socket: &'s PlainSocket,
        received: Vec<u8>,
    ) -> Result<HandshakeInProgress<'s>, HandshakeError> {
        Ok(HandshakeInProgress {
            machine: HandshakeMachine::accepting(acceptor, received)?,
            shared: Arc::clone(acceptor.shared()),
            socket,
            cost: acceptor.signature_cost(),
        })
    }

    /// Creates a client's handshake.
    pub(crate) fn connecting(
        client: &TlsConnector,
        socket: &'s PlainSocket,
    ) -> Result<HandshakeInProgress<'s>, HandshakeError> {
        Ok(HandshakeInProgress {
            machine: HandshakeMachine::connecting(client)?,
            shared: Arc::clone(client.shared()),
            socket,
            cost: SignatureCost::Low,
        })
    }

    /// Performs the handshake; computing steps pass the gate. Cancelling ends the connection.
    pub(crate) async fn run(mut self, gate: &StepGate) -> Result<HandshakeResult, HandshakeError> {
        loop {
            while self.machine.needs_input() {
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
        // The end of the handshake has to be sent, but for the tickets of a TLS 1.3 server, which
        // are sent with the first response.
        let version = self.machine.side.common().protocol_version();
        match (&self.machine.side, version) {
            (HandshakeSide::Server(_), Some(ProtocolVersion::TLSv1_3)) => {}
            _ => self.flush().await?,
        }
        // A client with Nagle's algorithm holds its request back until the end of its handshake is
        // acknowledged, which the kernel would do 40 ms later.
        if self.machine.received.is_empty() {
            let _not_tcp = set_tcp_quickack(self.socket, true);
        }
        let finished = self.machine.finish(self.shared);
        finished.map_err(|error| HandshakeError::Failed(error.to_string()))
    }

    /// Processes received records, which may need a signature. An expensive one is computed in the
    /// blocking pool.
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
        let start = self.machine.encode_alert(&error);
        self.count_alert(start, &error);
        let _ = self.flush().await;
        match error {
            rustls::Error::AlertReceived(alert) => HandshakeError::Alert(format!("{alert:?}")),
            error if error == WRONG_KEY => HandshakeError::WrongKey,
            error => HandshakeError::Failed(error.to_string()),
        }
    }

    /// Counts the alert that ends the handshake: one from the peer, or ours in the record that
    /// starts at `start`. If that record is encrypted, the alert is derived from `error`.
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
    /// Creates a server's, with the input received so far.
    fn accepting(
        acceptor: &TlsAcceptor,
        received: Vec<u8>,
    ) -> Result<HandshakeMachine, HandshakeError> {
        let connection = acceptor.session();
        let connection = connection.map_err(|error| HandshakeError::Failed(error.to_string()))?;
        Ok(HandshakeMachine {
            side: HandshakeSide::Server(Box::new(connection)),
            received,
            shown: 0,
            unsent: Vec::new(),
            is_clear: true,
            hello: Some(Acceptor::default()),
            server_name: None,
            is_fallback: false,
            speaks_tls13: acceptor.speaks_tls13(),
            offload: acceptor.offload().cloned(),
            is_started: true,
        })
    }

    /// Creates a client's.
    fn connecting(client: &TlsConnector) -> Result<HandshakeMachine, HandshakeError> {
        let connection = client.session();
        let connection = connection.map_err(|error| HandshakeError::Failed(error.to_string()))?;
        Ok(HandshakeMachine {
            side: HandshakeSide::Client(Box::new(connection)),
            received: Vec::new(),
            shown: 0,
            unsent: Vec::new(),
            is_clear: true,
            hello: None,
            server_name: None,
            is_fallback: false,
            speaks_tls13: true,
            offload: None,
            is_started: false,
        })
    }

    /// Returns whether a step would only ask for more input.
    fn needs_input(&self) -> bool {
        self.is_started && self.next_record().is_none()
    }

    /// Returns the length of the next record, once it is complete.
    fn next_record(&self) -> Option<usize> {
        record_length(&self.received[self.shown..])
    }

    /// Steps until more input is needed, or the handshake is complete.
    fn advance(&mut self) -> Result<HandshakeStep, rustls::Error> {
        self.is_started = true;
        loop {
            let step = self.step()?;
            let version = self.side.common().protocol_version();
            let is_tls12 = version == Some(ProtocolVersion::TLSv1_2);
            if self.is_fallback && self.speaks_tls13 && is_tls12 {
                // Nothing was sent yet: the alert replaces the ServerHello.
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

    /// Encodes the alert for an error, after the unsent records. Returns its position, which is the
    /// end if no alert can be sent.
    fn encode_alert(&mut self, error: &rustls::Error) -> usize {
        let mut start = self.unsent.len();
        // rustls encodes its alert, encrypted after a ServerHello. It would panic at another step,
        // and has not failed at a fallback.
        if *error != INAPPROPRIATE_FALLBACK {
            let _ = self.step();
            while let [HANDSHAKE_RECORD | CHANGE_CIPHER_SPEC_RECORD, ..] = self.unsent[start..] {
                start = self.unsent.len();
                let _ = self.step();
            }
        }
        let chosen = match self.unsent[start..] {
            [ALERT_RECORD, _, _, 0, 2, _, number] => Some(AlertDescription::from(number)),
            // Alerts are not answered.
            [] if self.is_clear && !matches!(error, rustls::Error::AlertReceived(_)) => None,
            _ => return start,
        };
        let alert = u8::from(alert_for(error, chosen));
        self.unsent.truncate(start);
        self.unsent.extend([ALERT_RECORD, 3, 3, 0, 2, 2, alert]);
        start
    }

    fn step(&mut self) -> Result<HandshakeStep, rustls::Error> {
        let shown = &mut self.received[..self.shown];
        let start = self.unsent.len();
        let (discard, step) = match &mut self.side {
            HandshakeSide::Server(connection) => {
                let UnbufferedStatus { discard, state, .. } = connection.process_tls_records(shown);
                (discard, heed(state, &mut self.unsent))
            }
            HandshakeSide::Client(connection) => {
                let UnbufferedStatus { discard, state, .. } = connection.process_tls_records(shown);
                (discard, heed(state, &mut self.unsent))
            }
        };
        if self.unsent.len() > start {
            self.is_clear &= self.unsent[start] == HANDSHAKE_RECORD;
        }
        self.received.drain(..discard);
        self.shown -= discard;
        step
    }

    /// Makes one more record available to rustls, and parses it for the hello.
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

    /// Extracts the secrets from rustls.
    fn finish(self, shared: Arc<TlsShared>) -> Result<HandshakeResult, rustls::Error> {
        let common = self.side.common();
        let suite = common.negotiated_cipher_suite();
        let suite = suite.ok_or(rustls::Error::HandshakeNotComplete)?;
        let peer = common.peer_certificates().and_then(|chain| chain.first());
        let (client, server_key) = match &self.side {
            HandshakeSide::Server(_) => (peer.map(identity), None),
            HandshakeSide::Client(_) => (None, peer.and_then(key_sha256)),
        };
        let info = TlsInfo {
            version: match suite.tls13() {
                Some(_) => TlsVersion::Tls13,
                None => TlsVersion::Tls12,
            },
            cipher_suite: suite.suite().as_str().map_or("", iana_name),
            server_name: self.server_name,
            handshake: match common.handshake_kind() {
                Some(RustlsKind::Resumed) => HandshakeKind::Resumed,
                _ => HandshakeKind::Full,
            },
            client,
            server_key,
            sealed_by: Cell::default(),
        };
        let (extracted, secrets) = match self.side {
            HandshakeSide::Server(connection) => {
                let (extracted, secrets) = connection.dangerous_into_kernel_connection()?;
                (extracted, KernelSecrets::Server(Box::new(secrets)))
            }
            HandshakeSide::Client(connection) => {
                let (extracted, secrets) = connection.dangerous_into_kernel_connection()?;
                (extracted, KernelSecrets::Client(Box::new(secrets)))
            }
        };
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

/// Does what rustls asks for: appends records to be sent to `unsent`.
fn heed<Data>(
    state: Result<ConnectionState<'_, '_, Data>, rustls::Error>,
    unsent: &mut Vec<u8>,
) -> Result<HandshakeStep, rustls::Error> {
    match state? {
        ConnectionState::EncodeTlsData(mut data) => {
            let start = unsent.len();
            if let Err(EncodeError::InsufficientSize(InsufficientSizeError { required_size })) =
                data.encode(&mut [])
            {
                unsent.resize(start + required_size, 0);
                let encoded = data.encode(&mut unsent[start..]);
                unsent.truncate(start + encoded.unwrap_or(0));
            }
            Ok(HandshakeStep::Again)
        }
        // Sent before anything is received.
        ConnectionState::TransmitTlsData(data) => {
            data.done();
            Ok(HandshakeStep::Again)
        }
        ConnectionState::BlockedHandshake => Ok(HandshakeStep::Receive),
        ConnectionState::WriteTraffic(_) => Ok(HandshakeStep::Complete),
        _ => Err(rustls::Error::HandshakeNotComplete),
    }
}

/// Returns the alert for an error, given the one that rustls has chosen, if any.
fn alert_for(error: &rustls::Error, chosen: Option<AlertDescription>) -> AlertDescription {
    use rustls::Error::{General, InvalidMessage as Invalid, PeerMisbehaved};
    match (error, chosen) {
        (error, _) if *error == INAPPROPRIATE_FALLBACK => AlertDescription::InappropriateFallback,
        // No certificate has an algorithm of the client (RFC 5246, section 7.4.1.3; RFC 8446,
        // section 4.1.1).
        (General(_), Some(AlertDescription::AccessDenied)) => AlertDescription::HandshakeFailure,
        // The headers of records (RFC 8446, sections 5 and 5.1), and those between the parts of a
        // message, for which rustls has no alert.
        (Invalid(InvalidMessage::MessageTooLarge), _) => AlertDescription::RecordOverflow,
        (Invalid(InvalidMessage::UnknownProtocolVersion), _) => AlertDescription::ProtocolVersion,
        (Invalid(InvalidMessage::InvalidContentType), _)
        | (Invalid(InvalidMessage::InvalidEmptyPayload), _)
        | (PeerMisbehaved(_), None) => AlertDescription::UnexpectedMessage,
        (_, chosen) => chosen.unwrap_or(AlertDescription::DecodeError),
    }
}

/// Returns the result of a handshake whose input arrives in these parts: the requested name, or an
/// error.
#[cfg(any(test, feature = "fuzz"))]
pub(crate) fn verdict(
    acceptor: &TlsAcceptor,
    parts: &mut dyn Iterator<Item = &[u8]>,
) -> Result<Option<Box<str>>, String> {
    let machine = HandshakeMachine::accepting(acceptor, Vec::new());
    let mut machine = machine.map_err(|error| error.to_string())?;
    loop {
        let step = machine.advance().map_err(|error| error.to_string())?;
        match (step, parts.next()) {
            (HandshakeStep::Complete, _) | (_, None) => return Ok(machine.server_name),
            (_, Some(part)) => machine.received.extend_from_slice(part),
        }
    }
}

/// Returns the length of the first record in `bytes`, once it is complete. Invalid headers are
/// passed to rustls, which rejects them.
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
