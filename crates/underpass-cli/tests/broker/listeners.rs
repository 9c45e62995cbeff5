//! The addresses the broker listens on, and the ones it advertises to clients.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

use kafka_protocol::messages::{FindCoordinatorRequest, MetadataRequest};
use rustix::process::Signal;
use underpass_testkit::{ServerProcess, disk_folder, free_address, run, wait_until};

use crate::server::{BINARY, Broker, tcp_addresses};
use crate::support::client::Client;
use crate::support::client::{encoded, framed};
use crate::tls::{Identity, connect};

/// Returns the advertised address and port; checks that the group coordinator has the same.
#[track_caller]
fn place<S: Read + Write>(client: &mut Client<S>) -> (String, i32) {
    let metadata = client.ask(4, &MetadataRequest::default());
    let [broker] = &metadata.brokers[..] else {
        panic!("{metadata:?}");
    };
    let place = (broker.host.to_string(), broker.port);
    let request = FindCoordinatorRequest::default().with_key("a group".into());
    let coordinator = client.ask(2, &request);
    assert_eq!(place, (coordinator.host.to_string(), coordinator.port));
    place
}

#[track_caller]
fn assert_sent(to: &str, client: SocketAddr) {
    let (host, port) = place(&mut Client::connect(client));
    assert_eq!(format!("{host}:{port}"), to);
}

/// Starts a broker that reads `underpass.toml` in a folder that also holds the data.
fn configured(folder: &Path, listeners: &str) -> ServerProcess {
    write_configuration(folder, listeners);
    let mut command = Command::new(BINARY);
    command
        .args(["broker", "--config"])
        .arg(folder.join("underpass.toml"));
    ServerProcess::spawn(command.stdin(Stdio::null()))
}

fn write_configuration(folder: &Path, listeners: &str) {
    let text = format!("data = \"data\"\nworkers = 2\n{listeners}");
    fs::write(folder.join("underpass.toml"), text).unwrap();
}

#[test]
fn each_client_is_sent_where_it_has_come_from() {
    let folder = disk_folder();
    let broker = configured(folder.path(), "[[listener]]\nat = ':0'\n");
    let port = tcp_addresses(broker.greeting())[0].port();
    for ip in ["127.0.0.1", "127.0.0.2"] {
        let at = format!("{ip}:{port}");
        assert_sent(&at, at.parse().unwrap());
    }
    broker.stop().assert_success();
}

#[test]
fn every_listener_advertises_its_own_address() {
    let folder = disk_folder();
    let socket = folder.path().join("socket");
    let broker = configured(
        folder.path(),
        &format!(
            "[[listener]]\nat = '127.0.0.1:0'\nadvertised = 'kafka.example.org'\n\
             [[listener]]\nat = '127.0.0.2:0'\nadvertised = '192.0.2.1:19092'\n\
             [[listener]]\nat = '127.0.0.3:0'\n\
             [[listener]]\nat = 'unix:{}'\nadvertised = '[2001:db8::1]:29092'\n",
            socket.display()
        ),
    );
    let addresses = tcp_addresses(broker.greeting());
    let port = addresses[0].port();
    assert_sent(&format!("kafka.example.org:{port}"), addresses[0]);
    assert_sent("192.0.2.1:19092", addresses[1]);
    assert_sent(&addresses[2].to_string(), addresses[2]);
    let mut client = Client::over(UnixStream::connect(&socket).unwrap());
    assert_eq!(place(&mut client), ("2001:db8::1".to_owned(), 29092));
    client.behave();
    broker.stop().assert_success();
    assert!(!socket.exists());
}

#[test]
fn a_flag_advertises_one_address_everywhere() {
    let listen = [
        "--listen",
        "127.0.0.2:0",
        "--advertised",
        "kafka.example.org:1",
    ];
    let broker = Broker::start(&listen);
    for address in tcp_addresses(broker.greeting()) {
        assert_sent("kafka.example.org:1", address);
    }
    broker.stop().0.assert_success();
}

#[test]
fn a_socket_of_the_service_manager_is_served() {
    let folder = disk_folder();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let script = "exec 3<&0 </dev/null; LISTEN_PID=$$ LISTEN_FDS=1 exec \"$0\" \"$@\"";
    for at in ["systemd", "systemd:kafka"] {
        let mut command = Command::new("sh");
        command
            .args(["-c", script, BINARY, "broker", "--listen", at])
            .arg(folder.path().join("data"))
            .env("LISTEN_FDNAMES", "kafka")
            .stdin(Stdio::from(OwnedFd::from(listener.try_clone().unwrap())));
        let broker = ServerProcess::spawn(&mut command);
        assert_sent(&address.to_string(), address);
        Client::connect(address).behave();
        broker.stop().assert_success();
    }
    let mut alone = Command::new(BINARY);
    let alone = run(alone
        .args(["broker", "-l", "systemd"])
        .arg(folder.path().join("data")));
    alone.assert_failed(1, &["systemd"]);
}

#[test]
fn a_reload_changes_listeners_and_what_they_advertise() {
    let folder = disk_folder();
    let [one, other] = [(); 2].map(|()| free_address());
    let listener = |at: SocketAddr, host: &str| {
        format!("[[listener]]\nat = '{at}'\nadvertised = '{host}:1'\n")
    };
    let broker = configured(folder.path(), &listener(one, "before"));
    assert_sent("before:1", one);
    write_configuration(
        folder.path(),
        &(listener(one, "after") + &listener(other, "added")),
    );
    broker.reload();
    assert_sent("after:1", one);
    assert_sent("added:1", other);

    // A mistake changes nothing, and is reported with its position.
    for (mistake, words) in [
        (
            "fsync = 'sometimes'\n",
            "underpass.toml: TOML parse error at line 3",
        ),
        (
            "fsync = 'never'\n[[listener]]\nat = '127.0.0.1:1'\n",
            "fsync cannot be changed",
        ),
    ] {
        write_configuration(folder.path(), mistake);
        broker.signal(Signal::HUP);
        let line = broker.hear("reload failed");
        assert!(line.contains(words), "{line}");
        assert_sent("after:1", one);
    }
    write_configuration(folder.path(), &listener(other, "left"));
    broker.reload();
    assert_sent("left:1", other);
    wait_until("end of the first listener", || {
        TcpStream::connect(one).is_err()
    });
    broker.stop().assert_success();
}

#[test]
fn tls_clients_are_sent_to_the_name_they_have_asked_for() {
    let folder = disk_folder();
    let identity = Identity::new(&["a.example.org", "b.example.org", "127.0.0.1"]);
    identity.write(folder.path());
    let broker = configured(
        folder.path(),
        "[[listener]]\nat = '127.0.0.1:0'\n\
         [[listener]]\nat = '127.0.0.2:0'\nadvertised = 'c.example.org:1'\n\
         [[listener]]\nat = '127.0.0.3:0'\ntls = false\n\
         [[tls.certificate]]\ncert = 'cert.pem'\nkey = 'key.pem'\n",
    );
    let addresses = tcp_addresses(broker.greeting());
    let port = i32::from(addresses[0].port());
    for name in ["a.example.org", "b.example.org", "127.0.0.1"] {
        let mut client = connect(addresses[0], name, &identity.certificate, None);
        assert_eq!(place(&mut client), (name.to_owned(), port));
        client.behave();
    }
    let mut client = connect(addresses[1], "a.example.org", &identity.certificate, None);
    assert_eq!(place(&mut client), ("c.example.org".to_owned(), 1));
    assert_sent(&addresses[2].to_string(), addresses[2]);
    broker.stop().assert_success();
}

#[test]
fn a_renewed_certificate_is_used_after_a_reload_and_a_wrong_one_is_not() {
    let folder = disk_folder();
    let [old, new] = [(); 2].map(|()| Identity::new(&["kafka.example.org"]));
    old.write(folder.path());
    let broker = configured(
        folder.path(),
        "[[listener]]\nat = '127.0.0.1:0'\n\
         [[tls.certificate]]\ncert = 'cert.pem'\nkey = 'key.pem'\n",
    );
    let address = tcp_addresses(broker.greeting())[0];
    let connect =
        |trusted: &Identity| connect(address, "kafka.example.org", &trusted.certificate, None);
    let mut connected = connect(&old);
    connected.behave();
    new.write(folder.path());
    broker.reload();
    connect(&new).behave();
    // Existing connections are kept.
    connected.behave();
    fs::write(folder.path().join("cert.pem"), "nothing").unwrap();
    broker.signal(Signal::HUP);
    let line = broker.hear("reload failed");
    assert!(line.contains("cert.pem"), "{line}");
    connect(&new).behave();
    broker.stop().assert_success();
}

#[test]
fn only_clients_with_a_certificate_are_served_where_that_is_demanded() {
    let folder = disk_folder();
    let [server, client, stranger] =
        ["kafka.example.org", "client", "stranger"].map(|name| Identity::new(&[name]));
    client.write(folder.path());
    fs::rename(folder.path().join("cert.pem"), folder.path().join("ca.pem")).unwrap();
    server.write(folder.path());
    let broker = configured(
        folder.path(),
        "[[listener]]\nat = '127.0.0.1:0'\n[tls]\nclient-ca = 'ca.pem'\n\
         [[tls.certificate]]\ncert = 'cert.pem'\nkey = 'key.pem'\n",
    );
    let address = tcp_addresses(broker.greeting())[0];
    let connect =
        |own: Option<&Identity>| connect(address, "kafka.example.org", &server.certificate, own);
    connect(Some(&client)).behave();
    for own in [None, Some(&stranger)] {
        let mut refused = connect(own);
        let metadata = encoded(4, &MetadataRequest::default());
        let sent = refused.try_write(&framed(&metadata));
        let answered = sent.is_ok() && refused.try_read(1).is_ok();
        assert!(!answered, "without the right certificate");
    }
    broker.stop().assert_success();
}
