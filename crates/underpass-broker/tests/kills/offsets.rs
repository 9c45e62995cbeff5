//! Committed offsets, before and after the broker is killed.

use std::fs;
use std::path::Path;

use crate::support::batch::batch;
use crate::support::broker::BrokerProcess;
use crate::support::client::Client;

const TOPIC: &str = "committed";

/// How many bytes a partition of the topic of offsets has.
fn bytes_of_offsets(folder: &Path, partition: usize) -> u64 {
    let log = folder.join(format!("__consumer_offsets-{partition}/{:020}.log", 0));
    fs::metadata(log).unwrap().len()
}

/// As a folder of Kafka has it, whose `offsets.topic.num.partitions` is 4.
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
    // The hash of one letter is its number: 97, 98, 99 and 100.
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
