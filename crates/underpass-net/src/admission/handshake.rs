//! The stage between admission and the protocol on a listener with TLS.

use crate::connection::wait::WhileDraining;
use crate::connection::{Connection, ReadOutcome};
use crate::error::ConnectionError;
use crate::tls::acceptor::TlsAcceptor;
use crate::tls::error::HandshakeError;
use crate::tls::handshake::{HANDSHAKE_RECORD, HandshakeInProgress};
use crate::tls::info::Handshake;
use crate::tls::session::TlsSession;

impl Connection {
    /// Performs the handshake.
    ///
    /// # Errors
    /// [`HandshakeError`]. An alert has been sent; [`Connection::close`] ensures its delivery.
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
