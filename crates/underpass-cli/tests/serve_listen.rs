//! What `underpass serve` listens on: several addresses, Unix sockets, sockets that a service
//! manager has opened.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "support/living.rs"]
mod living;

use std::fs;
use std::io::Read;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};

use living::{BINARY, HANG, Living, answer, ask, connect, hash};
use rustix::process::Signal;
use tempfile::TempDir;

fn folder(size: usize) -> (TempDir, Vec<u8>) {
    let folder = tempfile::tempdir().unwrap();
    let content: Vec<u8> = (0..size).map(|at| (at ^ (at >> 9)) as u8).collect();
    fs::write(folder.path().join("f"), &content).unwrap();
    (folder, content)
}

fn serve(listen: &[&str], folder: &Path) -> Living {
    let mut arguments = vec!["--workers", "2"];
    for at in listen {
        arguments.extend(["--listen", at]);
    }
    arguments.push(folder.to_str().unwrap());
    Living::start(&arguments)
}

fn get_unix(path: &Path, target: &str) -> Vec<u8> {
    let mut socket = UnixStream::connect(path).unwrap();
    socket.set_read_timeout(Some(HANG)).unwrap();
    ask(&mut socket, target);
    answer(&mut socket).body
}

#[test]
fn several_addresses_are_told_and_all_are_answered() {
    let (folder, content) = folder(3 << 20);
    let path = folder.path().join("socket");
    let unix = format!("unix:{}", path.display());
    let server = serve(&["127.0.0.1:0", "127.0.0.2:0", &unix], folder.path());
    let greeting = server.hear("serving ");
    assert!(greeting.contains(&unix), "{greeting}");
    let addresses: Vec<_> = greeting
        .split("http://")
        .skip(1)
        .map(|rest| rest.split('/').next().unwrap().parse().unwrap())
        .collect();
    assert_eq!(addresses.len(), 2, "{greeting}");
    for address in addresses {
        let mut socket = connect(address);
        ask(&mut socket, "/f");
        assert_eq!(hash(&answer(&mut socket).body), hash(&content));
    }
    assert_eq!(hash(&get_unix(&path, "/f")), hash(&content));
    let rest = server.stop().join("\n");
    assert!(rest.contains("stopped after 3 requests"), "{rest}");
    assert!(rest.contains("bytes by sendfile"), "{rest}");
}

#[test]
fn a_unix_socket_has_its_mode_and_goes_with_the_server() {
    let (folder, _) = folder(1);
    let path = folder.path().join("socket");
    let at = format!("unix:{},mode=0620", path.display());
    let server = serve(&[&at], folder.path());
    server.hear("serving ");
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o620);
    server.stop();
    assert!(!path.exists());
}

#[test]
fn a_dead_servers_socket_is_replaced_and_a_living_ones_refused() {
    let (folder, content) = folder(100);
    let path = folder.path().join("socket");
    let at = format!("unix:{}", path.display());
    drop(UnixListener::bind(&path).unwrap());
    let server = serve(&[&at], folder.path());
    server.hear("serving ");
    let second = Command::new(BINARY)
        .args(["serve", "--listen", &at])
        .output()
        .unwrap();
    let errors = String::from_utf8(second.stderr).unwrap();
    assert_eq!(second.status.code(), Some(1));
    assert!(errors.contains("another process does; stop"), "{errors}");
    assert_eq!(get_unix(&path, "/f"), content);
    server.stop();
}

#[test]
fn a_file_in_the_place_of_a_socket_stays() {
    let (folder, content) = folder(100);
    let path = folder.path().join("f");
    let at = format!("unix:{}", path.display());
    let refused = Command::new(BINARY)
        .args(["serve", "--listen", &at])
        .output()
        .unwrap();
    assert_eq!(refused.status.code(), Some(1));
    assert_eq!(fs::read(&path).unwrap(), content);
}

#[test]
fn a_unix_socket_lives_through_reload_and_upgrade() {
    let (folder, content) = folder(2 << 20);
    let path = folder.path().join("socket");
    let at = format!("unix:{}", path.display());
    let mut server = serve(&[&at], folder.path());
    server.hear("serving ");
    let inode = fs::metadata(&path).unwrap().ino();
    server.reload();
    assert_eq!(hash(&get_unix(&path, "/f")), hash(&content));
    server.upgrade();
    assert_eq!(server.code(), Some(0));
    assert_eq!(fs::metadata(&path).unwrap().ino(), inode);
    assert_eq!(hash(&get_unix(&path, "/f")), hash(&content));
    server.stop();
    assert!(!path.exists());
}

#[test]
fn connections_that_wait_at_a_unix_socket_when_it_stops_are_answered() {
    let (folder, content) = folder(100);
    let path = folder.path().join("socket");
    let server = serve(&[&format!("unix:{}", path.display())], folder.path());
    server.hear("serving ");
    server.signal(Signal::STOP);
    let waiting: Vec<_> = (0..20)
        .map(|_| {
            let mut socket = UnixStream::connect(&path).unwrap();
            socket.set_read_timeout(Some(HANG)).unwrap();
            ask(&mut socket, "/f");
            socket
        })
        .collect();
    server.signal(Signal::TERM);
    server.signal(Signal::CONT);
    for mut socket in waiting {
        assert_eq!(answer(&mut socket).body, content);
        assert_eq!(socket.read(&mut [0]).unwrap(), 0);
    }
    server.rest();
}

/// The binary with `socket` passed as a service manager does, under `name`.
fn activated(socket: OwnedFd, name: &str, at: &str, folder: &Path) -> Command {
    let mut command = Command::new("sh");
    let script = "exec 3<&0 </dev/null; LISTEN_PID=$$ LISTEN_FDS=1 exec \"$0\" \"$@\"";
    command
        .args([
            "-c",
            script,
            BINARY,
            "serve",
            "--workers",
            "2",
            "--listen",
            at,
        ])
        .arg(folder)
        .env("LISTEN_FDNAMES", name)
        .stdin(Stdio::from(socket));
    command
}

#[test]
fn a_socket_of_the_service_manager_is_served_through_reload_and_upgrade() {
    let (folder, content) = folder(2 << 20);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let passed = listener.try_clone().unwrap().into();
    let mut server = Living::by(activated(passed, "web", "systemd:web", folder.path()));
    assert_eq!(server.address(), address);
    let right = || {
        let mut socket = connect(address);
        ask(&mut socket, "/f");
        hash(&answer(&mut socket).body) == hash(&content)
    };
    assert!(right());
    server.reload();
    assert!(right());
    server.upgrade();
    assert_eq!(server.code(), Some(0));
    assert!(right());
    server.stop();
    // The service manager's own descriptor goes on listening: nobody is refused meanwhile.
    let mut waiting = connect(address);
    ask(&mut waiting, "/f");
    let passed = listener.try_clone().unwrap().into();
    let server = Living::by(activated(passed, "web", "systemd", folder.path()));
    assert_eq!(hash(&answer(&mut waiting).body), hash(&content));
    server.hear("serving ");
    server.stop();
}

#[test]
fn a_socket_that_was_not_passed_is_told() {
    let (folder, _) = folder(1);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = Living::by(activated(
        listener.into(),
        "web",
        "systemd:api",
        folder.path(),
    ));
    let told = server.hear("cannot listen on systemd:api");
    assert!(told.contains("are named web"), "{told}");
    let none = Command::new(BINARY)
        .args(["serve", "--listen", "systemd"])
        .output()
        .unwrap();
    let errors = String::from_utf8(none.stderr).unwrap();
    assert!(errors.contains("no socket was passed"), "{errors}");
    let twice = [
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--listen",
        "127.0.0.1:0",
    ];
    let twice = Command::new(BINARY).args(twice).output().unwrap();
    let errors = String::from_utf8(twice.stderr).unwrap();
    assert!(errors.contains("twice"), "{errors}");
}
