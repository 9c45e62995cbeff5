//! The examples run as the comment at their beginning says, from the workspace folder.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use underpass_testkit::{ChildProcess, assert_same, content, run, within};

const SIZE: usize = 3_000_001;

/// Builds an example by the command in its comment; returns its program, and the arguments given
/// there.
fn built(name: &str) -> (PathBuf, Vec<String>) {
    let ours = Path::new(env!("CARGO_MANIFEST_DIR"));
    let source = ours.join("examples").join(name).with_extension("rs");
    let source = std::fs::read_to_string(source).expect("an example");
    let command = source
        .lines()
        .find_map(|line| line.strip_prefix("//!     cargo run "));
    let command = command.expect("a command in the comment");
    let (flags, arguments) = command.split_once(" -- ").expect("arguments");
    // The target folder of this test: most of what an example needs is built there already.
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("..");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--offline", "--quiet"]);
    cargo.args(flags.split_whitespace());
    cargo.current_dir(ours.join("../.."));
    let status = cargo.env("CARGO_TARGET_DIR", &target).status();
    assert!(status.expect("cargo starts").success(), "{command}");
    let program = target.join("debug/examples").join(name);
    let arguments = arguments.split_whitespace().map(str::to_owned);
    (program, arguments.collect())
}

/// Starts it on a port chosen by the kernel; returns the address that it prints.
fn listening(program: &Path, arguments: &[&str], folder: &Path) -> (ChildProcess, SocketAddr) {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .current_dir(folder)
        .stdin(Stdio::null());
    let process = ChildProcess::spawn(&mut command);
    let address = process.hear("127.0.0.1:").parse().expect("an address");
    (process, address)
}

#[test]
#[ignore = "needs a minute; run by cargo xtask test"]
fn copy_progress_copies_and_ends_at_100_percent() {
    let (program, arguments) = built("copy_progress");
    within(move || {
        let folder = tempfile::tempdir().expect("a folder");
        for size in [SIZE, 0] {
            let content = content(60, size);
            std::fs::write(folder.path().join(&arguments[0]), &content).expect("a source");
            let mut command = Command::new(&program);
            let report = run(command.args(&arguments).current_dir(folder.path()));
            assert_eq!(report.code, Some(0), "{}", report.errors);
            assert!(report.errors.ends_with("\r100 %"), "{:?}", report.errors);
            let copy = std::fs::read(folder.path().join(&arguments[1])).expect("a copy");
            assert_same(&copy, &content, "the copy");
        }
    });
}

#[test]
#[ignore = "needs a minute; run by cargo xtask test"]
fn recv_to_file_receives_a_file() {
    let (program, arguments) = built("recv_to_file");
    assert_eq!(arguments[0], "127.0.0.1:4000");
    within(move || {
        let folder = tempfile::tempdir().expect("a folder");
        let file = &arguments[1];
        let (process, address) = listening(&program, &["127.0.0.1:0", file], folder.path());
        let mut socket = TcpStream::connect(address).expect("connects");
        socket.write_all(&content(61, SIZE)).expect("writes");
        drop(socket);
        let report = process.end();
        assert_eq!(report.code, Some(0), "{}", report.errors);
        assert!(
            report.output.contains("3000001 bytes by splice"),
            "{}",
            report.output
        );
        let got = std::fs::read(folder.path().join(file)).expect("a file");
        assert_same(&got, &content(61, SIZE), "received");
    });
}

#[test]
#[ignore = "needs a minute; run by cargo xtask test"]
fn send_tokio_sends_a_file_to_everybody() {
    let (program, arguments) = built("send_tokio");
    assert_eq!(arguments[0], "127.0.0.1:4000");
    within(move || {
        let folder = tempfile::tempdir().expect("a folder");
        let file = &arguments[1];
        std::fs::write(folder.path().join(file), content(62, SIZE)).expect("a file");
        let (process, address) = listening(&program, &["127.0.0.1:0", file], folder.path());
        let sockets = [(); 3].map(|()| TcpStream::connect(address).expect("connects"));
        for mut socket in sockets {
            let mut got = Vec::new();
            socket.read_to_end(&mut got).expect("reads");
            assert_same(&got, &content(62, SIZE), "sent");
        }
        process.kill();
    });
}

#[test]
#[ignore = "needs a minute; run by cargo xtask test"]
fn proxy_passes_both_directions_on() {
    let (program, arguments) = built("proxy");
    assert_eq!(arguments[0], "127.0.0.1:4000");
    within(move || {
        let folder = tempfile::tempdir().expect("a folder");
        let server = TcpListener::bind("127.0.0.1:0").expect("a port");
        let to = server.local_addr().expect("an address").to_string();
        let (process, address) = listening(&program, &["127.0.0.1:0", &to], folder.path());
        let mut client = TcpStream::connect(address).expect("connects");
        client.write_all(b"a question").expect("writes");
        client
            .shutdown(std::net::Shutdown::Write)
            .expect("half-closes");
        let (mut answering, _) = server.accept().expect("accepts");
        let mut question = Vec::new();
        answering.read_to_end(&mut question).expect("reads");
        assert_eq!(question, b"a question");
        answering.write_all(&content(63, SIZE)).expect("writes");
        drop(answering);
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).expect("reads");
        assert_same(&answer, &content(63, SIZE), "the answer");
        process.hear("there: 10 bytes by splice");
        process.kill();
    });
}
