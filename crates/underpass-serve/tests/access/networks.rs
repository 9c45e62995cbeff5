//! Rules about networks, and the ways to learn a client's address.

use std::net::SocketAddr;
use std::path::Path;

use underpass_net::{Forwarded, ListenAt, ProxyProtocol};
use underpass_serve::ServerOptions;
use underpass_testkit::{HttpClient, HttpResponse};

use super::support::Server;

/// Rules for one network each: of IPv4, of IPv6, Unix sockets, and the proxy itself.
const RULES: &str = "[[site]]\n[site.access]\n\
    [[site.access.rule]]\npaths = ['/four']\nnetworks = ['192.0.2.0/24']\nallow = ['everyone']\n\
    [[site.access.rule]]\npaths = ['/six']\nnetworks = ['2001:db8::/32']\nallow = ['everyone']\n\
    [[site.access.rule]]\npaths = ['/unix']\nnetworks = ['unix']\nallow = ['everyone']\n\
    [[site.access.rule]]\npaths = ['/local']\nnetworks = ['127.0.0.1']\nallow = ['everyone']\n";

const PATHS: [&str; 4] = ["four", "six", "unix", "local"];

/// Starts a server on TCP and on a Unix socket that trusts the peers in `trusted`.
fn server(
    protocol: ProxyProtocol,
    forwarded: Forwarded,
    trusted: &[&str],
    socket: &Path,
) -> Server {
    let access = ServerOptions::parse(RULES).unwrap().sites.remove(0).access;
    let server = Server::with(|options| {
        options.sites[0].access = access;
        let socket: ListenAt = format!("unix:{}", socket.display()).parse().unwrap();
        let local = SocketAddr::from(([127, 0, 0, 1], 0));
        options.listen = vec![local.into(), socket.into()];
        let proxy = &mut options.connections.proxy;
        (proxy.protocol, proxy.forwarded) = (protocol, forwarded);
        proxy.trusted = trusted.iter().map(|text| text.parse().unwrap()).collect();
    });
    for path in PATHS {
        server.write(path, path);
    }
    server
}

/// Returns the paths that a client may read; all others are rejected with 403.
fn granted(mut get: impl FnMut(&str) -> HttpResponse) -> String {
    let mut granted = PATHS.to_vec();
    granted.retain(|path| {
        let response = get(&format!("/{path}"));
        match response.status {
            200 => assert_eq!(response.text(), *path),
            status => assert_eq!(status, 403, "{path}"),
        }
        response.status == 200
    });
    granted.join(" ")
}

/// Returns a request with a field, after a `header` that starts the connection.
fn request(header: &[u8], target: &str, field: &str) -> Vec<u8> {
    let request = format!("GET {target} HTTP/1.1\r\nHost: a\r\n{field}\r\n\r\n");
    [header, request.as_bytes()].concat()
}

/// Returns the paths that a TCP client may read.
fn by_tcp(server: &Server, header: &[u8], field: &str) -> String {
    granted(|target| server.ask(request(header, target, field)))
}

/// Returns the paths that a client of the Unix socket may read.
fn by_unix(socket: &Path, header: &[u8], field: &str) -> String {
    granted(|target| {
        let mut client = HttpClient::connect_unix(socket);
        client.send(request(header, target, field));
        client.response()
    })
}

/// Returns a PROXY v2 header with a family and the addresses of client and proxy.
fn second(family: u8, addresses: &[&[u8]]) -> Vec<u8> {
    let ports = [0xdc, 0x04, 0, 80];
    let addresses = [&addresses.concat()[..], &ports].concat();
    let length = u16::try_from(addresses.len()).unwrap().to_be_bytes();
    let start = b"\r\n\r\n\0\r\nQUIT\n\x21";
    [&start[..], &[family], &length, &addresses].concat()
}

const FOUR_INSIDE: [u8; 4] = [192, 0, 2, 7];
const FOUR_OUTSIDE: [u8; 4] = [198, 51, 100, 1];
const SIX_INSIDE: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7];
/// `::ffff:192.0.2.7`
const SIX_MAPPED: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 7];
const PROXY: [u8; 16] = [0; 16];

#[test]
fn the_client_of_a_proxy_header_is_the_one_that_rules_ask_about() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let trusted = ["127.0.0.1", "unix"];
    let server = server(ProxyProtocol::Required, Forwarded::Off, &trusted, &socket);
    for (header, expected) in [
        (
            &b"PROXY TCP4 192.0.2.7 198.51.100.1 56324 80\r\n"[..],
            "four",
        ),
        (b"PROXY TCP4 198.51.100.1 192.0.2.7 56324 80\r\n", ""),
        (b"PROXY TCP6 2001:db8::7 ::1 56324 80\r\n", "six"),
        (b"PROXY TCP6 ::ffff:192.0.2.7 ::1 56324 80\r\n", "four"),
        (b"PROXY TCP4 127.0.0.1 192.0.2.7 56324 80\r\n", "local"),
        (&second(0x11, &[&FOUR_INSIDE, &FOUR_OUTSIDE]), "four"),
        (&second(0x11, &[&FOUR_OUTSIDE, &FOUR_INSIDE]), ""),
        (&second(0x21, &[&SIX_INSIDE, &PROXY]), "six"),
        (&second(0x21, &[&SIX_MAPPED, &PROXY]), "four"),
    ] {
        let what = header.escape_ascii().to_string();
        // Fields sent by the client itself are ignored.
        for field in ["X: y", "X-Forwarded-For: 192.0.2.9, 2001:db8::9"] {
            assert_eq!(by_tcp(&server, header, field), expected, "{what} {field}");
            assert_eq!(by_unix(&socket, header, field), expected, "{what} {field}");
        }
    }
    // For the proxy's own requests, such as health checks, its own address counts.
    let local = [&b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0"[..], b"PROXY UNKNOWN\r\n"];
    for header in local {
        assert_eq!(by_tcp(&server, header, "X: y"), "local");
        assert_eq!(by_unix(&socket, header, "X: y"), "unix");
    }
}

#[test]
fn the_client_of_a_trusted_field_is_the_one_that_rules_ask_about() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let trusted = ["127.0.0.1", "10.0.0.0/8", "unix"];
    let (off, field) = (ProxyProtocol::Off, Forwarded::XForwardedFor);
    let server = server(off, field, &trusted, &socket);
    for (field, expected) in [
        ("X-Forwarded-For: 192.0.2.7", "four"),
        ("X-Forwarded-For: 192.0.2.7:4711", "four"),
        ("X-Forwarded-For: ::ffff:192.0.2.7", "four"),
        ("X-Forwarded-For: [2001:db8::7]:4711", "six"),
        ("X-Forwarded-For: 192.0.2.7, 10.0.0.1", "four"),
        (
            "X-Forwarded-For: 192.0.2.7\r\nX-Forwarded-For: 10.0.0.1",
            "four",
        ),
        // Only addresses added by a trusted peer count.
        ("X-Forwarded-For: 192.0.2.7, 198.51.100.1", ""),
        (
            "X-Forwarded-For: 192.0.2.7\r\nX-Forwarded-For: 198.51.100.1",
            "",
        ),
        ("X-Forwarded-For: 192.0.2.7, unknown", ""),
        ("X-Forwarded-For: unix", ""),
        (
            "Forwarded: for=192.0.2.7\r\nX-Forwarded-For: 198.51.100.1",
            "",
        ),
    ] {
        assert_eq!(by_tcp(&server, b"", field), expected, "{field}");
        assert_eq!(by_unix(&socket, b"", field), expected, "{field}");
    }
    assert_eq!(by_tcp(&server, b"", "Forwarded: for=192.0.2.7"), "local");
    assert_eq!(by_unix(&socket, b"", "X: y"), "unix");
}

#[test]
fn nobody_who_is_not_trusted_moves_into_a_network() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let field = Forwarded::XForwardedFor;
    let server = server(ProxyProtocol::Trusted, field, &["192.0.2.0/24"], &socket);
    for field in [
        "X: y",
        "X-Forwarded-For: 192.0.2.7",
        "X-Forwarded-For: unix",
    ] {
        assert_eq!(by_tcp(&server, b"", field), "local", "{field}");
        assert_eq!(by_unix(&socket, b"", field), "unix", "{field}");
    }
}

#[test]
fn a_field_is_believed_from_the_client_of_a_proxy_header_if_that_is_trusted() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let trusted = ["127.0.0.1", "unix", "10.0.0.0/8"];
    let (required, field) = (ProxyProtocol::Required, Forwarded::XForwardedFor);
    let server = server(required, field, &trusted, &socket);
    let inner = b"PROXY TCP4 10.0.0.1 198.51.100.1 56324 80\r\n";
    let outer = b"PROXY TCP4 198.51.100.9 198.51.100.1 56324 80\r\n";
    for (header, expected) in [(&inner[..], "four"), (outer, "")] {
        let field = "X-Forwarded-For: 192.0.2.7";
        assert_eq!(by_tcp(&server, header, field), expected);
        assert_eq!(by_unix(&socket, header, field), expected);
    }
}
