//! The load over TLS, on servers that are made for it: rustls shakes hands, and the records are
//! sealed here, so that they can be wrong.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;

use rustls::crypto::cipher::{MessageEncrypter, OutboundChunks, OutboundPlainMessage};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{
    ConnectionTrafficSecrets, ContentType, ProtocolVersion, ServerConfig, ServerConnection,
    SupportedCipherSuite,
};
use sha2::{Digest as _, Sha256};

use super::exchange::{BodySink, ClientExchange};
use super::*;
use crate::tls::TlsSetup;
use crate::tls::options::{CertificateKey, TlsLoadOptions, TlsResumption};

const SUITES: [&str; 6] = [
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
];

/// Three full records and a little.
const BODY_BYTES: usize = 50_000;

fn head() -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {BODY_BYTES}\r\n\r\n").into_bytes()
}

fn body() -> Vec<u8> {
    (0..BODY_BYTES).map(|index| (index % 251) as u8).collect()
}

fn file() -> TestFile {
    TestFile {
        path: "f".into(),
        url_path: "/f".into(),
        bytes: BODY_BYTES as u64,
        sha256: Sha256::digest(body()).into(),
    }
}

fn setup(suite: &str, key: CertificateKey, resumption: TlsResumption, folder: &Path) -> TlsSetup {
    let options = TlsLoadOptions {
        suite: Some(suite.into()),
        key,
    };
    let setup = TlsSetup::make(&options, resumption, folder).unwrap();
    setup.expect("TLS is asked for")
}

fn server_config(setup: &TlsSetup) -> Arc<ServerConfig> {
    let chain = CertificateDer::pem_file_iter(setup.cert()).unwrap();
    let key = PrivateKeyDer::from_pem_file(setup.key()).unwrap();
    let config = ServerConfig::builder().with_no_client_auth();
    let mut config = config
        .with_single_cert(chain.map(Result::unwrap).collect(), key)
        .unwrap();
    config.enable_secret_extraction = true;
    Arc::new(config)
}

/// The server's side of a connection with a complete handshake.
struct Sealing {
    stream: TcpStream,
    encrypter: Box<dyn MessageEncrypter>,
    number: u64,
}

impl Sealing {
    /// Accepts a connection, and a first request on it.
    fn accept(listener: &TcpListener, config: &Arc<ServerConfig>) -> Sealing {
        let (mut stream, _) = listener.accept().unwrap();
        let mut connection = ServerConnection::new(Arc::clone(config)).unwrap();
        while connection.is_handshaking() || connection.wants_write() {
            connection.complete_io(&mut stream).unwrap();
        }
        let mut request = [0; 4096];
        while connection.reader().read(&mut request).is_err() {
            connection.complete_io(&mut stream).unwrap();
        }
        let suite = connection.negotiated_cipher_suite().unwrap();
        let secrets = connection.dangerous_extract_secrets().unwrap();
        let (number, secret) = secrets.tx;
        let (ConnectionTrafficSecrets::Aes128Gcm { key, iv }
        | ConnectionTrafficSecrets::Aes256Gcm { key, iv }
        | ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv }) = secret
        else {
            panic!("an unknown cipher")
        };
        let encrypter = match suite {
            SupportedCipherSuite::Tls13(suite) => suite.aead_alg.encrypter(key, iv),
            SupportedCipherSuite::Tls12(suite) => {
                let fixed = suite.aead_alg.key_block_shape().fixed_iv_len;
                let (iv, extra) = iv.as_ref().split_at(fixed);
                suite.aead_alg.encrypter(key, iv, extra)
            }
        };
        let mut sealing = Sealing {
            stream,
            encrypter,
            number: 0,
        };
        // The key of AES-GCM has to see number 0 first.
        drop(sealing.record(ContentType::ApplicationData, &[]));
        Sealing { number, ..sealing }
    }

    fn record(&mut self, typ: ContentType, content: &[u8]) -> Vec<u8> {
        let message = OutboundPlainMessage {
            typ,
            version: ProtocolVersion::TLSv1_2,
            payload: OutboundChunks::Single(content),
        };
        self.number += 1;
        let sealed = self.encrypter.encrypt(message, self.number - 1);
        sealed.unwrap().encode()
    }

    /// The client may have seen enough and have gone.
    fn raw(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes);
    }

    fn data(&mut self, content: &[u8]) {
        for part in content.chunks(16 << 10) {
            let record = self.record(ContentType::ApplicationData, part);
            self.raw(&record);
        }
    }

    /// Waits for the next request, which nobody opens.
    fn request(&mut self) {
        assert!(self.stream.read(&mut [0; 4096]).unwrap() > 0);
    }

    /// Ends the stream and waits until the client has closed its side.
    fn end(mut self) {
        let _ = self.stream.shutdown(Shutdown::Write);
        let _ = self.stream.read_to_end(&mut Vec::new());
    }
}

/// Plays a script, which starts after a first request, against a client.
fn play(
    suite: &str,
    script: impl FnOnce(&mut Sealing) + Send + 'static,
    client: impl FnOnce(&mut ClientExchange, &RequestTarget) -> Result<()>,
) -> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    let setup = setup(
        suite,
        CertificateKey::P256,
        TlsResumption::Never,
        folder.path(),
    );
    let config = server_config(&setup);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = ServerAddress {
        socket: listener.local_addr().unwrap(),
        tls: Some(setup.client()),
    };
    let server = thread::spawn(move || {
        let mut sealing = Sealing::accept(&listener, &config);
        script(&mut sealing);
        sealing.end();
    });
    let mut exchange = ClientExchange::connect_ready(&address)?;
    let target = file().target(address.socket, ConnectionReuse::KeepAlive);
    let result = client(&mut exchange, &target);
    drop(exchange);
    server.join().unwrap();
    result
}

/// The body is discarded, by so many bytes at a time.
fn discarding(
    room: usize,
) -> impl FnOnce(&mut ClientExchange, &RequestTarget) -> Result<()> + Copy {
    move |exchange, target| exchange.fetch(target, &mut BodySink::discard(room))
}

fn hashing(exchange: &mut ClientExchange, target: &RequestTarget) -> Result<()> {
    exchange.fetch(target, &mut BodySink::hash())
}

fn fails(what: &str, result: Result<()>) {
    let error = result.expect_err(what).to_string();
    assert!(error.contains(what), "{error}");
}

const USUAL: &str = SUITES[0];

#[test]
fn bodies_are_discarded_or_hashed_in_every_suite() {
    for suite in SUITES {
        for room in [1, 16 << 10, 4 << 20] {
            let answers = |sealing: &mut Sealing| {
                // The first bytes of the body come with the head, the rest in odd pieces.
                sealing.data(&[&head()[..], &body()[..7]].concat());
                sealing.data(&body()[7..30_000]);
                sealing.data(&[]);
                sealing.data(&body()[30_000..]);
                sealing.request();
                sealing.data(&head());
                sealing.data(&body());
                // Open until the client is done.
                let _ = sealing.stream.read(&mut [0]);
            };
            let requests = |exchange: &mut ClientExchange, target: &RequestTarget| {
                discarding(room)(exchange, target)?;
                file().check(exchange, ([127, 0, 0, 1], 1).into())
            };
            let played = play(suite, answers, requests);
            played.unwrap_or_else(|error| panic!("{suite}, {room}: {error}"));
        }
    }
}

#[test]
fn records_arrive_in_any_pieces() {
    let answer = |sealing: &mut Sealing| {
        let records = [
            sealing.record(ContentType::ApplicationData, &head()),
            sealing.record(ContentType::ApplicationData, &body()[..16 << 10]),
            sealing.record(ContentType::ApplicationData, &body()[16 << 10..32 << 10]),
            sealing.record(ContentType::ApplicationData, &body()[32 << 10..48 << 10]),
            sealing.record(ContentType::ApplicationData, &body()[48 << 10..]),
        ];
        for piece in records.concat().chunks(997) {
            sealing.raw(piece);
            thread::yield_now();
        }
        let _ = sealing.stream.read(&mut [0]);
    };
    play(USUAL, answer, discarding(1 << 20)).unwrap();
    play(USUAL, answer, hashing).unwrap();
}

#[test]
fn short_long_and_padded_bodies_are_errors() {
    let short = |sealing: &mut Sealing| {
        sealing.data(&head());
        sealing.data(&body()[..40_000]);
    };
    fails(
        "closed the connection",
        play(USUAL, short, discarding(1 << 20)),
    );
    fails("closed the connection", play(USUAL, short, hashing));
    let torn = |sealing: &mut Sealing| {
        sealing.data(&head());
        let record = sealing.record(ContentType::ApplicationData, &body()[..16_000]);
        sealing.raw(&record[..10_000]);
    };
    fails(
        "closed the connection",
        play(USUAL, torn, discarding(1 << 20)),
    );
    fails("closed the connection", play(USUAL, torn, hashing));
    let long = |sealing: &mut Sealing| {
        sealing.data(&head());
        sealing.data(&[&body()[..], b"x"].concat());
    };
    fails("more bytes", play(USUAL, long, discarding(1 << 20)));
    let with_head = |sealing: &mut Sealing| {
        sealing.data(&[&head()[..], &body()[..16_000]].concat());
        sealing.data(&[&body()[16_000..], b"x"].concat());
    };
    fails("more bytes", play(USUAL, with_head, discarding(1 << 20)));
    let padded = |sealing: &mut Sealing| {
        sealing.data(&head());
        // The type of the content is in front of zeros, the last of which is this "type".
        let inner = [&body()[..16_000], &[23, 0, 0]].concat();
        let record = sealing.record(ContentType::Unknown(0), &inner);
        sealing.raw(&record);
        sealing.data(&body()[16_000..]);
        let _ = sealing.stream.read(&mut [0]);
    };
    play(USUAL, padded, discarding(1 << 20)).unwrap();
    play(USUAL, padded, hashing).unwrap();
}

#[test]
fn a_record_that_was_changed_or_left_out_is_an_error() {
    let changed = |sealing: &mut Sealing| {
        sealing.data(&head());
        sealing.data(&body()[..32 << 10]);
        let rest = body().split_off(32 << 10);
        let mut record = sealing.record(ContentType::ApplicationData, &rest[..1000]);
        record[500] ^= 1;
        sealing.raw(&record);
        sealing.data(&rest[1000..]);
        let _ = sealing.stream.read(&mut [0]);
    };
    fails("TLS: ", play(USUAL, changed, hashing));
    fails("TLS: ", play(USUAL, changed, discarding(1 << 20)));
    let left_out = |sealing: &mut Sealing| {
        sealing.data(&head());
        drop(sealing.record(ContentType::ApplicationData, b"nobody sees this"));
        sealing.data(&body());
    };
    fails("TLS: ", play(USUAL, left_out, discarding(1 << 20)));
}

#[test]
fn alerts_are_errors() {
    let alert = |sealing: &mut Sealing| {
        let record = sealing.record(ContentType::Alert, &[2, 80]);
        sealing.raw(&record);
    };
    fails("InternalError", play(USUAL, alert, discarding(1 << 20)));
    let ended = |sealing: &mut Sealing| {
        let record = sealing.record(ContentType::Alert, &[1, 0]);
        sealing.raw(&record);
    };
    fails("closed the connection", play(USUAL, ended, hashing));
}

/// Answers a request on each connection and closes it, until the address is dropped with the test.
fn answering(setup: &TlsSetup, connections: usize) -> ServerAddress {
    let config = server_config(setup);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let socket = listener.local_addr().unwrap();
    thread::spawn(move || {
        for _ in 0..connections {
            let mut sealing = Sealing::accept(&listener, &config);
            sealing.data(&head());
            sealing.data(&body());
            let record = sealing.record(ContentType::Alert, &[1, 0]);
            sealing.raw(&record);
            sealing.end();
        }
    });
    ServerAddress {
        socket,
        tls: Some(setup.client()),
    }
}

#[test]
fn every_request_has_its_handshake_where_connections_are_not_kept() {
    let folder = tempfile::tempdir().unwrap();
    for key in [CertificateKey::P256, CertificateKey::Rsa2048] {
        let setup = setup(USUAL, key, TlsResumption::Never, folder.path());
        let address = answering(&setup, 5);
        let targets = [file().target(address.socket, ConnectionReuse::PerRequest)];
        let stream = LoadStream {
            targets: &targets,
            connections: 1,
            pace: LoadPace::Closed(Quota::Requests(4)),
            receive_bytes_max: 1 << 20,
        };
        let mut client = LoadClient::connect(&address, stream).unwrap();
        let result = client.run(&AtomicBool::new(false)).unwrap();
        assert_eq!(
            (result.requests, result.body_bytes),
            (4, 4 * BODY_BYTES as u64)
        );
    }
}

#[test]
fn sessions_are_resumed_with_the_tickets_that_came_with_a_response() {
    let folder = tempfile::tempdir().unwrap();
    for (resumption, resumed) in [
        (TlsResumption::Tickets, true),
        (TlsResumption::Never, false),
    ] {
        let setup = setup(USUAL, CertificateKey::P256, resumption, folder.path());
        let address = answering(&setup, 2);
        let mut first = ClientExchange::connect(&address).unwrap();
        let target = file().target(address.socket, ConnectionReuse::PerRequest);
        first.fetch(&target, &mut BodySink::hash()).unwrap();
        assert!(!first.is_resumed());
        drop(first);
        // Connections that request nothing take no ticket: rustls has sent two.
        let idle = TcpListener::bind("127.0.0.1:0").unwrap();
        let elsewhere = ServerAddress {
            socket: idle.local_addr().unwrap(),
            ..address.clone()
        };
        drop([(); 2].map(|()| ClientExchange::connect(&elsewhere).unwrap()));
        let mut second = ClientExchange::connect(&address).unwrap();
        second
            .fetch(&target, &mut BodySink::discard(1 << 20))
            .unwrap();
        assert_eq!(second.is_resumed(), resumed);
    }
}

#[test]
fn another_certificate_is_not_trusted() {
    let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let [own, other] = folders.each_ref().map(|folder| {
        let resumption = TlsResumption::Never;
        setup(USUAL, CertificateKey::P256, resumption, folder.path())
    });
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = ServerAddress {
        socket: listener.local_addr().unwrap(),
        tls: Some(own.client()),
    };
    let config = server_config(&other);
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut connection = ServerConnection::new(config).unwrap();
        while connection.is_handshaking() && connection.complete_io(&mut stream).is_ok() {}
    });
    let refused = ClientExchange::connect_ready(&address).map(drop);
    fails("TLS: ", refused);
    server.join().unwrap();
}

#[test]
fn an_unknown_suite_is_an_error_that_lists_the_known_ones() {
    let options = TlsLoadOptions {
        suite: Some("NULL".into()),
        key: CertificateKey::P256,
    };
    let made = TlsSetup::make(&options, TlsResumption::Never, Path::new("/nowhere"));
    let error = made.unwrap_err().to_string();
    assert!(SUITES.iter().all(|suite| error.contains(suite)), "{error}");
}
