//! The real server with malicious clients: names that climb, connections that vanish.

use std::fs;
use std::io::Read as _;
use std::net::Shutdown;
use std::time::Duration;

use rustix::net::sockopt::set_socket_linger;
use underpass::limits::PIPES_MAX;
use underpass_testkit::{HttpClient, assert_same, content, wait_until};

use crate::support::Server;

const SECRET: &str = "nobody must see this";
const SIZE: usize = 12 << 20;

/// Ways to write two dots, each of which has misled some server.
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
    let mut client = server.connect();
    for target in targets {
        let answer = client.get(&target);
        assert!(matches!(answer.status, 400 | 404), "{target}: {answer:?}");
        assert!(!answer.text().contains(SECRET), "{target}");
        if answer.is_last() {
            client = server.connect();
        }
    }
    assert_eq!(server.get("/dir/file").body, b"for everybody");
    let end = server.stop();
    end.assert_clean();
}

/// The way a client leaves.
#[derive(Clone, Copy, Debug)]
enum Leaving {
    /// With a reset.
    Reset,
    /// Shuts down its sending side and reads the rest.
    HalfClose,
    /// Closes and reads nothing.
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
    let content = content(1, SIZE);
    server.write("large", &content);
    server.write("small", "small");
    // Some descriptors stay open after the first use: runtimes, the file itself for a second.
    server.get("/small");
    // Pipes used for large bodies are kept for later ones; each has two ends.
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
        // A well-behaved client is served meanwhile.
        assert_eq!(kept.get("/small").body, b"small", "{leaving:?}");
    }
    let body = kept.get("/large").body;
    assert_same(&body, &content, "a body");
    drop(kept);
    wait_until("end of all connections", || server.descriptors() <= most);
    let end = server.stop();
    end.assert_clean();
}

fn vanish(mut client: HttpClient, sent: &str, read: usize, leaving: Leaving) {
    client.send(sent);
    let mut left = read;
    let mut buffer = [0; 64 << 10];
    while left > 0 {
        let room = left.min(buffer.len());
        match client.socket.read(&mut buffer[..room]) {
            Ok(count) if count > 0 => left -= count,
            _ => break,
        }
        // A small response is already complete.
        if !sent.contains("/large") {
            break;
        }
    }
    match leaving {
        Leaving::Close => {}
        Leaving::Reset => set_socket_linger(&client.socket, Some(Duration::ZERO)).unwrap(),
        Leaving::HalfClose => {
            client.socket.shutdown(Shutdown::Write).unwrap();
            // Half a request is not a request: the connection ends, with or without a response.
            client.read_to_end().unwrap();
        }
    }
}
