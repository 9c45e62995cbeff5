//! The PROXY protocol: connections that must start with a header, and connections that are closed.

use std::num::NonZeroUsize;
use std::time::Duration;

use underpass_net::ProxyProtocol;
use underpass_serve::ServerOptions;
use underpass_testkit::{HttpClient, wait_until};

use crate::support::Server;

const GET: &[u8] = b"GET /f HTTP/1.1\r\nHost: a\r\n\r\n";
const FIRST: &[u8] = b"PROXY TCP4 192.0.2.7 198.51.100.1 56324 80\r\n";
const SECOND: &[u8] =
    b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xc0\0\x02\x07\xc6\x33\x64\x01\xdc\x04\0\x50";
const LOCAL: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0";

fn server(
    protocol: ProxyProtocol,
    trusted: &str,
    change: impl FnOnce(&mut ServerOptions),
) -> Server {
    let server = Server::with(|options| {
        options.connections.proxy.protocol = protocol;
        options.connections.proxy.trusted = vec![trusted.parse().unwrap()];
        change(options);
    });
    server.write("f", "served");
    server
}

/// Returns whether the response to `bytes` is the file; otherwise the connection must end silently.
fn is_served(server: &Server, bytes: &[u8]) -> bool {
    let mut client = server.connect();
    client.send(bytes);
    outcome(client)
}

fn outcome(mut client: HttpClient) -> bool {
    match client.try_response("GET") {
        Ok(answer) => {
            assert_eq!(answer.body, b"served", "{answer:?}");
            true
        }
        Err(error) => {
            assert_ne!(error.kind(), std::io::ErrorKind::WouldBlock, "it hangs");
            assert!(client.rest().is_empty());
            false
        }
    }
}

#[test]
fn a_trusted_proxy_begins_with_a_header_of_either_version() {
    let server = server(ProxyProtocol::Required, "127.0.0.0/8", |_| {});
    for header in [FIRST, SECOND, LOCAL, b"PROXY UNKNOWN\r\n"] {
        assert!(is_served(&server, &[header, GET].concat()));
    }
}

#[test]
fn a_header_may_come_byte_by_byte() {
    let server = server(ProxyProtocol::Required, "127.0.0.1", |_| {});
    for header in [FIRST, SECOND] {
        let mut client = server.connect();
        for byte in [header, GET].concat() {
            client.send([byte]);
        }
        assert!(outcome(client));
    }
}

#[test]
fn a_trusted_proxy_without_a_header_is_closed() {
    for protocol in [ProxyProtocol::Required, ProxyProtocol::Trusted] {
        let server = server(protocol, "127.0.0.1", |_| {});
        for wrong in [GET, b"PROXY TCP4 192.0.2.7\r\n", b"PROXY \n", &LOCAL[1..]] {
            assert!(!is_served(&server, &[wrong, GET].concat()));
        }
    }
}

#[test]
fn who_is_not_trusted_is_closed_where_required_and_else_served_without_a_header() {
    let required = server(ProxyProtocol::Required, "192.0.2.0/24", |_| {});
    assert!(!is_served(&required, &[FIRST, GET].concat()));
    assert!(!is_served(&required, GET));
    let trusted = server(ProxyProtocol::Trusted, "192.0.2.0/24", |_| {});
    assert!(is_served(&trusted, GET));
    let mut client = trusted.connect();
    client.send([FIRST, GET].concat());
    assert_eq!(client.response().status, 400, "a header is no request");
}

#[test]
fn a_header_that_does_not_come_in_time_ends_the_connection() {
    let server = server(ProxyProtocol::Required, "127.0.0.1", |options| {
        options.connections.proxy.timeout = Duration::from_millis(200);
    });
    let mut client = server.connect();
    client.send(b"PROXY TC");
    assert!(client.rest().is_empty());
    wait_until("one in time", || is_served(&server, &[FIRST, GET].concat()));
}

#[test]
fn connections_are_counted_by_the_client_and_not_by_the_proxy() {
    let server = server(ProxyProtocol::Required, "127.0.0.1", |options| {
        options.connections.connections_per_client_max = NonZeroUsize::new(1);
    });
    let header = |client: &str| format!("PROXY TCP6 {client} ::1 1 80\r\n").into_bytes();
    let mut kept = Vec::new();
    for client in ["2001:db8:0:1::1", "2001:db8:0:2::1", "2001:db8:0:3::1"] {
        let mut connection = server.connect();
        connection.send([&header(client), GET].concat());
        assert_eq!(connection.response().body, b"served");
        kept.push(connection);
    }
    assert!(!is_served(
        &server,
        &[&header("2001:db8:0:1::2"), GET].concat()
    ));
    assert!(is_served(
        &server,
        &[&header("2001:db8:0:4::1"), GET].concat()
    ));
}
