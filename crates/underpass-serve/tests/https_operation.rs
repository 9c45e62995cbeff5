//! HTTPS as those who run a server see it: log, metrics, checks, certificates, tickets.

#![cfg(feature = "tls")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;
#[path = "support/tls.rs"]
mod tls;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;

use rustls::client::Resumption;
use serde_json::{Value, json};
use support::Server;
use tls::{Authority, ClientBuilder, connect, serve, shake};
use underpass_serve::{Access, Explain, LogFormat, ServerOptions};
use underpass_testkit::{HttpClient, WAIT_MAX, wait_for};

/// Metrics are served on the socket `status` in this folder.
fn with_status(folder: &Path) -> impl FnOnce(&mut ServerOptions) {
    let status = folder.join("status");
    move |options| options.status.listen = Some(status.into())
}

fn metrics(folder: &Path) -> String {
    let mut scrape = HttpClient::connect_unix(&folder.join("status"));
    scrape.get("/metrics").text().to_owned()
}

/// Waits for a line of the metrics, and returns them all.
fn await_metric(folder: &Path, line: &str) -> String {
    wait_for(line, || {
        Some(metrics(folder)).filter(|text| text.lines().any(|one| one == line))
    })
}

/// The lines of the log, when the server has stopped.
fn stopped_log(server: Server, log: &Path) -> Vec<Value> {
    server.stop();
    let lines = fs::read_to_string(log).unwrap();
    let lines = lines.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn log_and_explanation_name_version_suite_name_kind_client_and_who_sealed() {
    let authority = Authority::new();
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let server = serve(&authority, |options| {
        options.log.access = Access::File(log.clone());
        options.log.format = LogFormat::Json;
        options.explain = Explain::On;
        options.tls.client_ca = Some(authority.path("ca.pem"));
    });
    server.write("f", "content");
    let builder = ClientBuilder {
        identity: Some(authority.issue("client", &["me"])),
        ..authority.client()
    };
    let mut config = Arc::unwrap_or_clone(builder.config());
    config.resumption = Resumption::in_memory_sessions(8);
    let config = Arc::new(config);
    for kind in ["full", "resumed"] {
        let mut client = connect(&config, server.address(), "localhost");
        let response = client.get("/f");
        let said = response.field("Underpass-TLS").unwrap();
        let expected = format!(
            "TLSv1.3, TLS_AES_256_GCM_SHA384, {kind} handshake; sealed in user space; name \
             localhost; client CN=rcgen self signed cert"
        );
        assert_eq!(said, expected);
    }
    let plain = server.get("/f");
    assert_eq!(plain.field("Underpass-TLS"), None);
    let lines = stopped_log(server, &log);
    let agreed: Vec<_> = lines.iter().map(|line| line["tls"].clone()).collect();
    let of = |kind| {
        json!({
            "version": "TLSv1.3", "cipher": "TLS_AES_256_GCM_SHA384", "name": "localhost",
            "handshake": kind, "client": "CN=rcgen self signed cert", "sealed_by": "user_space",
        })
    };
    assert_eq!(agreed, [of("full"), of("resumed"), Value::Null]);
}

#[test]
fn alerts_connections_bytes_and_reloads_are_counted() {
    let authority = Authority::new();
    let folder = tempfile::tempdir().unwrap();
    let server = serve(&authority, with_status(folder.path()));
    server.write("f", vec![7; 100_000]);
    let mut client = connect(&authority.client().config(), server.address(), "localhost");
    client.send("GET /f HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert_eq!(client.response().body.len(), 100_000);
    client.read_to_end().unwrap();
    // A client reports a certificate of another authority; what is no hello gets an alert.
    let stranger = Authority::new();
    shake(&stranger.client().config(), server.address()).unwrap_err();
    let mut socket = TcpStream::connect(server.address()).unwrap();
    socket.set_read_timeout(Some(WAIT_MAX)).unwrap();
    socket
        .write_all(b"\x16\x03\x01\x00\x05\x02\x00\x00\x01\x00")
        .unwrap();
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).unwrap();
    server.server().reload_certificates().unwrap();
    authority.issue("server", &["localhost"]);
    server.server().reload_certificates().unwrap();
    fs::write(authority.path("server.key"), "").unwrap();
    server.server().reload_certificates().unwrap_err();

    let alert =
        "underpass_tls_alerts_total{direction=\"received\",description=\"decrypt_error\"} 1";
    let text = await_metric(folder.path(), alert);
    for line in [
        "underpass_tls_alerts_total{direction=\"sent\",description=\"close_notify\"} 1",
        "underpass_tls_alerts_total{direction=\"sent\",description=\"decode_error\"} 1",
        "underpass_tls_connections_total{sealer=\"user_space\"} 1",
        "underpass_tls_reloads_total{outcome=\"same\"} 1",
        "underpass_tls_reloads_total{outcome=\"changed\"} 1",
        "underpass_tls_reloads_total{outcome=\"failed\"} 1",
    ] {
        assert!(text.lines().any(|one| one == line), "{line}\n{text}");
    }
    let bytes = "underpass_tls_sent_bytes_total{sealer=\"user_space\"} ";
    let bytes = text.lines().find_map(|line| line.strip_prefix(bytes));
    let bytes: u64 = bytes.unwrap().parse().unwrap();
    assert!((100_000..101_000).contains(&bytes), "{bytes}");
}
