//! The real server short of descriptors, with a failing disk, and under slowhttptest, while other
//! clients are served.

use std::fs;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use underpass_testkit::{ChildProcess, assert_contains, content, sha256, wait_until};

use crate::support::Server;

const SIZE: usize = 12 << 20;

#[test]
#[ignore = "needs root, strace and slowhttptest; run by cargo xtask test"]
fn without_descriptors_connections_wait_and_nothing_spins() {
    /// Number of calls to observe, and their maximum rate. Each worker tries ten times a second,
    /// with a few waits, and concurrent calls take two lines of the log each; a server that spins
    /// makes tens of thousands.
    const CALLS: usize = 100;
    const CALLS_A_SECOND_MAX: f64 = 300.0;
    let log = tempfile::NamedTempFile::new().unwrap();
    let traced = "trace=accept4,epoll_wait,epoll_pwait,epoll_pwait2";
    let server = Server::traced(log.path(), &[traced], &[]);
    server.write("f", "f");
    server.get("/none");
    let calls = || fs::read_to_string(log.path()).unwrap();
    let count = || calls().lines().count();
    // Whatever the process has inherited or is just closing, it can open nothing more.
    server.limit_descriptors(0);
    let mut crowd: Vec<_> = (0..50).map(|_| server.connect()).collect();
    wait_until("no room", || calls().contains("EMFILE"));
    for client in &mut crowd {
        client.ask("/f");
    }
    let (before, begin) = (count(), Instant::now());
    wait_until("more calls", || count() - before >= CALLS);
    let (calls, took) = (count() - before, begin.elapsed());
    let most = CALLS_A_SECOND_MAX * took.as_secs_f64();
    assert!(calls as f64 <= most, "{calls} calls in {took:?}");
    server.limit_descriptors(1024);
    for client in &mut crowd {
        assert_eq!(client.head().status, 200);
    }
    assert_eq!(server.get("/f").body, b"f");
    let end = server.stop();
    end.assert_success();
    assert_eq!(
        end.errors
            .matches("connections have to wait: accept")
            .count(),
        1,
        "{}",
        end.errors
    );
}

#[test]
#[ignore = "needs root, strace and slowhttptest; run by cargo xtask test"]
fn what_cannot_be_opened_is_reported_by_its_reason() {
    let log = tempfile::NamedTempFile::new().unwrap();
    for (errno, status, reported) in [
        ("EACCES", 403, ""),
        ("EPERM", 403, ""),
        ("ENOENT", 404, ""),
        ("EXDEV", 404, ""),
        ("ENAMETOOLONG", 404, ""),
        ("EMFILE", 503, "requests answered with 503"),
        ("ENFILE", 503, "requests answered with 503"),
        ("ENOMEM", 503, "requests answered with 503"),
        ("EIO", 500, "requests answered with 500"),
    ] {
        // The first call probes whether the call exists; strace may count per thread.
        let inject = format!("inject=openat2:error={errno}:when=2+");
        let server = Server::traced(log.path(), &["trace=openat2", &inject], &[]);
        server.write("f", "f");
        let mut socket = server.connect();
        socket.get("/warm");
        for _ in 0..3 {
            assert_eq!(socket.get("/f").status, status, "{errno}");
        }
        let end = server.stop();
        end.assert_success();
        match reported {
            "" => assert_eq!(end.errors, "", "{errno}"),
            reported => assert_eq!(end.errors.matches(reported).count(), 1, "{}", end.errors),
        }
    }
}

#[test]
#[ignore = "needs root, strace and slowhttptest; run by cargo xtask test"]
fn a_disk_that_fails_in_mid_file_resets_the_connection_and_is_reported() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let content = content(1, SIZE);
    for only in ["sendfile", "splice", "read_write"] {
        let call = match only {
            "read_write" => "pread64",
            call => call,
        };
        let inject = format!("inject={call}:error=EIO:when=12..40");
        let trace = format!("trace={call}");
        let server = Server::traced(log.path(), &[&trace, &inject], &["--only", only]);
        server.write("f", &content);
        let mut failed = 0;
        for _ in 0..36 {
            let mut client = server.connect();
            client.ask("/f");
            let ended = client
                .try_response("HEAD")
                .and_then(|_| client.read_exact(SIZE));
            if ended.is_err() {
                failed += 1;
            }
            let body = ended.unwrap_or_else(|_| client.rest());
            assert!(content.starts_with(&body), "{only}: other bytes");
        }
        let end = server.stop();
        end.assert_success();
        assert!(failed > 0, "{only}: nothing failed");
        let reported = end
            .errors
            .matches("connection closed: f at offset ")
            .count();
        assert_eq!(reported, failed, "{only}: {}", end.errors);
        assert_contains(&end.errors, &[&format!(" of {SIZE}: ")]);
    }
}

/// The four attacks of slowhttptest, with their options.
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
    /// Memory for an attacker's connections: an input buffer and an outbox each.
    const GROWTH_MAX: usize = 64 << 20;
    let server = Server::start();
    let content = content(1, SIZE);
    server.write("f", &content);
    server.write("small", "small");
    server.get("/f");
    let (before, descriptors) = (server.resident_bytes(), server.descriptors());
    let home = tempfile::tempdir().unwrap();
    let mut attackers: Vec<_> = ATTACKS
        .iter()
        .map(|(_, options)| {
            let mut attack = Command::new("slowhttptest");
            attack
                .args(["-c", CONNECTIONS, "-r", "100", "-l", SECONDS, "-p", "5"])
                .args(*options)
                .args(["-u", &server.url("f")])
                .current_dir(home.path())
                .stdin(Stdio::null());
            ChildProcess::spawn(&mut attack)
        })
        .collect();
    let done = AtomicBool::new(false);
    let mut peak = before;
    std::thread::scope(|scope| {
        let (server, content, done) = (&server, &content, &done);
        let clients = ["/f", "/small"]
            .map(|target| scope.spawn(move || serve_well(server, target, content, done)));
        for attacker in &mut attackers {
            wait_until("end of the attack", || {
                peak = peak.max(server.resident_bytes());
                attacker.is_over()
            });
        }
        done.store(true, Ordering::Relaxed);
        for client in clients {
            let bodies = client.join().unwrap();
            assert!(bodies > 10, "{bodies} bodies only");
        }
    });
    for ((attack, _), attacker) in ATTACKS.iter().zip(attackers) {
        let end = attacker.end();
        end.assert_success();
        let number = |label| last_reported(&end.output, label).parse::<u32>().unwrap();
        let status = last_reported(&end.output, "Exit status:");
        let statuses = ["Hit test time limit", "No open connections left"];
        assert!(statuses.contains(&status.as_str()), "{attack}: {status}");
        assert_eq!(number("error:"), 0, "{attack}");
        assert_eq!(
            last_reported(&end.output, "service available:"),
            "YES",
            "{attack}"
        );
    }
    assert!(peak - before < GROWTH_MAX, "{before} bytes grew to {peak}");
    wait_until("end of all connections", || {
        server.descriptors() <= descriptors
    });
    let end = server.stop();
    end.assert_clean();
}

/// Returns the word after a label in slowhttptest's last report, without colours.
fn last_reported(output: &str, label: &str) -> String {
    let (_, behind) = output.rsplit_once(label).unwrap_or_default();
    let line = behind.lines().next().unwrap_or_default();
    let parts = line.split("\x1b[").enumerate();
    let plain = parts.map(|(at, part)| match (at, part.split_once('m')) {
        (1.., Some((_, text))) => text,
        _ => part,
    });
    plain.collect::<String>().trim().to_owned()
}

/// Sends requests on new connections and kept ones during the attacks; returns their number, which
/// would be 1 if a request had to wait for the end of the attacks.
fn serve_well(server: &Server, target: &str, content: &[u8], done: &AtomicBool) -> usize {
    let expected = match target {
        "/f" => sha256(content),
        _ => sha256("small"),
    };
    let mut bodies = 0;
    while !done.load(Ordering::Relaxed) {
        let mut socket = server.connect();
        for _ in 0..4 {
            let answer = socket.get(target);
            assert_eq!(answer.sha256(), expected);
            bodies += 1;
        }
    }
    bodies
}
