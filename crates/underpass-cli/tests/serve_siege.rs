//! The real server short of descriptors, with a disk that fails, and under slowhttptest, while
//! others are served.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, prlimit};
use sha2::{Digest as _, Sha256};
use support::{Server, get, read_head};

const TOOL: &str = env!("CARGO_BIN_EXE_underpass");
const SIZE: usize = 12 << 20;
const GET: &[u8] = b"GET /f HTTP/1.1\r\nHost: a\r\n\r\n";

/// strace of the tool and its threads into `log`.
fn strace(log: &Path, options: &[&str]) -> Command {
    let mut strace = Command::new("strace");
    strace.args(["-f", "--seccomp-bpf"]);
    strace.arg("-o").arg(log).args(options).arg(TOOL);
    strace
}

fn limit_descriptors(server: &Server, count: u64) {
    let limit = Rlimit {
        current: Some(count),
        maximum: getrlimit(Resource::Nofile).maximum,
    };
    prlimit(Some(server.process()), Resource::Nofile, limit).unwrap();
}

#[test]
#[ignore = "needs root, strace and slowhttptest; run by cargo xtask test"]
fn without_descriptors_connections_wait_and_nothing_spins() {
    /// What is measured is how much happens while nothing can; it takes this long.
    const WATCHED: Duration = Duration::from_secs(2);
    const CALLS_A_SECOND_MAX: usize = 15;
    let log = tempfile::NamedTempFile::new().unwrap();
    let calls = "trace=accept4,epoll_wait,epoll_pwait,epoll_pwait2";
    let server = Server::by(strace(log.path(), &["-e", calls]));
    server.write("f", "f");
    get(&mut server.connect(), "/none");
    let count = || fs::read_to_string(log.path()).unwrap().lines().count();
    limit_descriptors(&server, server.descriptors() as u64 + 1);
    let mut first = server.connect();
    assert_eq!(
        get(&mut first, "/none"),
        b"404 Not Found: there is no such file\n"
    );
    let mut crowd: Vec<_> = (0..50).map(|_| server.connect()).collect();
    for socket in &mut crowd {
        socket.write_all(GET).unwrap();
    }
    let before = count();
    std::thread::sleep(WATCHED);
    let calls = count() - before;
    let most = 3 * CALLS_A_SECOND_MAX * WATCHED.as_secs() as usize;
    assert!((1..=most).contains(&calls), "{calls} calls");
    limit_descriptors(&server, 1024);
    let mut refused = 0;
    for socket in &mut crowd {
        let head = read_head(socket);
        // What was taken while no file could be opened was told to come again.
        match &head[9..12] {
            "200" => {}
            "503" => refused += 1,
            _ => panic!("{head}"),
        }
    }
    assert!(refused <= 2, "{refused} were taken and not served");
    assert_eq!(get(&mut server.connect(), "/f"), b"f");
    let end = server.stop();
    assert_eq!(end.code, Some(0));
    assert_eq!(
        end.errors.matches("connections wait: accept").count(),
        1,
        "{}",
        end.errors
    );
}

#[test]
#[ignore = "needs root, strace and slowhttptest; run by cargo xtask test"]
fn what_cannot_be_opened_is_told_by_its_reason() {
    let log = tempfile::NamedTempFile::new().unwrap();
    for (errno, status, told) in [
        ("EACCES", "403", ""),
        ("EPERM", "403", ""),
        ("ENOENT", "404", ""),
        ("EXDEV", "404", ""),
        ("ENAMETOOLONG", "404", ""),
        ("EMFILE", "503", "requests answered with 503"),
        ("ENFILE", "503", "requests answered with 503"),
        ("ENOMEM", "503", "requests answered with 503"),
        ("EIO", "500", "requests answered with 500"),
    ] {
        // The first call asks whether there is such a call at all; strace may count by thread.
        let inject = format!("inject=openat2:error={errno}:when=2+");
        let server = Server::by(strace(log.path(), &["-e", "trace=openat2", "-e", &inject]));
        server.write("f", "f");
        let mut socket = server.connect();
        get(&mut socket, "/warm");
        for _ in 0..3 {
            socket.write_all(GET).unwrap();
            let head = read_head(&mut socket);
            assert_eq!(&head[9..12], status, "{errno}");
            let (_, length) = head.split_once("Content-Length: ").unwrap();
            let length = length.lines().next().unwrap().parse().unwrap();
            socket.read_exact(&mut vec![0; length]).unwrap();
        }
        let end = server.stop();
        assert_eq!(end.code, Some(0));
        match told {
            "" => assert_eq!(end.errors, "", "{errno}"),
            told => assert_eq!(end.errors.matches(told).count(), 1, "{}", end.errors),
        }
    }
}

#[test]
#[ignore = "needs root, strace and slowhttptest; run by cargo xtask test"]
fn a_disk_that_fails_in_mid_file_resets_the_connection_and_is_told() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let content: Vec<u8> = (0..SIZE).map(|at| (at ^ (at >> 9)) as u8).collect();
    for only in ["sendfile", "splice", "read_write"] {
        let call = match only {
            "read_write" => "pread64",
            call => call,
        };
        let inject = format!("inject={call}:error=EIO:when=12..40");
        let trace = format!("trace={call}");
        let traced = strace(log.path(), &["-e", &trace, "-e", &inject]);
        let server = Server::by_with(traced, &["--only", only]);
        server.write("f", &content);
        let mut failed = 0;
        for _ in 0..36 {
            let mut socket = server.connect();
            socket.write_all(GET).unwrap();
            let mut body = Vec::new();
            let ended = match head_of(&mut socket) {
                Some(_) => take_body(&mut socket, &mut body),
                None => Ended::Badly,
            };
            assert!(content.starts_with(&body), "{only}: other bytes");
            match ended {
                Ended::Well => assert_eq!(body.len(), SIZE),
                Ended::Badly => {
                    assert!(body.len() < SIZE);
                    failed += 1;
                }
            }
        }
        let end = server.stop();
        assert_eq!(end.code, Some(0));
        assert!(failed > 0, "{only}: nothing failed");
        let told = end
            .errors
            .matches("connection closed: f at offset ")
            .count();
        assert_eq!(told, failed, "{only}: {}", end.errors);
        assert!(
            end.errors.contains(&format!(" of {SIZE}: ")),
            "{}",
            end.errors
        );
    }
}

fn head_of(socket: &mut TcpStream) -> Option<Vec<u8>> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        socket.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    Some(head)
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Ended {
    Well,
    Badly,
}

/// Reads a body of [`SIZE`], or as much of it as comes.
fn take_body(socket: &mut TcpStream, body: &mut Vec<u8>) -> Ended {
    let mut buffer = vec![0; 256 << 10];
    while body.len() < SIZE {
        match socket.read(&mut buffer) {
            Ok(count) if count > 0 => body.extend_from_slice(&buffer[..count]),
            _ => return Ended::Badly,
        }
    }
    Ended::Well
}

/// slowhttptest's four attacks, by its options.
const ATTACKS: [(&str, &[&str]); 4] = [
    ("slow head", &["-H", "-i", "1", "-x", "24"]),
    ("slow body", &["-B", "-i", "1", "-s", "8192", "-x", "10"]),
    ("ranges", &["-R", "-a", "1", "-b", "3000"]),
    (
        "slow read",
        &[
            "-X", "-w", "512", "-y", "1024", "-n", "1", "-z", "32", "-k", "3",
        ],
    ),
];

#[test]
#[ignore = "needs root, strace and slowhttptest; run by cargo xtask test"]
fn others_are_served_under_the_four_slow_attacks() {
    const SECONDS: &str = "6";
    const CONNECTIONS: &str = "200";
    /// What an attacker's connections may cost in memory: an input buffer and an outbox each.
    const GROWTH_MAX: usize = 64 << 20;
    let server = Server::start();
    let content: Vec<u8> = (0..SIZE).map(|at| (at ^ (at >> 9)) as u8).collect();
    server.write("f", &content);
    server.write("small", "small");
    get(&mut server.connect(), "/f");
    let (before, descriptors) = (server.resident_bytes(), server.descriptors());
    let home = tempfile::tempdir().unwrap();
    let mut attackers: Vec<Child> = ATTACKS
        .iter()
        .map(|(_, options)| {
            Command::new("slowhttptest")
                .args(["-c", CONNECTIONS, "-r", "100", "-l", SECONDS, "-p", "5"])
                .args(*options)
                .args(["-u", &format!("http://{}/f", server.address)])
                .current_dir(home.path())
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap()
        })
        .collect();
    let done = AtomicBool::new(false);
    let mut peak = before;
    std::thread::scope(|scope| {
        let (server, content, done) = (&server, &content, &done);
        let clients = ["/f", "/small"]
            .map(|target| scope.spawn(move || serve_well(server, target, content, done)));
        for attacker in &mut attackers {
            while attacker.try_wait().unwrap().is_none() {
                peak = peak.max(server.resident_bytes());
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        done.store(true, Ordering::Relaxed);
        for client in clients {
            let (bodies, slowest) = client.join().unwrap();
            assert!(bodies > 10, "{bodies} bodies only");
            assert!(slowest < Duration::from_secs(5), "one took {slowest:?}");
        }
    });
    assert!(peak - before < GROWTH_MAX, "{before} bytes grew to {peak}");
    let started = Instant::now();
    while server.descriptors() > descriptors {
        assert!(
            started.elapsed() < Duration::from_secs(30),
            "connections stay"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    let end = server.stop();
    assert_eq!((end.code, &end.errors[..]), (Some(0), ""));
}

/// Asks over and over, on new connections and kept ones; returns how often, and the longest time.
fn serve_well(
    server: &Server,
    target: &str,
    content: &[u8],
    done: &AtomicBool,
) -> (usize, Duration) {
    let expected = match target {
        "/f" => Sha256::digest(content),
        _ => Sha256::digest(b"small"),
    };
    let (mut bodies, mut slowest) = (0, Duration::ZERO);
    while !done.load(Ordering::Relaxed) {
        let mut socket = server.connect();
        for _ in 0..4 {
            let started = Instant::now();
            let body = get(&mut socket, target);
            slowest = slowest.max(started.elapsed());
            assert_eq!(Sha256::digest(body), expected);
            bodies += 1;
        }
    }
    (bodies, slowest)
}
