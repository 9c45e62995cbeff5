//! The foreign clients: the programs in `clients`, and tools that are run unmodified.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::process::{Command, Stdio};

use underpass_testkit::{ExitReport, run, run_with_input};

use super::installed::{installed, java, java_by, source};
use super::records::{Contents, KeyValue, PARTITIONS, Part, Reading, SEED};
use super::records::{TIME, of_partition, part, reading, record};
use super::running::Running;

/// A program in `clients`; its README describes the arguments.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Program {
    KafkaPython,
    Confluent,
    Rdkafka,
    Franz,
    Sarama,
    /// The client of Kafka 4.3.
    Java,
    /// The client of Kafka 3.9.
    Java39,
}

/// How records are written: the compression codec, and the acknowledgements.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mode {
    pub(crate) codec: &'static str,
    pub(crate) acks: &'static str,
}

/// Every codec and every kind of acknowledgement.
pub(crate) const MODES: [Mode; 5] = [
    mode("none", "0"),
    mode("gzip", "1"),
    mode("snappy", "all"),
    mode("lz4", "idempotent"),
    mode("zstd", "idempotent"),
];

const fn mode(codec: &'static str, acks: &'static str) -> Mode {
    Mode { codec, acks }
}

impl Program {
    pub(crate) const ALL: [Program; 7] = [
        Program::KafkaPython,
        Program::Confluent,
        Program::Rdkafka,
        Program::Franz,
        Program::Sarama,
        Program::Java,
        Program::Java39,
    ];

    /// Starts a scenario with `count` as its N.
    pub(crate) fn spawn(
        self,
        broker: &str,
        scenario: &str,
        topic: &str,
        count: u64,
        options: &[&str],
    ) -> Running {
        let mut command = self.command();
        command
            .args([broker, scenario, topic, &count.to_string(), SEED])
            .args(options);
        Running::spawn(&command)
    }

    /// Writes the records of a range; all are acknowledged where the mode allows it.
    pub(crate) fn produce(self, broker: &str, topic: &str, indexes: Range<u64>, mode: Mode) {
        let first = format!("first={}", indexes.start);
        let time = format!("time={}", *TIME);
        let (codec, acks) = (
            format!("codec={}", mode.codec),
            format!("acks={}", mode.acks),
        );
        let count = indexes.end - indexes.start;
        let options = [&*first, &time, &codec, &acks];
        let events = self.spawn(broker, "produce", topic, count, &options).end();
        let acknowledged = events.last().unwrap()["acknowledged"].as_u64();
        assert_eq!(acknowledged, Some(count), "{self:?} {mode:?}");
    }

    /// Reads all partitions starting at a position, given as the value of the option `from`.
    pub(crate) fn consume(self, broker: &str, topic: &str, from: &str) -> Reading {
        let from = format!("from={from}");
        let events = self.spawn(broker, "consume", topic, 0, &[&from]).end();
        reading(events.last().unwrap())
    }

    fn command(self) -> Command {
        let script = |name: &str| {
            let mut command = Command::new("env");
            let packages = format!("PYTHONPATH={}", installed("python").display());
            command.args([&packages, "python3", "-B"]).arg(source(name));
            command
        };
        match self {
            Self::KafkaPython => script("kafka_python.py"),
            Self::Confluent => script("confluent.py"),
            Self::Rdkafka => Command::new(installed("rdkafka/debug/rdkafka-client")),
            Self::Franz => Command::new(installed("franz")),
            Self::Sarama => Command::new(installed("sarama")),
            Self::Java => java_by("java", "Client"),
            Self::Java39 => java_by("java-3.9", "Client"),
        }
    }
}

/// kcat, with the options for connecting to a broker.
#[derive(Clone, Debug)]
pub(crate) struct Kcat(Vec<String>);

impl Kcat {
    pub(crate) fn of(broker: &str) -> Kcat {
        Kcat(["-b", broker].map(str::to_owned).into())
    }

    /// Returns a kcat that connects over TLS and trusts only the certificates of a file.
    pub(crate) fn over_tls(broker: &str, trusted: &Path) -> Kcat {
        let mut kcat = Kcat::of(broker);
        let trusted = format!("ssl.ca.location={}", trusted.display());
        for property in ["security.protocol=ssl", &trusted] {
            kcat.0.extend(["-X", property].map(str::to_owned));
        }
        kcat
    }

    /// Writes the records of a range to the partitions they belong to.
    pub(crate) fn produce(&self, topic: &str, indexes: Range<u64>, mode: Mode) {
        for partition in 0..PARTITIONS {
            let mut kcat = self.command();
            kcat.args(["-P", "-t", topic, "-p", &partition.to_string()])
                .args(["-K", "\t", "-z", mode.codec]);
            kcat.args(match mode.acks {
                "idempotent" => ["-X", "enable.idempotence=true"],
                "0" => ["-X", "acks=0"],
                "1" => ["-X", "acks=1"],
                _ => ["-X", "acks=all"],
            });
            let input = lines(of_partition(partition, indexes.clone()));
            run_with_input(&mut kcat, input.as_bytes()).assert_success();
        }
    }

    /// Reads a topic starting at a position, in the syntax of kcat's `-o`; partitions without
    /// records are left out.
    pub(crate) fn consume(&self, topic: &str, from: &str) -> Reading {
        let mut kcat = self.command();
        kcat.args(["-C", "-t", topic, "-o", from, "-e", "-q"])
            .args(["-f", KCAT_FORMAT]);
        tool_reading(&run(&mut kcat))
    }

    /// Reads, as a member of a group, the records that are new to the group.
    pub(crate) fn consume_as_member(&self, topic: &str, group: &str) -> Reading {
        let mut kcat = self.command();
        kcat.args(["-G", group, "-X", "auto.offset.reset=earliest"])
            .args(["-e", "-q", "-f", KCAT_FORMAT, topic]);
        tool_reading(&run(&mut kcat))
    }

    /// Requests the list of brokers and topics.
    pub(crate) fn list(&self) -> ExitReport {
        run(self.command().arg("-L"))
    }

    fn command(&self) -> Command {
        let mut command = Command::new("kcat");
        command.args(&self.0).stdin(Stdio::null());
        command
    }
}

const KCAT_FORMAT: &str = "Partition:%p\tOffset:%o\t%k\t%s\n";

/// Kafka's partitioner assigns records with this key to [`JAVA_PARTITION`] of four. The console
/// producer has no option to choose a partition.
pub(crate) const JAVA_KEY: &str = "java";
pub(crate) const JAVA_PARTITION: u64 = 3;

/// Kafka's console producer and consumer of one release.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Console {
    Kafka43,
    Kafka39,
}

/// The names of the tools of a release, and of the options that were renamed since.
struct ConsoleNames {
    folder: &'static str,
    producer: &'static str,
    client_property: &'static str,
    reader_property: &'static str,
    formatter_property: &'static str,
}

impl Console {
    pub(crate) const ALL: [Console; 2] = [Console::Kafka43, Console::Kafka39];

    const fn names(self) -> ConsoleNames {
        match self {
            Console::Kafka43 => ConsoleNames {
                folder: "java",
                producer: "org.apache.kafka.tools.ConsoleProducer",
                client_property: "--command-property",
                reader_property: "--reader-property",
                formatter_property: "--formatter-property",
            },
            Console::Kafka39 => ConsoleNames {
                folder: "java-3.9",
                producer: "kafka.tools.ConsoleProducer",
                client_property: "--producer-property",
                reader_property: "--property",
                formatter_property: "--property",
            },
        }
    }

    /// Writes payloads of a range and returns them.
    pub(crate) fn produce(
        self,
        broker: &str,
        topic: &str,
        indexes: Range<u64>,
        mode: Mode,
    ) -> Contents {
        let records = Vec::from_iter(indexes.map(|index| (JAVA_KEY.to_owned(), record(index).1)));
        let is_idempotent = mode.acks == "idempotent";
        let acks = if is_idempotent { "all" } else { mode.acks };
        let names = self.names();
        let mut producer = java_by(names.folder, names.producer);
        producer
            .args(["--bootstrap-server", broker, "--topic", topic])
            .args(["--compression-codec", mode.codec])
            .args([names.reader_property, "parse.key=true"])
            .args([names.client_property, &format!("acks={acks}")])
            .arg(names.client_property)
            .arg(format!("enable.idempotence={is_idempotent}"));
        let input = lines(records.iter().cloned());
        run_with_input(&mut producer, input.as_bytes()).assert_success();
        let mut contents = Contents::default();
        contents.append(JAVA_PARTITION, records);
        contents
    }

    /// Reads `count` records, from the beginning or from the committed offset of the group.
    pub(crate) fn consume(self, broker: &str, topic: &str, group: &str, count: usize) -> Reading {
        let names = self.names();
        let class = "org.apache.kafka.tools.consumer.ConsoleConsumer";
        let mut consumer = java_by(names.folder, class);
        consumer
            .args(["--bootstrap-server", broker, "--topic", topic])
            .args(["--from-beginning", "--group", group])
            .args(["--max-messages", &count.to_string()])
            .args(["--timeout-ms", "50000"]);
        for property in ["print.partition", "print.offset", "print.key"] {
            let property = format!("{property}=true");
            consumer.args([names.formatter_property, &property]);
        }
        tool_reading(&run(&mut consumer))
    }
}

/// Asks Kafka's tool for the offset of each partition at a time in milliseconds, or `-1` for the
/// end and `-2` for the beginning.
pub(crate) fn java_offsets(broker: &str, topic: &str, time: &str) -> Vec<String> {
    let mut shell = java("org.apache.kafka.tools.GetOffsetShell");
    shell.args(["--bootstrap-server", broker, "--topic", topic]);
    let report = run(shell.args(["--time", time]));
    report.assert_success();
    let lines = report.output.lines();
    lines
        .filter_map(|line| line.strip_prefix(topic))
        .map(str::to_owned)
        .collect()
}

/// Runs one of Kafka's tools with arguments after the broker's address, and returns its output.
pub(crate) fn java_tool(broker: &str, tool: &str, arguments: &[&str]) -> String {
    let mut command = java(&format!("org.apache.kafka.tools.{tool}"));
    let report = run(command.args(["--bootstrap-server", broker]).args(arguments));
    report.assert_success();
    report.output
}

fn lines(records: impl IntoIterator<Item = KeyValue>) -> String {
    let records = records.into_iter();
    String::from_iter(records.map(|(key, payload)| format!("{key}\t{payload}\n")))
}

/// Sums up lines of `Partition:P`, `Offset:O`, key and payload.
fn tool_reading(report: &ExitReport) -> Reading {
    report.assert_success();
    let mut parts: BTreeMap<u64, (u64, Vec<KeyValue>)> = BTreeMap::new();
    for line in report.output.lines() {
        let fields = Vec::from_iter(line.split('\t'));
        let [partition, offset, key, payload] = fields[..] else {
            panic!("unexpected line {line:?}");
        };
        let number = |field: &str, name: &str| field.strip_prefix(name).unwrap().parse().unwrap();
        let offset = number(offset, "Offset:");
        let partition = number(partition, "Partition:");
        let (start, records) = parts.entry(partition).or_insert((offset, Vec::new()));
        assert_eq!(
            offset,
            *start + records.len() as u64,
            "a gap before {line:?}"
        );
        records.push((key.to_owned(), payload.to_owned()));
    }
    let parts = parts.into_iter();
    let summed = parts.map(|(partition, (start, records))| (partition, part(start, &records)));
    summed.collect::<BTreeMap<u64, Part>>()
}
