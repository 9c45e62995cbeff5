//! The real server under clients that mean no good: names that climb, connections that vanish.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use rustix::net::sockopt::set_socket_linger;
use sha2::{Digest as _, Sha256};
use support::{Server, get};
use underpass::limits::PIPES_MAX;

const SECRET: &str = "nobody must see this";
const SIZE: usize = 12 << 20;

/// How long anything may take before the test has failed.
const HANG: Duration = Duration::from_secs(20);

/// Ways to write two dots, each as far as some server once went wrong.
const UPS: [&str; 20] = [
    "..",
    "%2e%2e",
    "%2E.",
    ".%2e",
    "%252e%252e",
    "%25252e%25252e",
    "%c0%ae%c0%ae",
    "%e0%80%ae%e0%80%ae",
    "%f0%80%80%ae.",
    "%c0%2e%c0%2e",
    "%uff0e%uff0e",
    "%u002e.",
    "..%00",
    "%00..",
    "..;",
    "..;a=b",
    "..%20",
    "...",
    ".%0a.",
    "..%09",
];

/// Ways to write a slash.
const JOINTS: [&str; 12] = [
    "/",
    "%2f",
    "%2F",
    "//",
    "/./",
    "\\",
    "%5c",
    "%255c",
    "%252f",
    "%c0%af",
    "%e0%80%af",
    "/x/../",
];

const STARTS: [&str; 8] = [
    "/",
    "/dir/",
    "//",
    "/./",
    "/dir%2f",
    "http://a/",
    "http://a/dir/",
    "/dir/file/",
];

#[test]
fn no_spelling_leads_out_of_the_folder() {
    let beside = tempfile::Builder::new()
        .prefix("secret")
        .tempfile()
        .unwrap();
    fs::write(beside.path(), SECRET).unwrap();
    let name = beside.path().file_name().unwrap().to_str().unwrap();
    let whole = beside.path().to_str().unwrap();
    let server = Server::start();
    fs::create_dir(server.path("dir")).unwrap();
    server.write("dir/file", "for everybody");
    let mut targets = vec![
        whole.to_owned(),
        format!("/{whole}"),
        format!("http://a/{whole}"),
    ];
    for start in STARTS {
        for up in UPS {
            for joint in JOINTS {
                for times in 1..=3 {
                    let climb = format!("{up}{joint}").repeat(times);
                    targets.push(format!("{start}{climb}{name}"));
                }
            }
        }
    }
    assert!(targets.len() > 5_000);
    let mut socket = server.connect();
    for target in targets {
        let answer = ask(&mut socket, &server, &target);
        let status: u16 = answer[9..12].parse().unwrap();
        assert!(matches!(status, 400 | 404), "{target}: {answer}");
        assert!(!answer.contains(SECRET), "{target}");
    }
    assert_eq!(get(&mut server.connect(), "/dir/file"), b"for everybody");
    let end = server.stop();
    assert_eq!((end.code, &end.errors[..]), (Some(0), ""));
}

/// The whole answer; the connection is made anew where it ended.
fn ask(socket: &mut TcpStream, server: &Server, target: &str) -> String {
    let request = format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n");
    socket.write_all(request.as_bytes()).unwrap();
    let head = support::read_head(socket);
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("Content-Length: "));
    let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
    socket.read_exact(&mut body).unwrap();
    if head.contains("Connection: close") {
        *socket = server.connect();
    }
    head + &String::from_utf8_lossy(&body)
}

/// How a client leaves.
#[derive(Clone, Copy, Debug)]
enum Leaving {
    /// With a reset.
    Reset,
    /// It says that it sends no more, and reads what comes.
    HalfClose,
    /// It closes and reads nothing.
    Close,
}

const REQUESTS: [&str; 5] = [
    "GET /large HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET /large HTTP/1.1\r\nHost: a\r\nRange: bytes=0-4000000,5000000-\r\n\r\n",
    "GET /small HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nsome body",
    "POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\nhello",
];

#[test]
fn clients_that_vanish_at_any_stage_leave_nothing_behind() {
    let server = Server::start();
    let content: Vec<u8> = (0..SIZE).map(|at| (at ^ (at >> 11)) as u8).collect();
    server.write("large", &content);
    server.write("small", "small");
    // What is opened once stays open: runtimes, the file itself for a second.
    get(&mut server.connect(), "/small");
    // Pipes that large bodies have left through are kept for the next ones; they have two ends.
    let most = server.descriptors() + 2 * PIPES_MAX;
    let mut kept = server.connect();
    for leaving in [Leaving::Reset, Leaving::HalfClose, Leaving::Close] {
        for request in REQUESTS {
            for sent in (0..request.len()).step_by(7).chain([request.len()]) {
                vanish(server.connect(), &request[..sent], 0, leaving);
            }
            for read in [1, 100, 5_000, 1 << 20] {
                vanish(server.connect(), request, read, leaving);
            }
        }
        // Somebody who behaves is served all the while.
        assert_eq!(get(&mut kept, "/small"), b"small", "{leaving:?}");
    }
    let body = get(&mut kept, "/large");
    assert_eq!(Sha256::digest(body), Sha256::digest(&content));
    drop(kept);
    let started = Instant::now();
    while server.descriptors() > most {
        assert!(started.elapsed() < HANG, "descriptors stay open");
        std::thread::yield_now();
    }
    let end = server.stop();
    assert_eq!((end.code, &end.errors[..]), (Some(0), ""));
}

fn vanish(mut socket: TcpStream, sent: &str, read: usize, leaving: Leaving) {
    socket.write_all(sent.as_bytes()).unwrap();
    let mut left = read;
    let mut buffer = [0; 64 << 10];
    while left > 0 {
        let room = left.min(buffer.len());
        match socket.read(&mut buffer[..room]) {
            Ok(count) if count > 0 => left -= count,
            _ => break,
        }
        // A small answer has no more than this.
        if !sent.contains("/large") {
            break;
        }
    }
    match leaving {
        Leaving::Close => {}
        Leaving::Reset => set_socket_linger(&socket, Some(Duration::ZERO)).unwrap(),
        Leaving::HalfClose => {
            socket.shutdown(Shutdown::Write).unwrap();
            let mut rest = Vec::new();
            // Half a request is no request: the end comes, with or without an answer.
            socket.read_to_end(&mut rest).unwrap();
        }
    }
}
