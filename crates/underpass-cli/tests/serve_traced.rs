//! The system calls of `underpass serve`, counted, and what it does where one is missing.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use support::{Server, get, read_head};

const TOOL: &str = env!("CARGO_BIN_EXE_underpass");

/// strace of the tool and its threads into `log`.
fn strace(log: &Path, options: &[&str]) -> Command {
    let mut strace = Command::new("strace");
    strace.arg("-f").arg("-o").arg(log).args(options).arg(TOOL);
    strace
}

/// The names of the calls between the first and the last request's `recvfrom`, in order.
fn calls(log: &str) -> Vec<&str> {
    let names: Vec<_> = log
        .lines()
        .filter_map(|line| line.split_once(' ')?.1.trim_start().split_once('('))
        .map(|(name, _)| name)
        // A debug build looks at a descriptor before it closes it.
        .filter(|name| !name.starts_with('<') && *name != "fcntl")
        .collect();
    let first = names.iter().position(|name| *name == "recvfrom").unwrap();
    let last = names.iter().rposition(|name| *name == "recvfrom").unwrap();
    names[first..last].to_vec()
}

#[test]
#[ignore = "needs strace; run by cargo xtask test"]
fn a_popular_small_file_costs_three_calls() {
    const REQUESTS: usize = 100;
    /// Traced requests are slow; each second the file is opened anew.
    const SECONDS_MAX: usize = 5;
    let log = tempfile::NamedTempFile::new().unwrap();
    let server = Server::by(strace(log.path(), &["-e", "trace=!futex"]));
    server.write("f", vec![b'f'; 1024]);
    // Content is kept once its date has settled.
    let file = fs::File::open(server.path("f")).unwrap();
    file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
    let mut socket = server.connect();
    for _ in 0..REQUESTS {
        assert_eq!(get(&mut socket, "/f"), vec![b'f'; 1024]);
    }
    assert_eq!(server.stop().code, Some(0));
    let log = fs::read_to_string(log.path()).unwrap();
    let calls = calls(&log);
    let count = |name: &str| calls.iter().filter(|call| **call == name).count();
    for name in ["recvfrom", "sendto"] {
        let times = count(name);
        assert!(
            times.abs_diff(REQUESTS) <= 2 + SECONDS_MAX,
            "{name}: {times}"
        );
    }
    for name in ["openat2", "inotify_add_watch", "preadv2"] {
        assert!(count(name) <= 2 * SECONDS_MAX, "{name} again and again");
    }
    // What a connection costs once is told apart by not growing with the requests.
    let total = calls.len();
    assert!(
        total <= 3 * REQUESTS + 40 + 12 * SECONDS_MAX,
        "{total}: {:?}",
        &calls[total - 20..]
    );
}

/// What a popular path costs beyond the calls of a file under its own name.
#[test]
#[ignore = "needs strace; run by cargo xtask test"]
fn indexes_and_pretty_paths_cost_no_more_and_copies_one_fstat() {
    const REQUESTS: usize = 100;
    const SECONDS_MAX: usize = 5;
    /// A second look-up at each opening: for what is missing before it, and for the copy.
    const OPENED_MAX: usize = 3 * SECONDS_MAX;
    for (options, target, fstats) in [
        (&["--index", "none,i.html"][..], "/", 1),
        (&["--pretty"], "/i", 1),
        (&["--precompressed", "br"], "/i.html", 2),
        (&["--precompressed", "zstd,gzip"], "/i.html", 1),
    ] {
        let log = tempfile::NamedTempFile::new().unwrap();
        let traced = strace(log.path(), &["-e", "trace=!futex"]);
        let server = Server::by_with(traced, options);
        for (name, content) in [("i.html", "plain"), ("i.html.br", "other")] {
            server.write(name, content);
            let file = fs::File::open(server.path(name)).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000))
                .unwrap();
        }
        let mut socket = server.connect();
        let request = format!("GET {target} HTTP/1.1\r\nHost: a\r\nAccept-Encoding: *\r\n\r\n");
        for _ in 0..REQUESTS {
            socket.write_all(request.as_bytes()).unwrap();
            let head = read_head(&mut socket);
            assert!(head.contains("\r\nContent-Length: 5\r\n"), "{head}");
            assert_eq!(head.contains("Content-Encoding: br"), fstats == 2, "{head}");
            socket.read_exact(&mut [0; 5]).unwrap();
        }
        assert_eq!(server.stop().code, Some(0));
        let log = fs::read_to_string(log.path()).unwrap();
        let calls = calls(&log);
        let count = |name: &str| calls.iter().filter(|call| **call == name).count();
        assert!(
            count("fstat") <= fstats * REQUESTS + OPENED_MAX,
            "{options:?}"
        );
        assert!(count("openat2") <= OPENED_MAX, "{options:?}");
    }
}

#[test]
#[ignore = "needs strace; run by cargo xtask test"]
fn the_content_of_a_large_file_never_comes_near() {
    const SIZE: usize = 8 << 20;
    let log = tempfile::NamedTempFile::new().unwrap();
    let server = Server::by(strace(log.path(), &["-e", "trace=!futex"]));
    server.write("f", vec![b'f'; SIZE]);
    let mut socket = server.connect();
    assert!(get(&mut socket, "/f") == vec![b'f'; SIZE]);
    assert_eq!(server.stop().code, Some(0));
    let log = fs::read_to_string(log.path()).unwrap();
    assert!(log.contains(" splice("), "{log}");
    let content = log.lines().find(|line| line.contains("ffffffff"));
    assert_eq!(content, None, "content passed through the process");
}

#[test]
#[ignore = "needs strace; run by cargo xtask test"]
fn the_contents_of_an_archive_never_come_near() {
    const SIZE: usize = 4 << 20;
    let log = tempfile::NamedTempFile::new().unwrap();
    let server = Server::by(strace(log.path(), &["-e", "trace=!futex"]));
    for name in ["one", "two", "three"] {
        server.write(name, vec![b'f'; SIZE]);
    }
    let mut socket = server.connect();
    let request = "GET /?download=tar HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    socket.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).unwrap();
    assert!(
        answer.ends_with(b"0\r\n\r\n"),
        "the archive is not complete"
    );
    let contents = answer.iter().filter(|&&byte| byte == b'f').count();
    assert!(contents >= 3 * SIZE, "{contents}");
    let end = server.stop();
    assert_eq!(end.code, Some(0));
    assert!(end.farewell.contains("splice"), "{}", end.farewell);
    let log = fs::read_to_string(log.path()).unwrap();
    assert!(log.contains(" splice("), "{log}");
    let content = log.lines().find(|line| line.contains("ffffffff"));
    assert_eq!(content, None, "content passed through the process");
}

#[test]
#[ignore = "needs strace; run by cargo xtask test"]
fn without_openat2_it_refuses_to_start() {
    for errno in ["ENOSYS", "EPERM"] {
        let log = tempfile::NamedTempFile::new().unwrap();
        let inject = format!("inject=openat2:error={errno}");
        let output = strace(log.path(), &["-e", "trace=openat2", "-e", &inject])
            .args(["serve", "--listen", "127.0.0.1:0", "."])
            .output()
            .unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{errors}");
        assert!(errors.contains("openat2"), "{errors}");
        assert!(errors.contains("Linux 5.6"), "{errors}");
    }
}

#[test]
#[ignore = "needs strace; run by cargo xtask test"]
fn it_lives_through_failing_accepts() {
    let log = tempfile::NamedTempFile::new().unwrap();
    for errno in [
        "EMFILE",
        "ENFILE",
        "ENOMEM",
        "ENOBUFS",
        "ECONNABORTED",
        "EPROTO",
    ] {
        let inject = format!("inject=accept4:error={errno}:when=1..3");
        let server = Server::by(strace(log.path(), &["-e", "trace=accept4", "-e", &inject]));
        server.write("f", "f");
        assert_eq!(get(&mut server.connect(), "/f"), b"f", "{errno}");
        let end = server.stop();
        assert_eq!(end.code, Some(0));
        let told = end.errors.matches("connections wait").count();
        let expected = usize::from(!matches!(errno, "ECONNABORTED" | "EPROTO"));
        assert_eq!(told, expected, "{errno}: {}", end.errors);
    }
}

#[test]
#[ignore = "needs strace; run by cargo xtask test"]
fn a_fallback_is_told_once_and_the_body_is_right() {
    const SIZE: usize = 3 << 20;
    let log = tempfile::NamedTempFile::new().unwrap();
    // The first call is the probe at the start, which succeeds in finding splice.
    let inject = "inject=splice:error=EINVAL:when=2+";
    let server = Server::by(strace(log.path(), &["-e", "trace=splice", "-e", inject]));
    server.write("f", vec![b'f'; SIZE]);
    let mut socket = server.connect();
    for _ in 0..3 {
        assert!(get(&mut socket, "/f") == vec![b'f'; SIZE]);
    }
    let end = server.stop();
    assert_eq!(end.code, Some(0));
    let told = "bodies leave in another way: splice refused this once";
    assert_eq!(end.errors.matches(told).count(), 1, "{}", end.errors);
}

#[test]
#[ignore = "needs strace; run by cargo xtask test"]
fn a_refused_mechanism_that_is_the_only_one_is_an_error() {
    const SIZE: usize = 3 << 20;
    let log = tempfile::NamedTempFile::new().unwrap();
    let inject = "inject=sendfile:error=EINVAL:when=2+";
    let traced = strace(log.path(), &["-e", "trace=sendfile", "-e", inject]);
    let server = Server::by_with(traced, &["--only", "sendfile"]);
    server.write("f", vec![b'f'; SIZE]);
    let mut socket = server.connect();
    socket
        .write_all(b"GET /f HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    let mut got = Vec::new();
    let ended = socket.read_to_end(&mut got);
    assert!(ended.is_err(), "no reset after {} bytes", got.len());
    assert!(got.len() < SIZE, "the body came in some other way");
    let end = server.stop();
    assert!(end.errors.contains("connection closed: "), "{}", end.errors);
    assert!(end.errors.contains("sendfile"), "{}", end.errors);
}
