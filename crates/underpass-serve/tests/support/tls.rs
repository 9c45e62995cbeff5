//! Certificates, clients and servers of HTTPS, with rustls.

#![allow(dead_code, reason = "every test target uses its own part")]

use std::fs;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa, Issuer,
    KeyPair, SanType,
};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{
    CipherSuite, ClientConfig, ClientConnection, RootCertStore, StreamOwned,
    SupportedProtocolVersion, version,
};
use tempfile::TempDir;
use underpass_net::CertificateFiles;
use underpass_serve::ServerOptions;
use underpass_testkit::{HttpClient, WAIT_MAX};

use crate::support::Server;

pub(crate) type Client = HttpClient<StreamOwned<ClientConnection, TcpStream>>;

/// A certificate authority, and the certificates it has issued, as files.
pub(crate) struct Authority {
    folder: TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    pub(crate) fn new() -> Authority {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // With rcgen's default subject OpenSSL would take every certificate for self-signed.
        params
            .distinguished_name
            .push(DnType::CommonName, "authority");
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("ca.pem"), issuer.pem()).unwrap();
        Authority { folder, issuer }
    }

    pub(crate) fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    /// Issues a certificate for these names, in files named after `name`.
    pub(crate) fn issue(&self, name: &str, names: &[&str]) -> CertificateFiles {
        self.issue_with(name, names, &rcgen::PKCS_ECDSA_P256_SHA256)
    }

    pub(crate) fn issue_with(
        &self,
        name: &str,
        names: &[&str],
        algorithm: &'static rcgen::SignatureAlgorithm,
    ) -> CertificateFiles {
        let names: Vec<_> = names.iter().map(ToString::to_string).collect();
        let params = CertificateParams::new(names).unwrap();
        self.issue_params(name, params, algorithm)
    }

    /// Issues a certificate with these alternative names, and no subject.
    pub(crate) fn issue_without_subject(&self, name: &str, names: &[SanType]) -> CertificateFiles {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name = DistinguishedName::new();
        params.subject_alt_names = names.to_vec();
        self.issue_params(name, params, &rcgen::PKCS_ECDSA_P256_SHA256)
    }

    fn issue_params(
        &self,
        name: &str,
        params: CertificateParams,
        algorithm: &'static rcgen::SignatureAlgorithm,
    ) -> CertificateFiles {
        let key = KeyPair::generate_for(algorithm).unwrap();
        let issuer: &Issuer<'static, KeyPair> = &self.issuer;
        let certificate = params.signed_by(&key, issuer).unwrap();
        let [cert, key_file] = ["crt", "key"].map(|end| self.path(&format!("{name}.{end}")));
        fs::write(&cert, certificate.pem()).unwrap();
        fs::write(&key_file, key.serialize_pem()).unwrap();
        CertificateFiles {
            cert,
            key: key_file,
        }
    }

    /// Returns a client that trusts this authority.
    pub(crate) fn client(&self) -> ClientBuilder {
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone()).unwrap();
        ClientBuilder {
            roots,
            versions: vec![&version::TLS13, &version::TLS12],
            suite: None,
            identity: None,
        }
    }
}

#[derive(Clone)]
pub(crate) struct ClientBuilder {
    pub(crate) roots: RootCertStore,
    pub(crate) versions: Vec<&'static SupportedProtocolVersion>,
    pub(crate) suite: Option<CipherSuite>,
    pub(crate) identity: Option<CertificateFiles>,
}

impl ClientBuilder {
    pub(crate) fn config(&self) -> Arc<ClientConfig> {
        let mut provider = aws_lc_rs::default_provider();
        if let Some(suite) = self.suite {
            provider.cipher_suites.retain(|one| one.suite() == suite);
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(&self.versions)
            .unwrap()
            .with_root_certificates(self.roots.clone());
        let mut config = match &self.identity {
            None => builder.with_no_client_auth(),
            Some(files) => {
                let chain = CertificateDer::pem_file_iter(&files.cert).unwrap();
                let chain = chain.map(Result::unwrap).collect();
                let key = PrivateKeyDer::from_pem_file(&files.key).unwrap();
                builder.with_client_auth_cert(chain, key).unwrap()
            }
        };
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Arc::new(config)
    }
}

pub(crate) fn connect(config: &Arc<ClientConfig>, address: SocketAddr, name: &str) -> Client {
    secure(HttpClient::connect(address), config, name)
}

/// Starts TLS on a connection.
pub(crate) fn secure(plain: HttpClient, config: &Arc<ClientConfig>, name: &str) -> Client {
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let connection = ClientConnection::new(Arc::clone(config), name).unwrap();
    HttpClient::over(StreamOwned::new(connection, plain.socket))
}

/// Performs a handshake; errors are the client's.
pub(crate) fn shake(
    config: &Arc<ClientConfig>,
    address: SocketAddr,
) -> std::io::Result<ClientConnection> {
    let mut socket = TcpStream::connect(address)?;
    socket.set_read_timeout(Some(WAIT_MAX))?;
    let name = ServerName::try_from("localhost").unwrap();
    let mut connection = ClientConnection::new(Arc::clone(config), name).unwrap();
    while connection.is_handshaking() {
        connection.complete_io(&mut socket)?;
    }
    // A rejection of the client's certificate arrives after its handshake.
    connection
        .writer()
        .write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")?;
    connection.complete_io(&mut socket)?;
    while connection.wants_read()
        && connection
            .process_new_packets()
            .is_ok_and(|state| state.plaintext_bytes_to_read() == 0)
    {
        connection.complete_io(&mut socket)?;
    }
    Ok(connection)
}

pub(crate) fn serve(authority: &Authority, change: impl FnOnce(&mut ServerOptions)) -> Server {
    let files = authority.issue("server", &["localhost", "127.0.0.1"]);
    Server::with(|options| {
        options.tls.certificates = vec![files];
        change(options);
    })
}

pub(crate) const SUITES: [(&SupportedProtocolVersion, CipherSuite); 6] = [
    (&version::TLS13, CipherSuite::TLS13_AES_128_GCM_SHA256),
    (&version::TLS13, CipherSuite::TLS13_AES_256_GCM_SHA384),
    (&version::TLS13, CipherSuite::TLS13_CHACHA20_POLY1305_SHA256),
    (
        &version::TLS12,
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    ),
    (
        &version::TLS12,
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    ),
    (
        &version::TLS12,
        CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
    ),
];
