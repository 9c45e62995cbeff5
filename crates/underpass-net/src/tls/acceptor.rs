//! The handshake configuration of a listener: certificates, versions, tickets. Shared by all
//! workers, and by the generations that a reload starts.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use ::aws_lc_rs::digest;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::CertificateDer;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, UnbufferedServerConnection, WebPkiClientVerifier};
use rustls::{ServerConfig, SupportedCipherSuite, SupportedProtocolVersion, version};

use crate::tls::certificates::Certificates;
use crate::tls::error::TlsError;
use crate::tls::info::{CertificateFacts, OffloadOutcome, Refreshed, iana_name};
use crate::tls::offload::Offload;
use crate::tls::reading::{LoadedCertificate, SignatureCost, authorities, certificates_of, load};
use crate::tls::self_signed::load_or_make;
use crate::tls::settings::{TlsOptions, TlsVersion};
use crate::tls::shared::TlsShared;
use crate::tls::tickets::{TicketIssuer, TicketUse};

/// The acceptor of a listener's TLS connections.
pub struct TlsAcceptor {
    options: TlsOptions,
    certificates: Arc<Certificates>,
    protocols: Vec<Vec<u8>>,
    config: RwLock<AcceptorConfig>,
    shared: Arc<TlsShared>,
    /// None unless kernel TLS is configured.
    offload: Option<Arc<Offload>>,
}

/// The configuration of new handshakes, replaced as a whole.
struct AcceptorConfig {
    /// Changes with the clients that are accepted.
    ticket_use: TicketUse,
    config: Arc<ServerConfig>,
}

impl TlsAcceptor {
    /// Reads certificates and keys. `protocols` are offered by ALPN (RFC 7301), the preferred one
    /// first. May block on the disk.
    ///
    /// # Errors
    /// [`TlsError`] with the file and the reason.
    pub fn load(
        options: &TlsOptions,
        protocols: &[&[u8]],
        shared: &Arc<TlsShared>,
    ) -> Result<TlsAcceptor, TlsError> {
        let provider = Arc::new(provider(options)?);
        let certificates = Arc::new(Certificates::new(load_all(options, &provider)?));
        let protocols: Vec<_> = protocols.iter().map(|name| name.to_vec()).collect();
        let clients = ClientAuthorities::read(options)?;
        let spoken = versions(options.min_version, &provider);
        let mut suites = provider.cipher_suites.clone();
        suites.retain(|suite| spoken.contains(&suite.version()));
        let config = config(
            options,
            &protocols,
            &certificates,
            clients,
            provider,
            shared,
        )?;
        Ok(TlsAcceptor {
            offload: Offload::of(options.offload, &suites)?,
            options: options.clone(),
            certificates,
            protocols,
            config: RwLock::new(config),
            shared: Arc::clone(shared),
        })
    }

    /// Returns the options that it was created with.
    pub fn options(&self) -> &TlsOptions {
        &self.options
    }

    /// Reads certificates, keys and client authorities again for new connections; open ones are not
    /// affected. Returns whether anything has changed. If other clients are accepted, earlier
    /// tickets become invalid. May block on the disk.
    ///
    /// # Errors
    /// [`TlsError`]; the earlier configuration stays in use.
    pub fn refresh(&self) -> Result<Refreshed, TlsError> {
        let present = Arc::clone(&self.present().config);
        let loaded = load_all(&self.options, present.crypto_provider())?;
        let facts: Vec<_> = loaded.iter().map(|one| one.facts.clone()).collect();
        let clients = ClientAuthorities::read(&self.options)?;
        let mut refreshed = match facts == self.certificates.facts() {
            true => Refreshed::Same,
            false => Refreshed::Changed,
        };
        if clients.ticket_use(&self.options) != self.present().ticket_use {
            let provider = Arc::clone(present.crypto_provider());
            let (protocols, certificates) = (&self.protocols, &self.certificates);
            let options = &self.options;
            let next = config(
                options,
                protocols,
                certificates,
                clients,
                provider,
                &self.shared,
            )?;
            *self.config.write().unwrap_or_else(PoisonError::into_inner) = next;
            refreshed = Refreshed::Changed;
        }
        self.certificates.replace(loaded);
        Ok(refreshed)
    }

    fn present(&self) -> RwLockReadGuard<'_, AcceptorConfig> {
        self.config.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the contents of the certificates.
    pub fn certificates(&self) -> Vec<CertificateFacts> {
        self.certificates.facts()
    }

    pub(crate) fn signature_cost(&self) -> SignatureCost {
        self.certificates.signature_cost()
    }

    /// Returns the outcomes of connections that kernel TLS could have taken over; none unless
    /// kernel TLS is configured.
    pub fn offloads(&self) -> Vec<(OffloadOutcome, u64)> {
        let offload = self.offload.as_ref();
        offload.map(|offload| offload.counts()).unwrap_or_default()
    }

    /// Makes sessions use other kernel TLS support than the tested one.
    #[cfg(test)]
    pub(crate) fn set_offload(&mut self, offload: Arc<Offload>) {
        self.offload = Some(offload);
    }

    pub(crate) fn offload(&self) -> Option<&Arc<Offload>> {
        self.offload.as_ref()
    }

    pub(crate) fn shared(&self) -> &Arc<TlsShared> {
        &self.shared
    }

    /// Returns whether TLS 1.3 is enabled.
    pub(crate) fn speaks_tls13(&self) -> bool {
        let present = self.present();
        let mut suites = present.config.crypto_provider().cipher_suites.iter();
        suites.any(|suite| suite.tls13().is_some())
    }

    pub(crate) fn session(&self) -> Result<UnbufferedServerConnection, TlsError> {
        let config = Arc::clone(&self.present().config);
        UnbufferedServerConnection::new(config).map_err(setup)
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
    let all = options.files();
    match (options.self_signed, &all[..]) {
        (true, []) => Err(TlsError::NoStateFolder),
        (true, [files]) => Ok(vec![load_or_make(files, provider)?]),
        (true, _) => Err(TlsError::SelfSignedBeside),
        (false, []) => Err(TlsError::NoCertificate),
        (false, all) => all.iter().map(|files| load(files, provider)).collect(),
    }
}

/// The authorities that must have issued client certificates; `None` if none are required.
struct ClientAuthorities(Option<(PathBuf, Vec<CertificateDer<'static>>)>);

impl ClientAuthorities {
    fn read(options: &TlsOptions) -> Result<ClientAuthorities, TlsError> {
        let read = |path: &PathBuf| Ok((path.clone(), certificates_of(path)?));
        let read = options.client_ca.as_ref().map(read).transpose();
        Ok(ClientAuthorities(read?))
    }

    /// Returns the use that tickets are bound to: the authorities and the minimum version.
    fn ticket_use(&self, options: &TlsOptions) -> TicketUse {
        let mut hash = digest::Context::new(&digest::SHA256);
        hash.update(options.min_version.name().as_bytes());
        for authority in self.0.iter().flat_map(|(_, all)| all) {
            hash.update(&(authority.len() as u64).to_be_bytes());
            hash.update(authority);
        }
        let mut of = TicketUse::default();
        of.copy_from_slice(hash.finish().as_ref());
        of
    }

    fn verifier(
        self,
        provider: Arc<CryptoProvider>,
    ) -> Result<Option<Arc<dyn ClientCertVerifier>>, TlsError> {
        let Some((path, all)) = self.0 else {
            return Ok(None);
        };
        let roots = Arc::new(authorities(&path, all)?);
        let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
        let verifier = verifier.build().map_err(|error| TlsError::Content {
            path,
            why: error.to_string(),
        });
        Ok(Some(verifier?))
    }
}

/// The maximum amount of early data that is skipped: 64 KiB in full records, 16 KiB in small ones
/// of 1 KiB. rustls counts each record again with every later one, and tries to decrypt it again.
const EARLY_DATA_SKIPPED_MAX: u32 = 256 << 10;

fn config(
    options: &TlsOptions,
    protocols: &[Vec<u8>],
    certificates: &Arc<Certificates>,
    clients: ClientAuthorities,
    provider: Arc<CryptoProvider>,
    shared: &TlsShared,
) -> Result<AcceptorConfig, TlsError> {
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
    let builder = builder
        .with_protocol_versions(&versions(options.min_version, &provider))
        .map_err(setup)?;
    let ticket_use = clients.ticket_use(options);
    let builder = match clients.verifier(provider)? {
        None => builder.with_no_client_auth(),
        Some(verifier) => builder.with_client_cert_verifier(verifier),
    };
    let certificates: Arc<Certificates> = Arc::clone(certificates);
    let mut config = builder.with_cert_resolver(certificates);
    // The session handles the records after the handshake.
    config.enable_secret_extraction = true;
    config.alpn_protocols = protocols.to_vec();
    // Compressed client certificates are not accepted: nothing is unpacked for an unknown peer.
    config.cert_decompressors = Vec::new();
    // Clients may send early data by a ticket of an earlier server at this address. It is skipped:
    // with tickets, rustls accepts and offers none.
    config.max_early_data_size = EARLY_DATA_SKIPPED_MAX;
    // Sessions are resumed only by tickets: no session is kept in memory.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.ticketer = Arc::new(TicketIssuer {
        keys: Arc::clone(&shared.tickets),
        of: ticket_use,
    });
    Ok(AcceptorConfig {
        ticket_use,
        config: Arc::new(config),
    })
}

/// Returns a provider with the configured cipher suites.
fn provider(options: &TlsOptions) -> Result<CryptoProvider, TlsError> {
    let mut provider = aws_lc_rs::default_provider();
    let name = |suite: &SupportedCipherSuite| suite.suite().as_str().map_or("", iana_name);
    let known: Vec<_> = provider.cipher_suites.iter().map(name).collect();
    let mut wanted = options.cipher_suites.iter();
    if let Some(unknown) = wanted.find(|wanted| !known.contains(&wanted.as_str())) {
        return Err(TlsError::CipherSuite {
            name: unknown.clone(),
            known: known.join(", "),
        });
    }
    if !options.cipher_suites.is_empty() {
        let is_wanted = |suite: &SupportedCipherSuite| {
            let mut wanted = options.cipher_suites.iter();
            wanted.any(|wanted| wanted == name(suite))
        };
        provider.cipher_suites.retain(is_wanted);
    }
    if versions(options.min_version, &provider).is_empty() {
        let why = "none of the cipher suites is for TLSv1.3, the oldest version allowed";
        return Err(TlsError::Setup {
            why: why.to_owned(),
        });
    }
    Ok(provider)
}

/// Returns the enabled versions. One without a suite would make a handshake fail, even if the
/// client has another version.
fn versions(
    least: TlsVersion,
    provider: &CryptoProvider,
) -> Vec<&'static SupportedProtocolVersion> {
    let mut versions = match least {
        TlsVersion::Tls12 => vec![&version::TLS13, &version::TLS12],
        TlsVersion::Tls13 => vec![&version::TLS13],
    };
    versions.retain(|version| {
        let mut suites = provider.cipher_suites.iter();
        suites.any(|suite| suite.version() == *version)
    });
    versions
}

fn setup(error: rustls::Error) -> TlsError {
    TlsError::Setup {
        why: error.to_string(),
    }
}
