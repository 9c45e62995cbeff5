//! Ends of connections that clients did not ask for: deadlines, limits and shutdown.
//!
//! Deadlines are short and their effects are awaited, never assumed after a sleep.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown as Half, TcpStream};
use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use underpass_net::ShutdownPhase;
use underpass_testkit::{HttpClient, assert_same, content, wait_for, within};

use crate::support::{Probe, Server, State, pattern};

const SHORT: Duration = Duration::from_millis(300);
const LONG: Duration = Duration::from_secs(3600);
const SIZE: usize = 24 << 20;
const GET: &str = "GET /f HTTP/1.1\r\nHost: a\r\n\r\n";

#[test]
fn a_head_that_does_not_come_is_answered_408() {
    let server = Server::with(|options| options.requests.head_timeout = SHORT);
    let mut client = server.connect();
    client.send("GET / HTTP/1.1\r\nHo");
    assert_eq!(client.response().status, 408);
    assert_eq!(client.state(), State::Closed);
}

#[test]
fn a_trickle_does_not_extend_the_deadline() {
    let server = Server::with(|options| {
        options.requests.head_timeout = SHORT;
        options.connections.linger_timeout = SHORT;
    });
    let mut client = server.connect();
    client.send("GET / HTTP/1.1\r\nA: ");
    let mut trickle = client.socket.try_clone().unwrap();
    let started = Instant::now();
    std::thread::scope(|scope| {
        let trickling = scope.spawn(move || {
            while trickle.write_all(b"a").is_ok() && started.elapsed() < LONG {
                std::thread::sleep(SHORT / 10);
            }
        });
        assert_eq!(client.response().status, 408);
        drop(client);
        trickling.join().unwrap();
    });
}

#[test]
fn a_body_that_does_not_come_is_answered_408() {
    let server = Server::with(|options| options.requests.body_timeout = SHORT);
    let mut client = server.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhel");
    assert_eq!(client.response().status, 408);
    assert_eq!(client.state(), State::Closed);
}

#[test]
fn an_idle_connection_is_closed_without_a_word() {
    let server = Server::with(|options| options.connections.idle_timeout = SHORT);
    server.write("f", "f");
    let mut fresh = server.connect();
    assert_eq!(fresh.rest(), b"");
    // A connection that was closed before its request arrived does not count as used.
    let mut used = wait_for("answer", || {
        let mut used = server.connect();
        used.send(GET);
        let answer = used.try_response("GET").ok()?;
        assert_eq!(answer.body, b"f");
        Some(used)
    });
    assert_eq!(used.rest(), b"");
}

#[test]
fn a_client_that_takes_nothing_is_cut_off() {
    let server = Server::with(|options| options.connections.stall_timeout = SHORT);
    server.write("f", vec![0; SIZE]);
    let mut client = HttpClient::connect_slow(server.address());
    client.send(GET);
    client.await_reset();
    assert!(client.rest().len() < SIZE);
}

#[test]
fn a_slow_client_is_not() {
    // The whole body takes longer than the stall timeout, and every part a fraction of it: a busy
    // machine may delay the client for most of it.
    let stall_timeout = 8 * SHORT;
    let server = Server::with(|options| options.connections.stall_timeout = stall_timeout);
    let content = pattern(SIZE);
    server.write("f", &content);
    let mut client = HttpClient::connect_slow(server.address());
    client.send(GET);
    client.head();
    let started = Instant::now();
    let mut body = Vec::new();
    for part in 1..=16 {
        body.extend(client.read_exact(SIZE / 16).unwrap());
        let due = started + part * stall_timeout / 14;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
    }
    assert!(started.elapsed() > stall_timeout, "it was not slow");
    assert!(body == content, "the body is another");
}

/// The socket of such a client becomes writable only every few seconds, when much of its buffer is
/// free.
#[test]
fn who_reads_less_than_the_socket_takes_at_once_has_not_stalled() {
    let authority = crate::tls::Authority::new();
    let stall_timeout = 10 * SHORT;
    let server = crate::tls::serve(&authority, |options| {
        options.connections.stall_timeout = stall_timeout;
    });
    let content = pattern(SIZE);
    server.write("f", &content);
    let plain = HttpClient::connect_slow(server.address());
    let mut client = crate::tls::secure(plain, &authority.client().config(), "localhost");
    client.send(GET);
    client.head();
    let (started, mut body) = (Instant::now(), Vec::new());
    while started.elapsed() < 4 * stall_timeout {
        body.extend(client.read_exact(16 << 10).unwrap());
        std::thread::sleep(stall_timeout / 40);
    }
    body.extend(client.read_exact(SIZE - body.len()).unwrap());
    assert!(body == content, "the body is another");
}

#[test]
fn a_half_closed_client_gets_its_answer() {
    let server = Server::start();
    server.write("f", "f");
    let mut client = server.connect();
    client.send(GET.repeat(2));
    client.socket.shutdown(Half::Write).unwrap();
    assert_eq!(client.response().body, b"f");
    assert_eq!(client.response().body, b"f");
    assert_eq!(client.rest(), b"");
}

#[test]
fn connections_beyond_the_bound_wait() {
    let server = Server::with(|options| options.connections.connections_max = 2);
    server.write("f", "f");
    server.write("large", pattern(SIZE));
    // Idle ones would be closed to make room.
    let [first, _second] = [(); 2].map(|()| {
        let mut busy = HttpClient::connect_slow(server.address());
        busy.ask("/large");
        busy.head();
        busy
    });
    let mut third = server.connect();
    third.send(GET);
    third.socket.set_read_timeout(Some(SHORT)).unwrap();
    assert_eq!(
        third.socket.read(&mut [0]).unwrap_err().kind(),
        ErrorKind::WouldBlock
    );
    third.socket.set_read_timeout(None).unwrap();
    drop(first);
    assert_eq!(third.response().body, b"f");
}

#[test]
fn a_stop_closes_idle_connections_and_finishes_answers() {
    let server = Server::start();
    let content = pattern(SIZE);
    server.write("f", &content);
    let mut idle = server.connect();
    idle.send("HEAD /f HTTP/1.1\r\nHost: a\r\n\r\n");
    idle.head();
    let mut busy = HttpClient::connect_slow(server.address());
    busy.send(GET);
    busy.head();
    server.running().shutdown().advance(ShutdownPhase::Draining);
    assert_eq!(idle.rest(), b"");
    assert!(
        busy.read_exact(SIZE).unwrap() == content,
        "the body is another"
    );
    assert_eq!(busy.rest(), b"");
    let address = server.address();
    let summary = server.stop();
    assert_eq!(summary.requests, 2);
    assert_eq!(summary.account.bytes(), SIZE as u64);
    assert_eq!(
        TcpStream::connect(address).unwrap_err().kind(),
        ErrorKind::ConnectionRefused
    );
}

#[test]
fn a_request_under_way_when_the_stop_comes_is_answered_and_logged() {
    let server = Server::start();
    server.write("f", "f");
    let mut client = server.connect();
    let (half, other) = GET.split_at(10);
    client.send(half);
    let mut idle = server.connect();
    // This response shows that the first half was read, since one worker reads in order.
    idle.send(GET);
    idle.response();
    server.running().shutdown().advance(ShutdownPhase::Draining);
    assert_eq!(idle.rest(), b"");
    client.send(other);
    let answer = client.response();
    assert_eq!(answer.body, b"f");
    assert_eq!(answer.field("connection"), Some("close"));
    assert_eq!(client.rest(), b"");
}

#[test]
fn connections_in_the_queue_when_the_stop_comes_are_answered() {
    let server = Server::with(|options| options.connections.connections_max = 1);
    let content = pattern(SIZE);
    server.write("f", &content);
    let mut busy = HttpClient::connect_slow(server.address());
    busy.send(GET);
    busy.head();
    // These are above the limit: they wait in the kernel's queue.
    let mut waiting = [server.connect(), server.connect()];
    for client in &mut waiting {
        client.send(GET);
    }
    server.running().shutdown().advance(ShutdownPhase::Draining);
    assert!(busy.read_exact(SIZE).unwrap() == content);
    assert_eq!(busy.rest(), b"");
    drop(busy);
    for client in &mut waiting {
        let answer = client.response();
        assert!(answer.body == content, "the body is another");
        assert_eq!(answer.field("connection"), Some("close"));
        assert_eq!(client.rest(), b"");
    }
}

#[test]
fn a_stop_does_not_wait_for_ever() {
    let server = Server::with(|options| options.connections.stop_timeout = SHORT);
    server.write("f", vec![0; SIZE]);
    let mut busy = HttpClient::connect_slow(server.address());
    busy.send(GET);
    busy.head();
    let summary = server.stop();
    assert!(busy.rest().len() < SIZE);
    assert_eq!(summary.requests, 1);
}

#[test]
fn stopping_at_once_cuts_answers() {
    let server = Server::with(|options| options.connections.stop_timeout = LONG);
    server.write("f", vec![0; SIZE]);
    let mut busy = HttpClient::connect_slow(server.address());
    busy.send(GET);
    busy.head();
    let shutdown = server.running().shutdown();
    shutdown.escalate();
    shutdown.escalate();
    assert!(busy.rest().len() < SIZE);
    within(move || server.stop());
}

/// Data that arrives at a closed socket causes a reset, which discards everything not yet read.
#[test]
fn who_still_reads_when_the_connection_is_to_end_gets_all() {
    const STEP: usize = 20_000;
    const LAST: &str = "GET /f HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    for (requests_max, request, stray) in [(NonZeroU64::new(1), GET, GET), (None, LAST, "\r\n")] {
        let server = Server::with(|options| {
            options.requests.per_connection_max = requests_max;
            options.connections.linger_timeout = SHORT * 5;
        });
        let body = content(1, 50 * STEP);
        server.write("f", &body);
        let mut client = HttpClient::connect_slow(server.address());
        client.send(request);
        assert_eq!(client.head().length().unwrap(), body.len());
        let mut got = Vec::new();
        for step in 0..50 {
            std::thread::sleep(SHORT / 3);
            if step == 20 {
                client.send(stray);
            }
            got.extend(client.read_exact(STEP).unwrap());
        }
        assert_same(&got, &body, "the body");
        assert_eq!(client.state(), State::Closed);
    }
}
