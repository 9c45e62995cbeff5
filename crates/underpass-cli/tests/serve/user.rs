//! `underpass serve` started by root: the user it switches to, and the files it then can't reach.

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use rustix::process::Signal;
use tempfile::TempDir;
use underpass_testkit::{HttpClient, ServerProcess, assert_contains, wait_until};

use crate::support::{Server, serve, text, underpass};

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

/// Returns a line of `/proc/PID/task/TID/status` of every thread.
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

/// A typical layout: all folders belong to root, and everybody may enter them.
struct Machine {
    root: TempDir,
}

impl Machine {
    fn new() -> Machine {
        let root = tempfile::tempdir().unwrap();
        let machine = Machine { root };
        fs::set_permissions(machine.path(""), Permissions::from_mode(0o755)).unwrap();
        for folder in ["www", "run", "log"] {
            fs::create_dir(machine.path(folder)).unwrap();
        }
        fs::write(machine.path("www/f"), CONTENT).unwrap();
        machine
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// Starts a server that runs as `nobody`, with every feature that needs files later.
    fn serve(&self, more: &[&str]) -> ServerProcess {
        let listen = format!("unix:{}", self.path("run/files").display());
        let status = format!("unix:{}", self.path("run/status").display());
        let log = self.path("log/access.log");
        let options = [
            &["--listen", &listen, "--status", &status, "--workers", "2"][..],
            &["--user", "nobody", "--log-file", text(&log)],
            more,
        ];
        ServerProcess::serve(underpass(), &options.concat(), &self.path("www"))
    }

    /// Renames the log and creates another one, like logrotate with `create 0640 nobody`.
    fn rotate(&self, number: usize) {
        let log = self.path("log/access.log");
        fs::rename(&log, self.path(&format!("log/access.log.{number}"))).unwrap();
        self.rotate_to_new();
    }

    fn rotate_to_new(&self) {
        let new = fs::File::create_new(self.path("log/access.log")).unwrap();
        new.set_permissions(Permissions::from_mode(0o640)).unwrap();
        let owner = Some(NOBODY.parse().unwrap());
        std::os::unix::fs::fchown(&new, owner, None).unwrap();
    }

    fn logged_lines(&self) -> u64 {
        let logs = fs::read_dir(self.path("log")).unwrap();
        let logs = logs.map(|log| fs::read_to_string(log.unwrap().path()).unwrap());
        logs.map(|log| log.lines().count() as u64).sum()
    }
}

const CONTENT: &[u8] = b"content";

/// Sends requests until `is_over`, on connections that are kept as long as the server keeps them.
fn ask_on<S: Read + Write>(
    connect: impl Fn() -> HttpClient<S>,
    is_over: &AtomicBool,
    answers: &AtomicU64,
) {
    while !is_over.load(Ordering::Relaxed) {
        let mut client = connect();
        while !is_over.load(Ordering::Relaxed) {
            let got = client.get("/f");
            assert_eq!(got.body, CONTENT);
            answers.fetch_add(1, Ordering::Relaxed);
            if got.is_last() {
                break;
            }
        }
    }
}

/// Stops the load, even if the test fails.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn a_server_of_another_user_reloads_rotates_and_upgrades_and_loses_nothing() {
    let machine = Machine::new();
    let mut server = machine.serve(&["--confine", "auto"]);
    let (address, socket) = (server.address(), machine.path("run/files"));
    let (is_over, answers) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let _stop = StopAtEnd(&is_over);
        let load = [
            scope.spawn(|| ask_on(|| HttpClient::connect(address), &is_over, &answers)),
            scope.spawn(|| ask_on(|| HttpClient::connect_unix(&socket), &is_over, &answers)),
        ];
        let go_on = || {
            let goal = answers.load(Ordering::Relaxed) + 50;
            wait_until("more answers", || {
                let failed = load.iter().any(thread::ScopedJoinHandle::is_finished);
                failed || answers.load(Ordering::Relaxed) >= goal
            });
        };
        for number in 0..20 {
            go_on();
            server.reload();
            machine.rotate(number);
            server.signal(Signal::USR1);
            wait_until("lines in the new log", || {
                fs::metadata(machine.path("log/access.log")).unwrap().len() > 0
            });
            server.upgrade();
            let status = HttpClient::connect_unix(&machine.path("run/status")).get("/health");
            assert_eq!(status.body, b"ok\n");
        }
        go_on();
    });
    let end = server.stop();
    assert!(!end.errors.contains("ERROR"), "{end:?}");
    assert_eq!(machine.logged_lines(), answers.into_inner());
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn a_rotation_that_cannot_work_is_reported_with_the_cure() {
    let machine = Machine::new();
    let server = machine.serve(&[]);
    let warned = server.stop().errors;
    assert_contains(
        &warned,
        &["nobody may not create files", "create 0640 nobody"],
    );
    let log = machine.path("log/access.log");
    std::os::unix::fs::chown(&log, Some(0), None).unwrap();
    let config = machine.path("u.toml");
    let site = "user = \"nobody\"\n[[site]]\nroot = \"www\"\n";
    fs::write(&config, format!("{site}[log]\naccess = {log:?}\n")).unwrap();
    let report = serve(&["--check", config.to_str().unwrap()]);
    report.assert_success();
    assert_contains(
        &report.output,
        &["warning: ", "nobody may not write it", "chown"],
    );
    std::os::unix::fs::chown(machine.path("log"), Some(NOBODY.parse().unwrap()), None).unwrap();
    fs::remove_file(&log).unwrap();
    let quiet = machine.serve(&[]).stop();
    assert!(!quiet.errors.contains("WARN"), "{quiet:?}");
    let report = serve(&["--check", config.to_str().unwrap()]);
    assert!(!report.output.contains("warning"), "{report:?}");
}

/// `--check` fails, because the first reload would; a start only warns.
#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn a_file_of_users_that_the_user_may_not_read_is_a_mistake() {
    let machine = Machine::new();
    let users = machine.path("users");
    fs::write(
        &users,
        "anna:$2y$04$abcdefghijklmnopqrstuuPI5N0cZWpu4n5pZ2m5mZJ2lZ0yqGkXy\n",
    )
    .unwrap();
    fs::set_permissions(&users, Permissions::from_mode(0o600)).unwrap();
    let config = machine.path("u.toml");
    let site = format!("[[site]]\nroot = \"www\"\n[site.access]\nusers = {users:?}\n");
    let rule = "[[site.access.rule]]\nallow = [\"users\"]\n";
    fs::write(&config, format!("user = \"nobody\"\n{site}{rule}")).unwrap();
    let words = format!("{}: nobody may not read it", users.display());
    serve(&["--check", text(&config)]).assert_failed(1, &[&words, "every reload"]);
    let status = format!("unix:{}", machine.path("run/status").display());
    let options = [
        "--config",
        text(&config),
        "--listen",
        "127.0.0.1:0",
        "--status",
        &status,
    ];
    let mut command = underpass();
    command.arg("serve").args(options);
    assert_contains(&ServerProcess::spawn(&mut command).stop().errors, &[&words]);
    fs::set_permissions(&users, Permissions::from_mode(0o644)).unwrap();
    serve(&["--check", text(&config)]).assert_success();
}

/// Only root may create files in the folder, and the rotation has created none.
#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn a_log_that_was_moved_away_is_written_on_through_upgrades() {
    let machine = Machine::new();
    let mut server = machine.serve(&[]);
    let log = machine.path("log/access.log");
    fs::rename(&log, machine.path("log/access.log.1")).unwrap();
    for upgrades in 1..=2 {
        server.upgrade();
        assert_eq!(HttpClient::connect(server.address()).get("/f").status, 200);
        wait_until("a line in the moved log", || {
            machine.logged_lines() == upgrades
        });
    }
    // A rotation that creates the file is still noticed.
    machine.rotate_to_new();
    server.signal(Signal::USR1);
    wait_until("lines in the new log", || {
        assert_eq!(HttpClient::connect(server.address()).get("/f").status, 200);
        fs::metadata(&log).unwrap().len() > 0
    });
    let end = server.stop();
    assert_contains(&end.errors, &["writing to the file of the earlier process"]);
    assert!(!end.errors.contains("ERROR"), "{end:?}");
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn a_start_that_fails_leaves_no_log() {
    let machine = Machine::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let log = machine.path("log/access.log");
    let www = machine.path("www");
    let options = ["--listen", &address, "--log-file", text(&log), text(&www)];
    serve(&options).assert_failed(1, &["in use"]);
    assert!(!log.exists());
    fs::write(&log, "").unwrap();
    serve(&options).assert_failed(1, &["in use"]);
    assert!(log.exists(), "it was there before");
}

mod tls {
    use std::net::{SocketAddr, TcpStream};
    use std::sync::Arc;

    use rustls::client::Resumption;
    use rustls::pki_types::{CertificateDer, ServerName};
    use rustls::{ClientConfig, ClientConnection, HandshakeKind, RootCertStore, StreamOwned};
    use underpass_testkit::WAIT_MAX;

    use super::*;

    const ROUNDS: usize = 6;

    /// Returns a certificate with its key.
    fn pair() -> rcgen::CertifiedKey<rcgen::KeyPair> {
        rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap()
    }

    /// Writes a pair as a renewal does for a server that runs as `nobody`.
    fn install(machine: &Machine, pair: &rcgen::CertifiedKey<rcgen::KeyPair>) {
        let [key, cert] = ["run/key.pem", "run/cert.pem"].map(|name| machine.path(name));
        let texts = [pair.signing_key.serialize_pem(), pair.cert.pem()];
        for ((path, text), mode) in [&key, &cert].into_iter().zip(texts).zip([0o600, 0o644]) {
            let new = path.with_extension("new");
            fs::write(&new, text).unwrap();
            fs::set_permissions(&new, Permissions::from_mode(mode)).unwrap();
            std::os::unix::fs::chown(&new, Some(NOBODY.parse().unwrap()), None).unwrap();
            fs::rename(&new, path).unwrap();
        }
    }

    fn client(trusted: &[CertificateDer<'static>]) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(trusted.iter().cloned());
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider);
        let config = config.with_safe_default_protocol_versions().unwrap();
        let mut config = config.with_root_certificates(roots).with_no_client_auth();
        config.resumption = Resumption::in_memory_sessions(64);
        Arc::new(config)
    }

    /// Gets `/f` on a new connection; returns the kind of handshake, and the certificate.
    fn get(
        config: &Arc<ClientConfig>,
        address: SocketAddr,
    ) -> (HandshakeKind, CertificateDer<'static>) {
        let socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(WAIT_MAX)).unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let tls = ClientConnection::new(Arc::clone(config), name).unwrap();
        let mut stream = StreamOwned::new(tls, socket);
        assert_eq!(HttpClient::over(&mut stream).get("/f").body, CONTENT);
        let certificate = stream.conn.peer_certificates().unwrap()[0].clone();
        (
            stream.conn.handshake_kind().unwrap(),
            certificate.into_owned(),
        )
    }

    #[test]
    #[ignore = "needs root; run by cargo xtask test"]
    fn a_tls_server_of_another_user_renews_reloads_and_upgrades_and_loses_nothing() {
        let machine = Machine::new();
        let pairs: Vec<_> = (0..=ROUNDS).map(|_| pair()).collect();
        let trusted: Vec<_> = pairs.iter().map(|pair| pair.cert.der().clone()).collect();
        install(&machine, &pairs[0]);
        let [key, cert] = ["run/key.pem", "run/cert.pem"].map(|name| machine.path(name));
        let options = ["--user", "nobody", "--workers", "2", "--confine", "auto"];
        let pair = ["--cert", text(&cert), "--key", text(&key)];
        let options = [&options[..], &pair].concat();
        let mut server = ServerProcess::serve(underpass(), &options, &machine.path("www"));
        let address = server.address();
        let (is_over, answers) = (AtomicBool::new(false), AtomicU64::new(0));
        thread::scope(|scope| {
            let _stop = StopAtEnd(&is_over);
            let load = scope.spawn(|| {
                let config = client(&trusted);
                while !is_over.load(Ordering::Relaxed) {
                    get(&config, address);
                    answers.fetch_add(1, Ordering::Relaxed);
                }
            });
            for round in 1..=ROUNDS {
                let goal = answers.load(Ordering::Relaxed) + 20;
                wait_until("more answers", || {
                    load.is_finished() || answers.load(Ordering::Relaxed) >= goal
                });
                install(&machine, &pairs[round]);
                server.reload();
                let config = client(&trusted);
                let (kind, shown) = get(&config, address);
                assert_eq!(kind, HandshakeKind::Full);
                assert!(shown == trusted[round], "the certificate before {round}");
                server.upgrade();
                // The successor, which was never root, has the pair and the ticket keys.
                let (kind, _) = get(&config, address);
                assert_eq!(kind, HandshakeKind::Resumed, "{round}");
                let (_, shown) = get(&client(&trusted), address);
                assert!(shown == trusted[round], "another certificate in {round}");
            }
        });
        let end = server.stop();
        assert!(!end.errors.contains("ERROR"), "{end:?}");
        assert!(answers.into_inner() >= 20 * ROUNDS as u64);
    }
}
