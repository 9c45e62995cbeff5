//! Metrics and health, compared with what a client has sent and received.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;
use underpass_testkit::{WAIT_MAX, disk_folder, strace, wait_until};

use crate::server::{BINARY, Broker};
use crate::support::batch::batch;
use crate::support::client::produce_request;

/// A Unix socket in a temporary folder: its path has to be short.
struct Socket(TempDir);

impl Socket {
    fn path(&self) -> PathBuf {
        self.0.path().join("status")
    }
}

/// Returns the response to a request, headers included.
fn ask(socket: &Socket, path: &str) -> String {
    let mut stream = UnixStream::connect(socket.path()).unwrap();
    stream.set_read_timeout(Some(WAIT_MAX)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Returns the sum of the samples whose names and labels start with `begin`.
fn value(page: &str, begin: &str) -> f64 {
    let samples = page.lines().filter(|line| line.starts_with(begin));
    let values = samples.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok());
    values.sum()
}

/// Starts a broker in a folder, with metrics on a socket.
fn start_in(tool: Command, folder: TempDir, options: &[&str]) -> (Broker, Socket) {
    let socket = Socket(tempfile::tempdir().unwrap());
    let status = format!("unix:{}", socket.path().display());
    let broker = Broker::by(tool, folder, &[&["--status", &status], options].concat());
    (broker, socket)
}

#[test]
fn metrics_are_what_a_client_has_done() {
    const BYTES: usize = 500_000;
    let (broker, socket) = start_in(Command::new(BINARY), disk_folder(), &[]);
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
    assert!(grown("underpass_broker_sync_seconds_total") > 0.0);
    assert!(value(&page, "underpass_broker_sync_seconds_total") < WAIT_MAX.as_secs_f64());
    assert_eq!(value(&page, "underpass_broker_unsynced_records"), 0.0);
    assert_eq!(value(&page, "underpass_broker_queued_bytes"), 0.0);
    assert_eq!(value(&page, "underpass_broker_partitions"), 1.0);
    assert_eq!(grown("underpass_connections_accepted_total"), 1.0);
    assert_eq!(value(&page, "underpass_workers"), 1.0);
    assert_eq!(
        value(&page, "underpass_broker_topic_bytes{topic=\"t\"}"),
        records.len() as f64
    );
    assert_eq!(value(&page, "underpass_broker_offline"), 0.0);
    assert_eq!(value(&page, "underpass_connections_open"), 1.0);
    assert!(value(&page, "process_cpu_seconds_total") > 0.0);
    // It may change between the two readings.
    let (resident, seen) = (
        value(&page, "process_resident_memory_bytes"),
        broker.resident_bytes(),
    );
    assert!(
        (seen / 2.0..seen * 2.0).contains(&resident),
        "{resident} {seen}"
    );
    assert!(ask(&socket, "/health").starts_with("HTTP/1.1 200 OK\r\n"));
    assert!(ask(&socket, "/").starts_with("HTTP/1.1 404 "));
    let (report, _) = broker.stop();
    assert_eq!(report.code, Some(0), "{report:?}");
}

#[test]
fn every_metric_is_documented() {
    let (broker, socket) = start_in(Command::new(BINARY), disk_folder(), &[]);
    let page = ask(&socket, "/metrics");
    let documented = include_str!("../../../../docs/broker.md");
    let families = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let names = families.filter_map(|family| family.split(' ').next());
    let names = Vec::from_iter(names);
    assert!(names.len() > 15, "{page}");
    for name in &names {
        assert!(documented.contains(&format!("`{name}`")), "{name}");
    }
    // Every documented metric exists.
    let rows = documented
        .lines()
        .filter(|line| line.starts_with("| `underpass_"));
    let cells = rows.filter_map(|row| row.split('|').nth(1));
    for name in cells.flat_map(|cell| cell.split(", ")) {
        let name = name.trim().trim_matches('`');
        assert!(names.contains(&name), "{name}");
    }
    broker.stop().0.assert_clean();
}

#[test]
fn the_lag_of_groups_and_what_is_unsynced_are_counted_in_records() {
    let options = ["--fsync", "never"];
    let (broker, socket) = start_in(Command::new(BINARY), disk_folder(), &options);
    let mut client = broker.connect();
    client.create_topic("t");
    client.create_topic("other");
    client.find_coordinator();
    for _ in 0..3 {
        assert_eq!(client.produce("t", 0, batch(10, 100)).0, 0);
    }
    assert_eq!(client.produce("other", 0, batch(7, 100)).0, 0);
    let unsynced = || {
        value(
            &ask(&socket, "/metrics"),
            "underpass_broker_unsynced_records",
        )
    };
    assert_eq!(unsynced(), 37.0);
    let mut lag = |group: &str, topic: &str, offset: i64| {
        assert_eq!(client.commit(group, topic, 0, offset), 0);
        let labels = format!("{{group=\"{group}\",topic=\"{topic}\",partition=\"0\"}} ");
        let sample = format!("underpass_broker_group_lag_records{labels}");
        let page = ask(&socket, "/metrics");
        assert_eq!(page.matches(&sample).count(), 1, "{page}");
        value(&page, &sample)
    };
    assert_eq!(lag("g", "t", 0), 30.0);
    assert_eq!(lag("g", "t", 12), 18.0);
    assert_eq!(lag("g", "other", 5), 2.0);
    assert_eq!(lag("h", "t", 30), 0.0);
    assert_eq!(lag("h", "other", 9), 0.0, "beyond the end");
    let page = ask(&socket, "/metrics");
    assert_eq!(
        value(&page, "underpass_broker_group_lag_records"),
        18.0 + 2.0
    );
    assert_eq!(value(&page, "underpass_broker_group_lags_unlisted"), 0.0);
    // Records of the internal groups topic count, too.
    assert_eq!(unsynced(), 37.0 + 5.0);
    broker.stop().0.assert_clean();
}

#[test]
#[ignore = "needs strace; run by cargo xtask test"]
fn bytes_that_wait_for_a_slow_disk_are_counted() {
    let broker = Broker::start(&[]);
    broker.connect().create_topic("t");
    let (report, folder) = broker.stop();
    report.assert_clean();
    // The first write takes longer than the test.
    let delay = format!(
        "inject=pwritev:delay_enter={}:when=1",
        10 * WAIT_MAX.as_micros()
    );
    let mut tool = strace(&folder.path().join("calls"), &["trace=pwritev", &delay]);
    let log = folder.path().join("data/t-0/00000000000000000000.log");
    tool.arg("-P").arg(log).arg(BINARY);
    let (broker, socket) = start_in(tool, folder, &[]);
    let mut client = broker.connect();
    let mut send = |batch: Vec<u8>| {
        client.send_request(9, &produce_request(-1, &[("t", 0, Some(batch))]));
    };
    let queued = |page: &str| value(page, "underpass_broker_queued_bytes");
    let produced = |page: &str| value(page, "underpass_broker_requests_total{api=\"Produce\"}");
    send(batch(1, 1000));
    // It is queued when it is counted, and written afterwards.
    wait_until("write", || {
        let page = ask(&socket, "/metrics");
        produced(&page) == 1.0 && queued(&page) == 0.0
    });
    let (one, two) = (batch(1, 3000), batch(5, 200));
    let bytes = (one.len() + two.len()) as f64;
    send(one);
    send(two);
    wait_until("requests", || produced(&ask(&socket, "/metrics")) == 3.0);
    assert_eq!(queued(&ask(&socket, "/metrics")), bytes);
}
