//! Another configuration for a server that runs: what is told of requests goes on.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use std::fs;
use std::path::PathBuf;

use support::Server;
use tempfile::TempDir;
use underpass_serve::{Access, Error, Explain, LogFormat, ServerOptions, StatusAddress};

/// Connections to wait for the new workers with.
const TRIES_MAX: u64 = 10_000;

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
    // An earlier worker may take connections until it has seen that it retires.
    let last = (2..TRIES_MAX).find(|number| server.get(&format!("/f?{number}")).body == b"behind");
    let last = last.expect("the new site is served");
    let summary = server.stop();

    assert_eq!(summary.requests, last);
    let log = fs::read_to_string(log).unwrap();
    for number in 1..=last {
        let line = format!("/f?{number} ");
        assert_eq!(log.matches(&line).count(), 1, "{line}: {log}");
    }
}

#[test]
fn what_all_workers_tell_into_is_left_to_an_upgrade() {
    let (server, folder, _log) = logged();
    server.write("f", "f");
    let changes: [(&str, Change<'_>); 4] = [
        ("log", &|options| options.log.format = LogFormat::Json),
        ("log", &|options| options.log.access = Access::Off),
        ("explain", &|options| options.explain = Explain::On),
        ("status", &|options| {
            let path = folder.path().join("status");
            options.status.listen = Some(StatusAddress::Unix(path));
        }),
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
