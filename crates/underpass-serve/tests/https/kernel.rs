//! HTTPS with records sealed by the kernel: the same bytes as from user space, for all requests and
//! all ends of connections.

use std::collections::HashSet;
use std::env;
use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::Range;
use std::sync::Arc;

use rustix::net::sockopt::set_socket_recv_buffer_size;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned, SupportedProtocolVersion, version};
use underpass::kernel_tls::{Rekeying, probe_sending};
use underpass_net::OffloadMode;
use underpass_serve::ServerOptions;
use underpass_testkit::{HttpClient, SeededRandom, WAIT_MAX, assert_same, content, within};

use crate::support::Server;
use crate::tls::{Authority, ClientBuilder, SUITES, serve};

/// The minimum length of a range sent by the kernel.
const LONG: usize = 1 << 20;

/// Overrides the number of responses to compare, for a full run.
const ANSWERS: &str = "UNDERPASS_KERNEL_TLS_ANSWERS";
const ANSWERS_OF_A_TEST: usize = 300;

/// A socket that records everything it receives.
struct Tap {
    socket: TcpStream,
    received: Vec<u8>,
}

impl Read for Tap {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let read = self.socket.read(room)?;
        self.received.extend_from_slice(&room[..read]);
        Ok(read)
    }
}

impl Write for Tap {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

type Client = StreamOwned<ClientConnection, Tap>;

fn client_over(config: &Arc<ClientConfig>, socket: TcpStream) -> Client {
    socket.set_read_timeout(Some(WAIT_MAX)).unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let connection = ClientConnection::new(Arc::clone(config), name).unwrap();
    let received = Vec::new();
    StreamOwned::new(connection, Tap { socket, received })
}

fn client(config: &Arc<ClientConfig>, server: &Server) -> Client {
    client_over(config, TcpStream::connect(server.address()).unwrap())
}

/// Connects a client whose receive buffer is small.
fn narrow_client(config: &Arc<ClientConfig>, address: SocketAddr, bytes: usize) -> Client {
    let flags = SocketFlags::CLOEXEC;
    let narrow = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).unwrap();
    set_socket_recv_buffer_size(&narrow, bytes).unwrap();
    rustix::net::connect(&narrow, &address).unwrap();
    client_over(config, narrow.into())
}

fn of_version(authority: &Authority, version: &'static SupportedProtocolVersion) -> ClientBuilder {
    ClientBuilder {
        versions: vec![version],
        ..authority.client()
    }
}

/// Starts a server that requires kernel TLS.
fn server(authority: &Authority, change: impl FnOnce(&mut ServerOptions)) -> Server {
    serve(authority, |options| {
        options.tls.offload = OffloadMode::Require;
        change(options);
    })
}

fn get(client: &mut Client, target: &str, fields: &str) -> Vec<u8> {
    let mut client = HttpClient::over(client);
    client.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n{fields}\r\n"));
    client.response().body
}

/// Returns the number of sockets that were given a sending key in the kernel.
fn sealed_by_kernel() -> u64 {
    let counters = fs::read_to_string("/proc/net/tls_stat").unwrap();
    let line = counters.lines().find(|line| line.starts_with("TlsTxSw"));
    let value = line.unwrap().split_whitespace().nth(1);
    value.unwrap().parse().unwrap()
}

fn is_rekeying() -> bool {
    probe_sending().unwrap().rekeying == Rekeying::Works
}

/// Draws the size of a file: at edges as often as anywhere else.
fn size(random: &mut SeededRandom) -> usize {
    let edges = [
        1,
        16_383,
        16_384,
        16_385,
        65_535,
        65_537,
        LONG - 1,
        LONG,
        LONG + 1,
        8 << 20,
    ];
    match random.chance(50) {
        true => random.pick(&edges),
        false => {
            let bits = random.below(24_usize);
            1 + random.below(1_usize << bits)
        }
    }
}

/// Draws a range of a file, and the field that requests it.
fn part(random: &mut SeededRandom, size: usize) -> (Range<usize>, String) {
    if random.chance(60) {
        return (0..size, String::new());
    }
    let first = random.below(size);
    let end = first + 1 + random.below(size - first);
    (first..end, format!("Range: bytes={first}-{}\r\n", end - 1))
}

#[test]
#[ignore = "needs kernel TLS; run by cargo xtask test"]
fn answers_are_those_of_user_space() {
    let authority = Authority::new();
    let server = server(&authority, |_| {});
    let largest = content(3, 8 << 20);
    let answers = env::var(ANSWERS).map_or(ANSWERS_OF_A_TEST, |count| count.parse().unwrap());
    let (mut random, mut taken_over, mut done) = (SeededRandom::new(17), 0, 0);
    let before = sealed_by_kernel();
    for case in 0.. {
        if done >= answers {
            break;
        }
        let (version, suite) = SUITES[case % SUITES.len()];
        let builder = ClientBuilder {
            suite: Some(suite),
            ..of_version(&authority, version)
        };
        let mut client = client(&builder.config(), &server);
        let mut is_taken_over = false;
        // Any of them may cause the hand-over, or none.
        for _ in 0..=random.below(6) {
            let size = size(&mut random);
            server.write("f", &largest[..size]);
            let (range, field) = part(&mut random, size);
            is_taken_over |= range.len() >= LONG;
            let body = get(&mut client, "/f", &field);
            assert_same(
                &body,
                &largest[range.clone()],
                &format!("{suite:?} {range:?}"),
            );
            done += 1;
        }
        taken_over += u64::from(is_taken_over);
        let received = &client.sock.received;
        assert_explicit_nonces_differ(version, format!("{suite:?}").contains("GCM"), received);
    }
    assert!(taken_over > 0);
    assert_eq!(sealed_by_kernel() - before, taken_over, "tls_stat");
    println!("{done} answers, {taken_over} connections sealed by the kernel");
}

/// With TLS 1.2 and AES-GCM every record carries its nonce.
fn assert_explicit_nonces_differ(
    version: &SupportedProtocolVersion,
    is_gcm: bool,
    mut received: &[u8],
) {
    if version != &version::TLS12 || !is_gcm {
        return;
    }
    let (mut seen, mut is_sealed) = (HashSet::new(), false);
    while let [kind, _, _, high, low, rest @ ..] = received {
        let (record, behind) = rest.split_at(usize::from(u16::from_be_bytes([*high, *low])));
        if is_sealed {
            assert!(seen.insert(record[..8].to_vec()), "a nonce twice");
        }
        // Records after change_cipher_spec are encrypted.
        is_sealed |= *kind == 20;
        received = behind;
    }
    assert!(seen.len() > 1);
}

#[test]
#[ignore = "needs kernel TLS; run by cargo xtask test"]
fn slow_readers_get_every_byte_once() {
    within(|| {
        let authority = Authority::new();
        let server = server(&authority, |_| {});
        let body = content(8, 3_000_000);
        server.write("f", &body);
        let before = sealed_by_kernel();
        for version in [&version::TLS13, &version::TLS12] {
            // A window smaller than a record: the socket is full after each.
            for (buffer, most) in [(8 << 10, 5000), (64 << 10, 100_000)] {
                let config = of_version(&authority, version).config();
                let mut slow = narrow_client(&config, server.address(), buffer);
                let mut client = HttpClient::over(&mut slow);
                client.ask("/f");
                client.head();
                let mut got = Vec::new();
                while got.len() < body.len() {
                    let most = (got.len() % most + 1).min(body.len() - got.len());
                    got.extend(client.read_exact(most).unwrap());
                }
                assert_same(&got, &body, "the body");
                assert_same(&get(&mut slow, "/f", ""), &body, "the next body");
            }
        }
        assert_eq!(sealed_by_kernel() - before, 4);
    });
}

#[test]
#[ignore = "needs kernel TLS; run by cargo xtask test"]
fn the_end_is_announced_and_that_of_a_truncated_body_is_not() {
    within(|| {
        let authority = Authority::new();
        let server = server(&authority, |_| {});
        let body = content(9, 2_000_000);
        server.write("f", &body);
        for version in [&version::TLS13, &version::TLS12] {
            let config = of_version(&authority, version).config();
            let mut stream = client(&config, &server);
            assert_same(
                &get(&mut stream, "/f", "Connection: close\r\n"),
                &body,
                "the body",
            );
            // rustls reports an end without close_notify as an error.
            assert_eq!(stream.read_to_end(&mut Vec::new()).unwrap(), 0);

            server.write("shrinks", vec![7; 50_000_000]);
            let mut stream = client(&config, &server);
            let mut client = HttpClient::over(&mut stream);
            client.ask("/shrinks");
            client.head();
            client.read_exact(1).unwrap();
            let file = fs::File::options()
                .write(true)
                .open(server.site().join("shrinks"));
            file.unwrap().set_len(1000).unwrap();
            let error = client.read_to_end().unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{error}");
        }
    });
}

#[test]
#[ignore = "needs kernel TLS; run by cargo xtask test"]
fn kernel_tls_memory_that_peers_take_and_reset_stalls_nobody() {
    within(|| {
        let authority = Authority::new();
        let server = server(&authority, |_| {});
        // In a guest, their buffers exceed TCP's limit (`tcp_mem`).
        let body = content(10, 8 << 20);
        server.write("f", &body);
        let config = authority.client().config();
        let mut steady = narrow_client(&config, server.address(), 64 << 10);
        let mut reading = HttpClient::over(&mut steady);
        reading.ask("/f");
        reading.head();
        for count in 0..20 {
            let mut stream = client(&config, &server);
            let mut client = HttpClient::over(&mut stream);
            client.ask("/f");
            client.head();
            client.read_exact(1 + count * 10_000).unwrap();
            let linger = Some(std::time::Duration::ZERO);
            rustix::net::sockopt::set_socket_linger(&stream.sock.socket, linger).unwrap();
        }
        assert_same(&reading.read_exact(body.len()).unwrap(), &body, "the body");
    });
}

/// Requests new keys before each request and in the middle of a body.
#[test]
#[ignore = "needs kernel TLS; run by cargo xtask test"]
fn a_peer_that_asks_for_new_keys_gets_them_where_the_kernel_can_change_its_own() {
    within(|| {
        let authority = Authority::new();
        let server = server(&authority, |_| {});
        let body = content(11, 3_000_000);
        server.write("f", &body);
        for (version, suite) in SUITES
            .into_iter()
            .filter(|(version, _)| *version == &version::TLS13)
        {
            let builder = ClientBuilder {
                suite: Some(suite),
                ..of_version(&authority, version)
            };
            let mut stream = client(&builder.config(), &server);
            server.write("small", "small");
            assert_eq!(get(&mut stream, "/small", ""), b"small");
            // Before the hand-over the process changes its key, with any kernel.
            stream.conn.refresh_traffic_keys().unwrap();
            assert_same(&get(&mut stream, "/f", ""), &body, "the first body");
            stream.conn.refresh_traffic_keys().unwrap();
            if !is_rekeying() {
                let mut client = HttpClient::over(&mut stream);
                client.ask("/f");
                client.try_response("GET").unwrap_err();
                continue;
            }
            for _ in 0..3 {
                assert_same(&get(&mut stream, "/f", ""), &body, "a body under a new key");
                stream.conn.refresh_traffic_keys().unwrap();
            }
            stream
                .write_all(b"GET /f HTTP/1.1\r\nHost: a\r\n\r\n")
                .unwrap();
            let (mut got, mut room) = (Vec::new(), vec![0; 20_000]);
            while !got.ends_with(&body[body.len() - 100..]) {
                let read = stream.read(&mut room).unwrap();
                assert!(read > 0, "an early end");
                got.extend_from_slice(&room[..read]);
                if got.len() < 200_000 {
                    stream.conn.refresh_traffic_keys().unwrap();
                    stream.flush().unwrap();
                }
            }
            assert_same(
                &got[got.len() - body.len()..],
                &body,
                "a body with new keys in it",
            );
        }
    });
}

#[test]
#[ignore = "needs kernel TLS; run by cargo xtask test"]
fn who_seals_is_explained_and_counted() {
    let authority = Authority::new();
    let folder = tempfile::tempdir().unwrap();
    let status = folder.path().join("status");
    let server = server(&authority, |options| {
        options.status.listen = Some(status.clone().into());
        options.explain = underpass_serve::Explain::On;
    });
    server.write("f", content(11, 2_000_000));
    let mut stream = client(&authority.client().config(), &server);
    let mut client = HttpClient::over(&mut stream);
    let response = client.get("/f");
    let plan = response.field("Underpass-Plan").unwrap();
    assert!(plan.starts_with("sendfile"), "{plan}");
    let tls = response.field("Underpass-TLS").unwrap();
    assert!(tls.contains("; sealed in kernel"), "{tls}");
    let previous = client.get("/f");
    let previous = previous.field("Underpass-Previous").unwrap();
    assert!(
        previous.starts_with("2000000 bytes by sendfile"),
        "{previous}"
    );
    let mut scrape = HttpClient::connect_unix(&status);
    let text = scrape.get("/metrics");
    let text = text.text();
    for line in [
        "underpass_tls_offloads_total{outcome=\"kernel\"} 1\n",
        "underpass_tls_connections_total{sealer=\"user_space\"} 1\n",
        "underpass_tls_connections_total{sealer=\"kernel\"} 1\n",
    ] {
        assert!(text.contains(line), "{text}");
    }
}

/// Tests the kernel at hand, with or without TLS.
#[test]
fn auto_starts_with_any_kernel_and_require_names_what_is_missing() {
    let authority = Authority::new();
    let folder = tempfile::tempdir().unwrap();
    let status = folder.path().join("status");
    let server = serve(&authority, |options| {
        options.tls.offload = OffloadMode::Auto;
        options.status.listen = Some(status.clone().into());
    });
    let body = content(12, 2_000_000);
    server.write("f", &body);
    let mut stream = client(&authority.client().config(), &server);
    for _ in 0..2 {
        assert_same(&get(&mut stream, "/f", ""), &body, "the body");
    }
    let text = HttpClient::connect_unix(&status).get("/metrics").body;
    let text = String::from_utf8(text).unwrap();
    let outcome = match probe_sending() {
        Ok(_) => "kernel",
        Err(_) => "unavailable",
    };
    let line = format!("underpass_tls_offloads_total{{outcome=\"{outcome}\"}} 1\n");
    assert!(text.contains(&line), "{text}");

    if probe_sending().is_err() {
        let mut options = server.options().clone();
        options.tls.offload = OffloadMode::Require;
        let error = underpass_serve::serve(&options).unwrap_err().to_string();
        assert!(error.contains("modprobe tls"), "{error}");
    }
}

#[test]
fn nothing_is_counted_of_kernel_tls_where_it_is_off() {
    let authority = Authority::new();
    let folder = tempfile::tempdir().unwrap();
    let status = folder.path().join("status");
    let server = serve(&authority, |options| {
        options.status.listen = Some(status.clone().into());
    });
    server.write("f", content(13, 2_000_000));
    let mut stream = client(&authority.client().config(), &server);
    get(&mut stream, "/f", "");
    let text = HttpClient::connect_unix(&status).get("/metrics").body;
    assert!(!String::from_utf8(text).unwrap().contains("offloads"));
}
