//! `underpass serve` with fewer descriptors than clients: every request is answered.

use std::path::Path;
use std::process::Command;

use underpass_testkit::HttpClient;

use crate::support::{BINARY, Server};

/// Starts a server with a limit on descriptors.
fn server(descriptors: usize, options: &[&str]) -> Server {
    let limited = format!("ulimit -n {descriptors}; exec \"$0\" \"$@\"");
    let mut shell = Command::new("sh");
    shell.args(["-c", &limited, BINARY]);
    let server = Server::by(shell, options);
    server.write("f", "content");
    server
}

fn idle(server: &Server) -> HttpClient {
    let mut client = server.connect();
    assert_eq!(client.get("/f").body, b"content");
    client
}

/// Returns the number of connections that were closed to make room for others.
fn evicted(status: &Path) -> u32 {
    let metrics = HttpClient::connect_unix(status).get("/metrics");
    let name = "underpass_connections_evicted_total ";
    let text = metrics.text();
    let evicted = text.lines().find_map(|line| line.strip_prefix(name));
    evicted.unwrap().parse().unwrap()
}

#[test]
fn idle_connections_keep_nobody_out() {
    let status = tempfile::tempdir().unwrap();
    let status = status.path().join("status");
    let address = format!("unix:{}", status.display());
    let server = server(1024, &["--status", &address]);
    let kept: Vec<_> = (0..520).map(|_| idle(&server)).collect();
    let mut new = idle(&server);
    new.get("/f");
    let evicted = evicted(&status);
    // 1,024 less 64 are enough for 480 connections and their files.
    assert!((41..=43).contains(&evicted), "{evicted}");
    drop(kept);
    let end = server.stop();
    assert_eq!(end.errors.matches("connections are in use").count(), 1);
}

/// A change after the start: the limit is lowered to the number of open descriptors.
#[test]
fn idle_connections_make_room_where_descriptors_run_out() {
    const CLIENTS: usize = 40;
    let server = Server::start();
    server.write("f", "content");
    for number in 0..CLIENTS {
        server.write(&number.to_string(), format!("content {number}"));
    }
    let kept: Vec<_> = (0..60).map(|_| idle(&server)).collect();
    server.limit_descriptors(server.descriptors() as u64);
    for _ in 0..3 {
        let mut clients: Vec<_> = (0..CLIENTS).map(|_| server.connect()).collect();
        for (number, client) in clients.iter_mut().enumerate() {
            client.ask(&format!("/{number}"));
        }
        for (number, client) in clients.iter_mut().enumerate() {
            let response = client.response();
            assert_eq!(response.text(), format!("content {number}"));
        }
    }
    drop(kept);
    server.stop().assert_success();
}

#[test]
fn few_descriptors_are_enough_for_one_after_the_other() {
    let server = server(64, &[]);
    let mut kept = Vec::new();
    for _ in 0..50 {
        kept.push(server.connect());
        kept.push(idle(&server));
        let mut begun = server.connect();
        begun.send("GET /f HT");
        kept.push(begun);
    }
    idle(&server).get("/f");
}

#[test]
fn clients_that_go_on_after_a_refusal_keep_nobody_out() {
    let status = tempfile::tempdir().unwrap();
    let status = status.path().join("status");
    let address = format!("unix:{}", status.display());
    let server = server(64, &["--upload", "--status", &address]);
    let mut kept = Vec::new();
    for number in 0..60 {
        let mut client = server.connect();
        client.send(format!(
            "PUT /.{number} HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\nmore"
        ));
        assert_eq!(client.response().status, 400);
        kept.push(client);
    }
    // They were closed before their time.
    assert!(evicted(&status) > 0);
    drop(kept);
    server.stop().assert_success();
}
