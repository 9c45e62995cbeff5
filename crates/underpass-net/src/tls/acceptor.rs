//! What a listener needs to shake hands: certificates, versions, tickets. Shared by all workers,
//! and by the generations that a reload starts.

use std::fmt;
use std::sync::Arc;

use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::server::{UnbufferedServerConnection, WebPkiClientVerifier};
use rustls::{ServerConfig, SupportedProtocolVersion, version};

use crate::tls::certificates::Certificates;
use crate::tls::error::TlsError;
use crate::tls::info::{CertificateFacts, Refreshed};
use crate::tls::reading::{LoadedCertificate, authorities, load};
use crate::tls::settings::{TlsOptions, TlsVersion};
use crate::tls::shared::TlsShared;

/// Accepts TLS connections of a listener.
pub struct TlsAcceptor {
    options: TlsOptions,
    certificates: Arc<Certificates>,
    config: Arc<ServerConfig>,
    shared: Arc<TlsShared>,
}

impl TlsAcceptor {
    /// Reads certificates and keys. `protocols` are offered by ALPN (RFC 7301), the preferred one
    /// first. May block on the disk.
    ///
    /// # Errors
    /// [`TlsError`]: which file, and what is wrong with it.
    pub fn load(
        options: &TlsOptions,
        protocols: &[&[u8]],
        shared: &Arc<TlsShared>,
    ) -> Result<TlsAcceptor, TlsError> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let certificates = Arc::new(Certificates::new(load_all(options, &provider)?));
        let config = config(options, protocols, &certificates, provider)?;
        Ok(TlsAcceptor {
            options: options.clone(),
            certificates,
            config: Arc::new(config),
            shared: Arc::clone(shared),
        })
    }

    /// The options it was made with.
    pub fn options(&self) -> &TlsOptions {
        &self.options
    }

    /// Reads certificates and keys again and has new connections use them; those that are open are
    /// not disturbed. Returns whether anything has changed. May block on the disk.
    ///
    /// # Errors
    /// [`TlsError`]; what was used before stays in use.
    pub fn refresh(&self) -> Result<Refreshed, TlsError> {
        let loaded = load_all(&self.options, self.config.crypto_provider())?;
        let facts: Vec<_> = loaded.iter().map(|one| one.facts.clone()).collect();
        let is_same = facts == self.certificates.facts();
        self.certificates.replace(loaded);
        Ok(match is_same {
            true => Refreshed::Same,
            false => Refreshed::Changed,
        })
    }

    /// What the certificates say of themselves.
    pub fn certificates(&self) -> Vec<CertificateFacts> {
        self.certificates.facts()
    }

    pub(crate) fn shared(&self) -> &Arc<TlsShared> {
        &self.shared
    }

    pub(crate) fn session(&self) -> Result<UnbufferedServerConnection, TlsError> {
        UnbufferedServerConnection::new(Arc::clone(&self.config)).map_err(setup)
    }
}

impl fmt::Debug for TlsAcceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsAcceptor")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

fn load_all(
    options: &TlsOptions,
    provider: &CryptoProvider,
) -> Result<Vec<LoadedCertificate>, TlsError> {
    if options.certificates.is_empty() {
        return Err(TlsError::NoCertificate);
    }
    let files = options.certificates.iter();
    files.map(|files| load(files, provider)).collect()
}

fn config(
    options: &TlsOptions,
    protocols: &[&[u8]],
    certificates: &Arc<Certificates>,
    provider: Arc<CryptoProvider>,
) -> Result<ServerConfig, TlsError> {
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
    let builder = builder
        .with_protocol_versions(&versions(options.min_version))
        .map_err(setup)?;
    let builder = match &options.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let roots = Arc::new(authorities(path)?);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
            let verifier = verifier.build();
            builder.with_client_cert_verifier(verifier.map_err(|error| TlsError::Content {
                path: path.clone(),
                why: error.to_string(),
            })?)
        }
    };
    let certificates: Arc<Certificates> = Arc::clone(certificates);
    let mut config = builder.with_cert_resolver(certificates);
    // Records are ours once hands are shaken.
    config.enable_secret_extraction = true;
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    // Tickets of which the server keeps nothing: any worker resumes what another one began. They
    // are valid for this acceptor only, so none leads around its client authorities.
    config.ticketer = aws_lc_rs::Ticketer::new().map_err(setup)?;
    Ok(config)
}

fn versions(least: TlsVersion) -> Vec<&'static SupportedProtocolVersion> {
    match least {
        TlsVersion::Tls12 => vec![&version::TLS13, &version::TLS12],
        TlsVersion::Tls13 => vec![&version::TLS13],
    }
}

fn setup(error: rustls::Error) -> TlsError {
    TlsError::Setup {
        why: error.to_string(),
    }
}
