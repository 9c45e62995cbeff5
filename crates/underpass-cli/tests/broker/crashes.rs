//! Power failures: the file system under the broker is shut down, which drops everything it has not
//! written yet, its journal included.

use std::fs::{self, File};
use std::ops::{Range, RangeInclusive};
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::thread;

use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::offset_for_leader_epoch_request::{
    OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use kafka_protocol::messages::{MetadataRequest, OffsetForLeaderEpochRequest};
use rustix::process::Signal;
use tempfile::{NamedTempFile, TempDir};
use underpass_testkit::{
    ServerProcess, assert_contains, assert_private_mounts, disk_folder, mount, run, wait_until,
};

use crate::server::{RECORDS_AT, start_in};
use crate::support::batch::batch_with;
use crate::support::client::{Client, fetch_request, topic_name};

const TOPIC: &str = "crashed";

const FENCED_LEADER_EPOCH: i16 = 74;
const UNKNOWN_LEADER_EPOCH: i16 = 75;

/// Number of power failures.
const ROUNDS: usize = 10;

/// Records acknowledged before each power failure.
const RECORDS: usize = 50;

/// A separate file system on a loop device.
struct Disk {
    image: NamedTempFile,
    at: TempDir,
}

impl Disk {
    fn new() -> Disk {
        assert_private_mounts();
        let disk = Disk {
            image: NamedTempFile::new().unwrap(),
            at: tempfile::tempdir().unwrap(),
        };
        disk.image.as_file().set_len(256 << 20).unwrap();
        run(Command::new("mkfs.ext4").arg("-q").arg(disk.image.path())).assert_success();
        disk.mount();
        disk
    }

    fn mount(&self) {
        let image = self.image.path().to_str().unwrap();
        mount(&["-o", "loop", image], self.at.path());
    }

    /// Drops everything not yet on the disk. Every call fails from here on.
    fn lose_power(&self) {
        let mut shutdown = Command::new("xfs_io");
        shutdown.args(["-x", "-c", "shutdown"]).arg(self.at.path());
        run(&mut shutdown).assert_success();
    }

    fn come_back(&self) {
        run(Command::new("umount").arg(self.at.path())).assert_success();
        self.mount();
    }

    fn start(&self, fsync: &str) -> (ServerProcess, Client) {
        start_in(self.at.path(), fsync)
    }

    /// Returns the offset up to which the topic is synced, as recorded by the broker.
    fn synced(&self) -> usize {
        let points = self.at.path().join("data/recovery-point-offset-checkpoint");
        let points = fs::read_to_string(points).unwrap_or_default();
        let name = format!("{TOPIC} 0 ");
        let point = points.lines().find_map(|line| line.strip_prefix(&name));
        point.map_or(0, |point| point.parse().unwrap())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // A mount left by a failed test ends with its namespace.
        let _ = Command::new("umount")
            .arg("-l")
            .arg(self.at.path())
            .output();
    }
}

fn record(number: usize) -> Vec<u8> {
    batch_with(
        1,
        &[format!("{number:08}").as_bytes(), &[b'v'; 992]].concat(),
    )
}

/// Appends records after the acknowledged ones until one fails.
fn produce(client: &mut Client, acknowledged: &Mutex<usize>) {
    let mut next = *acknowledged.lock().unwrap();
    while let (0, offset) = client.produce(TOPIC, 0, record(next)) {
        assert_eq!(usize::try_from(offset), Ok(next));
        next += 1;
        *acknowledged.lock().unwrap() = next;
    }
}

/// Returns the number of records. They must be the first ones that were sent, in order.
fn read(client: &mut Client) -> usize {
    let mut count = 0;
    loop {
        let fetched = client.fetch(TOPIC, 0, i64::try_from(count).unwrap());
        let partition = &fetched.responses[0].partitions[0];
        assert_eq!(partition.error_code, 0, "{count}: {partition:?}");
        let expected = record(count);
        let batches = partition.records.as_ref().unwrap();
        for batch in batches.chunks_exact(expected.len()) {
            assert!(
                batch[RECORDS_AT..] == record(count)[RECORDS_AT..],
                "{count}"
            );
            count += 1;
        }
        if count == usize::try_from(partition.high_watermark).unwrap() {
            return count;
        }
    }
}

/// Appends the records with these numbers, acknowledged before they are synced.
fn append(client: &mut Client, numbers: Range<usize>) {
    for number in numbers {
        assert_eq!(client.produce_with(1, TOPIC, 0, record(number)).0, 0);
    }
}

/// Cuts the last records off the log of a broker that was killed: with `--fsync never` a power
/// failure may take any of them, whatever it leaves of the other files.
fn lose_end(folder: &Path, records: usize) {
    let log = folder.join(format!("data/{TOPIC}-0/{:020}.log", 0));
    let log = File::options().write(true).open(log).unwrap();
    let lost = (records * record(0).len()) as u64;
    log.set_len(log.metadata().unwrap().len() - lost).unwrap();
}

/// Returns the folder of a broker that appended 20 records, called `use_all` with a client, and
/// then lost the last five records.
fn lost_end(use_all: impl Fn(&mut Client)) -> TempDir {
    let folder = disk_folder();
    let (broker, mut client) = start_in(folder.path(), "never");
    client.create_topic(TOPIC);
    append(&mut client, 0..20);
    use_all(&mut client);
    broker.signal(Signal::KILL);
    broker.end();
    lose_end(folder.path(), 5);
    folder
}

fn leader_epoch(client: &mut Client) -> i32 {
    let topic = MetadataRequestTopic::default().with_name(Some(topic_name(TOPIC)));
    let metadata = client.ask(
        9,
        &MetadataRequest::default().with_topics(Some(vec![topic])),
    );
    metadata.topics[0].partitions[0].leader_epoch
}

/// Has a producer append until power fails, some records after `wait` has returned. Returns the
/// range from the number of records acknowledged before to the highest possible number. A sync in
/// progress while the file system is shut down may wrongly report success (ext4 drops errors of
/// blocks then); a real power failure would show this to nobody.
fn fail_under_load(
    disk: &Disk,
    fsync: &str,
    before: usize,
    wait: impl Fn(),
) -> RangeInclusive<usize> {
    let (broker, mut client) = disk.start(fsync);
    client.create_topic(TOPIC);
    assert_eq!(read(&mut client), before);
    let acknowledged = Mutex::new(before);
    let count = || *acknowledged.lock().unwrap();
    let safe = thread::scope(|scope| {
        let producer = scope.spawn(|| produce(&mut client, &acknowledged));
        wait();
        let goal = count() + RECORDS;
        wait_until("records", || count() >= goal || producer.is_finished());
        let safe = count();
        disk.lose_power();
        safe
    });
    broker.signal(Signal::KILL);
    broker.end();
    disk.come_back();
    // The record that was being appended may be present as well.
    safe..=count() + 1
}

#[test]
#[ignore = "needs root, mounts, loop devices, ext4 and XFS; run by cargo xtask test"]
fn what_is_acknowledged_survives_power_failures() {
    let disk = Disk::new();
    let (mut there, mut epoch) = (0, -1);
    for round in 0..ROUNDS {
        let expected = fail_under_load(&disk, "acks", there, || ());
        let (broker, mut client) = disk.start("acks");
        there = read(&mut client);
        assert!(
            expected.contains(&there),
            "round {round}: {there}, {expected:?}"
        );
        let risen = leader_epoch(&mut client);
        assert!(risen > epoch, "round {round}: {epoch}, {risen}");
        epoch = risen;
        broker.stop().assert_success();
    }
}

/// With `interval` everything is synced periodically: synced records survive a power failure, and
/// after them the log ends somewhere, without a gap.
#[test]
#[ignore = "needs root, mounts, loop devices, ext4 and XFS; run by cargo xtask test"]
fn what_an_interval_has_synced_survives_power_failures() {
    let disk = Disk::new();
    let mut there = 0;
    for round in 0..ROUNDS {
        let synced = Mutex::new(0);
        let wait = || {
            let mut synced = synced.lock().unwrap();
            wait_until("sync", || {
                *synced = disk.synced();
                *synced > there
            });
        };
        let sent = fail_under_load(&disk, "interval", there, wait);
        let synced = synced.into_inner().unwrap();
        let (broker, mut client) = disk.start("interval");
        there = read(&mut client);
        assert!(
            (synced..=*sent.end()).contains(&there),
            "round {round}: {there}, {synced}"
        );
        broker.stop().assert_success();
    }
}

/// A record may be read before it is synced, and its consumer commits immediately.
#[test]
#[ignore = "needs root, mounts, loop devices, ext4 and XFS; run by cargo xtask test"]
fn committed_offsets_are_not_ahead_of_the_log_after_power_failures() {
    let disk = Disk::new();
    for round in 0..ROUNDS {
        let (broker, mut client) = disk.start("acks");
        client.create_topic(TOPIC);
        client.find_coordinator();
        let before = read(&mut client);
        append(&mut client, before..before + RECORDS);
        let end = i64::try_from(read(&mut client)).unwrap();
        assert_eq!(client.commit("g", TOPIC, 0, end), 0);
        disk.lose_power();
        broker.signal(Signal::KILL);
        broker.end();
        disk.come_back();
        let (broker, mut client) = disk.start("acks");
        let there = i64::try_from(read(&mut client)).unwrap();
        // The committed offset survives, and so do the records before it.
        assert_eq!(client.committed("g", TOPIC, 0), end, "round {round}");
        assert!(there >= end, "round {round}: {there}, {end}");
        broker.stop().assert_success();
    }
}

#[test]
fn committed_offsets_go_back_with_the_end_of_the_log() {
    let folder = lost_end(|client| {
        client.find_coordinator();
        assert_eq!(client.commit("ahead", TOPIC, 0, 20), 0);
        assert_eq!(client.commit("behind", TOPIC, 0, 10), 0);
    });
    let (broker, mut client) = start_in(folder.path(), "never");
    assert_eq!(read(&mut client), 15);
    assert_eq!(client.committed("ahead", TOPIC, 0), 15);
    assert_eq!(client.committed("behind", TOPIC, 0), 10);
    // The reset is logged and remembered even when the log has grown past the old end again.
    append(&mut client, 15..40);
    broker.signal(Signal::KILL);
    let warnings = broker.end().errors;
    let expected = [
        "group \"ahead\"",
        "topic crashed",
        "partitions: 1",
        "records: 5",
    ];
    assert_eq!(warnings.lines().count(), 1, "{warnings}");
    assert_contains(&warnings, &expected);
    let (broker, mut client) = start_in(folder.path(), "never");
    assert_eq!(client.committed("ahead", TOPIC, 0), 15);
    assert_eq!(client.committed("behind", TOPIC, 0), 10);
    broker.stop().assert_clean();
}

/// Fetches as a consumer that knows this epoch; returns the error and the number of bytes of
/// records.
fn fetch_in_epoch(client: &mut Client, offset: i64, epoch: i32) -> (i16, usize) {
    let mut request = fetch_request(TOPIC, 0, offset);
    request.topics[0].partitions[0].current_leader_epoch = epoch;
    let response = client.ask(11, &request);
    let partition = &response.responses[0].partitions[0];
    let records = partition.records.as_ref();
    (partition.error_code, records.map_or(0, |bytes| bytes.len()))
}

/// Asks for the end of an epoch, as a client that knows the epoch `current`; returns the error, the
/// epoch and its end.
fn end_of_epoch(client: &mut Client, version: i16, current: i32, epoch: i32) -> (i16, i32, i64) {
    let partition = OffsetForLeaderPartition::default()
        .with_current_leader_epoch(current)
        .with_leader_epoch(epoch);
    let topic = OffsetForLeaderTopic::default()
        .with_topic(topic_name(TOPIC))
        .with_partitions(vec![partition]);
    let request = OffsetForLeaderEpochRequest::default().with_topics(vec![topic]);
    let response = client.ask(version, &request);
    let end = &response.topics[0].partitions[0];
    (end.error_code, end.leader_epoch, end.end_offset)
}

/// A consumer that has read records lost in a crash would otherwise skip the records written at
/// their offsets (KIP-320).
#[test]
fn consumers_that_are_ahead_of_the_log_are_sent_back() {
    let old = Mutex::new(0);
    let folder = lost_end(|client| {
        *old.lock().unwrap() = leader_epoch(client);
        assert_eq!(read(client), 20);
    });
    let old = old.into_inner().unwrap();
    let (broker, mut client) = start_in(folder.path(), "never");
    let present = leader_epoch(&mut client);
    assert_eq!(present, old + 1);
    append(&mut client, 100..103);
    for offset in [10, 18, 20] {
        let fetched = fetch_in_epoch(&mut client, offset, old);
        assert_eq!(fetched, (FENCED_LEADER_EPOCH, 0), "{offset}");
        let fetched = fetch_in_epoch(&mut client, offset, present + 1);
        assert_eq!(fetched, (UNKNOWN_LEADER_EPOCH, 0), "{offset}");
    }
    for version in 2..=4 {
        let mut end = |current, epoch| end_of_epoch(&mut client, version, current, epoch);
        assert_eq!(end(present, old), (0, old, 15), "version {version}");
        assert_eq!(end(present, present), (0, present, 18));
        assert_eq!(end(present, present + 1), (0, -1, -1));
        assert_eq!(end(old, old).0, FENCED_LEADER_EPOCH);
        assert_eq!(end(present + 1, old).0, UNKNOWN_LEADER_EPOCH);
    }
    // It resumes at offset 15, with every record that it would have skipped.
    let new = 3 * record(0).len();
    assert_eq!(fetch_in_epoch(&mut client, 15, present), (0, new));
    broker.stop().assert_clean();
}

/// Only the process ends: written data is already in the kernel's page cache.
#[test]
fn a_kill_loses_nothing_that_was_acknowledged() {
    for fsync in ["acks", "interval", "never"] {
        let folder = disk_folder();
        for round in 0..ROUNDS {
            let (broker, mut client) = start_in(folder.path(), fsync);
            client.create_topic(TOPIC);
            let before = round * RECORDS;
            assert_eq!(read(&mut client), before, "{fsync}");
            for number in before..before + RECORDS {
                assert_eq!(client.produce(TOPIC, 0, record(number)).0, 0);
            }
            broker.signal(Signal::KILL);
            broker.end();
        }
    }
}
