//! `underpass serve` as people meet it: what it says, how it fails and how it ends.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::process::{Command, Output};

use rustix::process::Signal;
use sha2::{Digest as _, Sha256};
use support::{Server, get, read_head};
use underpass::limits::PIPES_MAX;

const SIZE: usize = 24 << 20;

fn serve(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_underpass"))
        .arg("serve")
        .args(arguments)
        .output()
        .unwrap()
}

fn errors(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).unwrap()
}

#[test]
fn it_says_where_how_and_what_became_of_it() {
    let server = Server::start();
    server.write("small", "small");
    server.write("large", vec![b'l'; SIZE]);
    assert!(server.greeting.contains("Ctrl-C"), "{}", server.greeting);
    assert!(
        server.greeting.contains("bodies are sent by sendfile: "),
        "{}",
        server.greeting
    );
    let mut socket = server.connect();
    assert_eq!(get(&mut socket, "/small"), b"small");
    assert!(get(&mut socket, "/large") == vec![b'l'; SIZE]);
    let end = server.stop();
    assert_eq!(end.code, Some(0));
    assert_eq!(end.errors, "");
    assert!(
        end.farewell.starts_with("stopped after 2 requests: "),
        "{}",
        end.farewell
    );
    assert!(
        end.farewell.contains(&format!("{SIZE} bytes by splice")),
        "{}",
        end.farewell
    );
    assert!(
        end.farewell.contains("5 bytes by read_write"),
        "{}",
        end.farewell
    );
}

/// `NoNewPrivs` of every thread by its name: 1 for those that have confined themselves.
fn confined_threads(server: &Server) -> Vec<(String, bool)> {
    let tasks = fs::read_dir(format!("/proc/{}/task", server.id())).unwrap();
    let of = |status: &str, name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().to_owned()
    };
    tasks
        .map(|task| fs::read_to_string(task.unwrap().path().join("status")).unwrap())
        .map(|status| (of(&status, "Name:"), of(&status, "NoNewPrivs:") == "1"))
        .collect()
}

#[test]
fn it_says_whether_workers_are_confined_and_they_are_so_and_serve() {
    let server = Server::start();
    let holds = server.greeting.contains("confined by Landlock (ABI ");
    let why = server.greeting.contains("workers are not confined: ");
    assert!(holds != why, "{}", server.greeting);
    server.write("large", vec![b'l'; SIZE]);
    let mut socket = server.connect();
    assert!(get(&mut socket, "/large") == vec![b'l'; SIZE]);
    for (thread, is_confined) in confined_threads(&server) {
        let is_worker = thread.starts_with("worker-") || thread.starts_with("tokio");
        assert_eq!(is_confined, is_worker && holds, "{thread}");
    }
    let free = Server::with(&["--confine", "off"]);
    assert!(free.greeting.contains("not confined, as asked"));
    assert!(
        confined_threads(&free)
            .iter()
            .all(|(_, confined)| !confined)
    );
}

/// Sizes that are joined by default, and not.
const SIZES: [usize; 4] = [1, 5000, 100_000, 3 << 20];

#[test]
fn by_only_one_mechanism_bodies_are_right_and_travel_by_no_other() {
    for only in ["sendfile", "splice", "read_write"] {
        let server = Server::with(&["--only", only]);
        let greeting = &server.greeting;
        let alone = greeting.contains(&format!("bodies are sent by {only}: "))
            && !greeting.contains("falls back to");
        assert!(alone, "{greeting}");
        let mut socket = server.connect();
        for size in SIZES {
            let content = pattern(size);
            server.write("file", &content);
            let expected = Sha256::digest(&content);
            assert_eq!(Sha256::digest(get(&mut socket, "/file")), expected);
        }
        let end = server.stop();
        assert_eq!((end.code, end.errors.as_str()), (Some(0), ""));
        let all = format!("{} bytes by {only}", SIZES.iter().sum::<usize>());
        assert!(end.farewell.contains(&all), "{}", end.farewell);
        for other in ["sendfile", "splice", "read_write"] {
            let travelled = end.farewell.contains(&format!("bytes by {other}"));
            assert_eq!(travelled, other == only, "{}", end.farewell);
        }
    }
}

#[test]
fn a_mechanism_that_no_body_can_leave_by_is_refused_at_the_start() {
    let output = serve(&["--listen", "127.0.0.1:0", "--only", "clone"]);
    assert_eq!(output.status.code(), Some(1));
    let said = errors(&output);
    assert!(said.contains("clone cannot send bodies: "), "{said}");
    let unknown = serve(&["--only", "teleport"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(
        errors(&unknown).contains("sendfile"),
        "{}",
        errors(&unknown)
    );
}

#[test]
fn bodies_that_fit_with_their_head_leave_in_one_write_and_no_others() {
    for (join, joined) in [("0", 0), ("4000", 1), ("8192", 5001), ("1048576", 105_001)] {
        let server = Server::with(&["--join", join]);
        let mut socket = server.connect();
        for size in SIZES {
            server.write("file", pattern(size));
            assert_eq!(get(&mut socket, "/file"), pattern(size));
        }
        let large = SIZES[3];
        let sent = SIZES.iter().sum::<usize>() - large - joined;
        let end = server.stop();
        for (bytes, by) in [
            (joined, "read_write"),
            (sent, "sendfile"),
            (large, "splice"),
        ] {
            let told = end.farewell.contains(&format!("{bytes} bytes by {by}"));
            assert_eq!(told, bytes > 0, "{}", end.farewell);
        }
    }
    let output = serve(&["--join", "1048577"]);
    assert_eq!(output.status.code(), Some(2), "{}", errors(&output));
}

/// As many pipes as a worker has, and some clients more.
#[test]
fn when_slow_clients_have_all_the_pipes_others_are_sent_files_all_the_same() {
    const SIZE: usize = 16 << 20;
    let server = Server::start();
    let content = pattern(SIZE);
    server.write("file", &content);
    let mut slow: Vec<_> = (0..PIPES_MAX).map(|_| server.connect()).collect();
    for socket in &mut slow {
        socket
            .write_all(b"GET /file HTTP/1.1\r\nHost: a\r\n\r\n")
            .unwrap();
        assert!(read_head(socket).contains("\r\nContent-Length: 16777216\r\n"));
        socket.read_exact(&mut [0; 300_000]).unwrap();
    }
    assert!(get(&mut server.connect(), "/file") == content);
    for mut socket in slow {
        let mut rest = vec![0; SIZE - 300_000];
        socket.read_exact(&mut rest).unwrap();
        assert!(rest == content[300_000..]);
    }
    assert!(get(&mut server.connect(), "/file") == content);
    let end = server.stop();
    let (lent, last) = (SIZE * PIPES_MAX, SIZE);
    for told in [
        format!("{} bytes by splice", lent + last),
        format!("{SIZE} bytes by sendfile"),
    ] {
        assert!(end.farewell.contains(&told), "{}", end.farewell);
    }
}

/// Bytes in which every place differs from its neighbours.
fn pattern(size: usize) -> Vec<u8> {
    (0..size).map(|at| (at ^ ((at >> 8) * 7)) as u8).collect()
}

#[test]
fn a_taken_port_is_told_with_what_to_do() {
    let server = Server::start();
    let address = server.address.to_string();
    let second = serve(&["--listen", &address]);
    assert_eq!(second.status.code(), Some(1));
    let port = format!("port {} is taken", server.address.port());
    assert!(errors(&second).contains(&port), "{}", errors(&second));
    assert!(errors(&second).contains("--listen"), "{}", errors(&second));
}

#[test]
fn what_cannot_be_served_is_told() {
    for (folder, said) in [
        ("/nowhere", "No such file"),
        ("/proc/version", "Not a directory"),
    ] {
        let output = serve(&["--listen", "127.0.0.1:0", folder]);
        assert_eq!(output.status.code(), Some(1));
        assert!(errors(&output).contains(folder), "{}", errors(&output));
        assert!(errors(&output).contains(said), "{}", errors(&output));
    }
    let elsewhere = serve(&["--listen", "192.0.2.1:8080"]);
    assert_eq!(elsewhere.status.code(), Some(1));
    assert!(
        errors(&elsewhere).contains("no such address"),
        "{}",
        errors(&elsewhere)
    );
    for usage in [["--listen", "8080"], ["--workers", "0"]] {
        assert_eq!(serve(&usage).status.code(), Some(2));
    }
}

#[test]
fn a_file_that_shrinks_is_told_with_path_offset_and_size() {
    let server = Server::start();
    server.write("shrinks", vec![b'l'; SIZE]);
    let mut socket = server.connect();
    socket
        .write_all(b"GET /shrinks HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    read_head(&mut socket);
    let file = OpenOptions::new()
        .write(true)
        .open(server.path("shrinks"))
        .unwrap();
    file.set_len(SIZE as u64 / 2).unwrap();
    let mut body = Vec::new();
    let _ = socket.read_to_end(&mut body);
    assert!(body.len() < SIZE);
    let end = server.stop();
    let told = format!(
        "shrinks ends at offset {} or before, expected {SIZE} bytes",
        SIZE / 2
    );
    assert!(end.errors.contains(&told), "{}", end.errors);
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let server = Server::start();
    server.write("large", vec![b'l'; SIZE]);
    let mut socket = server.connect();
    socket
        .write_all(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    read_head(&mut socket);
    let mut idle = server.connect();
    get(&mut idle, "/none");
    server.signal(Signal::TERM);
    // The idle connection shows that the first signal has arrived.
    assert_eq!(idle.read(&mut [0]).unwrap(), 0);
    server.signal(Signal::TERM);
    assert_eq!(server.end().code, Some(0));
}

#[test]
fn it_lives_through_a_want_of_descriptors() {
    const LIMIT: usize = 70;
    let mut limited = Command::new("sh");
    let script = format!("ulimit -n {LIMIT}; exec \"$0\" \"$@\"");
    limited.args(["-c", &script, env!("CARGO_BIN_EXE_underpass")]);
    let server = Server::by(limited);
    server.write("f", "f");
    let crowd: Vec<_> = (0..LIMIT * 2).map(|_| server.connect()).collect();
    drop(crowd);
    assert_eq!(get(&mut server.connect(), "/f"), b"f");
    assert_eq!(server.stop().code, Some(0));
}
