//! Metrics and health as seen by a scraper, compared with the responses that clients received.

use std::collections::{BTreeMap, HashSet};
use std::num::NonZeroUsize;
use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;
use underpass_net::{ProxyProtocol, ShutdownPhase};
use underpass_serve::rules::HostName;
use underpass_serve::{Access, ServerOptions, SiteOptions};
use underpass_testkit::{HttpClient, wait_for, wait_until};

use crate::support::{Server, pattern};

const SIZE: usize = 24 << 20;
/// A timeout that expires, and one that no test reaches.
const SHORT: Duration = Duration::from_millis(100);
const LONG: Duration = Duration::from_secs(3600);

/// A server with metrics and health on a Unix socket.
struct StatusServer {
    server: Server,
    folder: TempDir,
}

impl StatusServer {
    fn start() -> StatusServer {
        StatusServer::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut ServerOptions)) -> StatusServer {
        let folder = tempfile::tempdir().unwrap();
        let server = Server::with(|options| {
            let path = folder.path().join("status");
            options.status.listen = Some(path.into());
            change(options);
        });
        StatusServer { server, folder }
    }

    fn ask(&self, request: &str) -> (u16, String) {
        ask(&self.folder.path().join("status"), request)
    }

    fn get(&self, path: &str) -> (u16, String) {
        self.ask(&format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"))
    }

    fn metrics(&self) -> Metrics {
        let (status, text) = self.get("/metrics");
        assert_eq!(status, 200);
        Metrics::parse(&text)
    }

    /// Returns the metrics once `count` responses have been counted, which is after they were sent.
    fn after(&self, count: f64) -> Metrics {
        wait_for("count of all requests", || {
            let metrics = self.metrics();
            (metrics.sum("underpass_requests_total") >= count).then_some(metrics)
        })
    }
}

fn ask(path: &Path, request: &str) -> (u16, String) {
    let mut client = HttpClient::connect_unix(path);
    client.send(request);
    let method = request.split(' ').next().unwrap();
    let answer = client.try_response(method).unwrap();
    if request.contains("Connection: close") {
        client.assert_closed();
    }
    (answer.status, answer.text().to_owned())
}

/// Samples by name and labels.
#[derive(Debug)]
struct Metrics {
    samples: BTreeMap<String, f64>,
}

impl Metrics {
    /// Checks the text format: every family has its help and type before all its samples, and no
    /// sample occurs twice.
    fn parse(text: &str) -> Metrics {
        assert!(text.ends_with('\n'));
        let (mut samples, mut families) = (BTreeMap::new(), HashSet::new());
        let (mut helped, mut family) = (String::new(), String::new());
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                rest.split_once(' ').unwrap().0.clone_into(&mut helped);
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').unwrap();
                assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
                assert_eq!(name, helped);
                assert_eq!(name.ends_with("_total"), kind == "counter", "{line}");
                assert!(families.insert(name.to_owned()), "{name} stands twice");
                name.clone_into(&mut family);
            } else {
                let (name, value) = line.rsplit_once(' ').unwrap();
                let base = name.split('{').next().unwrap();
                let of_histogram = ["_bucket", "_sum", "_count"]
                    .iter()
                    .any(|end| base.strip_suffix(end) == Some(&family));
                assert!(base == family || of_histogram, "{line} is in {family}");
                let known = samples.insert(name.to_owned(), value.parse().unwrap());
                assert!(known.is_none(), "{line} stands twice");
            }
        }
        Metrics { samples }
    }

    fn value(&self, name: &str) -> f64 {
        match self.samples.get(name) {
            Some(value) => *value,
            None => panic!("no {name} in {:#?}", self.samples),
        }
    }

    /// Returns the sum over all labels.
    fn sum(&self, family: &str) -> f64 {
        let of_family = |name: &str| name.split('{').next() == Some(family);
        let samples = self.samples.iter().filter(|(name, _)| of_family(name));
        samples.map(|(_, value)| value).sum()
    }
}

#[test]
fn counts_add_up_to_what_clients_received() {
    let reported = StatusServer::with(|options| options.workers = NonZeroUsize::new(2));
    let server = &reported.server;
    server.write("small", "0123456789");
    server.write("large", pattern(1 << 20));
    // Bytes of a small file, of a large file, and of a range of it.
    let mut received = [0, 0, 0];
    for _ in 0..5 {
        let mut client = server.connect();
        client.send("GET /small HTTP/1.1\r\nHost: a\r\n\r\nGET /large HTTP/1.1\r\nHost: a\r\n\r\n");
        received[0] += client.response().body.len();
        received[1] += client.response().body.len();
    }
    assert_eq!(server.get("/none").status, 404);
    let mut client = server.connect();
    client.send("HEAD /small HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.head().status, 200);
    let part = server.ask("GET /large HTTP/1.1\r\nHost: a\r\nRange: bytes=0-99999\r\n\r\n");
    received[2] += part.body.len();
    assert_eq!(server.ask("nonsense\r\n\r\n").status, 400);
    let metrics = reported.after(14.0);
    let value = |name: &str| metrics.value(name);
    let moved = |mechanism: &str| {
        value(&format!(
            "underpass_body_bytes_total{{mechanism=\"{mechanism}\"}}"
        ))
    };
    assert_eq!(moved("read_write"), received[0] as f64);
    assert_eq!(moved("splice"), received[1] as f64);
    assert_eq!(moved("sendfile"), received[2] as f64);
    let all = metrics.sum("underpass_body_bytes_total");
    assert_eq!(all, received.iter().sum::<usize>() as f64);
    assert!(value("underpass_body_calls_total{mechanism=\"splice\"}") >= 10.0);
    assert!(value("underpass_other_bytes_total") > 14.0 * 100.0);
    for (method, count) in [
        ("GET", 12.0),
        ("HEAD", 1.0),
        ("OPTIONS", 0.0),
        ("other", 1.0),
    ] {
        let name = format!("underpass_requests_total{{method=\"{method}\"}}");
        assert_eq!(value(&name), count, "{method}");
    }
    for (code, count) in [(200, 11.0), (206, 1.0), (400, 1.0), (404, 1.0)] {
        let class = code / 100;
        let labels = format!("{{code=\"{code}\",class=\"{class}xx\"}}");
        assert_eq!(
            value(&format!("underpass_responses_total{labels}")),
            count,
            "{code}"
        );
    }
    assert_eq!(
        value("underpass_responses_ended_total{end=\"complete\"}"),
        14.0
    );
    assert_eq!(value("underpass_request_duration_seconds_count"), 14.0);
    assert_eq!(
        value("underpass_request_duration_seconds_bucket{le=\"+Inf\"}"),
        14.0
    );
    assert!(value("underpass_request_duration_seconds_sum") > 0.0);
    assert_eq!(value("underpass_connections_accepted_total"), 9.0);
    assert!(value("underpass_connections_open") >= 1.0);
    let lookups = metrics.sum("underpass_open_file_lookups_total");
    assert_eq!(lookups, 13.0, "all but the nonsense");
    assert_eq!(value("underpass_workers"), 2.0);
    assert_eq!(value("underpass_phase{phase=\"running\"}"), 1.0);
    assert!(value("process_open_fds") > 3.0 && value("process_resident_memory_bytes") > 1e5);
}

#[test]
fn what_was_aborted_is_counted_as_such_and_by_what_was_sent() {
    let reported = StatusServer::start();
    reported.server.write("f", vec![0; SIZE]);
    let mut client = HttpClient::connect_slow(reported.server.address());
    client.ask("/f");
    client.head();
    drop(client);
    let metrics = reported.after(1.0);
    assert_eq!(
        metrics.value("underpass_responses_ended_total{end=\"peer_gone\"}"),
        1.0
    );
    let sent = metrics.sum("underpass_body_bytes_total");
    assert!(sent > 0.0 && sent < SIZE as f64, "{sent}");
}

#[test]
fn reloads_lose_no_count_and_leave_no_workers_behind() {
    const RELOADS: usize = 40;
    let reported = StatusServer::with(|options| options.workers = NonZeroUsize::new(2));
    reported.server.write("f", "0123456789");
    let options = reported.server.options().clone();
    let mut requests = 0.0;
    for _ in 0..RELOADS {
        assert_eq!(reported.server.get("/f").status, 200);
        requests += 1.0;
        // While too many generations are ending, there is no room for another.
        wait_until("room for a generation", || {
            reported.server.server().reload(&options).is_ok()
        });
        let metrics = reported.after(requests);
        assert_eq!(metrics.sum("underpass_requests_total"), requests);
        assert_eq!(metrics.sum("underpass_responses_ended_total"), requests);
        assert_eq!(metrics.sum("underpass_body_bytes_total"), requests * 10.0);
    }
    wait_until("end of the old workers", || {
        reported.metrics().value("underpass_workers") <= 2.0
    });
    let metrics = reported.metrics();
    let count = metrics.value("underpass_request_duration_seconds_count");
    assert_eq!((count, requests), (requests, RELOADS as f64));
    assert_eq!(metrics.value("underpass_connections_accepted_total"), count);
    assert_eq!(metrics.sum("underpass_open_file_lookups_total"), count);
}

/// A site is labelled by its first name, or else by its folder; an invalid request belongs to no
/// site.
#[test]
fn each_site_counts_for_itself_and_keeps_its_counts_through_reloads() {
    let other = tempfile::tempdir().unwrap();
    std::fs::write(other.path().join("f"), pattern(SIZE)).unwrap();
    let reported = StatusServer::with(|options| {
        let names = ["b.example", "*.b.example"].map(|name| HostName::parse(name).unwrap());
        options.workers = NonZeroUsize::new(2);
        options.sites.push(SiteOptions {
            names: names.to_vec(),
            ..SiteOptions::of(other.path())
        });
    });
    let first = reported.server.site().display().to_string();
    let options = reported.server.options().clone();
    for round in [1.0, 2.0, 3.0] {
        let mut bytes = 0;
        for (host, path, status) in [
            ("b.example", "/f", 200),
            ("x.b.example", "/f", 200),
            ("b.example", "/none", 404),
            ("other.example", "/none", 404),
            ("b.example", "bad", 400),
        ] {
            let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n");
            let response = reported.server.ask(request);
            assert_eq!(response.status, status, "{host} {path}");
            if host.ends_with("b.example") && status != 400 {
                bytes += response.head.len() + response.body.len();
            }
        }
        let metrics = reported.after(round * 5.0);
        let responses = |site: &str, class: &str| {
            let labels = format!("{{site=\"{site}\",class=\"{class}\"}}");
            metrics.value(&format!("underpass_site_responses_total{labels}"))
        };
        assert_eq!(responses("b.example", "2xx"), 2.0 * round);
        assert_eq!(responses("b.example", "4xx"), round);
        assert_eq!(responses(&first, "2xx"), 0.0);
        assert_eq!(responses(&first, "4xx"), round);
        let sent = metrics.value("underpass_site_sent_bytes_total{site=\"b.example\"}");
        assert_eq!(sent, bytes as f64 * round);
        reported.server.server().reload(&options).unwrap();
    }
}

/// Waits until so many connections have ended for a reason.
fn awaited(reported: &StatusServer, family: &str, label: &str, count: f64) {
    let name = format!("underpass_connections_{family}_total{label}");
    wait_until(&name, || reported.metrics().value(&name) >= count);
    assert_eq!(reported.metrics().value(&name), count, "{name}");
}

#[test]
fn connections_that_are_turned_away_are_counted_by_reason() {
    let due = |timeout, trusted: &'static str| {
        StatusServer::with(move |options| {
            options.connections.proxy.protocol = ProxyProtocol::Required;
            options.connections.proxy.trusted = vec![trusted.parse().unwrap()];
            options.connections.proxy.timeout = timeout;
            options.connections.connections_per_client_max = NonZeroUsize::new(1);
        })
    };
    let away = |reported: &StatusServer, reason: &str| {
        let label = format!("{{reason=\"{reason}\"}}");
        awaited(reported, "turned_away", &label, 1.0);
    };
    let reported = due(LONG, "127.0.0.1");
    reported.server.write("f", "f");
    reported.server.connect();
    away(&reported, "header_missing");
    let ask = |text: &str| {
        let mut client = reported.server.connect();
        client.send(text);
        client
    };
    ask("GET /f HTTP/1.1\r\n\r\n");
    away(&reported, "header_wrong");
    let proxied = "PROXY TCP4 192.0.2.7 192.0.2.8 1 2\r\nGET /f HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut first = ask(proxied);
    assert_eq!(first.response().status, 200);
    assert!(ask(proxied).rest().is_empty());
    away(&reported, "client_limit");
    assert_eq!(reported.metrics().sum("underpass_requests_total"), 1.0);

    let reported = due(LONG, "192.0.2.1");
    assert!(reported.server.connect().rest().is_empty());
    away(&reported, "untrusted");

    let reported = due(SHORT, "127.0.0.1");
    let mut late = reported.server.connect();
    late.send("PROXY TC");
    away(&reported, "header_late");
}

#[test]
fn connections_of_clients_that_are_too_slow_are_counted_by_the_limit() {
    let body = "GET /f HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n";
    let whole = "GET /f HTTP/1.1\r\nHost: a\r\n\r\n";
    for (limit, sent) in [
        ("idle-timeout", ""),
        ("head-timeout", "GET /"),
        ("body-timeout", body),
        ("stall-timeout", whole),
    ] {
        // Only one of them can expire, however busy the machine is.
        let timeout = |of: &str| if of == limit { SHORT } else { LONG };
        let reported = StatusServer::with(|options| {
            options.connections.idle_timeout = timeout("idle-timeout");
            options.requests.head_timeout = timeout("head-timeout");
            options.requests.body_timeout = timeout("body-timeout");
            options.connections.stall_timeout = timeout("stall-timeout");
        });
        reported.server.write("f", vec![0; SIZE]);
        let mut client = HttpClient::connect_slow(reported.server.address());
        client.send(sent);
        let label = format!("{{limit=\"{limit}\"}}");
        awaited(&reported, "timed_out", &label, 1.0);
        let all = "underpass_connections_timed_out_total";
        assert_eq!(reported.metrics().sum(all), 1.0, "{limit}");
    }

    let reported = StatusServer::with(|options| {
        options.connections.rate_min = 1 << 40;
        options.connections.rate_min_window = Duration::from_secs(1);
    });
    reported.server.write("f", vec![0; SIZE]);
    let mut client = HttpClient::connect_slow(reported.server.address());
    client.send(whole);
    awaited(&reported, "timed_out", "{limit=\"rate-min\"}", 1.0);
    let ends = reported.metrics();
    assert_eq!(
        ends.value("underpass_responses_ended_total{end=\"too_slow\"}"),
        1.0
    );
}

#[test]
fn a_full_worker_is_counted() {
    let reported = StatusServer::with(|options| options.connections.connections_max = 2);
    reported.server.write("f", "f");
    let kept = [reported.server.connect(), reported.server.connect()];
    awaited(&reported, "max_reached", "", 1.0);
    drop(kept);
    assert_eq!(reported.server.get("/f").status, 200);
}

#[test]
fn connections_that_end_are_not_open() {
    let reported = StatusServer::start();
    reported.server.write("f", "f");
    for _ in 0..10 {
        reported.server.get("/f");
    }
    wait_until("end of all connections", || {
        reported.metrics().value("underpass_connections_open") <= 0.0
    });
    assert_eq!(
        reported
            .metrics()
            .value("underpass_connections_accepted_total"),
        10.0
    );
}

#[test]
fn health_is_served_until_the_last_answer_has_left() {
    // The response comes from the latest configuration, or from an earlier one.
    for reloads in 0..3 {
        health_is_served_until_an_answer_has_left(reloads);
    }
}

fn health_is_served_until_an_answer_has_left(reloads: usize) {
    let reported = StatusServer::start();
    assert_eq!(reported.get("/health"), (200, "ok\n".into()));
    assert_eq!(reported.get("/ready"), (200, "ok\n".into()));
    reported.server.write("f", vec![7; SIZE]);
    let mut busy = HttpClient::connect_slow(reported.server.address());
    busy.ask("/f");
    busy.head();
    for _ in 0..reloads {
        let options = reported.server.options();
        reported.server.server().reload(options).unwrap();
    }
    reported
        .server
        .running()
        .shutdown()
        .advance(ShutdownPhase::Draining);
    for path in ["/health", "/ready"] {
        assert_eq!(reported.get(path), (503, "stopping\n".into()));
    }
    assert_eq!(
        reported
            .metrics()
            .value("underpass_phase{phase=\"draining\"}"),
        1.0
    );
    assert!(busy.read_exact(SIZE).unwrap() == vec![7; SIZE]);
}

#[test]
fn other_questions_are_refused() {
    let reported = StatusServer::start();
    assert_eq!(reported.get("/").0, 404);
    assert_eq!(reported.get("/metrics?name=x").0, 200);
    assert_eq!(
        reported.ask("POST /metrics HTTP/1.1\r\nHost: a\r\n\r\n").0,
        405
    );
    assert_eq!(reported.ask("GET /metrics HTTP/1.1\r\n\r\n").0, 400);
    assert_eq!(
        reported.ask("HEAD /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"),
        (200, String::new())
    );
    let long = format!("GET /{} HTTP/1.1\r\n", "x".repeat(100_000));
    let mut client = HttpClient::connect_unix(&reported.folder.path().join("status"));
    // The server may respond and close before everything is written.
    client.send(long);
    assert_eq!(client.head().status, 414);
}

#[test]
fn the_public_port_serves_no_metrics() {
    let reported = StatusServer::start();
    for path in ["/metrics", "/health", "/ready"] {
        assert_eq!(reported.server.get(path).status, 404);
    }
}

#[test]
fn lines_of_the_log_that_a_full_disk_does_not_take_are_counted() {
    let full = StatusServer::with(|options| options.log.access = Access::File("/dev/full".into()));
    for _ in 0..20 {
        assert_eq!(full.server.get("/none").status, 404);
    }
    wait_until("count of all lines", || {
        full.metrics().sum("underpass_log_lines_total") >= 20.0
    });
    let of = |outcome: &str| {
        let name = format!("underpass_log_lines_total{{outcome=\"{outcome}\"}}");
        full.metrics().value(&name)
    };
    assert_eq!((of("failed"), of("written")), (20.0, 0.0));
}

#[test]
fn an_address_that_is_taken_is_reported_at_the_start() {
    let reported = StatusServer::start();
    let mut options = ServerOptions::of("/");
    options.listen = vec![std::net::SocketAddr::from(([127, 0, 0, 1], 0)).into()];
    options.status.listen = Some(reported.folder.path().join("status").into());
    let error = underpass_serve::serve(&options).unwrap_err().to_string();
    assert!(error.contains("status"), "{error}");
    assert_eq!(
        reported.get("/health").0,
        200,
        "the first one is still there"
    );
}
