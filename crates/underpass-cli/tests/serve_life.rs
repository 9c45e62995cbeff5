//! The life of `underpass serve`: it reloads, gives way to a new process and stops, and no
//! connection is lost on the way.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "support/living.rs"]
mod living;

use std::fs;
use std::io::Read;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;

use living::{BINARY, HANG, Living, Load, answer, ask, assert_refused, connect, hash, head};
use rustix::process::Signal;
use tempfile::TempDir;

const LARGE: usize = 24 << 20;

/// A folder with a small and a large file.
fn folder() -> (TempDir, [(&'static str, Vec<u8>); 2]) {
    let folder = tempfile::tempdir().unwrap();
    let files = [("/small", pattern(700)), ("/large", pattern(LARGE))];
    for (target, content) in &files {
        fs::write(folder.path().join(&target[1..]), content).unwrap();
    }
    (folder, files)
}

fn pattern(size: usize) -> Vec<u8> {
    (0..size).map(|at| (at ^ ((at >> 8) * 7)) as u8).collect()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn start(folder: &TempDir, options: &[&str]) -> (Living, SocketAddr) {
    let mut arguments = vec!["--listen", "127.0.0.1:0", "--workers", "2"];
    arguments.extend(options);
    arguments.push(text(folder.path()));
    let server = Living::start(&arguments);
    let address = server.address();
    (server, address)
}

fn get(address: SocketAddr, target: &str) -> Vec<u8> {
    let mut socket = connect(address);
    ask(&mut socket, target);
    answer(&mut socket).body
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
    let rest = server.stop().join("\n");
    assert!(rest.contains("stopped after "), "{rest}");
    assert!(!rest.contains("WARN") && !rest.contains("ERROR"), "{rest}");
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
    assert_eq!(server.code(), Some(0));
    let rest = server.stop().join("\n");
    assert!(!rest.contains("WARN") && !rest.contains("ERROR"), "{rest}");
    assert_refused(address);
}

#[test]
fn a_download_goes_on_through_a_reload_and_an_upgrade() {
    let (folder, [_, (target, content)]) = folder();
    let (mut server, address) = start(&folder, &["--stop-timeout", "1ms"]);
    let mut before = connect(address);
    ask(&mut before, target);
    head(&mut before);
    server.reload();
    let mut between = connect(address);
    ask(&mut between, target);
    head(&mut between);
    server.upgrade();
    for mut socket in [before, between] {
        let mut body = vec![0; content.len()];
        socket.read_exact(&mut body).unwrap();
        assert_eq!(hash(&body), hash(&content));
    }
    assert_eq!(server.code(), Some(0));
    assert_eq!(hash(&get(address, target)), hash(&content));
    server.stop();
}

#[test]
fn a_kept_connection_of_before_a_reload_ends_with_its_next_answer() {
    let (folder, _) = folder();
    let (server, address) = start(&folder, &[]);
    let mut socket = connect(address);
    ask(&mut socket, "/small");
    assert!(!answer(&mut socket).is_last());
    server.reload();
    ask(&mut socket, "/small");
    assert!(answer(&mut socket).is_last());
    assert_eq!(socket.read(&mut [0]).unwrap(), 0);
    server.stop();
}

#[test]
fn an_idle_connection_of_before_a_reload_is_closed_after_a_while() {
    let (folder, _) = folder();
    let (server, address) = start(&folder, &["--stop-timeout", "1ms"]);
    let mut socket = connect(address);
    ask(&mut socket, "/small");
    assert!(!answer(&mut socket).is_last());
    server.reload();
    assert_eq!(socket.read(&mut [0]).unwrap(), 0);
    assert_eq!(get(address, "/small"), pattern(700));
    server.stop();
}

#[test]
fn connections_that_wait_when_it_stops_are_answered() {
    const WAITING: usize = 40;
    let (folder, _) = folder();
    let (server, address) = start(&folder, &[]);
    server.signal(Signal::STOP);
    let waiting: Vec<TcpStream> = (0..WAITING)
        .map(|_| {
            let mut socket = connect(address);
            ask(&mut socket, "/small");
            socket
        })
        .collect();
    server.signal(Signal::TERM);
    server.signal(Signal::CONT);
    for mut socket in waiting {
        assert_eq!(answer(&mut socket).body, pattern(700));
        assert_eq!(socket.read(&mut [0]).unwrap(), 0);
    }
    let rest = server.rest().join("\n");
    let all = format!("stopped after {WAITING} requests");
    assert!(rest.contains(&all), "{rest}");
}

#[test]
fn who_connected_and_asks_nothing_does_not_hold_up_a_stop() {
    let (folder, _) = folder();
    let (server, address) = start(&folder, &["--stop-timeout", "1h"]);
    let mut silent = connect(address);
    // That somebody who came later is answered shows that the silent one has been taken.
    get(address, "/small");
    server.signal(Signal::TERM);
    assert_eq!(silent.read(&mut [0]).unwrap(), 0);
    server.rest();
}

#[test]
fn a_broken_reload_is_told_and_changes_nothing() {
    let (folder, _) = folder();
    let site = folder.path().join("site");
    fs::create_dir(&site).unwrap();
    fs::write(site.join("f"), "content").unwrap();
    let server = Living::start(&["--listen", "127.0.0.1:0", text(&site)]);
    let address = server.address();
    let mut kept = connect(address);
    ask(&mut kept, "/f");
    answer(&mut kept);
    let aside = folder.path().join("aside");
    fs::rename(&site, &aside).unwrap();
    server.signal(Signal::HUP);
    let told = server.hear("reload failed");
    assert!(told.contains(text(&site)), "{told}");
    ask(&mut kept, "/f");
    assert!(!answer(&mut kept).is_last(), "its generation has retired");
    assert_eq!(get(address, "/f"), b"content");
    fs::rename(&aside, &site).unwrap();
    server.reload();
    assert_eq!(get(address, "/f"), b"content");
    server.stop();
}

#[test]
fn an_upgrade_that_fails_is_told_and_changes_nothing() {
    let (folder, _) = folder();
    let program = folder.path().join("program");
    symlink(BINARY, &program).unwrap();
    let mut command = Command::new(&program);
    command
        .args(["serve", "--listen", "127.0.0.1:0"])
        .arg(folder.path());
    let mut server = Living::by(command);
    let address = server.address();
    fs::remove_file(&program).unwrap();
    server.signal(Signal::USR2);
    let told = server.hear("upgrade failed");
    assert!(told.contains("No such file"), "{told}");
    symlink("/bin/false", &program).unwrap();
    server.signal(Signal::USR2);
    let told = server.hear("upgrade failed");
    assert!(told.contains("exit status: 1"), "{told}");
    assert_eq!(get(address, "/small"), pattern(700));
    fs::remove_file(&program).unwrap();
    symlink(BINARY, &program).unwrap();
    server.upgrade();
    assert_eq!(server.code(), Some(0));
    assert_eq!(get(address, "/small"), pattern(700));
    server.stop();
}

#[test]
fn a_successor_that_cannot_serve_says_why_and_the_old_one_goes_on() {
    let (folder, _) = folder();
    let site = folder.path().join("site");
    fs::create_dir(&site).unwrap();
    let server = Living::start(&["--listen", "127.0.0.1:0", text(&site)]);
    let address = server.address();
    fs::remove_dir(&site).unwrap();
    server.signal(Signal::USR2);
    let told = server.hear("upgrade failed");
    assert!(told.contains("cannot serve"), "{told}");
    connect(address);
    server.stop();
}

#[test]
fn a_second_instance_is_refused_before_and_after_a_change() {
    let (folder, _) = folder();
    let (mut server, address) = start(&folder, &[]);
    let address = address.to_string();
    let refused = || {
        let second = Command::new(BINARY)
            .args(["serve", "--listen", &address])
            .output()
            .unwrap();
        let errors = String::from_utf8(second.stderr).unwrap();
        assert_eq!(second.status.code(), Some(1));
        assert!(errors.contains("is taken"), "{errors}");
    };
    refused();
    server.reload();
    refused();
    server.upgrade();
    refused();
    server.stop();
}

#[test]
fn the_service_manager_is_told_of_every_turn() {
    let (folder, _) = folder();
    let path = folder.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(HANG)).unwrap();
    let told = || {
        let mut text = [0; 4096];
        let count = manager.recv(&mut text).unwrap();
        String::from_utf8_lossy(&text[..count]).into_owned()
    };
    let mut command = Command::new(BINARY);
    command
        .args(["serve", "--listen", "127.0.0.1:0"])
        .arg(folder.path())
        .env("NOTIFY_SOCKET", &path);
    let mut server = Living::by(command);
    let address = server.address();
    let ready = told();
    assert!(ready.starts_with("READY=1\n"), "{ready}");
    assert!(ready.contains(&address.to_string()), "{ready}");
    server.reload();
    let reloading = told();
    let (first, time) = reloading.split_once('\n').unwrap();
    assert_eq!(first, "RELOADING=1");
    let time = time.strip_prefix("MONOTONIC_USEC=").unwrap();
    assert!(time.parse::<u64>().unwrap() > 0);
    assert!(told().starts_with("READY=1\n"));
    server.upgrade();
    let process = server.pid.as_raw_nonzero();
    assert_eq!(told(), format!("MAINPID={process}\nREADY=1"));
    server.stop();
    assert_eq!(told(), "STOPPING=1");
}
