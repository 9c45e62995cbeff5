//! Stands for the acceptor in a build without TLS: there is none.

use std::sync::Arc;

use crate::connection::Connection;
use crate::tls::error::{HandshakeError, TlsError};
use crate::tls::info::{CertificateFacts, Handshake, OffloadOutcome, Refreshed};
use crate::tls::settings::TlsOptions;
use crate::tls::shared::TlsShared;

/// Accepts TLS connections of a listener. This build has none.
#[derive(Debug)]
pub enum TlsAcceptor {}

impl TlsAcceptor {
    /// There is none.
    ///
    /// # Errors
    /// Always [`TlsError::Absent`].
    pub fn load(_: &TlsOptions, _: &[&[u8]], _: &Arc<TlsShared>) -> Result<TlsAcceptor, TlsError> {
        Err(TlsError::Absent)
    }

    /// The options it was made with.
    pub fn options(&self) -> &TlsOptions {
        match *self {}
    }

    /// Reads certificates again.
    ///
    /// # Errors
    /// None.
    pub fn refresh(&self) -> Result<Refreshed, TlsError> {
        match *self {}
    }

    /// What became of connections that kernel TLS could have taken over.
    pub fn offloads(&self) -> Vec<(OffloadOutcome, u64)> {
        match *self {}
    }

    /// What the certificates say of themselves.
    pub fn certificates(&self) -> Vec<CertificateFacts> {
        match *self {}
    }
}

impl Connection {
    pub(crate) async fn handshake(
        &mut self,
        acceptor: &TlsAcceptor,
    ) -> Result<Handshake, HandshakeError> {
        match *acceptor {}
    }
}
