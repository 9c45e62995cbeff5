//! A server whose life is watched: its lines as they come, its signals, its successors; and clients
//! that keep asking.

#![allow(dead_code, reason = "each target uses its part")]

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use sha2::{Digest, Sha256};

/// How long anything may take before the test has failed.
pub(crate) const HANG: Duration = Duration::from_secs(30);

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_underpass");

/// A process with its lines, and after an upgrade its successor's, which share its output.
pub(crate) struct Living {
    child: Child,
    /// Whoever signals are for.
    pub(crate) pid: Pid,
    lines: Receiver<String>,
    heard: Mutex<Vec<String>>,
}

impl Living {
    pub(crate) fn start(arguments: &[&str]) -> Living {
        let mut command = Command::new(BINARY);
        command.arg("serve").args(arguments);
        Living::by(command)
    }

    /// Returns when it has said that it serves, or has ended.
    pub(crate) fn by(mut command: Command) -> Living {
        let mut child = command
            .process_group(0)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (say, lines) = channel();
        let (out, errors) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let also = say.clone();
        thread::spawn(move || {
            BufReader::new(out)
                .lines()
                .map_while(Result::ok)
                .try_for_each(|line| say.send(line))
        });
        thread::spawn(move || {
            BufReader::new(errors)
                .lines()
                .map_while(Result::ok)
                .try_for_each(|line| also.send(line))
        });
        Living {
            pid: Pid::from_raw(child.id().cast_signed()).unwrap(),
            child,
            lines,
            heard: Mutex::default(),
        }
    }

    /// Waits for a line with `words`, and returns it.
    #[track_caller]
    pub(crate) fn hear(&self, words: &str) -> String {
        let deadline = Instant::now() + HANG;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(line) = self.lines.recv_timeout(left) else {
                panic!("no {words:?} in {:#?}", self.heard.lock().unwrap());
            };
            self.heard.lock().unwrap().push(line.clone());
            if line.contains(words) {
                return line;
            }
        }
    }

    /// The first address of the greeting.
    #[track_caller]
    pub(crate) fn address(&self) -> SocketAddr {
        let greeting = self.hear("serving ");
        let (_, rest) = greeting.split_once("http://").expect("an address");
        rest.split('/').next().unwrap().parse().unwrap()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid, signal).unwrap();
    }

    #[track_caller]
    pub(crate) fn reload(&self) {
        self.signal(Signal::HUP);
        self.hear("reloaded; ");
    }

    /// Signals are for the successor from here on.
    #[track_caller]
    pub(crate) fn upgrade(&mut self) {
        self.signal(Signal::USR2);
        let line = self.hear("has taken over");
        let pid = line.split_whitespace().nth(1).unwrap().parse().unwrap();
        self.pid = Pid::from_raw(pid).unwrap();
    }

    /// The exit code of the process that was started first.
    #[track_caller]
    pub(crate) fn code(&mut self) -> Option<i32> {
        let deadline = Instant::now() + HANG;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(Instant::now() < deadline, "it does not end");
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Asks for a stop and waits for the end of all output; returns what was not heard before.
    #[track_caller]
    pub(crate) fn stop(self) -> Vec<String> {
        self.signal(Signal::TERM);
        self.rest()
    }

    /// All lines until every process that shares the output has ended.
    #[track_caller]
    pub(crate) fn rest(&self) -> Vec<String> {
        let mut rest = Vec::new();
        loop {
            match self.lines.recv_timeout(HANG) {
                Ok(line) => rest.push(line),
                Err(error) => {
                    let ended = error == std::sync::mpsc::RecvTimeoutError::Disconnected;
                    assert!(ended, "it does not end: {rest:#?}");
                    return rest;
                }
            }
        }
    }
}

impl Drop for Living {
    /// All of the group: a successor may live that the test has not heard of.
    fn drop(&mut self) {
        if let Some(group) = Pid::from_raw(self.child.id().cast_signed()) {
            let _gone = kill_process_group(group, Signal::KILL);
        }
        let _gone = self.child.wait();
    }
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Got {
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Got {
    pub(crate) fn is_last(&self) -> bool {
        self.head.contains("Connection: close\r\n")
    }
}

pub(crate) fn hash(bytes: &[u8]) -> Vec<u8> {
    Sha256::digest(bytes).to_vec()
}

pub(crate) fn connect(address: SocketAddr) -> TcpStream {
    let socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(HANG)).unwrap();
    socket
}

pub(crate) fn ask(socket: &mut impl Write, target: &str) {
    let request = format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n");
    socket.write_all(request.as_bytes()).unwrap();
}

/// Reads one answer; panics where it is cut or reset.
#[track_caller]
pub(crate) fn answer(socket: &mut impl Read) -> Got {
    let head = head(socket);
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("Content-Length: "));
    let mut body = vec![0; length.unwrap().parse().unwrap()];
    socket.read_exact(&mut body).unwrap();
    Got { head, body }
}

#[track_caller]
pub(crate) fn head(socket: &mut impl Read) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        match socket.read_exact(&mut byte) {
            Ok(()) => head.push(byte[0]),
            Err(error) => panic!("{error} after {:?}", String::from_utf8_lossy(&head)),
        }
    }
    String::from_utf8(head).unwrap()
}

/// Clients that ask without a pause, each in its own way, until they are told to stop. Every one
/// of them panics at the first connection that is refused or reset, and at the first wrong body.
pub(crate) struct Load {
    is_over: Arc<AtomicBool>,
    answers: Arc<AtomicU64>,
    clients: Vec<JoinHandle<()>>,
}

/// How a client uses its connections.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Habit {
    /// Until the server says that it is the last answer.
    Keeps,
    /// A new one for each request.
    Connects,
}

impl Load {
    pub(crate) fn start(address: SocketAddr, files: &[(&'static str, Vec<u8>)]) -> Load {
        let mut load = Load {
            is_over: Arc::default(),
            answers: Arc::default(),
            clients: Vec::new(),
        };
        for habit in [Habit::Keeps, Habit::Connects] {
            for (target, content) in files {
                for _ in 0..2 {
                    load.add(address, habit, target, hash(content));
                }
            }
        }
        load
    }

    fn add(&mut self, address: SocketAddr, habit: Habit, target: &'static str, expected: Vec<u8>) {
        let (is_over, answers) = (Arc::clone(&self.is_over), Arc::clone(&self.answers));
        self.clients.push(thread::spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                let mut socket = connect(address);
                loop {
                    ask(&mut socket, target);
                    let got = answer(&mut socket);
                    assert_eq!(hash(&got.body), expected, "{target}");
                    answers.fetch_add(1, Ordering::Relaxed);
                    let is_over = is_over.load(Ordering::Relaxed);
                    if is_over || got.is_last() || habit == Habit::Connects {
                        break;
                    }
                }
            }
        }));
    }

    /// Waits until so many more answers have come.
    #[track_caller]
    pub(crate) fn go_on(&self, more: u64) {
        let (goal, deadline) = (
            self.answers.load(Ordering::Relaxed) + more,
            Instant::now() + HANG,
        );
        while self.answers.load(Ordering::Relaxed) < goal {
            assert!(Instant::now() < deadline, "answers have ceased");
            let failed = self.clients.iter().any(JoinHandle::is_finished);
            assert!(!failed, "a client has failed");
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Nobody has met anything wrong.
    #[track_caller]
    pub(crate) fn end(self) {
        self.is_over.store(true, Ordering::Relaxed);
        for client in self.clients {
            client.join().expect("a client has failed");
        }
    }
}

/// Nobody listens there.
#[track_caller]
pub(crate) fn assert_refused(address: SocketAddr) {
    let error = TcpStream::connect(address).expect_err("somebody listens");
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
}
