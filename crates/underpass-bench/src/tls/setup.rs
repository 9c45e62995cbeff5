//! The certificate of a run, and the client that trusts it.

use std::collections::VecDeque;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rcgen::{CertificateParams, CertifiedKey, KeyPair};
use rustls::client::{
    ClientSessionStore, Resumption, Tls12ClientSessionValue, Tls13ClientSessionValue,
};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::ServerName;
use rustls::{
    ClientConfig, ClientConnection, NamedGroup, RootCertStore, SupportedCipherSuite,
    SupportedProtocolVersion, version,
};

use super::options::{CertificateKey, TlsLoadOptions, TlsResumption};
use super::stream::TlsStream;
use crate::error::{Error, ErrorContext, Result};

/// The maximum number of tickets kept: more than connections that start together.
const TICKETS_MAX: usize = 1 << 14;

/// The TLS settings that all contenders of a run share.
#[derive(Debug)]
pub(crate) struct TlsSetup {
    cert: PathBuf,
    key: PathBuf,
    resumption: TlsResumption,
    config: ClientConfig,
    describe: String,
}

/// Connects to one server.
#[derive(Clone, Debug)]
pub(crate) struct TlsClient {
    config: Arc<ClientConfig>,
    resumption: TlsResumption,
}

impl TlsSetup {
    /// Makes a certificate for the loopback, in files in `folder`, if TLS is asked for.
    ///
    /// The client offers one suite and one key exchange, so that all servers do the same work.
    pub(crate) fn make(
        options: &TlsLoadOptions,
        resumption: TlsResumption,
        folder: &Path,
    ) -> Result<Option<Self>> {
        let Some(name) = &options.suite else {
            return Ok(None);
        };
        let (mut provider, suite) = provider(name)?;
        let key_exchange = aws_lc_rs::kx_group::X25519;
        provider.kx_groups = vec![key_exchange];
        let (algorithm, key_name) = match options.key {
            CertificateKey::P256 => (&rcgen::PKCS_ECDSA_P256_SHA256, "ECDSA P-256"),
            CertificateKey::Rsa2048 => (&rcgen::PKCS_RSA_SHA256, "RSA 2048"),
        };
        let CertifiedKey { cert, signing_key } = certificate(algorithm)?;
        let mut roots = RootCertStore::empty();
        roots.add(cert.der().clone()).map_err(failed)?;
        let builder = ClientConfig::builder_with_provider(Arc::new(provider));
        let builder = builder.with_protocol_versions(&[version_of(suite)]);
        let builder = builder.map_err(failed)?.with_root_certificates(roots);
        let mut config = builder.with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let write = |name: &str, text: String| {
            let path = folder.join(name);
            let written = fs::write(&path, text);
            written.context(|| format!("writing {}", path.display()))?;
            Ok(path)
        };
        let version = match suite {
            SupportedCipherSuite::Tls13(_) => "TLS 1.3",
            SupportedCipherSuite::Tls12(_) => "TLS 1.2",
        };
        let group = key_exchange.name();
        Ok(Some(TlsSetup {
            cert: write("cert.pem", cert.pem())?,
            key: write("key.pem", signing_key.serialize_pem())?,
            resumption,
            config,
            describe: format!("{version}, {}, {group:?}, {key_name}", iana_name(suite)),
        }))
    }

    pub(crate) fn cert(&self) -> &Path {
        &self.cert
    }

    pub(crate) fn key(&self) -> &Path {
        &self.key
    }

    /// Version, suite, key exchange and kind of certificate.
    pub(crate) fn describe(&self) -> String {
        self.describe.clone()
    }

    /// A client of one server, which has no tickets yet.
    pub(crate) fn client(&self) -> TlsClient {
        let mut config = self.config.clone();
        config.resumption = match self.resumption {
            TlsResumption::Never => Resumption::disabled(),
            TlsResumption::Tickets => Resumption::store(Arc::new(TicketStore::default())),
        };
        TlsClient {
            config: Arc::new(config),
            resumption: self.resumption,
        }
    }
}

impl TlsClient {
    /// Whether it resumes sessions if the server lets it.
    pub(crate) fn resumes(&self) -> bool {
        self.resumption == TlsResumption::Tickets
    }

    /// Returns a connection before its handshake.
    pub(crate) fn connect(&self) -> Result<TlsStream> {
        let server = ServerName::IpAddress(Ipv4Addr::LOCALHOST.into());
        let connection = ClientConnection::new(Arc::clone(&self.config), server);
        Ok(TlsStream::new(connection.map_err(failed)?))
    }
}

fn provider(name: &str) -> Result<(CryptoProvider, SupportedCipherSuite)> {
    let mut provider = aws_lc_rs::default_provider();
    let mut suites = provider.cipher_suites.iter();
    let Some(&suite) = suites.find(|suite| iana_name(**suite) == name) else {
        let known = provider.cipher_suites.iter().map(|suite| iana_name(*suite));
        let known = known.collect::<Vec<_>>().join(", ");
        let text = format!("unknown cipher suite {name:?}; expected one of {known}");
        return Err(Error::Setting(text));
    };
    provider.cipher_suites = vec![suite];
    Ok((provider, suite))
}

fn iana_name(suite: SupportedCipherSuite) -> String {
    let name = suite.suite().as_str().unwrap_or_default();
    name.replace("TLS13_", "TLS_")
}

fn version_of(suite: SupportedCipherSuite) -> &'static SupportedProtocolVersion {
    match suite {
        SupportedCipherSuite::Tls13(_) => &version::TLS13,
        SupportedCipherSuite::Tls12(_) => &version::TLS12,
    }
}

fn certificate(
    algorithm: &'static rcgen::SignatureAlgorithm,
) -> Result<CertifiedKey<KeyPair>, Error> {
    let made = || {
        let signing_key = KeyPair::generate_for(algorithm)?;
        let names = vec![Ipv4Addr::LOCALHOST.to_string()];
        let cert = CertificateParams::new(names)?.self_signed(&signing_key)?;
        Ok::<_, rcgen::Error>(CertifiedKey { cert, signing_key })
    };
    made().map_err(|error| Error::Setting(format!("making a certificate: {error}")))
}

fn failed(error: rustls::Error) -> Error {
    Error::Setting(format!("preparing TLS: {error}"))
}

/// All tickets of one server. rustls's own store keeps eight, which are not enough for connections
/// that start together.
#[derive(Debug, Default)]
struct TicketStore {
    tickets: Mutex<VecDeque<Tls13ClientSessionValue>>,
    session: Mutex<Option<Tls12ClientSessionValue>>,
}

impl ClientSessionStore for TicketStore {
    fn set_kx_hint(&self, _: ServerName<'static>, _: NamedGroup) {}

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        None
    }

    fn set_tls12_session(&self, _: ServerName<'static>, value: Tls12ClientSessionValue) {
        let session = self.session.lock();
        *session.unwrap_or_else(PoisonError::into_inner) = Some(value);
    }

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        let session = self.session.lock();
        session.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {
        let session = self.session.lock();
        *session.unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn insert_tls13_ticket(&self, _: ServerName<'static>, value: Tls13ClientSessionValue) {
        let tickets = self.tickets.lock();
        let mut tickets = tickets.unwrap_or_else(PoisonError::into_inner);
        tickets.push_back(value);
        if tickets.len() > TICKETS_MAX {
            tickets.pop_front();
        }
    }

    /// The newest, because a server that keeps sessions in memory has forgotten the oldest.
    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        let tickets = self.tickets.lock();
        tickets.unwrap_or_else(PoisonError::into_inner).pop_back()
    }
}
