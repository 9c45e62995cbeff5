//! Kafka's tools for administrators: each shows and changes what it does with Kafka
//! (`UNDERPASS_TEST_BROKER=kafka`).

use std::fs;

use tempfile::NamedTempFile;
use underpass_testkit::run;

use super::broker::Broker;
use super::installed::java;

const TOPICS: &str = "org.apache.kafka.tools.TopicCommand";
const CONFIGS: &str = "kafka.admin.ConfigCommand";
const GROUPS: &str = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand";
const CONSUMER: &str = "org.apache.kafka.tools.consumer.ConsoleConsumer";
const PRODUCER: &str = "org.apache.kafka.tools.ProducerPerformance";
const OFFSETS: &str = "org.apache.kafka.tools.GetOffsetShell";
const RECORDS: &str = "org.apache.kafka.tools.DeleteRecordsCommand";
const FOLDERS: &str = "org.apache.kafka.tools.LogDirsCommand";
const ELECTIONS: &str = "org.apache.kafka.tools.LeaderElectionCommand";
const REASSIGNMENTS: &str = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand";
const FEATURES: &str = "org.apache.kafka.tools.FeatureCommand";

/// A tool, its arguments, its exit code, and parts of its output.
type Step<'s> = (&'s str, &'s str, i32, &'s [&'s str]);

/// The tools in an order in which each finds what it needs.
const STEPS: &[Step<'_>] = &[
    (
        TOPICS,
        "--create --topic t --partitions 1 --config retention.ms=86400000",
        0,
        &["Created topic t."],
    ),
    (
        PRODUCER,
        "--topic t --num-records 300 --record-size 100 --throughput -1",
        0,
        &["300 records sent"],
    ),
    (
        CONSUMER,
        "--topic t --group g --from-beginning --max-messages 300",
        0,
        &[],
    ),
    (TOPICS, "--alter --topic t --partitions 3", 0, &[]),
    (
        TOPICS,
        "--alter --topic t --partitions 2",
        1,
        &["Error while executing"],
    ),
    (
        TOPICS,
        "--describe --topic t",
        0,
        &[
            "PartitionCount: 3\tReplicationFactor: 1",
            "retention.ms=86400000",
            "Topic: t\tPartition: 2\tLeader: 1\tReplicas: 1\tIsr: 1",
        ],
    ),
    (
        CONFIGS,
        "--describe --entity-type topics --entity-name t",
        0,
        &["retention.ms=86400000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:"],
    ),
    (
        CONFIGS,
        "--alter --entity-type topics --entity-name t --add-config segment.bytes=2097152 \
         --delete-config retention.ms",
        0,
        &["Completed updating config for topic t."],
    ),
    (
        CONFIGS,
        "--alter --entity-type topics --entity-name t --add-config segment.bytes=1",
        1,
        &["InvalidConfigurationException"],
    ),
    (
        CONFIGS,
        "--describe --entity-type topics --entity-name t --all",
        0,
        &[
            "  segment.bytes=2097152 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:\
             segment.bytes=2097152, DEFAULT_CONFIG:log.segment.bytes=1073741824}",
            "  retention.ms=604800000 sensitive=false synonyms={}",
        ],
    ),
    (
        CONFIGS,
        "--describe --entity-type brokers --entity-name 1 --all",
        0,
        &["  num.partitions=4 sensitive=false synonyms={STATIC_BROKER_CONFIG:num.partitions=4, "],
    ),
    (
        GROUPS,
        "--list --state",
        0,
        &["g                         Empty"],
    ),
    (
        GROUPS,
        "--describe --group g",
        0,
        &["g               t               0          300             300             0 "],
    ),
    (
        GROUPS,
        "--describe --group none",
        0,
        &["GroupIdNotFoundException"],
    ),
    (
        GROUPS,
        "--reset-offsets --to-earliest --topic t --group g --execute",
        0,
        &["NEW-OFFSET", "g               t               0          0"],
    ),
    (
        GROUPS,
        "--delete-offsets --group g --topic t:0",
        0,
        &["t               0          Successful"],
    ),
    (GROUPS, "--delete --group g", 0, &["was successful"]),
    (
        RECORDS,
        "--offset-json-file FILE",
        0,
        &["partition: t-0\tlow_watermark: 100"],
    ),
    (
        OFFSETS,
        "--topic t --time earliest",
        0,
        &["t:0:100\n", "t:2:0\n"],
    ),
    (
        FOLDERS,
        "--describe --topic-list t",
        0,
        &["\"partition\":\"t-2\",\"size\":0,"],
    ),
    (
        ELECTIONS,
        "--election-type preferred --topic t --partition 0",
        0,
        &["Valid replica already elected for partitions t-0"],
    ),
    (
        REASSIGNMENTS,
        "--list",
        0,
        &["No partition reassignments found."],
    ),
    (FEATURES, "describe", 0, &[]),
];

#[test]
#[ignore = "needs Kafka; run by cargo xtask test"]
fn the_tools_of_administrators_show_and_change_what_they_do_with_kafka() {
    let broker = Broker::start();
    let file = NamedTempFile::new().unwrap();
    let content = r#"{"partitions":[{"topic":"t","partition":0,"offset":100}],"version":1}"#;
    fs::write(&file, content).unwrap();
    let file = file.path().to_str().unwrap();
    for (class, arguments, code, expected) in STEPS {
        let mut tool = java(class);
        match *class {
            PRODUCER => {
                let server = format!("bootstrap.servers={}", broker.address());
                tool.args(["--command-property", &server])
            }
            _ => tool.args(["--bootstrap-server", &broker.address()]),
        };
        let arguments = arguments.split(' ');
        tool.args(arguments.map(|argument| if argument == "FILE" { file } else { argument }));
        let report = run(&mut tool);
        assert_eq!(report.code, Some(*code), "{report:?}");
        let text = format!("{}{}", report.output, report.errors);
        for part in *expected {
            assert!(text.contains(part), "expected {part:?} of {class}: {text}");
        }
    }
    broker.end();
}
