//! `underpass serve` started by root: who it becomes, and what is then out of its reach.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use support::{Server, serve};
use underpass_testkit::assert_contains;

/// Debian's `nobody` and `nogroup`.
const NOBODY: &str = "65534";

fn serve_as(user: &str) -> Server {
    let server = Server::with(&["--user", user]);
    let all = |mode| Permissions::from_mode(mode);
    fs::set_permissions(server.path("."), all(0o755)).unwrap();
    for (name, mode) in [("open", 0o644), ("closed", 0o600)] {
        server.write(name, "content");
        fs::set_permissions(server.path(name), all(mode)).unwrap();
    }
    fs::create_dir(server.path("dark")).unwrap();
    server.write("dark/file", "content");
    fs::set_permissions(server.path("dark"), all(0o700)).unwrap();
    server
}

/// A line of `/proc/PID/task/TID/status` of every thread.
fn of_every_thread(server: &Server, name: &str) -> Vec<(String, String)> {
    let tasks = fs::read_dir(format!("/proc/{}/task", server.pid().as_raw_nonzero())).unwrap();
    tasks
        .map(|task| {
            let status = fs::read_to_string(task.unwrap().path().join("status")).unwrap();
            let field = |name: &str| {
                let line = status.lines().find(|line| line.starts_with(name)).unwrap();
                let (_, value) = line.split_once(':').unwrap();
                value.split_whitespace().collect::<Vec<_>>().join(" ")
            };
            (field("Name"), field(name))
        })
        .collect()
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn every_thread_becomes_the_user_in_every_respect() {
    let server = serve_as("nobody:nogroup");
    let ids = [NOBODY; 4].join(" ");
    for (name, expected) in [
        ("Uid", ids.as_str()),
        ("Gid", &ids),
        ("Groups", NOBODY),
        ("CapPrm", "0000000000000000"),
        ("CapEff", "0000000000000000"),
        ("CapAmb", "0000000000000000"),
    ] {
        let threads = of_every_thread(&server, name);
        assert!(threads.len() > 1, "{threads:?}");
        for (thread, value) in threads {
            assert_eq!(value, expected, "{name} of {thread}");
        }
    }
    assert!(!server.greeting().contains("root"), "{}", server.greeting());
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn what_the_user_may_not_read_is_answered_with_403() {
    let server = serve_as("nobody");
    assert_eq!(server.get("/open").status, 200);
    assert_eq!(server.get("/closed").status, 403);
    assert_eq!(server.get("/dark/file").status, 403);
    assert_eq!(server.get("/dark/").status, 403);
    assert_eq!(server.get("/missing").status, 404);
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn as_root_it_warns_and_reads_everything() {
    let server = Server::start();
    server.write("closed", "content");
    fs::set_permissions(server.path("closed"), Permissions::from_mode(0o600)).unwrap();
    assert_eq!(server.get("/closed").status, 200);
    let warning = server.greeting().contains("warning: running as root");
    assert!(warning, "{}", server.greeting());
    assert_contains(server.greeting(), &["--user"]);
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn a_user_that_it_cannot_become_is_refused_before_it_serves() {
    for (user, reported) in [
        ("nobody-of-that-name", "no such user"),
        ("nobody:no-group-of-that-name", "no group"),
        ("root", "root has all privileges"),
        ("4242", "no group is given"),
    ] {
        let report = serve(&["--listen", "127.0.0.1:0", "--user", user, "/"]);
        report.assert_failed(1, &[reported, user]);
        assert!(report.output.is_empty());
    }
}
