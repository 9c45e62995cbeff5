//! HTTPS: the listeners that use it, their certificates, and redirects to it.

pub(crate) mod check;
mod hsts;

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use rustix::fs::{Uid, chown};
use rustix::process::geteuid;
use underpass::Mechanism;
use underpass_http::scheme::{HTTPS_PORT, Scheme};
use underpass_net::{
    CertificateFacts, ListenAt, OffloadOutcome, Refreshed, TlsAcceptor, TlsError, TlsShared, User,
    forbid_core_dumps,
};

use crate::error::{Error, start_thread};
use crate::options::ServerOptions;
use crate::options::listen::HttpListen;

/// The ALPN protocols (RFC 7301, section 6): `curl --http1.0` offers only the older one.
const PROTOCOLS: [&[u8]; 2] = [b"http/1.1", b"http/1.0"];

/// The interval at which certificate files are reread to detect renewals.
const REFRESH_INTERVAL: Duration = Duration::from_secs(60);

const ONLY_READ_WRITE: &str = "bodies pass user space where HTTPS is spoken: they can be sent by \
                              read_write only";

/// The certificates in use. They outlive generations of workers.
#[derive(Debug, Default)]
pub(crate) struct HttpsState {
    acceptor: Mutex<Option<Arc<TlsAcceptor>>>,
    pub(crate) shared: Arc<TlsShared>,
    pub(crate) reloads: ReloadCounts,
}

/// The number of reloads of certificate files, by outcome.
#[derive(Debug, Default)]
pub(crate) struct ReloadCounts([AtomicU64; ReloadCounts::NAMES.len()]);

impl ReloadCounts {
    /// The outcomes as named in metrics.
    pub(crate) const NAMES: [&str; 3] = ["same", "changed", "failed"];

    /// Returns the counts in the order of the names.
    pub(crate) fn values(&self) -> [u64; ReloadCounts::NAMES.len()] {
        self.0.each_ref().map(|count| count.load(Ordering::Relaxed))
    }

    fn record(&self, outcome: &Result<Refreshed, TlsError>) {
        let number = match outcome {
            Ok(Refreshed::Same) => 0,
            Ok(Refreshed::Changed) => 1,
            Err(_) => 2,
        };
        self.0[number].fetch_add(1, Ordering::Relaxed);
    }
}

impl HttpsState {
    pub(crate) fn new(shared: Arc<TlsShared>) -> HttpsState {
        HttpsState {
            shared,
            ..HttpsState::default()
        }
    }

    /// Returns the acceptor for these options, if any listener needs one: the current one, with its
    /// files reread, or a new one if the options differ. A new one becomes current once workers
    /// [use](HttpsState::set_present) it; renewed certificates are in use immediately.
    ///
    /// # Errors
    /// [`Error::Tls`]; the certificates in use do not change.
    pub(crate) fn acceptor(
        &self,
        options: &ServerOptions,
    ) -> Result<(Option<Arc<TlsAcceptor>>, Refreshed), Error> {
        if !is_spoken(options) {
            return Ok((None, Refreshed::Same));
        }
        if !options.policy.allows(Mechanism::ReadWrite) {
            return Err(Error::Config(ONLY_READ_WRITE.to_owned()));
        }
        if let Some(error) = check::served_key(options) {
            return Err(error);
        }
        let present = self.acceptor.lock().unwrap_or_else(PoisonError::into_inner);
        let is_same = |present: &&Arc<TlsAcceptor>| *present.options() == options.tls;
        if let Some(same) = present.as_ref().filter(is_same) {
            let refreshed = self.refresh_counted(same)?;
            return Ok((Some(Arc::clone(same)), refreshed));
        }
        drop(present);
        forbid_core_dumps();
        let loaded = TlsAcceptor::load(&options.tls, &PROTOCOLS, &self.shared)?;
        if let (true, Some(user)) = (options.tls.self_signed, &options.user) {
            give(options, user);
        }
        Ok((Some(Arc::new(loaded)), Refreshed::Same))
    }

    /// Makes workers use this acceptor from now on.
    pub(crate) fn set_present(&self, acceptor: Option<Arc<TlsAcceptor>>) {
        *self.acceptor.lock().unwrap_or_else(PoisonError::into_inner) = acceptor;
    }

    /// Rereads the certificate files for new connections.
    ///
    /// # Errors
    /// [`Error::Tls`]; the certificates in use do not change.
    pub(crate) fn refresh(&self) -> Result<Refreshed, Error> {
        // The lock is held so that concurrent calls cannot leave an older version in use.
        let present = self.acceptor.lock().unwrap_or_else(PoisonError::into_inner);
        match present.as_ref() {
            Some(present) => Ok(self.refresh_counted(present)?),
            None => Ok(Refreshed::Same),
        }
    }

    fn refresh_counted(&self, acceptor: &TlsAcceptor) -> Result<Refreshed, TlsError> {
        let outcome = acceptor.refresh();
        self.reloads.record(&outcome);
        outcome
    }

    /// Returns the facts about the certificates in use.
    pub(crate) fn certificates(&self) -> Vec<CertificateFacts> {
        let present = self.present();
        present.map(|one| one.certificates()).unwrap_or_default()
    }

    /// Returns the acceptor in use.
    pub(crate) fn present(&self) -> Option<Arc<TlsAcceptor>> {
        let present = self.acceptor.lock().unwrap_or_else(PoisonError::into_inner);
        present.clone()
    }

    /// Returns the outcomes for connections that kernel TLS could have taken over.
    pub(crate) fn offloads(&self) -> Vec<(OffloadOutcome, u64)> {
        let present = self.present();
        present.map(|one| one.offloads()).unwrap_or_default()
    }

    /// Rereads the certificate files regularly, on a thread that ends when the state is dropped.
    pub(crate) fn watch(self: &Arc<HttpsState>) -> Result<(), Error> {
        self.watch_every(REFRESH_INTERVAL)
    }

    fn watch_every(self: &Arc<HttpsState>, interval: Duration) -> Result<(), Error> {
        let state = Arc::downgrade(self);
        let watch = move || {
            while state.strong_count() > 0 {
                thread::park_timeout(interval);
                refresh(&state);
            }
        };
        let doing = "start the thread that reads certificates";
        start_thread("certificates", doing, watch)
    }
}

fn refresh(state: &Weak<HttpsState>) {
    let Some(state) = state.upgrade() else {
        return;
    };
    state.shared.rotate();
    match state.refresh() {
        Ok(Refreshed::Changed) => {
            tracing::info!("new certificates are in use");
            for warning in check::of_renewed(&state.certificates()) {
                tracing::warn!("{warning}");
            }
        }
        Err(error) => tracing::warn!("the certificates in use are kept: {error}"),
        Ok(Refreshed::Same) => {}
    }
}

impl HttpListen {
    /// Returns the scheme of the listener.
    pub(crate) fn spoken(&self, options: &ServerOptions) -> Scheme {
        self.scheme.unwrap_or(match options.tls.has_certificate() {
            true => Scheme::Https,
            false => Scheme::Http,
        })
    }
}

fn is_spoken(options: &ServerOptions) -> bool {
    let mut all = options.listen.iter();
    all.any(|listen| listen.spoken(options) == Scheme::Https)
}

/// Returns the Strict-Transport-Security field, preceded by a line break, if configured.
///
/// # Errors
/// [`Error::Config`]: the value is invalid, or a rule of a site sends the field too.
pub(crate) fn hsts(options: &ServerOptions) -> Result<Option<String>, Error> {
    let Some(text) = &options.tls.hsts else {
        return Ok(None);
    };
    let mut rules = options.sites.iter().flat_map(|site| &site.headers);
    let name = "strict-transport-security";
    if rules.any(|rule| rule.name.as_str().eq_ignore_ascii_case(name)) {
        let what = "tls.hsts: a [[site.header]] sends Strict-Transport-Security too; choose one";
        return Err(Error::Config(what.to_owned()));
    }
    let field = hsts::field(text).map_err(|why| Error::Config(format!("tls.hsts: {why}")));
    field.map(Some)
}

/// Returns the port that unencrypted listeners redirect to: that of the first HTTPS listener.
/// `activated` has the names and ports of sockets passed by the service manager.
pub(crate) fn port(options: &ServerOptions, activated: &[(String, u16)]) -> Option<u16> {
    let passed = |wanted: &Option<String>| {
        let mut named = activated.iter();
        let named = named.find(|(name, _)| wanted.as_ref().is_none_or(|wanted| wanted == name));
        named.map_or(HTTPS_PORT, |(_, port)| *port)
    };
    let mut all = options.listen.iter();
    all.find_map(|listen| match (listen.spoken(options), &listen.at) {
        (Scheme::Https, ListenAt::Tcp(address)) => Some(address.port()),
        (Scheme::Https, ListenAt::Systemd { name }) => Some(passed(name)),
        (Scheme::Https, _) => Some(HTTPS_PORT),
        (Scheme::Http, _) => None,
    })
}

/// Gives the user to switch to the files of the self-signed certificate, to renew it.
fn give(options: &ServerOptions, user: &User) {
    let Some(user) = user.number().ok().filter(|_| geteuid().is_root()) else {
        return;
    };
    for files in options.tls.files() {
        let folder = files.key.parent().map(Path::to_owned);
        for path in [Some(files.cert), Some(files.key), folder].iter().flatten() {
            // A failure is reported later, as a file that cannot be read.
            let _ = chown(path, Some(Uid::from_raw(user)), None);
        }
    }
}

/// Returns all mistakes: certificates and keys that are unusable, or that clients would reject.
pub(crate) fn check(options: &ServerOptions) -> Vec<Error> {
    let mut wrong: Vec<_> = hsts(options).err().into_iter().collect();
    match check::served_key(options).map_or_else(|| HttpsState::default().acceptor(options), Err) {
        Err(error) => wrong.push(error),
        Ok((None, _)) => {}
        Ok((Some(acceptor), _)) => {
            let certificates = acceptor.certificates();
            wrong.extend(check::mistakes(&certificates));
            wrong.extend(check::unreadable(options, &certificates));
        }
    }
    wrong
}

/// The fingerprints by which clients recognise a self-signed certificate.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CertificatePin {
    /// The SHA-256 hash of the certificate, as browsers show it: `0A:1B:…`.
    pub fingerprint: String,
    /// The SHA-256 hash of the public key, as curl's `--pinnedpubkey` expects it: `sha256//…`.
    pub public_key: String,
}

impl CertificatePin {
    pub(crate) fn of(facts: &CertificateFacts) -> CertificatePin {
        let pairs = facts.sha256.iter().map(|byte| format!("{byte:02X}"));
        CertificatePin {
            fingerprint: pairs.collect::<Vec<_>>().join(":"),
            public_key: format!("sha256//{}", BASE64_STANDARD.encode(facts.key_sha256)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::net::{SocketAddr, TcpStream};

    use rcgen::{CertificateParams, KeyPair};
    use rustls::crypto::aws_lc_rs::default_provider;
    use rustls::pki_types::CertificateDer;
    use rustls::{ClientConfig, ClientConnection, RootCertStore};
    use underpass_net::TlsOptions;
    use underpass_testkit::{WAIT_MAX, wait_until};

    use super::*;
    use crate::server::FileServer;

    /// Writes a new certificate and key to these files.
    fn renew(options: &TlsOptions) -> CertificateDer<'static> {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let files = &options.certificates[0];
        fs::write(&files.cert, certificate.pem()).unwrap();
        fs::write(&files.key, key.serialize_pem()).unwrap();
        certificate.der().clone()
    }

    /// Whether a new connection is presented with this certificate.
    fn is_presented(certificate: &CertificateDer<'static>, to: SocketAddr) -> bool {
        let mut roots = RootCertStore::empty();
        roots.add(certificate.clone()).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = "localhost".try_into().unwrap();
        let mut client = ClientConnection::new(Arc::new(config), name).unwrap();
        let mut socket = TcpStream::connect(to).unwrap();
        socket.set_read_timeout(Some(WAIT_MAX)).unwrap();
        while client.is_handshaking() {
            if client.complete_io(&mut socket).is_err() {
                return false;
            }
        }
        true
    }

    #[test]
    fn a_renewed_certificate_is_presented_unasked() {
        let folder = tempfile::tempdir().unwrap();
        let site = folder.path().join("site");
        fs::create_dir(&site).unwrap();
        let at = |name: &str| folder.path().join(name);
        let mut options = ServerOptions::of(&site);
        options.listen = vec![SocketAddr::from(([127, 0, 0, 1], 0)).into()];
        options.tls = TlsOptions::of(at("crt"), at("key"));
        let first = renew(&options.tls);
        let server: FileServer = crate::serve(&options).unwrap();
        let address = server.running().address().unwrap();
        assert!(is_presented(&first, address));
        server
            .https()
            .watch_every(Duration::from_millis(20))
            .unwrap();
        for _ in 0..3 {
            let renewed = renew(&options.tls);
            wait_until("the renewed one", || is_presented(&renewed, address));
            assert!(!is_presented(&first, address));
        }
    }
}
