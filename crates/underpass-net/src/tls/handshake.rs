//! The stage between admission and the protocol on a listener with TLS.

use std::io;

use crate::connection::wait::WhileDraining;
use crate::connection::{Connection, ReadOutcome};
use crate::error::ConnectionError;
use crate::tls::acceptor::TlsAcceptor;
use crate::tls::error::HandshakeError;
use crate::tls::info::Handshake;
use crate::tls::session::TlsSession;

/// The first byte of a handshake record (RFC 8446, section 5.1).
const HANDSHAKE_RECORD: u8 = 22;

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
        let mut session = Box::new(TlsSession::new(session));
        let state = self.state();
        let shaking = session.shake(state.transport.socket(), &first);
        let connections = &state.worker.connections;
        let shaken = state
            .wait
            .until(connections, WhileDraining::Continues, shaking);
        shaken.await.map_err(failure)?.map_err(broken)?;
        self.state().transport.secure(session);
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

fn broken(error: io::Error) -> HandshakeError {
    let Some(source) = error.get_ref() else {
        return HandshakeError::PeerGone;
    };
    match source.downcast_ref::<rustls::Error>() {
        Some(rustls::Error::AlertReceived(alert)) => HandshakeError::Alert(format!("{alert:?}")),
        _ => HandshakeError::Failed(source.to_string()),
    }
}
