//! `underpass serve` as people meet it: what it says, how it fails and how it ends.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::process::{Command, Output};

use rustix::process::Signal;
use support::{Server, get, read_head};

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
        server.greeting.contains("bodies leave by sendfile: "),
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
        end.farewell.contains(&format!("{SIZE} bytes by sendfile")),
        "{}",
        end.farewell
    );
    assert!(
        end.farewell.contains("5 bytes by read_write"),
        "{}",
        end.farewell
    );
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
