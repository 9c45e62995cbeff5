//! The system calls of `underpass serve` with TLS, which are those of plain HTTP.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use underpass_testkit::{HttpClient, WAIT_MAX, assert_same, content, traced_calls};

use crate::support::{Server, text};

/// Bytes encrypted at a time, their number of records, and the overhead of each record.
const BATCH: u64 = 256 << 10;
const RECORDS_OF_BATCH: u64 = 16;
const AROUND: u64 = 22;

/// Returns the size of each `send` to clients, in order.
fn sends(log: &Path) -> Vec<u64> {
    let calls = traced_calls(log);
    let to_clients = calls
        .iter()
        .filter(|call| call.name == "sendto" && call.argument(0).contains("TCP"));
    to_clients.filter_map(|call| call.returned).collect()
}

struct Traced {
    server: Server,
    log: tempfile::NamedTempFile,
    certificate: CertificateDer<'static>,
    _files: tempfile::TempDir,
}

impl Traced {
    fn start() -> Traced {
        let files = tempfile::tempdir().unwrap();
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let [cert, key_file] = ["crt", "key"].map(|name| files.path().join(name));
        fs::write(&cert, certificate.pem()).unwrap();
        fs::write(&key_file, key.serialize_pem()).unwrap();
        let log = tempfile::NamedTempFile::new().unwrap();
        let options = ["--cert", text(&cert), "--key", text(&key_file)];
        let server = Server::traced(log.path(), &["trace=sendto", "decode-fds=socket"], &options);
        Traced {
            server,
            log,
            certificate: certificate.der().clone(),
            _files: files,
        }
    }

    /// Writes a file whose content is cached after its second request.
    fn write(&self, name: &str, content: &[u8]) {
        self.server.write(name, content);
        let file = fs::File::open(self.server.path(name)).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
    }

    fn connect(&self) -> HttpClient<StreamOwned<ClientConnection, TcpStream>> {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let address: SocketAddr = self.server.address();
        let socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(WAIT_MAX)).unwrap();
        let name = "localhost".try_into().unwrap();
        let connection = ClientConnection::new(Arc::new(config), name).unwrap();
        HttpClient::over(StreamOwned::new(connection, socket))
    }

    /// Ends the server, whose last send is the closing alert. Returns the others.
    fn stop(self) -> Vec<u64> {
        self.server.stop().assert_success();
        let mut sends = sends(self.log.path());
        assert_eq!(sends.pop(), Some(2 + AROUND), "close_notify");
        sends
    }
}

#[test]
#[ignore = "needs strace; run by cargo xtask test"]
fn an_answer_costs_one_send_and_the_first_one_brings_the_tickets() {
    const REQUESTS: usize = 10;
    let traced = Traced::start();
    let body = content(1, 1024);
    traced.write("f", &body);
    let mut client = traced.connect();
    let lengths: Vec<_> = (0..REQUESTS)
        .map(|_| {
            let answer = client.get("/f");
            assert_same(&answer.body, &body, "the body");
            (answer.head.len() + answer.body.len()) as u64
        })
        .collect();
    let sends = traced.stop();
    // The server's part of the handshake, and the responses.
    assert_eq!(sends.len(), 1 + REQUESTS, "{sends:?}");
    let answers: Vec<_> = lengths.iter().map(|length| length + AROUND).collect();
    assert_eq!(sends[2..], answers[1..], "a record each");
    assert!(sends[1] > answers[0] + 2 * AROUND, "tickets: {sends:?}");
}

#[test]
#[ignore = "needs strace; run by cargo xtask test"]
fn a_long_body_costs_a_send_for_each_batch() {
    let traced = Traced::start();
    let body = content(2, 1 << 20);
    traced.write("f", &body);
    traced.write("small", b"small");
    let mut client = traced.connect();
    // Its response comes with the tickets.
    client.get("/small");
    let answer = client.get("/f");
    assert_same(&answer.body, &body, "the body");
    let length = (answer.head.len() + answer.body.len()) as u64;
    let sends = traced.stop();
    let batches = &sends[2..];
    assert_eq!(batches.len() as u64, length.div_ceil(BATCH), "{sends:?}");
    let (last, whole) = batches.split_last().unwrap();
    let batch = BATCH + RECORDS_OF_BATCH * AROUND;
    assert!(whole.iter().all(|sent| *sent == batch), "{sends:?}");
    assert_eq!(*last, length % BATCH + AROUND, "{sends:?}");
}
