//! Committed offsets, before and after the broker is killed.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use underpass_testkit::SeededRandom;

use crate::support::batch::batch;
use crate::support::broker::BrokerProcess;
use crate::support::client::Client;

const TOPIC: &str = "committed";
const PARTITIONS: i32 = 4;
const ROUNDS: usize = 20;

/// The latest commits, by group and partition.
type Commits = BTreeMap<(&'static str, i32), i64>;

fn assert_committed(client: &mut Client, commits: &Commits) {
    for ((group, partition), offset) in commits {
        let committed = client.committed(group, TOPIC, *partition);
        assert_eq!(committed, *offset, "{group}, {partition}");
    }
}

#[test]
fn committed_offsets_are_there_after_every_kill() {
    let mut random = SeededRandom::new(2);
    let mut commits = Commits::new();
    let mut broker = BrokerProcess::start();
    for round in 1..=ROUNDS {
        let mut client = broker.connect();
        client.create_topic(TOPIC);
        client.find_coordinator();
        for partition in 0..PARTITIONS {
            assert_eq!(client.produce(TOPIC, partition, batch(10, 10)).0, 0);
        }
        for _ in 0..10 {
            let group = random.pick(&["one", "two", "three"]);
            let partition = random.below(PARTITIONS as usize) as i32;
            let offset = random.below(10 * round + 1) as i64;
            assert_eq!(client.commit(group, TOPIC, partition, offset), 0);
            commits.insert((group, partition), offset);
        }
        broker = BrokerProcess::start_in(broker.kill());
        assert_committed(&mut broker.connect(), &commits);
    }
    assert!(commits.len() > 10, "{commits:?}");
    let broker = BrokerProcess::start_in(broker.stop());
    assert_committed(&mut broker.connect(), &commits);
    broker.stop();
}

/// Returns the size of a partition of the topic of offsets, in bytes.
fn bytes_of_offsets(folder: &Path, partition: usize) -> u64 {
    let log = folder.join(format!("__consumer_offsets-{partition}/{:020}.log", 0));
    fs::metadata(log).unwrap().len()
}

/// A folder of Kafka whose `offsets.topic.num.partitions` is 4.
#[test]
fn groups_are_where_kafka_looks_for_them_in_a_topic_of_four_partitions() {
    let folder = tempfile::tempdir().unwrap();
    for partition in 0..4 {
        let name = format!("__consumer_offsets-{partition}");
        fs::create_dir(folder.path().join(name)).unwrap();
    }
    let broker = BrokerProcess::start_in(folder);
    let mut client = broker.connect();
    client.create_topic(TOPIC);
    client.find_coordinator();
    assert_eq!(client.produce(TOPIC, 0, batch(10, 10)).0, 0);
    // The hash of a single letter is its code: 97, 98, 99 and 100.
    let groups = [("a", 1), ("b", 2), ("c", 3), ("d", 0)];
    let data = broker.folder();
    for (offset, (group, partition)) in (1..).zip(groups) {
        assert_eq!(bytes_of_offsets(data, partition), 0, "{group}");
        assert_eq!(client.commit(group, TOPIC, 0, offset), 0, "{group}");
        assert!(bytes_of_offsets(data, partition) > 0, "{group}");
    }
    let broker = BrokerProcess::start_in(broker.kill());
    let mut client = broker.connect();
    for (offset, (group, _)) in (1..).zip(groups) {
        assert_eq!(client.committed(group, TOPIC, 0), offset, "{group}");
    }
    let folder = broker.stop();
    assert!(!folder.path().join("__consumer_offsets-4").exists());
}
