//! The life of `underpass serve`: it reloads, is replaced by a new process and stops, without
//! losing a connection.

use std::fs::{self, Permissions};
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use rustix::process::Signal;
use tempfile::TempDir;
use underpass_testkit::{
    HttpClient, ServerProcess, WAIT_MAX, assert_same, content, sha256, wait_until,
};

use crate::support::{BINARY, serve, text, underpass};

const LARGE: usize = 24 << 20;

/// A folder with a small and a large file.
fn folder() -> (TempDir, [(&'static str, Vec<u8>); 2]) {
    let folder = tempfile::tempdir().unwrap();
    let files = [("/small", content(1, 700)), ("/large", content(1, LARGE))];
    for (target, content) in &files {
        fs::write(folder.path().join(&target[1..]), content).unwrap();
    }
    (folder, files)
}

fn start(folder: &TempDir, options: &[&str]) -> (ServerProcess, SocketAddr) {
    let options = [&["--workers", "2"], options].concat();
    let server = ServerProcess::serve(underpass(), &options, folder.path());
    let address = server.address();
    (server, address)
}

fn get(address: SocketAddr, target: &str) -> Vec<u8> {
    HttpClient::connect(address).get(target).body
}

/// The folder opened at the start continues to be served, and the replacement is reported.
#[test]
fn a_root_that_is_replaced_is_reported_once_and_served_after_a_reload() {
    let releases = tempfile::tempdir().unwrap();
    let current = releases.path().join("current");
    let release = |name: &str| {
        fs::create_dir(releases.path().join(name)).unwrap();
        fs::write(releases.path().join(name).join("f"), name).unwrap();
        let next = releases.path().join("next");
        symlink(name, &next).unwrap();
        fs::rename(next, &current).unwrap();
    };
    release("one");
    let process = ServerProcess::serve(underpass(), &["--workers", "2"], &current);
    let address = process.address();
    assert_eq!(get(address, "/f"), b"one");
    let is_over = Arc::new(AtomicBool::new(false));
    let client = thread::spawn({
        let is_over = Arc::clone(&is_over);
        move || {
            while !is_over.load(Ordering::Relaxed) {
                get(address, "/none");
            }
        }
    });
    release("two");
    process.hear("current leads to another folder now; the former one is still served. SIGHUP");
    assert_eq!(get(address, "/f"), b"one");
    process.reload();
    assert_eq!(get(address, "/f"), b"two");
    let other = releases.path().join("other");
    fs::rename(releases.path().join("two"), &other).unwrap();
    process.hear("current does not exist any more; the renamed folder is still served");
    assert_eq!(get(address, "/f"), b"two");
    fs::remove_dir_all(other).unwrap();
    process.hear("current was removed; nothing is served any more");
    is_over.store(true, Ordering::Relaxed);
    client.join().unwrap();
    let end = process.stop();
    assert_eq!(end.errors.matches("current ").count(), 3, "{}", end.errors);
}

/// Clients that send requests without a pause, in different ways, until they are stopped. Each
/// panics at the first refused or reset connection, and at the first wrong body.
struct Load {
    is_over: Arc<AtomicBool>,
    answers: Arc<AtomicU64>,
    clients: Vec<JoinHandle<()>>,
}

/// The way a client uses its connections.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Habit {
    /// Keeps one until the server announces the last response.
    Keeps,
    /// Opens a new one for each request.
    Connects,
}

impl Load {
    fn start(address: SocketAddr, files: &[(&'static str, Vec<u8>)]) -> Load {
        let mut load = Load {
            is_over: Arc::default(),
            answers: Arc::default(),
            clients: Vec::new(),
        };
        for habit in [Habit::Keeps, Habit::Connects] {
            for (target, content) in files {
                for _ in 0..2 {
                    load.add(address, habit, target, sha256(content));
                }
            }
        }
        load
    }

    fn add(&mut self, address: SocketAddr, habit: Habit, target: &'static str, expected: String) {
        let (is_over, answers) = (Arc::clone(&self.is_over), Arc::clone(&self.answers));
        self.clients.push(thread::spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                let mut client = HttpClient::connect(address);
                loop {
                    let got = client.get(target);
                    assert_eq!(got.sha256(), expected, "{target}");
                    answers.fetch_add(1, Ordering::Relaxed);
                    let is_over = is_over.load(Ordering::Relaxed);
                    if is_over || got.is_last() || habit == Habit::Connects {
                        break;
                    }
                }
            }
        }));
    }

    /// Waits for so many more responses.
    #[track_caller]
    fn go_on(&self, more: u64) {
        let goal = self.answers.load(Ordering::Relaxed) + more;
        wait_until("more answers", || {
            let failed = self.clients.iter().any(JoinHandle::is_finished);
            assert!(!failed, "a client has failed");
            self.answers.load(Ordering::Relaxed) >= goal
        });
    }

    /// Stops the clients and checks that none has failed.
    #[track_caller]
    fn end(self) {
        self.is_over.store(true, Ordering::Relaxed);
        for client in self.clients {
            client.join().expect("a client has failed");
        }
    }
}

/// Checks that no socket listens there.
#[track_caller]
fn assert_refused(address: SocketAddr) {
    let error = TcpStream::connect(address).expect_err("somebody listens");
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
}

#[test]
fn reloads_under_load_lose_nothing() {
    let (folder, files) = folder();
    let (server, address) = start(&folder, &[]);
    let load = Load::start(address, &files);
    for _ in 0..5 {
        load.go_on(50);
        server.reload();
    }
    load.go_on(50);
    load.end();
    let end = server.stop();
    end.assert_output(&["stopped after "]);
    assert!(
        !end.errors.contains("WARN") && !end.errors.contains("ERROR"),
        "{end:?}"
    );
    assert_refused(address);
}

#[test]
fn upgrades_under_load_lose_nothing() {
    let (folder, files) = folder();
    let (mut server, address) = start(&folder, &[]);
    let load = Load::start(address, &files);
    for _ in 0..3 {
        load.go_on(50);
        server.upgrade();
    }
    load.go_on(50);
    load.end();
    assert_eq!(server.wait().code(), Some(0));
    let end = server.stop();
    assert!(
        !end.errors.contains("WARN") && !end.errors.contains("ERROR"),
        "{end:?}"
    );
    assert_refused(address);
}

#[test]
fn a_download_goes_on_through_a_reload_and_an_upgrade() {
    let (folder, [_, (target, content)]) = folder();
    let (mut server, address) = start(&folder, &["--stop-timeout", "1ms"]);
    let mut before = HttpClient::connect(address);
    before.ask(target);
    before.head();
    server.reload();
    let mut between = HttpClient::connect(address);
    between.ask(target);
    between.head();
    server.upgrade();
    for mut socket in [before, between] {
        let body = socket.read_exact(content.len()).unwrap();
        assert_same(&body, &content, "the download");
    }
    assert_eq!(server.wait().code(), Some(0));
    assert_same(&get(address, target), &content, "the next one");
    server.stop();
}

#[test]
fn a_kept_connection_of_before_a_reload_ends_with_its_next_answer() {
    let (folder, _) = folder();
    let (server, address) = start(&folder, &[]);
    let mut socket = HttpClient::connect(address);
    assert!(!socket.get("/small").is_last());
    server.reload();
    assert!(socket.get("/small").is_last());
    socket.assert_closed();
    server.stop();
}

#[test]
fn an_idle_connection_of_before_a_reload_is_closed_after_a_while() {
    let (folder, _) = folder();
    let (server, address) = start(&folder, &["--stop-timeout", "1ms"]);
    let mut socket = HttpClient::connect(address);
    assert!(!socket.get("/small").is_last());
    server.reload();
    socket.assert_closed();
    assert_eq!(get(address, "/small"), content(1, 700));
    server.stop();
}

#[test]
fn connections_that_wait_when_it_stops_are_answered() {
    const WAITING: usize = 40;
    let (folder, _) = folder();
    let (server, address) = start(&folder, &[]);
    server.signal(Signal::STOP);
    let waiting: Vec<_> = (0..WAITING)
        .map(|_| {
            let mut socket = HttpClient::connect(address);
            socket.ask("/small");
            socket
        })
        .collect();
    server.signal(Signal::TERM);
    server.signal(Signal::CONT);
    for mut socket in waiting {
        assert_eq!(socket.response().body, content(1, 700));
        socket.assert_closed();
    }
    let all = format!("stopped after {WAITING} requests");
    server.end().assert_output(&[&all]);
}

#[test]
fn who_connected_and_asks_nothing_does_not_hold_up_a_stop() {
    let (folder, _) = folder();
    let (server, address) = start(&folder, &["--stop-timeout", "1h"]);
    let mut silent = HttpClient::connect(address);
    // The response to a later client shows that the silent one has been accepted.
    get(address, "/small");
    server.signal(Signal::TERM);
    silent.assert_closed();
    server.end();
}

#[test]
fn a_broken_reload_is_reported_and_changes_nothing() {
    let (folder, _) = folder();
    let site = folder.path().join("site");
    fs::create_dir(&site).unwrap();
    fs::write(site.join("f"), "content").unwrap();
    let server = ServerProcess::serve(underpass(), &[], &site);
    let address = server.address();
    let mut kept = HttpClient::connect(address);
    kept.get("/f");
    let aside = folder.path().join("aside");
    fs::rename(&site, &aside).unwrap();
    server.signal(Signal::HUP);
    let reported = server.hear("reload failed");
    assert!(reported.contains(text(&site)), "{reported}");
    assert!(!kept.get("/f").is_last(), "its generation has retired");
    assert_eq!(get(address, "/f"), b"content");
    fs::rename(&aside, &site).unwrap();
    server.reload();
    assert_eq!(get(address, "/f"), b"content");
    server.stop();
}

#[test]
fn signals_that_were_ignored_at_the_start_stay_ignored() {
    let (folder, _) = folder();
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap '' INT HUP; exec \"$0\" \"$@\"", BINARY]);
    let server = ServerProcess::serve(shell, &[], folder.path());
    server.signal(Signal::INT);
    server.signal(Signal::HUP);
    let status =
        fs::read_to_string(format!("/proc/{}/status", server.pid().as_raw_nonzero())).unwrap();
    let ignored = status.lines().find(|line| line.starts_with("SigIgn:"));
    let ignored = ignored.and_then(|line| line.split_whitespace().nth(1));
    let ignored = u64::from_str_radix(ignored.unwrap(), 16).unwrap();
    assert_eq!(ignored & 3, 3, "{status}");
    let report = server.stop();
    assert!(!report.output.contains("reloaded"), "{report:?}");
    assert!(!report.errors.contains("reload"), "{report:?}");
}

#[test]
fn an_upgrade_that_fails_is_reported_and_changes_nothing() {
    let (folder, _) = folder();
    let program = folder.path().join("program");
    symlink(BINARY, &program).unwrap();
    let mut server = ServerProcess::serve(Command::new(&program), &[], folder.path());
    let address = server.address();
    fs::remove_file(&program).unwrap();
    server.signal(Signal::USR2);
    let reported = server.hear("upgrade failed");
    assert!(reported.contains("No such file"), "{reported}");
    symlink("/bin/false", &program).unwrap();
    server.signal(Signal::USR2);
    let reported = server.hear("upgrade failed");
    assert!(reported.contains("exit status: 1"), "{reported}");
    assert_eq!(get(address, "/small"), content(1, 700));
    fs::remove_file(&program).unwrap();
    symlink(BINARY, &program).unwrap();
    server.upgrade();
    assert_eq!(server.wait().code(), Some(0));
    assert_eq!(get(address, "/small"), content(1, 700));
    server.stop();
}

#[test]
fn a_successor_that_fails_prints_its_last_words() {
    let (folder, _) = folder();
    let program = folder.path().join("program");
    symlink(BINARY, &program).unwrap();
    let server = ServerProcess::serve(Command::new(&program), &[], folder.path());
    fs::remove_file(&program).unwrap();
    let script = "#!/bin/sh\nexec 0</dev/null\nsleep 0.2\necho the true reason >&2\nexit 3\n";
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
    server.signal(Signal::USR2);
    server.hear("the true reason");
    let reported = server.hear("upgrade failed");
    assert!(reported.contains("exit status: 3"), "{reported}");
    server.stop();
}

#[test]
fn an_address_that_overlaps_its_own_is_said_to_be_its_own() {
    let (folder, _) = folder();
    let config = folder.path().join("u.toml");
    let configure = |listen: &str| {
        let text = format!("listen = [{listen:?}]\n[[site]]\nroot = \".\"\n");
        fs::write(&config, text).unwrap();
    };
    configure("127.0.0.1:0");
    let mut tool = underpass();
    let server = ServerProcess::spawn(tool.args(["serve", "--config"]).arg(&config));
    configure(&format!("0.0.0.0:{}", server.address().port()));
    server.signal(Signal::HUP);
    let reported = server.hear("reload failed");
    assert!(
        reported.contains("this server itself listens"),
        "{reported}"
    );
    assert!(!reported.contains("another process"), "{reported}");
    server.stop();
}

#[test]
fn a_successor_that_cannot_serve_reports_why_and_the_old_one_continues() {
    let (folder, _) = folder();
    let site = folder.path().join("site");
    fs::create_dir(&site).unwrap();
    let server = ServerProcess::serve(underpass(), &[], &site);
    let address = server.address();
    fs::remove_dir(&site).unwrap();
    server.signal(Signal::USR2);
    let reported = server.hear("upgrade failed");
    // Messages of the successor are quoted without their prefix.
    for once in ["upgrade failed", "did not take over", "cannot serve"] {
        assert_eq!(reported.matches(once).count(), 1, "{reported}");
    }
    assert!(!reported.contains("underpass: "), "{reported}");
    HttpClient::connect(address);
    server.stop();
}

#[test]
fn a_second_instance_is_refused_before_and_after_a_change() {
    let (folder, _) = folder();
    let (mut server, address) = start(&folder, &[]);
    let address = address.to_string();
    let refused = || {
        serve(&["--listen", &address]).assert_failed(1, &["is in use"]);
    };
    refused();
    server.reload();
    refused();
    server.upgrade();
    refused();
    server.stop();
}

#[test]
fn the_service_manager_is_notified_of_every_state() {
    let (folder, _) = folder();
    let path = folder.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(WAIT_MAX)).unwrap();
    let reported = || {
        let mut text = [0; 4096];
        let count = manager.recv(&mut text).unwrap();
        String::from_utf8_lossy(&text[..count]).into_owned()
    };
    let mut command = underpass();
    command.env("NOTIFY_SOCKET", &path);
    let mut server = ServerProcess::serve(command, &[], folder.path());
    let address = server.address();
    let ready = reported();
    assert!(ready.starts_with("READY=1\n"), "{ready}");
    assert!(ready.contains(&address.to_string()), "{ready}");
    server.reload();
    let reloading = reported();
    let (first, time) = reloading.split_once('\n').unwrap();
    assert_eq!(first, "RELOADING=1");
    let time = time.strip_prefix("MONOTONIC_USEC=").unwrap();
    assert!(time.parse::<u64>().unwrap() > 0);
    assert!(reported().starts_with("READY=1\n"));
    server.upgrade();
    let process = server.pid().as_raw_nonzero();
    assert_eq!(reported(), format!("MAINPID={process}\nREADY=1"));
    server.stop();
    assert_eq!(reported(), "STOPPING=1");
}

#[test]
fn uploads_go_on_through_a_reload_and_an_upgrade() {
    let (folder, _) = folder();
    let (mut server, address) = start(&folder, &["--upload"]);
    let body = content(7, 3_000_000);
    let tus = "Tus-Resumable: 1.0.0";
    let ask = |line: &str, fields: &str| {
        let mut client = HttpClient::connect(address);
        client.send(format!("{line} HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n"));
        client.head()
    };
    let create = |name: &str| {
        let fields = format!(
            "{tus}\r\nUpload-Length: {}\r\nUpload-Metadata: filename {name}",
            body.len()
        );
        let created = ask("POST /", &fields);
        assert_eq!(created.status, 201, "{}", created.head);
        format!("/{}", created.field("location").unwrap())
    };
    let begin = |line: &str, fields: &str, from: usize| {
        let mut client = HttpClient::connect(address);
        let length = body.len() - from;
        client.send(format!(
            "{line} HTTP/1.1\r\nHost: a\r\n{fields}Content-Length: {length}\r\n\r\n"
        ));
        client.send(&body[from..1_000_000]);
        client
    };
    let patch =
        format!("{tus}\r\nContent-Type: application/offset+octet-stream\r\nUpload-Offset: ");
    // The base64 of "tus" and "cut".
    let (resumed, cut) = (create("dHVz"), create("Y3V0"));
    let mut put = begin("PUT /put", "", 0);
    let mut running = begin(&format!("PATCH {resumed}"), &format!("{patch}0\r\n"), 0);
    let gone = begin(&format!("PATCH {cut}"), &format!("{patch}0\r\n"), 0);
    let partial = |target: &str| {
        let (_, id) = target.split_once('=').unwrap();
        let file = folder.path().join(".underpass-uploads").join(id);
        file.metadata().map_or(0, |metadata| metadata.len())
    };
    wait_until("a megabyte of each", || {
        partial(&resumed) == 1_000_000 && partial(&cut) == 1_000_000
    });
    server.reload();
    server.upgrade();
    drop(gone);
    for client in [&mut put, &mut running] {
        client.send(&body[1_000_000..]);
        let status = client.head().status;
        assert!([201, 204].contains(&status), "{status}");
    }
    wait_until("the end of the cut upload in the process before", || {
        ask(&format!("HEAD {cut}"), tus).status == 204
    });
    let mut rest = begin(
        &format!("PATCH {cut}"),
        &format!("{patch}1000000\r\n"),
        1_000_000,
    );
    rest.send(&body[1_000_000..]);
    assert_eq!(rest.head().status, 204);
    for name in ["put", "tus", "cut"] {
        let stored = fs::read(folder.path().join(name)).unwrap();
        assert_same(&stored, &body, name);
    }
    let left = fs::read_dir(folder.path().join(".underpass-uploads")).unwrap();
    assert_eq!(left.count(), 0);
    assert_eq!(server.wait().code(), Some(0));
    server.stop();
}
