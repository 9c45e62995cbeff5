//! The TLS handshake of a connection: as the server after admission, or as the client after
//! connecting.

use crate::connection::wait::WhileDraining;
use crate::connection::{Connection, ReadOutcome};
use crate::error::ConnectionError;
use crate::tls::acceptor::TlsAcceptor;
use crate::tls::error::HandshakeError;
use crate::tls::handshake::client::TlsConnector;
use crate::tls::handshake::{HANDSHAKE_RECORD, HandshakeInProgress};
use crate::tls::info::Handshake;
use crate::tls::session::TlsSession;

/// The side that a connection takes.
enum HandshakeAs<'t> {
    /// The server, which has received the start of the client's message.
    Server(&'t TlsAcceptor, Vec<u8>),
    Client(&'t TlsConnector),
}

impl Connection {
    /// Performs the handshake as the server.
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
        self.shake_hands(HandshakeAs::Server(acceptor, first))
            .await?;
        Ok(Handshake::Complete)
    }

    /// Performs the handshake as the client of a connection on which nothing was sent yet, within
    /// `handshake_timeout`. [`tls`](Connection::tls) has the server's key afterwards.
    ///
    /// # Errors
    /// [`HandshakeError`]. An alert has been sent; [`Connection::close`] ensures its delivery.
    pub async fn start_tls(&mut self, client: &TlsConnector) -> Result<(), HandshakeError> {
        self.start_request_deadline(self.worker().limits.handshake_timeout);
        self.shake_hands(HandshakeAs::Client(client)).await
    }

    async fn shake_hands(&mut self, side: HandshakeAs<'_>) -> Result<(), HandshakeError> {
        let state = self.state();
        let socket = state.transport.socket();
        let handshake = match side {
            HandshakeAs::Server(acceptor, first) => {
                HandshakeInProgress::accepting(acceptor, socket, first)?
            }
            HandshakeAs::Client(client) => HandshakeInProgress::connecting(client, socket)?,
        };
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
        Ok(())
    }
}

fn failure(error: ConnectionError) -> HandshakeError {
    match error {
        ConnectionError::TimedOut => HandshakeError::Late,
        ConnectionError::Stopped | ConnectionError::Evicted => HandshakeError::Closed,
        _ => HandshakeError::PeerGone,
    }
}
