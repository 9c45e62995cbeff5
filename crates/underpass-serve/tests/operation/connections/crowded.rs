//! The maximum number of connections: those that wait for a request make room for new ones.

use std::fs;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use underpass_serve::ServerOptions;
use underpass_testkit::{HttpClient, WAIT_MAX, wait_until};

use crate::support::{Probe, Server, State};

const SMALL: &[u8] = b"small";

/// Longer than the grace period of silent connections, which is half a second.
const GRACE_OVER: Duration = Duration::from_millis(700);

/// Starts a server for so many connections on its only worker.
fn server(connections_max: usize, change: impl FnOnce(&mut ServerOptions)) -> Server {
    let server = Server::with(|options| {
        options.connections.connections_max = connections_max;
        // Connections not closed to make room stay open longer than any test.
        options.connections.idle_timeout = WAIT_MAX * 2;
        options.requests.head_timeout = WAIT_MAX * 2;
        change(options);
    });
    server.write("f", SMALL);
    server.write("probe", "probe");
    server
}

/// Waits until the grace period of silent connections is over.
fn await_grace() {
    let start = Instant::now();
    wait_until("the end of the grace", || start.elapsed() > GRACE_OVER);
}

fn ask(client: &mut HttpClient) {
    client.ask("/f");
    assert_eq!(client.response().body, SMALL);
}

fn idle(server: &Server) -> HttpClient {
    let mut client = server.connect();
    ask(&mut client);
    client
}

#[test]
fn the_longest_idle_connection_makes_room_and_the_others_stay() {
    let server = server(4, |_| {});
    let mut kept: Vec<_> = (0..4).map(|_| idle(&server)).collect();
    ask(&mut kept[0]);
    let new = idle(&server);
    kept[1].assert_closed();
    for client in [0, 2, 3] {
        assert_eq!(kept[client].state(), State::Open, "{client}");
        ask(&mut kept[client]);
    }
    drop(new);
}

#[test]
fn silent_connections_make_room_before_idle_ones() {
    let server = server(4, |_| {});
    let mut kept = [idle(&server), idle(&server)];
    let mut silent = [server.connect(), server.connect()];
    await_grace();
    let mut new = [idle(&server), idle(&server)];
    for client in &mut silent {
        client.assert_closed();
    }
    for client in kept.iter_mut().chain(&mut new) {
        ask(client);
    }
}

#[test]
fn incomplete_requests_make_room_after_idle_connections() {
    let server = server(4, |_| {});
    let mut begun: Vec<_> = (0..3).map(|_| server.connect()).collect();
    for client in &mut begun {
        client.send("GET /f HT");
    }
    let mut kept = idle(&server);
    await_grace();
    let mut new = idle(&server);
    kept.assert_closed();
    for client in &mut begun {
        client.send("TP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(client.response().body, SMALL);
        client.send("GET /f HT");
    }
    new.send("GET /f HT");
    // All four have sent incomplete requests.
    let mut newest = idle(&server);
    ask(&mut newest);
}

#[test]
fn responses_in_progress_are_not_interrupted() {
    let server = server(3, |_| {});
    server.write("large", vec![7; 32 << 20]);
    let mut readers = [(); 2].map(|()| HttpClient::connect_slow(server.address()));
    for reader in &mut readers {
        reader.ask("/large");
        reader.head();
    }
    for _ in 0..10 {
        idle(&server);
    }
    let mut last = idle(&server);
    assert_eq!(idle(&server).state(), State::Open);
    last.assert_closed();
    for mut reader in readers {
        assert_eq!(reader.read_exact(32 << 20).unwrap().len(), 32 << 20);
    }
}

#[test]
fn a_crowd_of_silent_connections_keeps_nobody_out() {
    let server = server(100, |_| {});
    let silent: Vec<_> = (0..500).map(|_| server.connect()).collect();
    let mut new = idle(&server);
    ask(&mut new);
    drop(silent);
}

#[test]
fn silent_connections_to_the_status_address_do_not_delay_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("status");
    let _server = server(4, |options| {
        options.status.listen = Some(path.clone().into());
    });
    let start = Instant::now();
    let mut silent = Vec::new();
    // If silent connections blocked it, each round would take their 5 seconds.
    for _ in 0..8 {
        silent.extend((0..16).map(|_| UnixStream::connect(&path).unwrap()));
        let mut scraper = HttpClient::connect_unix(&path);
        assert_eq!(scraper.get("/health").status, 200);
    }
    assert!(start.elapsed() < WAIT_MAX / 2, "{:?}", start.elapsed());
    let mut scraper = HttpClient::connect_unix(&path);
    assert!(!scraper.get("/metrics").body.is_empty());
    fs::remove_dir_all(&folder).unwrap();
}
