//! What the real binary tells of its work: its log and its rotation, metrics, addresses.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use support::{Server, get};

/// How long anything may take before the test has failed.
const HANG: Duration = Duration::from_secs(20);

fn failure(arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_underpass"));
    let command = command.args(["serve", "--listen", "127.0.0.1:0"]);
    let output = command.args(arguments).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    (output.status.code(), said)
}

#[test]
fn a_log_goes_to_standard_output_and_only_where_it_is_asked_for() {
    for (options, lines) in [(&[][..], 0), (&["--log"], 1), (&["--log=json"], 1)] {
        let server = Server::with(options);
        server.write("f", "f");
        assert_eq!(get(&mut server.connect(), "/f?logged"), b"f");
        let end = server.stop();
        assert_eq!((end.code, end.errors.as_str()), (Some(0), ""));
        let logged = end.farewell.lines().filter(|line| line.contains("logged"));
        assert_eq!(logged.count(), lines, "{options:?}: {}", end.farewell);
        let last = end.farewell.lines().last().unwrap();
        assert!(last.starts_with("stopped after 1 request"), "{last}");
    }
}

#[test]
fn a_signal_has_the_file_opened_anew() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let server = Server::with(&["--log-file", log.to_str().unwrap()]);
    server.write("f", "f");
    let mut socket = server.connect();
    get(&mut socket, "/f?old");
    let old = folder.path().join("log.1");
    fs::rename(&log, &old).unwrap();
    server.signal(Signal::USR1);
    let start = Instant::now();
    while !log.exists() {
        assert!(start.elapsed() < HANG);
        std::thread::yield_now();
    }
    get(&mut socket, "/f?new");
    let end = server.stop();
    assert_eq!((end.code, end.errors.as_str()), (Some(0), ""));
    let [old, new] = [old, log].map(|path| fs::read_to_string(path).unwrap());
    assert!(new.contains("\"GET /f?new HTTP/1.1\" 200 1 "), "{new}");
    assert_eq!(format!("{old}{new}").lines().count(), 2, "{old}{new}");
}

#[test]
fn the_signal_for_logs_ends_no_server_that_has_none() {
    let server = Server::start();
    server.signal(Signal::USR1);
    server.write("f", "f");
    assert_eq!(get(&mut server.connect(), "/f"), b"f");
    assert_eq!(server.stop().code, Some(0));
}

#[test]
fn metrics_are_told_where_the_greeting_says() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("status");
    let address = format!("unix:{}", path.display());
    let server = Server::with(&["--status", &address]);
    let mut socket = UnixStream::connect(&path).unwrap();
    socket
        .write_all(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("\r\n\r\nok\n"), "{answer}");
    let end = server.stop();
    let told = format!("metrics and health on {address}\n");
    assert!(end.farewell.contains(&told), "{}", end.farewell);
}

#[test]
fn what_cannot_be_told_is_refused_with_what_to_do() {
    for usage in [
        &["--log=xml"][..],
        &["--status", "9090"],
        &["--status", "unix:"],
    ] {
        let (code, said) = failure(usage);
        assert_eq!(code, Some(2), "{usage:?}: {said}");
    }
    for (options, said) in [
        (
            ["--log-file", "/nowhere/log"],
            ["/nowhere/log", "--log-file FILE"],
        ),
        (
            ["--status", "192.0.2.1:1"],
            ["192.0.2.1:1", "--status unix:PATH"],
        ),
    ] {
        let (code, told) = failure(&options);
        assert_eq!(code, Some(1), "{told}");
        assert!(said.iter().all(|word| told.contains(word)), "{told}");
    }
}

#[test]
fn a_plan_is_called_one_and_a_trial_names_what_was_tried() {
    let server = Server::start();
    assert!(
        server.greeting.contains("(planned, not tried)"),
        "{}",
        server.greeting
    );
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.txt"), "content").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_underpass"));
    command.current_dir(folder.path());
    let mut child = command
        .args(["serve", "--listen", "0.0.0.0:0", "--qr"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let id = rustix::process::Pid::from_child(&child);
    let mut output = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut said = String::new();
    std::io::BufRead::read_line(&mut output, &mut said).unwrap();
    rustix::process::kill_process(id, Signal::INT).unwrap();
    output.read_to_string(&mut said).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let drawn = said.lines().filter(|line| line.contains('█'));
    assert!(drawn.count() > 12, "no code: {said}");
    assert!(said.contains("(tried with a.txt)"), "{said}");
    assert!(
        said.contains("http://") && !said.contains("http://0.0.0.0"),
        "{said}"
    );
}
