//! Compacted topics with Kafka's own programs and with kcat.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use underpass_testkit::{run, run_with_input, wait_until};

use super::broker::Broker;
use super::installed::java;
use super::oracle::{Kafka, faults};

const TOPIC: &str = "compacted";

const SETTINGS: &str = "\
    [topics]\n\
    config = {\"segment.bytes\" = \"1048576\", \"min.cleanable.dirty.ratio\" = \"0.01\"}\n\
    [cleaner]\n\
    \"log.cleaner.backoff.ms\" = 100\n";

/// Starts this project's broker with small segments and frequent compactions.
fn started() -> (Broker, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("broker.toml");
    fs::write(&config, SETTINGS).unwrap();
    let broker = Broker::with(&["--config", config.to_str().unwrap()]);
    (broker, folder)
}

/// Returns what Kafka's tool finds wrong, apart from gaps between offsets.
fn faults_but_gaps(data: &Path) -> Vec<String> {
    let faults = faults(data).into_iter();
    let is_gap = |fault: &String| {
        let of_gaps = [" is followed by ", "non-consecutive"];
        of_gaps.iter().any(|words| fault.contains(words))
    };
    faults.filter(|fault| !is_gap(fault)).collect()
}

#[test]
#[ignore = "needs Kafka; run by cargo xtask test"]
fn kafkas_test_of_compaction_passes() {
    let (mut broker, _settings) = started();
    let mut tester = java("org.apache.kafka.tools.LogCompactionTester");
    tester.args(["--bootstrap-server", &broker.address()]);
    let numbers = ["--messages", "200000", "--duplicates", "50", "--sleep", "5"];
    let report = run(tester.args(numbers).args(["--percent-deletes", "20"]));
    report.assert_success();
    assert!(
        report.output.contains("Data verification is completed"),
        "{report:#?}"
    );
    // Most records are gone: of each key there are fifty.
    let reduction = report
        .output
        .lines()
        .find(|line| line.contains("% reduction"));
    let percent = reduction.and_then(|line| line.split(['(', '%']).nth(1)?.parse().ok());
    assert!(
        percent.is_some_and(|percent: f64| percent > 50.0),
        "{reduction:?}"
    );
    broker.stop();
    assert_eq!(faults_but_gaps(&broker.data()), [""; 0]);
}

/// The records that a test writes: many of each key.
fn lines(numbers: std::ops::Range<u32>) -> String {
    let lines = numbers.map(|number| {
        let key = number * 7919 % 500;
        match number % 11 {
            0 => format!("key-{key}:\n"),
            _ => format!("key-{key}:{number}-{}\n", noise(number)),
        }
    });
    lines.collect()
}

/// Returns text that does not become much smaller by compression.
fn noise(number: u32) -> String {
    let mut state = u64::from(number);
    let words = (0..8).map(|_| {
        state = state.wrapping_add(1).wrapping_mul(0x5851_f42d_4c95_7f2d);
        format!("{:016x}", state ^ (state >> 29))
    });
    words.collect()
}

/// Writes records with a codec; an empty value deletes its key.
fn produce(address: &str, codec: &str, lines: &str) {
    let mut kcat = Command::new("kcat");
    kcat.args(["-b", address, "-P", "-t", TOPIC, "-K:", "-Z", "-z", codec]);
    run_with_input(&mut kcat, lines.as_bytes()).assert_success();
}

/// Reads the latest value of each key, and the number of records.
fn latest(address: &str) -> (BTreeMap<String, String>, usize) {
    let mut kcat = Command::new("kcat");
    let report = run(kcat.args(["-b", address, "-C", "-t", TOPIC, "-e", "-K:", "-Z"]));
    report.assert_success();
    let records = report
        .output
        .lines()
        .filter_map(|line| line.split_once(':'));
    let mut latest = BTreeMap::new();
    let mut count = 0;
    for (key, value) in records {
        count += 1;
        match value {
            "NULL" => drop(latest.remove(key)),
            value => drop(latest.insert(key.to_owned(), value.to_owned())),
        }
    }
    (latest, count)
}

fn set(address: &str, configs: &str) {
    let mut alter = java("kafka.admin.ConfigCommand");
    alter.args(["--bootstrap-server", address, "--alter"]);
    alter.args(["--entity-type", "topics", "--entity-name", TOPIC]);
    run(alter.args(["--add-config", configs])).assert_success();
}

fn create(address: &str, configs: &[&str]) {
    let mut create = java("org.apache.kafka.tools.TopicCommand");
    create.args(["--bootstrap-server", address, "--create", "--topic", TOPIC]);
    create.args(["--partitions", "1", "--replication-factor", "1"]);
    for config in configs {
        create.args(["--config", config]);
    }
    run(&mut create).assert_success();
}

#[test]
#[ignore = "needs Kafka and kcat; run by cargo xtask test"]
fn a_folder_of_kafka_is_compacted_and_goes_back() {
    let mut kafka = Kafka::start();
    let small = ["segment.bytes=1048576", "cleanup.policy=compact"];
    create(&kafka.address(), &small);
    let codecs = ["none", "gzip", "snappy", "lz4", "zstd"];
    for (number, codec) in (0..).zip(codecs) {
        let numbers = number * 20_000..(number + 1) * 20_000;
        produce(&kafka.address(), codec, &lines(numbers));
    }
    let (expected, _) = latest(&kafka.address());
    kafka.stop();
    let mut broker = Broker::with_folder_of(&kafka.data());
    set(
        &broker.address(),
        "cleanup.policy=compact,min.cleanable.dirty.ratio=0.01,segment.bytes=1048576",
    );
    wait_until("compaction", || latest(&broker.address()).1 < 40_000);
    assert_eq!(latest(&broker.address()).0, expected);
    // Compacted again, with what is written here.
    produce(&broker.address(), "snappy", &lines(100_000..120_000));
    let (expected, count) = latest(&broker.address());
    wait_until("compaction", || latest(&broker.address()).1 < count - 5000);
    assert_eq!(latest(&broker.address()).0, expected);
    broker.stop();
    assert_eq!(faults_but_gaps(&broker.data()), [""; 0]);
    let name = format!("{TOPIC}-0");
    fs::remove_dir_all(kafka.data().join(&name)).unwrap();
    let mut copy = Command::new("cp");
    run(copy
        .arg("-r")
        .arg(broker.data().join(&name))
        .arg(kafka.data()))
    .assert_success();
    kafka.resume();
    assert_eq!(latest(&kafka.address()).0, expected);
    kafka.stop();
    assert_eq!(faults_but_gaps(&kafka.data()), [""; 0]);
}

#[test]
#[ignore = "needs Kafka and kcat; run by cargo xtask test"]
fn librdkafka_is_told_which_records_have_no_key() {
    let (broker, _settings) = started();
    create(&broker.address(), &["cleanup.policy=compact"]);
    let mut kcat = Command::new("kcat");
    let address = broker.address();
    kcat.args(["-b", &address, "-P", "-t", TOPIC, "-X", "retries=0"]);
    let refused = run_with_input(&mut kcat, b"no key\n");
    let errors = format!("{}{}", refused.errors, refused.output);
    assert!(
        errors.contains("Broker failed to validate record"),
        "{refused:#?}"
    );
    produce(&address, "zstd", "a:1\nb:2\na:3\n");
    let (found, count) = latest(&address);
    assert_eq!((found.len(), count), (2, 3));
}
