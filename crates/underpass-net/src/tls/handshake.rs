//! The stage between admission and the protocol on a listener with TLS.

use std::cell::Cell;
use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::sync::Arc;

use rustix::net::{SendFlags, send};
use rustls::server::{Acceptor, UnbufferedServerConnection};
use rustls::unbuffered::{ConnectionState, EncodeError, InsufficientSizeError, UnbufferedStatus};
use rustls::{AlertDescription, HandshakeKind as RustlsKind, ProtocolVersion};
use tokio::io::Interest;
use underpass::SealedRecords;
use underpass::drive::tokio::Stream;

use crate::connection::socket::PlainSocket;
use crate::connection::wait::WhileDraining;
use crate::connection::{Connection, ReadOutcome};
use crate::error::ConnectionError;
use crate::limits::{HANDSHAKE_BYTES_MAX, INPUT_BYTES_START};
use crate::tls::acceptor::TlsAcceptor;
use crate::tls::error::HandshakeError;
use crate::tls::info::{Handshake, HandshakeKind, TlsInfo, iana_name};
use crate::tls::reading::identity;
use crate::tls::records::{Opener, RecordForm, Sealer};
use crate::tls::session::{HandshakeResult, TlsSession};
use crate::tls::settings::TlsVersion;
use crate::tls::shared::{AlertDirection, TlsShared};

/// The first byte of a handshake record (RFC 8446, section 5.1).
const HANDSHAKE_RECORD: u8 = 22;
const ALERT_RECORD: u8 = 21;

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
                Ok(ReadOutcome::Bytes) => {}
                Ok(ReadOutcome::End) => return Err(HandshakeError::PeerGone),
                Err(error) => return Err(failure(error)),
            }
        }
        if self.input()[0] != HANDSHAKE_RECORD {
            return Ok(Handshake::Plain);
        }
        let first = self.input().to_vec();
        self.consume(first.len());
        let session = acceptor.session();
        let session = session.map_err(|error| HandshakeError::Failed(error.to_string()))?;
        let state = self.state();
        let handshake = HandshakeInProgress {
            connection: session,
            shared: Arc::clone(acceptor.shared()),
            socket: state.transport.socket(),
            received: first,
            unsent: Vec::new(),
            opened: Vec::new(),
            hello: Some(Acceptor::default()),
            server_name: None,
        };
        let shaking = handshake.run();
        let connections = &state.worker.connections;
        let shaken = state
            .wait
            .until(connections, WhileDraining::Continues, shaking);
        let result = shaken.await.map_err(failure)??;
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
struct HandshakeInProgress<'s> {
    connection: UnbufferedServerConnection,
    shared: Arc<TlsShared>,
    socket: &'s PlainSocket,
    /// Records that have come and are not used up.
    received: Vec<u8>,
    /// Records that have not been sent.
    unsent: Vec<u8>,
    /// Data that came with the end of the handshake.
    opened: Vec<u8>,
    /// Reads the client's hello beside `connection`, which does not tell the name in it; none once
    /// that is done.
    hello: Option<Acceptor>,
    /// The name that the client asks for.
    server_name: Option<Box<str>>,
}

/// What rustls wants next.
enum HandshakeStep {
    /// It has made progress, and goes on at once.
    Again,
    /// More has to come from the peer.
    Receive,
    Complete,
}

impl HandshakeInProgress<'_> {
    /// Shakes hands. Cancelling ends the connection.
    async fn run(mut self) -> Result<HandshakeResult, HandshakeError> {
        self.look_at_hello(0);
        loop {
            match self.step() {
                Ok(HandshakeStep::Again) => {}
                Ok(HandshakeStep::Complete) => break,
                Ok(HandshakeStep::Receive) => {
                    self.flush().await?;
                    self.receive().await?;
                }
                Err(error) => {
                    // What comes next is the alert, in a record of its own.
                    let start = self.unsent.len();
                    let _ = self.step();
                    self.count_alert(start, &error);
                    let _ = self.flush().await;
                    return Err(match error {
                        rustls::Error::AlertReceived(alert) => {
                            HandshakeError::Alert(format!("{alert:?}"))
                        }
                        error => HandshakeError::Failed(error.to_string()),
                    });
                }
            }
        }
        // Of TLS 1.2 the end of the handshake has to be sent; the tickets of 1.3 leave with the
        // first response.
        if self.connection.protocol_version() != Some(ProtocolVersion::TLSv1_3) {
            self.flush().await?;
        }
        self.finish()
            .map_err(|error| HandshakeError::Failed(error.to_string()))
    }

    /// Counts the alert that ends the handshake: the peer's, or the one in the record that begins
    /// at `start`. Where that is encrypted, `error` tells what the peer is told.
    fn count_alert(&self, start: usize, error: &rustls::Error) {
        use AlertDescription as Alert;
        let alerts = &self.shared.alerts;
        if let rustls::Error::AlertReceived(alert) = error {
            return alerts.record(AlertDirection::Received, u8::from(*alert));
        }
        let number = match (&self.unsent[start..], error) {
            ([], _) => return,
            ([ALERT_RECORD, _, _, 0, 2, _, number], _) => *number,
            (_, rustls::Error::NoCertificatesPresented) => u8::from(Alert::CertificateRequired),
            (_, rustls::Error::InvalidCertificate(why)) => Alert::from(why.clone()).into(),
            (_, rustls::Error::DecryptError) => u8::from(Alert::BadRecordMac),
            (_, rustls::Error::InvalidMessage(_)) => u8::from(Alert::DecodeError),
            _ => u8::MAX,
        };
        alerts.record(AlertDirection::Sent, number);
    }

    /// Looks for the client's hello in what has come last.
    fn look_at_hello(&mut self, start: usize) {
        let Some(acceptor) = &mut self.hello else {
            return;
        };
        let mut bytes = &self.received[start..];
        while !bytes.is_empty() {
            match acceptor.read_tls(&mut bytes).map(|_| acceptor.accept()) {
                Ok(Ok(None)) => {}
                Ok(Ok(Some(accepted))) => {
                    self.server_name = accepted.client_hello().server_name().map(Box::from);
                    self.hello = None;
                    return;
                }
                // `connection` says what is wrong with it.
                Ok(Err(_)) | Err(_) => {
                    self.hello = None;
                    return;
                }
            }
        }
    }

    fn step(&mut self) -> Result<HandshakeStep, rustls::Error> {
        let UnbufferedStatus {
            mut discard, state, ..
        } = self.connection.process_tls_records(&mut self.received);
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
            Ok(ConnectionState::ReadTraffic(mut data)) => {
                while let Some(record) = data.next_record() {
                    let record = record?;
                    self.opened.extend_from_slice(record.payload);
                    discard += record.discard;
                }
                Ok(HandshakeStep::Again)
            }
            Ok(ConnectionState::BlockedHandshake) => Ok(HandshakeStep::Receive),
            Ok(ConnectionState::WriteTraffic(_)) => Ok(HandshakeStep::Complete),
            Ok(_) => Err(rustls::Error::HandshakeNotComplete),
        };
        self.received.drain(..discard);
        step
    }

    async fn receive(&mut self) -> Result<(), HandshakeError> {
        if self.received.len() >= HANDSHAKE_BYTES_MAX {
            return Err(HandshakeError::Failed("a message is too long".to_owned()));
        }
        self.received.reserve(INPUT_BYTES_START);
        let start = self.received.len();
        let (socket, received) = (self.socket, &mut self.received);
        match poll_fn(|task| socket.poll_read(task, received)).await {
            Ok(1..) => {
                self.look_at_hello(start);
                Ok(())
            }
            Ok(0) | Err(_) => Err(HandshakeError::PeerGone),
        }
    }

    async fn flush(&mut self) -> Result<(), HandshakeError> {
        while !self.unsent.is_empty() {
            let call = || Ok(send(self.socket, &self.unsent, SendFlags::NOSIGNAL)?);
            match self.socket.try_io(Interest::WRITABLE, call) {
                Ok(count) => drop(self.unsent.drain(..count)),
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

    /// Takes the secrets out of rustls.
    fn finish(self) -> Result<HandshakeResult, rustls::Error> {
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
            client: client.and_then(|chain| identity(chain.first()?)),
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
        Ok(HandshakeResult {
            opener: Opener::new(suite, extracted.rx)?,
            sealer: Sealer::new(form, extracted.tx)?,
            suite,
            secrets,
            unsent,
            received: self.received,
            opened: self.opened,
            info,
            shared: self.shared,
        })
    }
}
