//! The behaviour of the broker when the disk or the kernel fails.

use std::fs;
use std::process::Command;

use kafka_protocol::messages::CreateTopicsRequest;
use kafka_protocol::messages::create_topics_request::CreatableTopic;
use tempfile::TempDir;
use underpass_testkit::{assert_private_mounts, disk_folder, mount, run, strace};

use crate::server::{BINARY, Broker, RECORDS_AT, STORAGE_ERROR, start_in};
use crate::support::batch::{batch, batch_with};
use crate::support::client::{Client, topic_name};

/// The error code of POLICY_VIOLATION.
const POLICY_VIOLATION: i16 = 44;

const TOPIC: &str = "faulty";
const FIRST_LOG: &str = "data/faulty-0/00000000000000000000.log";

/// Returns a folder with a topic of two partitions, the first of which has one record.
fn prepared() -> TempDir {
    let broker = Broker::start(&["--partitions", "2"]);
    let mut client = broker.connect();
    client.create_topic(TOPIC);
    assert_eq!(client.produce(TOPIC, 0, batch(1, 100)), (0, 0));
    let (report, folder) = broker.stop();
    report.assert_clean();
    folder
}

/// Starts a broker whose calls for the log of the first partition fail as injected.
fn injected(folder: TempDir, inject: &str) -> Broker {
    let (call, _) = inject.split_once(':').unwrap();
    let mut tool = strace(
        &folder.path().join("calls"),
        &[&format!("trace={call}"), &format!("inject={inject}")],
    );
    tool.arg("-P")
        .arg(folder.path().join(FIRST_LOG))
        .arg(BINARY);
    Broker::by(tool, folder, &[])
}

/// Appends one record to a partition; returns its offset, or the error code.
fn append(client: &mut Client, partition: i32) -> Result<i64, i16> {
    match client.produce(TOPIC, partition, batch(1, 100)) {
        (0, offset) => Ok(offset),
        (code, _) => Err(code),
    }
}

/// Reads the first partition and checks its number of records.
#[track_caller]
fn assert_count(client: &mut Client, count: i64) {
    let expected = batch(1, 100);
    let read = client.fetch(TOPIC, 0, 0);
    let partition = &read.responses[0].partitions[0];
    assert_eq!((partition.error_code, partition.high_watermark), (0, count));
    let records = partition.records.as_ref().unwrap();
    assert_eq!(
        records.len(),
        expected.len() * usize::try_from(count).unwrap()
    );
    for (read, offset) in records.chunks(expected.len()).zip(0i64..) {
        assert_eq!(read[..8], offset.to_be_bytes());
        assert_eq!(read[RECORDS_AT..], expected[RECORDS_AT..]);
    }
}

#[test]
#[ignore = "needs strace; run by cargo xtask test"]
fn a_write_that_fails_is_an_error_to_its_producer_and_to_nobody_else() {
    for errno in ["ENOSPC", "EDQUOT", "EIO"] {
        let broker = injected(prepared(), &format!("pwritev:error={errno}:when=2..4"));
        let mut client = broker.connect();
        assert_eq!(append(&mut client, 0), Ok(1));
        for number in 0..3 {
            assert_eq!(append(&mut client, 0), Err(STORAGE_ERROR), "{errno}");
            assert_count(&mut client, 2);
            assert_eq!(append(&mut client, 1), Ok(number), "{errno}");
        }
        // It gets the next offset, without a gap.
        assert_eq!(append(&mut client, 0), Ok(2), "{errno}");
        let broker = Broker::start_in(broker.kill(), &[]);
        assert_count(&mut broker.connect(), 3);
        assert_eq!(append(&mut broker.connect(), 0), Ok(3));
        broker.stop().0.assert_clean();
    }
}

#[test]
#[ignore = "needs strace; run by cargo xtask test"]
fn a_sync_that_fails_ends_appending_until_a_restart() {
    // The third sync of a thread: eight threads sync.
    let broker = injected(prepared(), "fdatasync:error=EIO:when=3");
    let mut client = broker.connect();
    let appended = (1..40).map(|_| append(&mut client, 0));
    let appended = Vec::from_iter(appended);
    let failed = appended.iter().position(Result::is_err).unwrap();
    assert!(failed > 0, "{appended:?}");
    // The next sync would succeed and would not report the data lost by the one before.
    assert!(
        appended[failed..]
            .iter()
            .all(|it| *it == Err(STORAGE_ERROR)),
        "{appended:?}"
    );
    assert_eq!(append(&mut client, 1), Err(STORAGE_ERROR));
    let count = 1 + i64::try_from(failed).unwrap();
    assert_count(&mut client, count);
    broker.hear("until the broker is started again");
    let broker = Broker::start_in(broker.stop().1, &[]);
    let mut client = broker.connect();
    let read = client.fetch(TOPIC, 0, 0);
    let end = read.responses[0].partitions[0].high_watermark;
    // Written but unacknowledged records may be present.
    assert!((count..=count + 1).contains(&end), "{end}");
    assert_count(&mut client, end);
    assert_eq!(append(&mut client, 0), Ok(end));
    broker.stop().0.assert_clean();
}

#[test]
#[ignore = "needs strace; run by cargo xtask test"]
fn a_sync_that_fails_at_the_start_is_named() {
    for call in ["fsync", "fdatasync"] {
        let folder = prepared();
        // As after a crash, so that the start has something to write.
        fs::remove_file(folder.path().join("data/.kafka_cleanshutdown")).unwrap();
        let inject = format!("inject={call}:error=EIO:when=1+");
        let trace = format!("trace={call}");
        let mut tool = strace(&folder.path().join("calls"), &[&trace, &inject]);
        let data = folder.path().join("data");
        let report = run(tool
            .args([BINARY, "broker", "-l", "127.0.0.1:0"])
            .arg(&data));
        report.assert_failed(1, &[data.to_str().unwrap(), "Input/output error"]);
        let broker = Broker::start_in(folder, &[]);
        assert_count(&mut broker.connect(), 1);
        broker.stop().0.assert_clean();
    }
}

fn create(client: &mut Client, name: &str, partitions: i32) -> i16 {
    let topic = CreatableTopic::default()
        .with_name(topic_name(name))
        .with_num_partitions(partitions)
        .with_replication_factor(1);
    let request = CreateTopicsRequest::default().with_topics(vec![topic]);
    client.ask(2, &request.with_timeout_ms(10_000)).topics[0].error_code
}

#[test]
#[ignore = "needs root and mounts; run by cargo xtask test"]
fn a_full_disk_is_left_behind_once_there_is_room() {
    assert_private_mounts();
    let at = tempfile::tempdir().unwrap();
    let at = at.path();
    mount(&["-t", "tmpfs", "-o", "size=4m", "none"], at);
    fs::write(at.join("ballast"), vec![1; 1 << 20]).unwrap();
    let (broker, mut client) = start_in(at, "acks");
    client.create_topic(TOPIC);
    let large = || batch_with(1, &[b'v'; 100_000]);
    let produce = |client: &mut Client| client.produce(TOPIC, 0, large()).0;
    let count = (0..100).find(|_| produce(&mut client) != 0).unwrap();
    assert_eq!(produce(&mut client), STORAGE_ERROR);
    let end =
        |client: &mut Client| client.fetch(TOPIC, 0, 0).responses[0].partitions[0].high_watermark;
    assert_eq!(end(&mut client), count);
    fs::write(at.join("more"), vec![1; 1 << 20]).unwrap_err();
    assert_eq!(create(&mut client, "later", 3), STORAGE_ERROR);

    // Stopped, and started while the disk is full.
    let report = broker.stop();
    report.assert_failed(1, &["No space left on device"]);
    let mut again = Command::new(BINARY);
    again
        .args(["broker", "-l", "127.0.0.1:0"])
        .arg(at.join("data"));
    run(&mut again).assert_failed(1, &["data", "No space left on device", "make room"]);

    fs::remove_file(at.join("more")).unwrap();
    let (broker, mut client) = start_in(at, "acks");
    assert_eq!(end(&mut client), count);
    while produce(&mut client) == 0 {}
    let count = end(&mut client);
    fs::remove_file(at.join("ballast")).unwrap();
    assert_eq!(produce(&mut client), 0);
    assert_eq!(end(&mut client), count + 1);
    assert_eq!(create(&mut client, "later", 3), 0);
    broker.stop().assert_success();
}

#[test]
fn too_few_descriptors_close_idle_connections_and_refuse_topics() {
    let mut shell = Command::new("sh");
    shell.args(["-c", "ulimit -n 64; exec \"$0\" \"$@\"", BINARY]);
    let broker = Broker::by(shell, disk_folder(), &[]);
    let crowd = Vec::from_iter((0..80).map(|_| broker.connect()));
    broker.hear("all connections are in use");
    let mut client = broker.connect();
    client.create_topic(TOPIC);
    drop(crowd);

    // Topics leave descriptors for connections; rejected ones leave no files.
    let mut codes = (0..10).map(|number| create(&mut client, &format!("more{number}"), 10));
    assert_eq!(codes.find(|code| *code != 0), Some(POLICY_VIOLATION));
    assert_eq!(append(&mut client, 0), Ok(0));
    assert_count(&mut client, 1);
    let (report, folder) = broker.stop();
    report.assert_success();
    let broker = Broker::start_in(folder, &[]);
    assert_count(&mut broker.connect(), 1);
    let (report, _) = broker.stop();
    report.assert_clean();
}
