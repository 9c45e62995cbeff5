//! Each seam of the network layer, used as future protocols will use it.

mod toy;

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use toy::{
    FRAME_BYTES_MAX, HANG, Nothing, Polls, Service, for_operators, on_any_port, serve, stop,
};
use underpass_net::{
    Address, ConnectionError, ConnectionLimits, Connector, ListenAt, Server, ShutdownPhase,
    WakeHandle,
};
use underpass_testkit::{wait_for, wait_until};

fn connect(server: &Server<Nothing>) -> TcpStream {
    connect_to(server.address().unwrap())
}

fn connect_to(address: SocketAddr) -> TcpStream {
    let socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(HANG)).unwrap();
    socket.set_write_timeout(Some(HANG)).unwrap();
    socket
}

/// Returns bytes with a long period, so that lost or repeated ones show.
fn pattern(length: usize) -> Vec<u8> {
    let letter = |at: usize| b'a' + (at * 7 + at / 251) as u8 % 26;
    (0..length).map(letter).collect()
}

fn send_frame(socket: &mut TcpStream, frame: &[u8]) {
    let length = u32::try_from(frame.len()).unwrap().to_be_bytes();
    socket.write_all(&[&length[..], frame].concat()).unwrap();
}

fn receive_frame(socket: &mut TcpStream) -> Vec<u8> {
    let mut length = [0; 4];
    socket.read_exact(&mut length).unwrap();
    let mut frame = vec![0; u32::from_be_bytes(length) as usize];
    socket.read_exact(&mut frame).unwrap();
    frame
}

#[test]
fn frames_arrive_whole_however_they_are_split_and_though_receiving_is_cancelled() {
    let (server, _config) = serve(vec![on_any_port(Service::Frames)], |_| {});
    let mut socket = connect(&server);
    for length in [0, 1, 4095, 4096, 100_000, 3 << 20] {
        let frame = pattern(length);
        send_frame(&mut socket, &frame);
        assert!(receive_frame(&mut socket) == frame.to_ascii_uppercase());
    }
    // Byte by byte, and several together.
    for byte in b"\0\0\0\x03abc" {
        socket.write_all(&[*byte]).unwrap();
        thread::yield_now();
    }
    assert_eq!(receive_frame(&mut socket), b"ABC");
    socket
        .write_all(b"\0\0\0\x01d\0\0\0\x02ef\0\0\0\x00")
        .unwrap();
    for answer in [&b"D"[..], b"EF", b""] {
        assert_eq!(receive_frame(&mut socket), answer);
    }
    stop(&server);
}

#[test]
fn a_frame_that_is_too_long_or_never_completed_ends_its_connection() {
    let (server, _config) = serve(vec![on_any_port(Service::Frames)], |config| {
        config.limits.idle_timeout = Duration::from_millis(200);
    });
    let mut socket = connect(&server);
    let length = u32::try_from(FRAME_BYTES_MAX + 1).unwrap().to_be_bytes();
    socket.write_all(&length).unwrap();
    assert!(is_end(socket.read(&mut [0; 1])));
    let mut socket = connect(&server);
    socket.write_all(b"\0\0\0\x05abc").unwrap();
    socket.shutdown(Shutdown::Write).unwrap();
    assert!(is_end(socket.read(&mut [0; 1])));
    // The deadline of the length.
    let mut socket = connect(&server);
    socket.write_all(b"\0\0").unwrap();
    assert!(is_end(socket.read(&mut [0; 1])));
    stop(&server);
}

/// Returns whether a connection was closed or reset.
fn is_end(read: io::Result<usize>) -> bool {
    match read {
        Ok(count) => count == 0,
        Err(error) => error.kind() == io::ErrorKind::ConnectionReset,
    }
}

struct LongPolls {
    server: Server<Nothing>,
    waiting: Arc<Mutex<Vec<WakeHandle>>>,
    failed: Receiver<String>,
}

impl LongPolls {
    fn start(timeout: Duration) -> LongPolls {
        let (failed, failures) = mpsc::channel();
        let waiting = Arc::default();
        let polls = Polls {
            waiting: Arc::clone(&waiting),
            failed,
            timeout,
        };
        let (server, _config) = serve(vec![on_any_port(Service::LongPoll(polls))], |_| {});
        LongPolls {
            server,
            waiting,
            failed: failures,
        }
    }

    /// Waits until `count` polls wait, and takes their handles.
    fn handles(&self, count: usize) -> Vec<WakeHandle> {
        wait_for("polls", || {
            let mut waiting = self.waiting.lock().unwrap();
            (waiting.len() >= count).then(|| waiting.drain(..).collect())
        })
    }
}

fn answer<const N: usize>(socket: &mut TcpStream) -> [u8; N] {
    let mut answer = [0; N];
    socket.read_exact(&mut answer).unwrap();
    answer
}

#[test]
fn long_polls_are_woken_by_another_thread() {
    let polls = LongPolls::start(HANG);
    let mut sockets: Vec<_> = (0..10).map(|_| connect(&polls.server)).collect();
    for _ in 0..100 {
        for socket in &mut sockets {
            socket.write_all(b"?").unwrap();
        }
        polls
            .handles(sockets.len())
            .iter()
            .for_each(WakeHandle::wake);
        for socket in &mut sockets {
            assert_eq!(&answer(socket), b"woken\n");
        }
    }
    stop(&polls.server);
}

#[test]
fn wake_ups_without_a_waiter_are_one_and_end_the_next_wait() {
    let polls = LongPolls::start(Duration::from_millis(200));
    let mut socket = connect(&polls.server);
    socket.write_all(b"?").unwrap();
    let handle = polls.handles(1).remove(0);
    assert_eq!(&answer(&mut socket), b"late\n");
    (0..3).for_each(|_| handle.wake());
    socket.write_all(b"??").unwrap();
    assert_eq!(&answer(&mut socket), b"woken\n");
    assert_eq!(&answer(&mut socket), b"late\n");
    stop(&polls.server);
}

#[test]
fn a_long_poll_ends_with_its_deadline_with_its_peer_and_with_the_server() {
    let late = LongPolls::start(Duration::from_millis(20));
    let mut socket = connect(&late.server);
    socket.write_all(b"?").unwrap();
    assert_eq!(&answer(&mut socket), b"late\n");
    stop(&late.server);

    let polls = LongPolls::start(HANG);
    let mut socket = connect(&polls.server);
    socket.write_all(b"??").unwrap();
    let handles = polls.handles(1);
    drop(socket);
    assert_eq!(polls.failed.recv_timeout(HANG).unwrap(), "the peer is gone");
    // The connection is gone; waking it does nothing.
    handles.iter().for_each(WakeHandle::wake);

    let mut socket = connect(&polls.server);
    socket.write_all(b"?").unwrap();
    polls.handles(1);
    polls.server.shutdown().advance(ShutdownPhase::Now);
    assert_eq!(polls.failed.recv_timeout(HANG).unwrap(), "the server stops");
    polls.server.join();
}

#[test]
fn bodies_of_known_length_go_into_files_one_after_another() {
    let folder = tempfile::tempdir().unwrap();
    let store = Service::Store(folder.path().into());
    let (server, _config) = serve(vec![on_any_port(store)], |_| {});
    let mut socket = connect(&server);
    let mut answers = BufReader::new(socket.try_clone().unwrap());
    for (number, length) in [(1, 5 << 20), (2, 0), (3, 10), (4, 300_000)] {
        let body = pattern(length);
        let head = u64::try_from(length).unwrap().to_be_bytes();
        // The first body's head arrives alone, the others with the start of their body.
        socket.write_all(&head).unwrap();
        socket.write_all(&body).unwrap();
        let mut account = String::new();
        answers.read_line(&mut account).unwrap();
        assert!(fs::read(folder.path().join(number.to_string())).unwrap() == body);
        let is_spliced = account.contains("splice");
        assert!(is_spliced || length < 1 << 20, "{account}");
    }
    // Two bodies together: bytes after the first belong to the second.
    socket
        .write_all(b"\0\0\0\0\0\0\0\x03one\0\0\0\0\0\0\0\x03two")
        .unwrap();
    for (number, body) in [(5, "one"), (6, "two")] {
        answers.read_line(&mut String::new()).unwrap();
        assert_eq!(
            fs::read_to_string(folder.path().join(number.to_string())).unwrap(),
            body
        );
    }
    stop(&server);
}

#[test]
fn a_body_that_stalls_or_ends_early_ends_its_connection() {
    let folder = tempfile::tempdir().unwrap();
    let store = Service::Store(folder.path().into());
    let (server, _config) = serve(vec![on_any_port(store)], |config| {
        config.limits.stall_timeout = Duration::from_millis(100);
    });
    for ends in [false, true] {
        let mut socket = connect(&server);
        socket.write_all(b"\0\0\0\0\0\x01\0\0begin").unwrap();
        if ends {
            socket.shutdown(Shutdown::Write).unwrap();
        }
        assert!(is_end(socket.read(&mut [0; 1])));
        assert_eq!(fs::read(folder.path().join("1")).unwrap(), b"begin");
    }
    stop(&server);
}

#[test]
fn a_body_slower_than_the_minimum_rate_ends_its_connection() {
    let folder = tempfile::tempdir().unwrap();
    let store = Service::Store(folder.path().into());
    let (server, _config) = serve(vec![on_any_port(store)], |config| {
        config.limits.rate_min = 1 << 30;
        config.limits.rate_min_window = Duration::from_secs(1);
    });
    let mut socket = connect(&server);
    socket.write_all(b"\0\0\0\0\0\x01\0\0").unwrap();
    wait_until("the end of a slow body", || socket.write_all(b".").is_err());
    stop(&server);
}

/// Returns everything that a Unix socket sends.
fn said_at(path: &Path) -> String {
    let mut socket = UnixStream::connect(path).unwrap();
    socket.set_read_timeout(Some(HANG)).unwrap();
    let mut text = String::new();
    socket.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn listeners_of_one_server_speak_each_their_own_and_connections_know_theirs() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let at: ListenAt = format!("unix:{}", path.display()).parse().unwrap();
    let hello = on_any_port(Service::Hello("clients"));
    let other = underpass_net::ListenerConfig::new(at.clone(), Service::Hello("others"));
    let (server, _config) = serve(vec![hello, other], |_| {});
    let mut text = String::new();
    connect(&server).read_to_string(&mut text).unwrap();
    assert_eq!(text, "127.0.0.1:0 clients running\n");
    assert_eq!(said_at(&path), format!("{at} others running\n"));
    stop(&server);
}

#[test]
fn operators_connect_where_clients_wait_and_while_the_server_drains() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let at: ListenAt = format!("unix:{}", path.display()).parse().unwrap();
    let listeners = vec![
        on_any_port(Service::Frames),
        for_operators(at, Service::Hello("operators")),
    ];
    let (server, _config) = serve(listeners, |config| {
        config.limits.connections_max = 1;
        config.limits.proxy.protocol = underpass_net::ProxyProtocol::Trusted;
        config.limits.proxy.trusted = vec!["unix".parse().unwrap()];
    });
    assert_eq!(
        server.addresses().len(),
        1,
        "clients need not know of the other one"
    );
    let mut first = connect(&server);
    send_frame(&mut first, b"kept");
    assert_eq!(receive_frame(&mut first), b"KEPT");
    let mut second = connect(&server);
    send_frame(&mut second, b"waits");
    for _ in 0..5 {
        assert!(said_at(&path).contains("operators running"));
    }
    drop(first);
    assert_eq!(receive_frame(&mut second), b"WAITS");
    // An incomplete frame keeps the server from ending.
    second.write_all(b"\0\0\0\x02a").unwrap();
    // The one worker has seen it before it serves later connections.
    for _ in 0..2 {
        assert!(said_at(&path).contains("running"));
    }
    server.shutdown().advance(ShutdownPhase::Draining);
    assert!(said_at(&path).contains("operators stopping"));
    second.write_all(b"b").unwrap();
    assert_eq!(receive_frame(&mut second), b"AB");
    drop(second);
    server.join();
    assert!(!path.exists());
}

#[test]
fn a_reload_changes_what_a_listener_speaks_and_loses_no_connection() {
    let (server, mut config) = serve(vec![on_any_port(Service::Hello("0"))], |_| {});
    let address = server.address().unwrap();
    let done = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let clients = {
        let done = Arc::clone(&done);
        thread::spawn(move || {
            let mut count = 0;
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                let mut text = String::new();
                connect_to(address).read_to_string(&mut text).unwrap();
                assert!(text.ends_with(" running\n"), "{text:?}");
                count += 1;
            }
            count
        })
    };
    for word in ["1", "2", "3", "4", "5", "6", "7", "8"] {
        config.listeners[0].service = Service::Hello(word);
        wait_until("reload", || server.reload(&config).is_ok());
        assert_eq!(server.address(), Some(address));
        let mut text = String::new();
        connect_to(address).read_to_string(&mut text).unwrap();
        assert_eq!(text, format!("127.0.0.1:0 {word} running\n"));
    }
    done.store(true, std::sync::atomic::Ordering::Relaxed);
    assert!(clients.join().unwrap() > 0);
    stop(&server);
}

#[test]
fn a_program_that_is_no_server_opens_connections_of_the_same_type() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let at: ListenAt = format!("unix:{}", path.display()).parse().unwrap();
    let local = underpass_net::ListenerConfig::new(at, Service::Frames);
    let (server, _config) = serve(vec![on_any_port(Service::Frames), local], |_| {});
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let limits = ConnectionLimits::default();
        let connector = Connector::new(underpass::Policy::default(), &limits);
        for to in [Address::Tcp(server.address().unwrap()), Address::Unix(path)] {
            let mut connection = connector.connect(&to, HANG).await.unwrap();
            assert!(connection.listener().is_none());
            for length in [1, 1 << 20] {
                let frame = pattern(length);
                let answer = toy::ask(&mut connection, &frame).await.unwrap();
                assert!(answer == frame.to_ascii_uppercase());
            }
            connection.close().await;
        }
        // The port is bound without a listener; a network for documentation never answers.
        let bound = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let closed = Address::Tcp(bound.local_addr().unwrap());
        match connector.connect(&closed, HANG).await.err() {
            Some(ConnectionError::Connect(error)) => {
                assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
            }
            other => panic!("{other:?}"),
        }
    });
    stop(&server);
}

#[test]
fn a_connection_opens_another_one_on_its_worker() {
    let (last, _config) = serve(vec![on_any_port(Service::Frames)], |_| {});
    let to = Address::Tcp(last.address().unwrap());
    let (first, _config) = serve(vec![on_any_port(Service::Forward(to))], |_| {});
    let mut socket = connect(&first);
    send_frame(&mut socket, b"passed on");
    assert_eq!(receive_frame(&mut socket), b"PASSED ON");
    stop(&first);
    stop(&last);
}
