//! Certificates, and clients that speak TLS.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;

use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use underpass_testkit::WAIT_MAX;

use crate::support::client::Client;

pub(crate) type TlsClient = Client<StreamOwned<ClientConnection, TcpStream>>;

/// A self-signed certificate with its key.
pub(crate) struct Identity {
    pub(crate) certificate: CertificateDer<'static>,
    key: KeyPair,
}

impl Identity {
    pub(crate) fn new(names: &[&str]) -> Identity {
        let names = Vec::from_iter(names.iter().map(|name| (*name).to_owned()));
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(names).unwrap().self_signed(&key);
        Identity {
            certificate: certificate.unwrap().der().clone(),
            key,
        }
    }

    /// Writes `cert.pem` and `key.pem`, and returns the options that name them.
    pub(crate) fn write(&self, folder: &Path) -> [String; 4] {
        let (der, line_max) = (&self.certificate, 64);
        let text = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, der);
        let lines = text.as_bytes().chunks(line_max);
        let lines = lines.map(|line| str::from_utf8(line).unwrap());
        let body = Vec::from_iter(lines).join("\n");
        let pem = format!("-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n");
        fs::write(folder.join("cert.pem"), pem).unwrap();
        fs::write(folder.join("key.pem"), self.key.serialize_pem()).unwrap();
        let path = |name: &str| folder.join(name).display().to_string();
        let [cert, key] = [path("cert.pem"), path("key.pem")];
        ["--cert".to_owned(), cert, "--key".to_owned(), key]
    }
}

/// Connects as a client that asks for a server name and trusts one certificate, and presents `own`
/// if it is given.
pub(crate) fn connect(
    address: SocketAddr,
    name: &str,
    trusted: &CertificateDer<'static>,
    own: Option<&Identity>,
) -> TlsClient {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let config = match own {
        None => config.with_no_client_auth(),
        Some(own) => {
            let key = PrivatePkcs8KeyDer::from(own.key.serialize_der());
            let chain = vec![own.certificate.clone()];
            config.with_client_auth_cert(chain, key.into()).unwrap()
        }
    };
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let session = ClientConnection::new(Arc::new(config), name).unwrap();
    let socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(WAIT_MAX)).unwrap();
    socket.set_write_timeout(Some(WAIT_MAX)).unwrap();
    Client::over(StreamOwned::new(session, socket))
}
