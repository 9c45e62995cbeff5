//! HTTPS behind a proxy: the bytes after the PROXY header belong to the handshake, however both are
//! segmented.

use std::fs;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned, version};
use serde_json::Value;
use underpass_net::ProxyProtocol;
use underpass_serve::{Access, LogFormat};
use underpass_testkit::{HttpClient, WAIT_MAX, assert_same, content};

use crate::tls::{Authority, ClientBuilder, serve};

/// Both name the same client.
const HEADERS: [&[u8]; 2] = [
    b"PROXY TCP4 192.0.2.7 198.51.100.1 56324 443\r\n",
    b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xc0\0\x02\x07\xc6\x33\x64\x01\xdc\x04\x01\xbb",
];

/// Sends a header and a ClientHello in two writes, split `cut` bytes after the header. Returns the
/// body of the response.
fn get(config: &Arc<ClientConfig>, to: SocketAddr, header: &[u8], cut: isize) -> Vec<u8> {
    let mut socket = TcpStream::connect(to).unwrap();
    socket.set_read_timeout(Some(WAIT_MAX)).unwrap();
    socket.set_nodelay(true).unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let mut connection = ClientConnection::new(Arc::clone(config), name).unwrap();
    let mut bytes = header.to_vec();
    while connection.wants_write() {
        connection.write_tls(&mut bytes).unwrap();
    }
    let cut = header.len().checked_add_signed(cut).unwrap();
    let (first, rest) = bytes.split_at(cut.min(bytes.len()));
    socket.write_all(first).unwrap();
    socket.write_all(rest).unwrap();
    let mut client = HttpClient::over(StreamOwned::new(connection, socket));
    client.get("/f").body
}

#[test]
fn a_hello_follows_the_header_in_one_segment_in_two_and_torn() {
    /// The end of the first part, relative to the end of the header: within it, at its end, within
    /// the hello, and past everything.
    const CUTS: [isize; 9] = [-1, 0, 1, 4, 5, 6, 43, 150, 1 << 20];
    let authority = Authority::new();
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let server = serve(&authority, |options| {
        options.connections.proxy.protocol = ProxyProtocol::Required;
        options.connections.proxy.trusted = vec!["127.0.0.1".parse().unwrap()];
        options.log.access = Access::File(log.clone());
        options.log.format = LogFormat::Json;
    });
    let body = content(14, 300_000);
    server.write("f", &body);
    let mut count = 0;
    for version in [&version::TLS13, &version::TLS12] {
        let config = ClientBuilder {
            versions: vec![version],
            ..authority.client()
        }
        .config();
        for header in HEADERS {
            for cut in CUTS {
                let got = get(&config, server.address(), header, cut);
                assert_same(&got, &body, &format!("{version:?}, cut at {cut}"));
                count += 1;
            }
        }
    }
    server.stop();
    let lines = fs::read_to_string(&log).unwrap();
    let lines: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), count);
    for line in lines {
        assert_eq!(line["client"], "192.0.2.7", "{line}");
        assert!(line["tls"].is_object(), "{line}");
    }
}

/// Without its required header a hello is invalid, whatever it contains.
#[test]
fn a_hello_without_the_header_that_is_required_is_not_answered() {
    let authority = Authority::new();
    let server = serve(&authority, |options| {
        options.connections.proxy.protocol = ProxyProtocol::Required;
        options.connections.proxy.trusted = vec!["127.0.0.1".parse().unwrap()];
    });
    let config = authority.client().config();
    let refused = crate::tls::shake(&config, server.address()).unwrap_err();
    let text = refused.to_string();
    assert!(!text.contains("Alert"), "{text}");
}
