//! The real binary as a server.

#![allow(dead_code, reason = "every test target uses its own part")]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// How long anything may take before the test has failed.
const HANG: Duration = Duration::from_secs(20);

/// `underpass serve` on a folder of its own.
pub(crate) struct Server {
    process: Child,
    output: BufReader<ChildStdout>,
    pub(crate) greeting: String,
    pub(crate) address: SocketAddr,
    folder: TempDir,
}

/// How a server ended.
pub(crate) struct End {
    pub(crate) code: Option<i32>,
    pub(crate) farewell: String,
    pub(crate) errors: String,
}

impl Server {
    pub(crate) fn start() -> Server {
        Server::by(Command::new(env!("CARGO_BIN_EXE_underpass")))
    }

    /// With options of its own.
    pub(crate) fn with(options: &[&str]) -> Server {
        Server::by_with(Command::new(env!("CARGO_BIN_EXE_underpass")), options)
    }

    /// Started by another program, whose arguments end with the path of the binary.
    pub(crate) fn by(command: Command) -> Server {
        Server::by_with(command, &[])
    }

    pub(crate) fn by_with(mut command: Command, options: &[&str]) -> Server {
        let folder = tempfile::tempdir().unwrap();
        let mut process = command
            .args(["serve", "--listen", "127.0.0.1:0", "--workers", "1"])
            .args(options)
            .arg(folder.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        let mut greeting = String::new();
        output.read_line(&mut greeting).unwrap();
        let (_, rest) = greeting.split_once("http://").expect("a greeting");
        let address = rest.split('/').next().unwrap().parse().unwrap();
        // What holds of rights comes in between.
        while !greeting.lines().any(|line| line.starts_with("bodies ")) {
            assert_ne!(output.read_line(&mut greeting).unwrap(), 0, "{greeting}");
        }
        Server {
            process,
            output,
            greeting,
            address,
            folder,
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        fs::write(self.path(name), content).unwrap();
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let socket = TcpStream::connect(self.address).unwrap();
        socket.set_read_timeout(Some(HANG)).unwrap();
        socket
    }

    /// The number of the process.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// A signal to the server, or to its child if another program started it.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.process(), signal).unwrap();
    }

    /// The server, or the child of the program that started it.
    pub(crate) fn process(&self) -> Pid {
        let started = self.process.id();
        let children = format!("/proc/{started}/task/{started}/children");
        let child = fs::read_to_string(children).unwrap_or_default();
        Pid::from_raw(child.trim().parse().unwrap_or(started as i32)).unwrap()
    }

    /// How many descriptors the server has open.
    pub(crate) fn descriptors(&self) -> usize {
        let folder = format!("/proc/{}/fd", self.process().as_raw_nonzero());
        fs::read_dir(folder).unwrap().count()
    }

    /// Bytes of the server that are in memory.
    pub(crate) fn resident_bytes(&self) -> usize {
        let status = format!("/proc/{}/status", self.process().as_raw_nonzero());
        let status = fs::read_to_string(status).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:"));
        let kibibytes = line.unwrap().split_whitespace().nth(1).unwrap();
        kibibytes.parse::<usize>().unwrap() << 10
    }

    /// Waits for the end that somebody has asked for.
    pub(crate) fn end(mut self) -> End {
        let mut farewell = String::new();
        self.output.read_to_string(&mut farewell).unwrap();
        let mut errors = String::new();
        let mut stderr = self.process.stderr.take().unwrap();
        stderr.read_to_string(&mut errors).unwrap();
        let code = self.process.wait().unwrap().code();
        End {
            code,
            farewell,
            errors,
        }
    }

    pub(crate) fn stop(self) -> End {
        self.signal(Signal::INT);
        self.end()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Asks on a kept connection and returns the body.
pub(crate) fn get(socket: &mut TcpStream, target: &str) -> Vec<u8> {
    let request = format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n");
    socket.write_all(request.as_bytes()).unwrap();
    let head = read_head(socket);
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("Content-Length: "));
    let mut body = vec![0; length.unwrap().parse().unwrap()];
    socket.read_exact(&mut body).unwrap();
    body
}

pub(crate) fn read_head(socket: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        socket.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    String::from_utf8(head).unwrap()
}
