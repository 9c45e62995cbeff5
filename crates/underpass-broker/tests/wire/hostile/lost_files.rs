//! Data folders with lost parts: the rest is served, and every gap is an error.

use std::fs;
use std::path::{Path, PathBuf};

use crate::create;
use crate::support::batch::{MAGIC, batch};
use crate::support::broker::BrokerProcess;
use crate::support::client::{Client, fetch_request};

const NONE: i16 = 0;
const OFFSET_OUT_OF_RANGE: i16 = 1;
const KAFKA_STORAGE_ERROR: i16 = 56;
const FENCED_LEADER_EPOCH: i16 = 74;

/// Batches of 100 KiB in segments of 1 MiB.
const BATCHES: i64 = 45;

fn filled() -> BrokerProcess {
    let broker = BrokerProcess::start();
    let mut client = broker.connect();
    create(&mut client, "t", 2, &[("segment.bytes", "1048576")]);
    for _ in 0..BATCHES {
        assert_eq!(client.produce("t", 0, batch(1, 100 << 10)).0, NONE);
        assert_eq!(client.produce("t", 1, batch(1, 10)).0, NONE);
    }
    broker
}

/// The segments of a partition, with their first offsets.
fn segments(folder: &Path) -> Vec<(i64, PathBuf)> {
    let entries = fs::read_dir(folder.join("t-0")).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let logs = paths.filter(|path| path.extension().is_some_and(|extension| extension == "log"));
    let base = |path: &PathBuf| path.file_stem()?.to_str()?.parse().ok();
    let mut segments: Vec<_> = logs.map(|path| (base(&path).unwrap(), path)).collect();
    segments.sort();
    segments
}

/// Returns the error of a fetch and the first offset of its records.
fn fetched(client: &mut Client, partition: i32, offset: i64) -> (i16, Option<i64>) {
    let response = client.ask(11, &fetch_request("t", partition, offset));
    let partition = &response.responses[0].partitions[0];
    let records = partition.records.as_deref().unwrap_or_default();
    let base = records
        .first_chunk::<8>()
        .map(|base| i64::from_be_bytes(*base));
    (partition.error_code, base)
}

#[test]
fn records_that_are_lost_are_an_error_at_every_start_and_others_are_there() {
    let mut folder = filled().stop();
    let segments = segments(folder.path());
    let (from, to) = (segments[1].0, segments[3].0);
    assert!(segments.len() > 4);
    fs::remove_file(&segments[1].1).unwrap();
    let damaged = fs::File::options().write(true).open(&segments[2].1);
    damaged.unwrap().set_len(100).unwrap();
    for turn in 0..3 {
        let broker = BrokerProcess::start_in(folder);
        let mut client = broker.connect();
        for offset in [from, segments[2].0, to - 1] {
            assert_eq!(fetched(&mut client, 0, offset), (KAFKA_STORAGE_ERROR, None));
        }
        for offset in [0, from - 1, to, BATCHES - 1] {
            assert_eq!(fetched(&mut client, 0, offset), (NONE, Some(offset)));
        }
        assert_eq!(client.produce("t", 0, batch(1, 10)), (NONE, BATCHES + turn));
        if turn == 1 {
            folder = broker.kill();
            continue;
        }
        let log;
        (folder, log) = broker.stop_and_read();
        let lost = format!("the records from {from} to {} were synced", to - 1);
        assert!(
            log.contains(&format!("WARN underpass_broker::server: t-0: {lost}")),
            "{log}"
        );
        let fetch = format!("t-0: a fetch from offset {from}: {lost}");
        assert!(log.contains(&fetch), "{log}");
    }
}

#[test]
fn a_partition_whose_folder_is_gone_is_reported_and_made_again() {
    let folder = filled().stop();
    fs::remove_dir_all(folder.path().join("t-1")).unwrap();
    let broker = BrokerProcess::start_in(folder);
    let mut client = broker.connect();
    assert_eq!(fetched(&mut client, 1, 5).0, OFFSET_OUT_OF_RANGE);
    for offset in 0..10 {
        assert_eq!(client.produce("t", 1, batch(1, 10)), (NONE, offset));
    }
    // A consumer that had read further in the previous epoch gets an error.
    let mut request = fetch_request("t", 1, 5);
    request.topics[0].partitions[0].current_leader_epoch = 0;
    let response = client.ask(11, &request);
    let code = response.responses[0].partitions[0].error_code;
    assert_eq!(code, FENCED_LEADER_EPOCH);
    assert_eq!(fetched(&mut client, 0, 5), (NONE, Some(5)));
    let (folder, log) = broker.stop_and_read();
    for warning in [
        &*format!("t-1: its folder is gone, and with it what was synced up to offset {BATCHES}"),
        "topic t: the folders of 1 of its 2 partitions are not there",
    ] {
        assert!(log.contains(warning), "{log}");
    }
    // The next start does not repeat the warnings.
    let (_, log) = BrokerProcess::start_in(folder).stop_and_read();
    assert!(!log.contains("WARN"), "{log}");
}

#[test]
fn damage_in_the_topic_of_offsets_keeps_nobody_from_the_rest() {
    let broker = filled();
    let mut client = broker.connect();
    client.find_coordinator();
    for (group, offset) in [("two", 2), ("three", 3), ("one", 1), ("one", 4), ("one", 5)] {
        assert_eq!(client.commit(group, "t", 0, offset), NONE);
    }
    let folder = broker.stop();
    let logs = (0..50).map(|partition| {
        let name = format!("__consumer_offsets-{partition}/{:020}.log", 0);
        folder.path().join(name)
    });
    let largest = logs
        .max_by_key(|path| fs::metadata(path).unwrap().len())
        .unwrap();
    let mut content = fs::read(&largest).unwrap();
    content[MAGIC] = 0;
    fs::write(&largest, content).unwrap();
    let broker = BrokerProcess::start_in(folder);
    let mut client = broker.connect();
    // The commit after the damage is present.
    assert_eq!(client.committed("one", "t", 0), 5);
    assert_eq!(client.committed("two", "t", 0), 2);
    assert_eq!(client.committed("three", "t", 0), 3);
    assert_eq!(client.commit("one", "t", 0, 7), NONE);
    assert_eq!(client.committed("one", "t", 0), 7);
    let (folder, log) = broker.stop_and_read();
    assert!(
        log.contains("commits at the offsets 0 to 0 are lost"),
        "{log}"
    );
    let broker = BrokerProcess::start_in(folder);
    assert_eq!(broker.connect().committed("one", "t", 0), 7);
    broker.stop();
}
