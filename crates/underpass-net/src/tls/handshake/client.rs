//! TLS on connections that this process opens. A server is recognized by its public key alone: no
//! authority, name or date in its certificate has a meaning.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, UnbufferedClientConnection};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, SignatureScheme, version,
};

use crate::tls::error::TlsError;
use crate::tls::reading::key_sha256;
use crate::tls::shared::TlsShared;

pub(crate) const WRONG_KEY: Error =
    Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure);

/// The server that a client accepts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ServerKey {
    /// The one whose public key has this SHA-256 hash (RFC 7469, section 2.4).
    Pinned([u8; 32]),
    /// Any. The caller authenticates the key in [`TlsInfo`](crate::TlsInfo) by other means before
    /// anything secret is sent.
    Any,
}

/// The client side of TLS 1.3, for [`Connection::start_tls`](crate::Connection::start_tls).
pub struct TlsConnector {
    config: Arc<ClientConfig>,
    shared: Arc<TlsShared>,
}

impl TlsConnector {
    /// Creates a client that accepts one server, or any.
    ///
    /// # Errors
    /// [`TlsError::Setup`] from the cryptographic library.
    pub fn new(server: ServerKey) -> Result<TlsConnector, TlsError> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let verifier = Arc::new(KeyVerifier {
            server,
            provider: Arc::clone(&provider),
        });
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&version::TLS13])
            .map_err(|error| TlsError::Setup {
                why: error.to_string(),
            })?;
        let mut config = builder
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_no_client_auth();
        config.resumption = Resumption::disabled();
        config.enable_secret_extraction = true;
        // The name would be in the clear, and decides nothing.
        config.enable_sni = false;
        Ok(TlsConnector {
            config: Arc::new(config),
            shared: Arc::default(),
        })
    }

    pub(crate) fn session(&self) -> Result<UnbufferedClientConnection, Error> {
        let name = ServerName::IpAddress(std::net::Ipv4Addr::UNSPECIFIED.into());
        UnbufferedClientConnection::new(Arc::clone(&self.config), name)
    }

    pub(crate) fn shared(&self) -> &Arc<TlsShared> {
        &self.shared
    }
}

/// The check of a server's key, and of its signature with it.
#[derive(Debug)]
struct KeyVerifier {
    server: ServerKey,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for KeyVerifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let key = key_sha256(certificate).ok_or(CertificateError::BadEncoding)?;
        match self.server {
            ServerKey::Pinned(expected) if key != expected => Err(WRONG_KEY),
            ServerKey::Pinned(_) | ServerKey::Any => Ok(ServerCertVerified::assertion()),
        }
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("TLS 1.2 is not spoken".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let algorithms = &self.provider.signature_verification_algorithms;
        algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpListener, TcpStream};
    use std::thread::{JoinHandle, spawn};

    use ::aws_lc_rs::digest;
    use rcgen::{CertificateParams, KeyPair, PublicKeyData};
    use rustls::pki_types::PrivateKeyDer;
    use rustls::{ServerConfig, ServerConnection, StreamOwned};
    use tokio::runtime::Builder;
    use underpass::{Piece, Policy};
    use underpass_testkit::{WAIT_MAX, assert_same, content};

    use super::*;
    use crate::address::Address;
    use crate::connection::ReadOutcome;
    use crate::connection::connector::Connector;
    use crate::connection::wait::WhileDraining;
    use crate::error::ConnectionError;
    use crate::limits::ConnectionLimits;
    use crate::tls::error::HandshakeError;

    type Served = JoinHandle<std::io::Result<()>>;

    /// A server of rustls that sends back `bytes` bytes, changing its key meanwhile, and the hash
    /// of its public key.
    fn server(bytes: usize) -> (SocketAddr, [u8; 32], Served) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["elsewhere".to_owned()]).unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let spki = key.subject_public_key_info();
        let hash = digest::digest(&digest::SHA256, &spki);
        let config = ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(
                vec![certificate.der().clone()],
                PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
            );
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let config = Arc::new(config.unwrap());
        let served = spawn(move || {
            let (socket, _) = listener.accept()?;
            socket.set_read_timeout(Some(WAIT_MAX))?;
            let mut stream = StreamOwned::new(ServerConnection::new(config).unwrap(), socket);
            let mut buffer = vec![0; 100_000];
            let mut left = bytes;
            while left > 0 {
                let read = stream.read(&mut buffer)?;
                stream.write_all(&buffer[..read])?;
                stream.conn.refresh_traffic_keys().unwrap();
                left -= read;
            }
            stream.conn.send_close_notify();
            stream.flush()
        });
        (address, hash.as_ref().try_into().unwrap(), served)
    }

    /// Sends a body and returns the server's key and the bytes that came back.
    async fn exchange(
        to: SocketAddr,
        expected: ServerKey,
        body: &[u8],
    ) -> Result<(Option<[u8; 32]>, Vec<u8>), HandshakeError> {
        let connector = Connector::new(Policy::default(), &ConnectionLimits::default());
        let connected = connector.connect(&Address::Tcp(to), WAIT_MAX).await;
        let mut connection = connected.unwrap();
        connection
            .start_tls(&TlsConnector::new(expected).unwrap())
            .await?;
        let key = connection.tls().and_then(|tls| tls.server_key);
        let mut returned = Vec::new();
        for part in body.chunks(60_000) {
            connection.outbox().push(Piece::Bytes(part.to_vec()));
            connection.flush().await.unwrap();
            let until = returned.len() + part.len();
            while returned.len() < until {
                connection.start_deadline(WAIT_MAX);
                match connection.fill(WhileDraining::Continues).await.unwrap() {
                    ReadOutcome::Bytes(_) => {
                        returned.extend_from_slice(connection.input());
                        connection.consume(connection.input().len());
                    }
                    ReadOutcome::End => panic!("ended after {} bytes", returned.len()),
                }
            }
        }
        assert!(matches!(
            connection.fill(WhileDraining::Continues).await,
            Ok(ReadOutcome::End) | Err(ConnectionError::PeerGone)
        ));
        Ok((key, returned))
    }

    fn run<T>(future: impl Future<Output = T>) -> T {
        let runtime = Builder::new_current_thread().enable_all().build();
        runtime.unwrap().block_on(future)
    }

    #[test]
    fn bytes_pass_both_ways_through_key_changes_and_tickets() {
        let body = content(7, 700_000);
        for pin in [true, false] {
            let (address, key, served) = server(body.len());
            let expected = match pin {
                true => ServerKey::Pinned(key),
                false => ServerKey::Any,
            };
            let (found, returned) = run(exchange(address, expected, &body)).unwrap();
            assert_eq!(found, Some(key));
            assert_same(&returned, &body, "echo");
            served.join().unwrap().unwrap();
        }
    }

    #[test]
    fn another_key_than_the_pinned_one_is_refused_before_anything_is_sent() {
        let (address, mut key, served) = server(1);
        key[31] ^= 1;
        let refused = run(exchange(address, ServerKey::Pinned(key), b"secret"));
        assert_eq!(refused, Err(HandshakeError::WrongKey));
        assert!(served.join().unwrap().is_err());
    }

    #[test]
    fn a_server_that_does_not_speak_tls_is_an_error() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let served = spawn(move || {
            let (mut socket, _): (TcpStream, _) = listener.accept().unwrap();
            socket
                .write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                .unwrap();
            // Until the alert and the end.
            let _ = socket.read_to_end(&mut Vec::new());
        });
        let failed = run(exchange(address, ServerKey::Any, b""));
        assert!(
            matches!(failed, Err(HandshakeError::Failed(_))),
            "{failed:?}"
        );
        served.join().unwrap();
    }
}
