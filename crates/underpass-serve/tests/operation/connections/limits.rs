//! Every limit at its boundary: the maximum works, one more does not, and other clients are served.

use std::io::Read;
use std::net::SocketAddr;
use std::num::{NonZeroU64, NonZeroUsize};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use underpass_net::ProxyProtocol;
use underpass_serve::{Error, ServerOptions};
use underpass_testkit::{HttpClient, wait_until};

use crate::support::{Probe, Server, State, pattern};

const GET: &str = "GET /f HTTP/1.1\r\nHost: a\r\n\r\n";
const SMALL: &[u8] = b"small";

fn server(change: impl FnOnce(&mut ServerOptions)) -> Server {
    let server = Server::with(change);
    server.write("f", SMALL);
    server.write("probe", "probe");
    server
}

/// Returns whether the server responds on a new connection rather than closing it.
fn is_served(address: SocketAddr) -> bool {
    let mut client = HttpClient::connect(address);
    client.send(GET);
    client
        .try_response("GET")
        .is_ok_and(|answer| answer.body == SMALL)
}

#[test]
fn a_client_has_so_many_connections_over_all_workers_and_no_more() {
    let server = server(|options| {
        options.workers = NonZeroUsize::new(2);
        options.connections.connections_per_client_max = NonZeroUsize::new(3);
    });
    let mut clients: Vec<_> = (0..3).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.send(GET);
        assert_eq!(client.response().body, SMALL);
    }
    for _ in 0..8 {
        assert!(!is_served(server.address()));
    }
    // Existing connections stay open, and a client that leaves makes room.
    for client in &mut clients {
        assert_eq!(client.state(), State::Open);
    }
    clients.pop();
    wait_until("room for a client", || is_served(server.address()));
}

#[test]
fn a_connection_has_so_many_requests_and_the_last_answer_announces_the_end() {
    let server = server(|options| options.requests.per_connection_max = NonZeroU64::new(3));
    let mut client = server.connect();
    for number in 1..=3 {
        client.send(GET);
        let answer = client.response();
        assert_eq!(answer.body, SMALL);
        assert_eq!(answer.field("connection"), (number == 3).then_some("close"));
    }
    assert_eq!(client.state(), State::Closed);
    assert!(is_served(server.address()));
}

#[test]
fn heads_and_their_lines_are_as_long_as_they_may_be() {
    let server = server(|options| {
        options.requests.line_bytes_max = 200;
        options.requests.head_bytes_max = 400;
    });
    let line = |bytes: usize| {
        let around = "GET /f? HTTP/1.1".len();
        format!(
            "GET /f?{} HTTP/1.1\r\nHost: a\r\n\r\n",
            "q".repeat(bytes - around)
        )
    };
    assert_eq!(server.ask(line(200)).status, 200);
    assert_eq!(server.ask(line(201)).status, 414);
    let head = |bytes: usize| {
        let around = GET.len() + "A: \r\n".len();
        let more = format!("A: {}\r\n\r\n", "a".repeat(bytes - around));
        GET.replace("\r\n\r\n", "\r\n") + &more
    };
    assert_eq!(server.ask(head(400)).status, 200);
    assert_eq!(server.ask(head(401)).status, 431);
}

#[test]
fn bodies_are_drained_up_to_their_limit_and_longer_ones_end_the_connection() {
    let server = server(|_| {});
    for (length, expected) in [(65536, State::Open), (65537, State::Closed)] {
        let body = "b".repeat(length);
        let mut client = server.connect();
        client.send(format!(
            "GET /f HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{body}"
        ));
        assert_eq!(client.response().body, SMALL);
        assert_eq!(client.state(), expected, "{length}");
        let mut client = server.connect();
        client.send(format!(
            "GET /f HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
             {length:x}\r\n{body}\r\n0\r\n\r\n"
        ));
        assert_eq!(client.response().body, SMALL);
        assert_eq!(client.state(), expected, "{length} in chunks");
    }
}

#[test]
fn ranges_are_as_many_as_they_may_be() {
    let server = server(|options| options.requests.ranges_max = 20);
    server.write("r", pattern(1000));
    let status = |ranges: &str| {
        server
            .ask(format!(
                "GET /r HTTP/1.1\r\nHost: a\r\nRange: bytes={ranges}\r\n\r\n"
            ))
            .status
    };
    let ascending = |count| Vec::from_iter((0..count).map(|at| format!("{0}-{0}", 2 * at)));
    let descending = |count| Vec::from_iter(ascending(count).into_iter().rev());
    assert_eq!(status(&ascending(20).join(",")), 206);
    assert_eq!(status(&ascending(21).join(",")), 200);
    assert_eq!(status(&descending(16).join(",")), 206);
    assert_eq!(status(&descending(17).join(",")), 200);
}

#[test]
fn limits_that_contradict_each_other_are_reported_before_anything_listens() {
    let refused = |change: fn(&mut ServerOptions)| {
        let folder = tempfile::tempdir().unwrap();
        let mut options = ServerOptions::of(folder.path());
        options.listen = vec![SocketAddr::from(([127, 0, 0, 1], 0)).into()];
        change(&mut options);
        let error = underpass_serve::serve(&options).unwrap_err();
        assert!(matches!(error, Error::Limits { .. } | Error::Net(_)));
        error.to_string()
    };
    let head = refused(|options| options.requests.head_bytes_max = 100);
    assert!(head.contains("head-bytes-max"), "{head}");
    let head = refused(|options| options.requests.head_bytes_max = 100_000);
    assert!(head.contains("more than 65536"), "{head}");
    let rate = refused(|options| options.connections.rate_max = NonZeroU64::new(300));
    assert!(rate.contains("rate-min"), "{rate}");
    let none = refused(|options| options.connections.connections_max = 0);
    assert!(none.contains("connections-max"), "{none}");
    let nobody = refused(|options| {
        options.connections.proxy.protocol = underpass_net::ProxyProtocol::Required;
    });
    assert!(nobody.contains("proxy.trusted"), "{nobody}");
}

#[test]
fn a_time_longer_than_the_kernel_can_wait_is_its_longest() {
    let server = server(|options| options.connections.stall_timeout = Duration::MAX);
    server.write("f", "content");
    assert_eq!(server.get("/f").body, b"content");
}

#[test]
fn every_limit_can_be_configured_and_a_misspelt_one_is_reported() {
    let text = r#"
        user = "www-data:www-data"
        confine = "required"
        [requests]
        line-bytes-max = "8KiB"
        head-bytes-max = 16_384
        per-connection-max = 1000
        ranges-max = 10
        [connections]
        connections-per-client-max = 20
        rate-min = "1kB"
        rate-min-window = "30s"
        rate-max = "5MB"
        rate-all-max = 100_000_000
        rate-per-client-max = 20_000_000
        [connections.proxy]
        trusted = ["10.0.0.0/8", "::1", "unix"]
        protocol = "trusted"
        timeout = "1s"
        forwarded = "x-forwarded-for"
    "#;
    let options = ServerOptions::parse(text).unwrap();
    assert_eq!(options.requests.ranges_max, 10);
    assert_eq!(options.requests.line_bytes_max, 8192);
    assert_eq!(options.connections.rate_min, 1000);
    assert_eq!(options.connections.rate_max, NonZeroU64::new(5_000_000));
    assert_eq!(options.connections.proxy.timeout, Duration::from_secs(1));
    assert_eq!(options.connections.proxy.trusted.len(), 3);
    for (right, wrong) in [
        ("rate-all-max", "rate-al-max"),
        ("5MB", "5 apples"),
        ("rate-all-max = 100_000_000", "rate-all-max = 0"),
        ("\"8KiB\"", "-1"),
        ("10.0.0.0/8", "10.0.0.0/80"),
        ("\"required\"", "\"perhaps\""),
        ("www-data:www-data", "www-data:"),
        (
            "connections-per-client-max = 20",
            "connections-per-client-max = 0",
        ),
    ] {
        let reported = ServerOptions::parse(&text.replace(right, wrong)).unwrap_err();
        assert!(reported.to_string().contains("line "), "{reported}");
    }
}

const MIB: usize = 1 << 20;

/// The kernel does not pace the first ten packets of a connection, which over loopback have up to
/// 64 KiB each.
const UNPACED: usize = 10 * (64 << 10);

/// Downloads a file and returns the bytes per second since the request, without those that are not
/// paced. Pauses of the client count as time that the server had.
fn rate(client: &mut HttpClient, target: &str, length: usize) -> f64 {
    let start = Instant::now();
    client.ask(target);
    assert_eq!(client.response().body.len(), length);
    (length - UNPACED) as f64 / start.elapsed().as_secs_f64()
}

/// No client may exceed its rate by more than 5 percent, and it must reach half of it at some time
/// within the wait, since a busy machine delays servers and clients. The precision of the rate
/// limiter is checked by its own tests.
fn assert_rate(rate: u64, measure: impl Fn() -> Vec<f64>) {
    wait_until("rate that is nearly reached", || {
        let measured: Vec<f64> = measure()
            .into_iter()
            .map(|measured| measured / rate as f64)
            .collect();
        assert!(measured.iter().all(|part| *part < 1.05), "{measured:?}");
        measured.iter().all(|part| *part > 0.5)
    });
}

#[test]
fn a_connection_is_sent_what_it_may_and_others_as_much() {
    const RATE: u64 = 4 << 20;
    let length = 8 * MIB;
    let server = server(|options| options.connections.rate_max = NonZeroU64::new(RATE));
    server.write("large", vec![7; length]);
    assert_rate(RATE, || {
        let clients: Vec<_> = (0..2)
            .map(|_| {
                let mut client = server.connect();
                thread::spawn(move || rate(&mut client, "/large", length))
            })
            .collect();
        assert!(is_served(server.address()), "while they download");
        clients
            .into_iter()
            .map(|client| client.join().unwrap())
            .collect()
    });
}

#[test]
fn all_connections_together_are_sent_what_they_may() {
    const RATE: u64 = 8 << 20;
    const CLIENTS: usize = 4;
    let length = 6 * MIB;
    let server = server(|options| {
        options.workers = NonZeroUsize::new(2);
        options.connections.rate_all_max = NonZeroU64::new(RATE);
    });
    let content = pattern(length);
    server.write("large", &content);
    assert_rate(RATE, || {
        let start = Instant::now();
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| {
                let mut client = server.connect();
                client.ask("/large");
                thread::spawn(move || client.response().body)
            })
            .collect();
        let bodies: Vec<_> = clients
            .into_iter()
            .map(|client| client.join().unwrap())
            .collect();
        let seconds = start.elapsed().as_secs_f64();
        assert!(bodies.iter().all(|body| *body == content));
        vec![(CLIENTS * length) as f64 / seconds]
    });
}

/// Downloads with so many connections of each client at the same time, and returns the bytes per
/// second of each client, over all of its connections.
fn rates_of_clients(
    connections: &[usize],
    content: &Arc<Vec<u8>>,
    connect: impl Fn(usize) -> HttpClient,
) -> Vec<f64> {
    let start = Instant::now();
    let downloads: Vec<Vec<_>> = (0..connections.len())
        .map(|client| {
            let download = || {
                let (mut client, content) = (connect(client), Arc::clone(content));
                client.ask("/large");
                thread::spawn(move || {
                    assert!(client.response().body == *content);
                    start.elapsed().as_secs_f64()
                })
            };
            (0..connections[client]).map(|_| download()).collect()
        })
        .collect();
    let rate = |downloads: Vec<thread::JoinHandle<f64>>| {
        let bytes = downloads.len() * content.len();
        let seconds: Vec<_> = downloads
            .into_iter()
            .map(|download| download.join().unwrap())
            .collect();
        let (first, last) = seconds
            .iter()
            .fold((f64::MAX, 0.0_f64), |(first, last), one| {
                (first.min(*one), last.max(*one))
            });
        // A starved connection ends only after the others.
        match first > last * 0.5 {
            true => bytes as f64 / last,
            false => 0.0,
        }
    };
    downloads.into_iter().map(rate).collect()
}

#[test]
fn all_connections_of_a_client_are_sent_what_they_may_and_other_clients_as_much() {
    const RATE: u64 = 4 << 20;
    let content = Arc::new(pattern(4 * MIB));
    let server = server(|options| {
        options.workers = NonZeroUsize::new(2);
        options.connections.rate_per_client_max = NonZeroU64::new(RATE);
    });
    server.write("large", &*content);
    let from = |client| HttpClient::connect_from([127, 0, 0, 1 + client as u8], server.address());
    let one = |_: usize| from(0);
    // One client alone, two equal ones, and two with different numbers of connections.
    assert_rate(RATE, || rates_of_clients(&[2], &content, one));
    assert_rate(RATE, || rates_of_clients(&[3, 3], &content, from));
    assert_rate(RATE, || rates_of_clients(&[1, 2], &content, from));
}

#[test]
fn a_client_that_a_proxy_names_has_its_own_bandwidth() {
    const RATE: u64 = 4 << 20;
    let content = Arc::new(pattern(4 * MIB));
    let server = server(|options| {
        options.connections.rate_per_client_max = NonZeroU64::new(RATE);
        options.connections.proxy.protocol = ProxyProtocol::Required;
        options.connections.proxy.trusted = vec!["127.0.0.1".parse().unwrap()];
    });
    server.write("large", &*content);
    assert_rate(RATE, || {
        rates_of_clients(&[2, 2], &content, |client| {
            let mut connection = server.connect();
            connection.send(format!("PROXY TCP4 192.0.2.{client} 192.0.2.99 1 2\r\n"));
            connection
        })
    });
}

#[test]
fn clients_and_all_together_keep_to_their_limits_at_the_same_time() {
    const EACH: u64 = 4 << 20;
    const ALL: u64 = 6 << 20;
    let content = Arc::new(pattern(4 * MIB));
    let server = server(|options| {
        options.workers = NonZeroUsize::new(2);
        options.connections.rate_per_client_max = NonZeroU64::new(EACH);
        options.connections.rate_all_max = NonZeroU64::new(ALL);
    });
    server.write("large", &*content);
    let from = |client| HttpClient::connect_from([127, 0, 0, 1 + client as u8], server.address());
    assert_rate(EACH, || rates_of_clients(&[2], &content, from));
    // Twice the rate of each client exceeds the rate of all. One of two may get more than its half
    // while the machine delays the other one.
    assert_rate(ALL, || {
        let rates = rates_of_clients(&[2, 2], &content, from);
        assert!(
            rates.iter().all(|rate| *rate < EACH as f64 * 1.05),
            "{rates:?}"
        );
        let last = rates.into_iter().fold(f64::MAX, f64::min);
        vec![2.0 * last]
    });
}

#[test]
fn connecting_anew_for_each_file_is_no_way_round_the_rate() {
    const RATE: u64 = 256 << 10;
    let server = server(|options| {
        options.connections.rate_per_client_max = NonZeroU64::new(RATE);
    });
    let content = pattern(16 << 10);
    server.write("some", &content);
    let start = Instant::now();
    for _ in 0..32 {
        let close = "GET /some HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        assert!(server.ask(close).body == content);
    }
    let rate = (32 * content.len()) as f64 / start.elapsed().as_secs_f64();
    assert!(rate < RATE as f64 * 1.15, "{rate}");
}

/// Reads a little now and then until the connection or the test ends.
fn sip(mut socket: std::net::TcpStream) {
    let mut buffer = [0; 1024];
    while socket.read(&mut buffer).is_ok_and(|count| count > 0) {
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn who_takes_less_than_the_least_is_reset_and_who_takes_more_in_bursts_is_not() {
    const WINDOW: Duration = Duration::from_secs(3);
    let length = 64 * MIB;
    let server = server(|options| {
        // Twenty times the rate of the slow client, and a tenth of the other one's.
        options.connections.rate_min = 400 << 10;
        options.connections.rate_min_window = WINDOW;
    });
    server.write("large", vec![7; length]);
    let address = server.address();
    let request = "GET /large HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut slow = HttpClient::connect_slow(address);
    slow.send(request);
    let steady = thread::spawn(move || {
        let mut client = HttpClient::connect_slow(address);
        client.send(request);
        let start = Instant::now();
        // Two bursts per window: enough on average.
        while start.elapsed() < 2 * WINDOW {
            client.read_exact(4 * MIB).unwrap();
            thread::sleep(WINDOW / 3);
        }
        client.read_exact(MIB).map(drop)
    });
    let sips = slow.socket.try_clone().unwrap();
    thread::spawn(move || sip(sips));
    assert!(is_served(address), "while others are slow");
    slow.await_reset();
    steady.join().unwrap().unwrap();
}

#[test]
fn slow_clients_of_every_kind_delay_no_other() {
    const TIMEOUT: Duration = Duration::from_secs(2);
    let server = server(|options| {
        options.requests.head_timeout = TIMEOUT;
        options.requests.body_timeout = TIMEOUT;
        options.connections.idle_timeout = TIMEOUT;
    });
    server.write("large", vec![7; 32 * MIB]);
    let mut silent = server.connect();
    let mut head = server.connect();
    head.send("GET /f HT");
    let mut body = server.connect();
    body.send("GET /f HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nb");
    let mut reader = HttpClient::connect_slow(server.address());
    reader.ask("/large");
    for _ in 0..100 {
        assert!(is_served(server.address()));
    }
    // A trickle does not extend a deadline.
    head.send("T");
    body.send("b");
    assert_eq!(head.response().status, 408);
    assert_eq!(body.response().status, 408);
    assert!(silent.rest().is_empty());
    drop(reader);
}
