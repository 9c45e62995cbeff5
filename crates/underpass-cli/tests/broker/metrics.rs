//! Metrics and health, compared with what a client has sent and received.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use underpass_testkit::WAIT_MAX;

use crate::server::Broker;
use crate::support::batch::batch;

/// The answer to a request, head included.
fn ask(socket: &Path, path: &str) -> String {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(WAIT_MAX)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// The sum of the samples whose names and labels begin so.
fn value(page: &str, begin: &str) -> f64 {
    let samples = page.lines().filter(|line| line.starts_with(begin));
    let values = samples.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok());
    values.sum()
}

#[test]
fn metrics_are_what_a_client_has_done() {
    const BYTES: usize = 500_000;
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("status");
    let broker = Broker::start(&["--status", &format!("unix:{}", socket.display())]);
    assert!(broker.greeting().contains("metrics and health on unix:"));
    let before = ask(&socket, "/metrics");
    let mut client = broker.connect();
    client.create_topic("t");
    assert_eq!(client.produce("t", 0, batch(1, BYTES)).0, 0);
    let fetched = client.fetch("t", 0, 0);
    let records = fetched.responses[0].partitions[0].records.as_ref().unwrap();
    assert!(records.len() > BYTES);
    let page = ask(&socket, "/metrics");
    let grown = |begin: &str| value(&page, begin) - value(&before, begin);
    assert_eq!(grown("underpass_body_bytes_total"), records.len() as f64);
    assert_eq!(
        grown("underpass_body_bytes_total{mechanism=\"read_write\"}"),
        0.0
    );
    assert!(grown("underpass_body_calls_total") >= 1.0);
    assert_eq!(
        grown("underpass_broker_requests_total{api=\"Produce\"}"),
        1.0
    );
    assert_eq!(grown("underpass_broker_requests_total{api=\"Fetch\"}"), 1.0);
    assert!(grown("underpass_broker_request_bytes_total") > BYTES as f64);
    assert!(grown("underpass_broker_syncs_total") >= 1.0);
    assert_eq!(
        value(&page, "underpass_broker_topic_bytes{topic=\"t\"}"),
        records.len() as f64
    );
    assert_eq!(value(&page, "underpass_broker_offline"), 0.0);
    assert_eq!(value(&page, "underpass_connections_open"), 1.0);
    assert!(value(&page, "process_cpu_seconds_total") > 0.0);
    assert!(ask(&socket, "/health").starts_with("HTTP/1.1 200 OK\r\n"));
    assert!(ask(&socket, "/").starts_with("HTTP/1.1 404 "));
    let (report, _) = broker.stop();
    assert_eq!(report.code, Some(0), "{report:?}");
}
