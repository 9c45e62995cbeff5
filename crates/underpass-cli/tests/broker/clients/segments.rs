//! A topic of small segments, which are filled, rolled and deleted while the broker is killed.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use underpass_testkit::wait_until;

use super::broker::Broker;
use super::client::{Program, java_tool};
use super::records::{Contents, PARTITIONS, TIME};

const TOPIC: &str = "segmented";

/// The minimum that Kafka allows.
const SEGMENT_BYTES: u64 = 1 << 20;

/// Minimum number of bytes kept of a partition.
const RETENTION_BYTES: u64 = 2 << 20;

/// Records written at a time. The batches are small enough for several entries in an index.
const AT_ONCE: u64 = 800;

fn folder(broker: &Broker, partition: u64) -> PathBuf {
    broker.data().join(format!("{TOPIC}-{partition}"))
}

/// Returns the size of each segment of a partition, by base offset.
fn segments(broker: &Broker, partition: u64) -> BTreeMap<u64, u64> {
    let entries = fs::read_dir(folder(broker, partition)).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let logs = paths.filter(|path| path.extension().is_some_and(|it| it == "log"));
    let sizes = logs.filter_map(|log| {
        let base = log.file_stem()?.to_str()?.parse().ok()?;
        // It may be deleted meanwhile.
        Some((base, fs::metadata(log).ok()?.len()))
    });
    sizes.collect()
}

/// Returns the first offset of each partition.
fn starts(broker: &Broker) -> Vec<u64> {
    let starts = (0..PARTITIONS).map(|partition| {
        let segments = segments(broker, partition);
        segments.keys().next().copied().unwrap_or_default()
    });
    starts.collect()
}

/// Returns whether no partition has a segment that could be deleted.
fn is_retained(broker: &Broker) -> bool {
    (0..PARTITIONS).all(|partition| {
        let segments = segments(broker, partition);
        let newer = segments.values().skip(1);
        newer.sum::<u64>() < RETENTION_BYTES
    })
}

#[test]
#[ignore = "needs Kafka and clients for Go; run by cargo xtask test"]
fn segments_that_are_full_indexed_and_deleted_survive_kills() {
    let mut broker = Broker::start();
    let address = broker.address();
    let mut create = vec!["--create", "--topic", TOPIC, "--partitions", "4"];
    let configs = [
        format!("segment.bytes={SEGMENT_BYTES}"),
        format!("retention.bytes={RETENTION_BYTES}"),
        "index.interval.bytes=1024".to_owned(),
    ];
    create.extend(configs.iter().flat_map(|config| ["--config", config]));
    java_tool(&address, "TopicCommand", &create);
    let time = format!("time={}", *TIME);
    let options = [&*time, "acks=idempotent", "codec=none"];
    let producer = Program::Franz.spawn(&address, "restart", TOPIC, AT_ONCE, &options);
    for _ in 0..2 {
        wait_until("segments", || {
            (0..PARTITIONS).all(|partition| segments(&broker, partition).len() > 4)
        });
        let before = starts(&broker);
        broker.kill();
        broker.resume();
        // Retention runs soon after a start, and then every few minutes.
        wait_until("retention", || {
            let starts = starts(&broker);
            starts.iter().zip(&before).all(|(now, before)| now > before)
        });
    }
    producer.stop();
    let events = producer.end();
    let count = events.last().unwrap()["acknowledged"].as_u64().unwrap();
    broker.kill();
    broker.resume();
    wait_until("retention", || is_retained(&broker));

    let contents = Contents::of(0..count);
    let read = Program::Franz.consume(&address, TOPIC, "beginning");
    assert_eq!(read.len() as u64, PARTITIONS);
    for (partition, part) in read {
        assert!(part.start > 0, "{partition}");
        assert_eq!(part, contents.part_from(partition, part.start));
        let bases = Vec::from_iter(segments(&broker, partition).into_keys());
        assert!(bases.len() > 2, "{bases:?}");
        assert_eq!(bases[0], part.start);
        for base in &bases[..bases.len() - 1] {
            let index = folder(&broker, partition).join(format!("{base:020}.index"));
            assert!(fs::metadata(index).unwrap().len() > 4 * 8, "{base}");
        }
    }
    broker.end();
}
