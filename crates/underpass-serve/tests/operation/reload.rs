//! A new configuration for a running server: the log and the metrics continue.

use std::fs;
use std::io::{Read, Write};
use std::num::NonZeroUsize;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use underpass_serve::{Access, Error, Explain, LogFormat, ServerOptions};
use underpass_testkit::{HttpClient, WAIT_MAX, free_address, wait_until};

use crate::support::Server;

type Change<'c> = &'c dyn Fn(&mut ServerOptions);

fn logged() -> (Server, TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let path = log.clone();
    let server = Server::with(|options| options.log.access = Access::File(path));
    (server, folder, log)
}

#[test]
fn the_log_goes_on_over_a_reload_that_serves_something_else() {
    let (server, folder, log) = logged();
    server.write("f", "before");
    let other = folder.path().join("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("f"), "behind").unwrap();

    assert_eq!(server.get("/f?1").body, b"before");
    let mut options = server.options().clone();
    options.sites[0].root = other;
    server.server().reload(&options).unwrap();
    assert_eq!(server.get("/f?2").body, b"behind");
    let summary = server.stop();

    assert_eq!(summary.requests, 2);
    let log = fs::read_to_string(log).unwrap();
    for number in 1..=2 {
        let line = format!("/f?{number} ");
        assert_eq!(log.matches(&line).count(), 1, "{line}: {log}");
    }
}

#[test]
fn what_all_workers_write_to_is_left_to_an_upgrade() {
    let (server, _folder, _log) = logged();
    server.write("f", "f");
    let changes: [(&str, Change<'_>); 3] = [
        ("log", &|options| options.log.format = LogFormat::Json),
        ("log", &|options| options.log.access = Access::Off),
        ("explain", &|options| options.explain = Explain::On),
    ];
    for (key, change) in changes {
        let mut options = server.options().clone();
        change(&mut options);
        match server.server().reload(&options) {
            Err(Error::Fixed { what }) => assert_eq!(what, key),
            outcome => panic!("{key}: {outcome:?}"),
        }
        assert_eq!(server.get("/f").body, b"f");
    }
}

#[test]
fn an_address_that_was_left_can_be_listened_at_again_at_once() {
    let server = Server::with(|options| options.workers = NonZeroUsize::new(2));
    server.write("f", "f");
    let (without, mut with) = (server.options().clone(), server.options().clone());
    let second = free_address();
    with.listen.push(second.into());
    for _ in 0..50 {
        server.server().reload(&with).unwrap();
        assert_eq!(HttpClient::connect(second).get("/f").body, b"f");
        server.server().reload(&without).unwrap();
    }
    assert_eq!(server.get("/f").body, b"f");
}

/// Returns the response of the status address to a health check.
fn health(path: &Path) -> String {
    let mut socket = UnixStream::connect(path).unwrap();
    socket.set_read_timeout(Some(WAIT_MAX)).unwrap();
    let request = b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n";
    socket.write_all(request).unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn the_status_address_is_changed_by_a_reload() {
    let (server, folder, _log) = logged();
    let [first, second] = ["first", "second"].map(|name| folder.path().join(name));
    let mut options = server.options().clone();
    for path in [&first, &second] {
        options.status.listen = Some(path.clone().into());
        server.server().reload(&options).unwrap();
        let answer = health(path);
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
    options.status.listen = None;
    server.server().reload(&options).unwrap();
    // The socket of an earlier configuration exists until its workers start to retire.
    wait_until("end of the sockets", || !first.exists() && !second.exists());
}
