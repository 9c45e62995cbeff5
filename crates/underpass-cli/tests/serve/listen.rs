//! The listeners of `underpass serve`: several addresses, Unix sockets, sockets opened by a service
//! manager.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::io::FdFlags;
use rustix::process::Signal;
use tempfile::TempDir;
use underpass_testkit::{ChildProcess, HttpClient, ServerProcess, assert_same, content};

use crate::support::{BINARY, serve, underpass};

fn folder(size: usize) -> (TempDir, Vec<u8>) {
    let folder = tempfile::tempdir().unwrap();
    let content = content(1, size);
    fs::write(folder.path().join("f"), &content).unwrap();
    (folder, content)
}

fn start(listen: &[&str], folder: &Path) -> ServerProcess {
    let mut command = underpass();
    command.args(["serve", "--workers", "2"]);
    for at in listen {
        command.args(["--listen", at]);
    }
    ServerProcess::spawn(command.arg(folder))
}

fn get_unix(path: &Path, target: &str) -> Vec<u8> {
    HttpClient::connect_unix(path).get(target).body
}

#[test]
fn several_addresses_are_printed_and_all_are_answered() {
    let (folder, content) = folder(3 << 20);
    let path = folder.path().join("socket");
    let unix = format!("unix:{}", path.display());
    let server = start(&["127.0.0.1:0", "127.0.0.2:0", &unix], folder.path());
    let greeting = server.greeting();
    assert!(greeting.contains(&unix), "{greeting}");
    let addresses = addresses(&server);
    assert_eq!(addresses.len(), 2, "{greeting}");
    for address in addresses {
        let got = HttpClient::connect(address).get("/f");
        assert_same(&got.body, &content, "/f");
    }
    assert_same(&get_unix(&path, "/f"), &content, "/f");
    server
        .stop()
        .assert_output(&["stopped after 3 requests", "bytes by sendfile"]);
}

/// Returns every TCP address of a start-up message.
fn addresses(server: &ServerProcess) -> Vec<SocketAddr> {
    let greeting = server.greeting();
    let urls = greeting.split("http://").skip(1);
    urls.map(|rest| rest.split('/').next().unwrap().parse().unwrap())
        .collect()
}

#[test]
fn what_people_type_is_listened_on_and_every_address_is_printed() {
    let (folder, content) = folder(100);
    let typed: [(&[&str], bool); 10] = [
        (&["--bind", "127.0.0.1", "-p", "0"], false),
        (&["-b", "localhost:0"], false),
        (&["-p", "0"], false),
        (&["--port=0"], false),
        (&["--listen", "0"], false),
        (&["--listen", "localhost:0"], false),
        (&["--listen", "localhost", "-p", "0"], false),
        (&["--listen", "127.0.0.1", "-p", "0"], false),
        (&["--listen", ":0"], true),
        (&["--listen", "0.0.0.0", "-p", "0"], true),
    ];
    for (options, is_everywhere) in typed {
        let mut command = underpass();
        command.arg("serve").args(options).arg(folder.path());
        let server = ServerProcess::spawn(&mut command);
        let addresses = addresses(&server);
        assert!(!addresses.is_empty(), "{options:?}");
        for address in &addresses {
            assert_eq!(HttpClient::connect(*address).get("/f").body, content);
        }
        let is_others = |address: &SocketAddr| !address.ip().is_loopback();
        assert!(
            is_everywhere || !addresses.iter().any(is_others),
            "{options:?}"
        );
        assert!(addresses.last().unwrap().ip().is_loopback(), "{options:?}");
        server.stop().assert_success();
    }
}

#[test]
fn a_port_of_the_command_line_overrides_the_environment_and_contradicts_another() {
    let (folder, _) = folder(1);
    let mut command = underpass();
    command.env("UNDERPASS_LISTEN", "192.0.2.1:1");
    command.args(["serve", "-p", "0"]).arg(folder.path());
    ServerProcess::spawn(&mut command).stop().assert_success();
    let two = serve(&["--listen", "127.0.0.1:81", "-p", "82"]);
    two.assert_failed(1, &["two different ports are given"]);
    serve(&["8000"]).assert_failed(1, &["cannot serve 8000", "--port"]);
    let nobody = serve(&["--listen", "no-such-name.invalid:80"]);
    nobody.assert_failed(2, &["no-such-name.invalid:80"]);
}

#[test]
fn the_greeting_is_short_and_its_details_are_asked_for() {
    let (folder, _) = folder(1);
    let server = start(&["127.0.0.1:0"], folder.path());
    let (first, rest) = server.greeting().split_once('\n').unwrap();
    let shown = format!(
        "serving {} on http://{}/",
        folder.path().display(),
        server.address()
    );
    assert_eq!(first, shown);
    assert!(rest.lines().count() <= 2, "{rest}");
    assert!(
        rest.ends_with("press Ctrl-C to stop; -v shows more\n"),
        "{rest}"
    );
    assert!(!rest.contains("bodies"), "{rest}");
}

#[test]
fn a_unix_socket_has_its_mode_and_goes_with_the_server() {
    let (folder, _) = folder(1);
    let path = folder.path().join("socket");
    let at = format!("unix:{},mode=0620", path.display());
    let server = start(&[&at], folder.path());
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
    let server = start(&[&at], folder.path());
    serve(&["--listen", &at]).assert_failed(1, &["another process listens there; stop"]);
    assert_eq!(get_unix(&path, "/f"), content);
    server.stop();
}

#[test]
fn a_file_in_the_place_of_a_socket_stays() {
    let (folder, content) = folder(100);
    let path = folder.path().join("f");
    let at = format!("unix:{}", path.display());
    serve(&["--listen", &at]).assert_failed(1, &[]);
    assert_eq!(fs::read(&path).unwrap(), content);
}

#[test]
fn a_unix_socket_lives_through_reload_and_upgrade() {
    let (folder, content) = folder(2 << 20);
    let path = folder.path().join("socket");
    let at = format!("unix:{}", path.display());
    let mut server = start(&[&at], folder.path());
    let inode = fs::metadata(&path).unwrap().ino();
    server.reload();
    assert_same(&get_unix(&path, "/f"), &content, "/f");
    server.upgrade();
    assert_eq!(server.wait().code(), Some(0));
    assert_eq!(fs::metadata(&path).unwrap().ino(), inode);
    assert_same(&get_unix(&path, "/f"), &content, "/f");
    server.stop();
    assert!(!path.exists());
}

#[test]
fn connections_that_wait_at_a_unix_socket_when_it_stops_are_answered() {
    let (folder, content) = folder(100);
    let path = folder.path().join("socket");
    let server = start(&[&format!("unix:{}", path.display())], folder.path());
    server.signal(Signal::STOP);
    let waiting: Vec<_> = (0..20)
        .map(|_| {
            let mut client = HttpClient::connect_unix(&path);
            client.ask("/f");
            client
        })
        .collect();
    server.signal(Signal::TERM);
    server.signal(Signal::CONT);
    for mut socket in waiting {
        assert_eq!(socket.response().body, content);
        socket.assert_closed();
    }
    server.end();
}

/// Returns a command with `socket` passed as a service manager does, under `name`.
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
    let mut server =
        ServerProcess::spawn(&mut activated(passed, "web", "systemd:web", folder.path()));
    assert_eq!(server.address(), address);
    let right = || HttpClient::connect(address).get("/f").body == content;
    assert!(right());
    server.reload();
    assert!(right());
    server.upgrade();
    assert_eq!(server.wait().code(), Some(0));
    assert!(right());
    server.stop();
    // The service manager's own descriptor keeps listening: clients are not refused meanwhile.
    let mut waiting = HttpClient::connect(address);
    waiting.ask("/f");
    let passed = listener.try_clone().unwrap().into();
    let server = ServerProcess::spawn(&mut activated(passed, "web", "systemd", folder.path()));
    assert_same(&waiting.response().body, &content, "/f");
    server.stop();
}

/// Sockets for HTTP and HTTPS, each with its name.
#[test]
fn http_on_a_passed_socket_is_redirected_to_the_port_of_https_on_another() {
    let (folder, _) = folder(1);
    let state = tempfile::tempdir().unwrap();
    let [web, secure] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let [from, to] = [&web, &secure].map(|socket| socket.local_addr().unwrap());
    // In dash, a descriptor has one digit.
    let mut command = Command::new("bash");
    // 4 first: the socket to duplicate may itself be 3.
    let script = format!(
        "exec 4<&{} 3<&0 </dev/null; LISTEN_PID=$$ LISTEN_FDS=2 exec \"$0\" \"$@\"",
        secure.as_raw_fd()
    );
    command
        .args(["-c", &script, BINARY, "serve", "--tls-self-signed"])
        .args(["--listen", "https:systemd:secure"])
        .args(["--listen", "http:systemd:web"])
        .arg(folder.path())
        .env("LISTEN_FDNAMES", "web:secure")
        .env("STATE_DIRECTORY", state.path())
        .stdin(Stdio::from(OwnedFd::from(web)));
    rustix::io::fcntl_setfd(&secure, FdFlags::empty()).unwrap();
    let mut server = ServerProcess::spawn(&mut command);
    // Processes of other tests must not inherit it.
    rustix::io::fcntl_setfd(&secure, FdFlags::CLOEXEC).unwrap();
    let redirected = || {
        let mut client = HttpClient::connect(from);
        client.send(format!(
            "GET /f HTTP/1.1\r\nHost: localhost:{}\r\n\r\n",
            from.port()
        ));
        let response = client.response();
        assert_eq!(response.status, 308);
        let location = format!("\r\nLocation: https://localhost:{}/f\r\n", to.port());
        assert!(response.head.contains(&location), "{}", response.head);
    };
    redirected();
    server.reload();
    redirected();
    server.upgrade();
    redirected();
    server.stop();
}

#[test]
fn a_socket_that_nothing_listens_on_is_reported() {
    let (folder, _) = folder(1);
    for at in ["127.0.0.1:0", "systemd:api"] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut command = activated(listener.into(), "web", at, folder.path());
        let report = ChildProcess::spawn(&mut command).end();
        report.assert_failed(1, &["web"]);
        if at != "systemd:api" {
            report.assert_failed(1, &["nothing listens on: web", "`systemd`"]);
        }
    }
}

#[test]
fn a_zone_may_be_the_name_of_an_interface() {
    let (folder, content) = folder(1);
    let mut command = Command::new(BINARY);
    command
        .args(["serve", "--listen", "[::1%lo]:0"])
        .arg(folder.path());
    let server = ServerProcess::spawn(&mut command);
    assert!(HttpClient::connect(server.address()).get("/f").body == content);
    server.stop();
    let unknown = ["--listen", "[fe80::1%no-such-interface]:8080"];
    serve(&unknown).assert_failed(2, &["its zone is no interface of this machine"]);
}

#[test]
fn a_socket_that_was_not_passed_is_reported() {
    let (folder, _) = folder(1);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let passed = listener.into();
    let mut command = activated(passed, "web", "systemd:api", folder.path());
    let report = ChildProcess::spawn(&mut command).end();
    report.assert_failed(1, &["cannot listen on systemd:api", "are named web"]);
    serve(&["--listen", "systemd"]).assert_failed(1, &["no socket was passed"]);
    let twice = ["--listen", "127.0.0.1:0", "--listen", "127.0.0.1:0"];
    serve(&twice).assert_failed(1, &["twice"]);
}
