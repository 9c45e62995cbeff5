//! Unmodified Kafka clients: each reads everything the others write; groups, topics and restarts.
//!
//! ```text
//! administration, compaction ─ security ─ broker ── oracle ─┐
//! segments, tls ─────────────────────── group ─── client ───┴─ records, running, installed
//! ```

mod administration;
mod broker;
mod client;
mod compaction;
mod group;
mod installed;
mod oracle;
mod records;
mod running;
mod security;
mod segments;
mod tls;

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use underpass_testkit::{in_parallel, run, wait_until};

use self::broker::Broker;
use self::client::{Console, JAVA_PARTITION, Kcat, MODES, Mode, Program, java_offsets, java_tool};
use self::group::{Member, PartRange, assert_each_once, wait_for_reading, wait_for_shares};
use self::installed::{installed, java_by, source};
use self::oracle::{Kafka, faults};
use self::records::{Contents, PARTITIONS, Reading, TIME};
use self::running::Running;

/// Number of records a client writes in each mode; the same number to each partition.
const COUNT: u64 = 40;

/// Number of programs that have a producer, or a group, at the same time.
const AT_ONCE: usize = 4;

/// The mode of tests that are not about writing.
const MODE: Mode = MODES[3];

/// One client of each family, for runs without time for all of them.
#[test]
#[ignore = "needs Kafka and librdkafka; run by cargo xtask test"]
fn librdkafka_and_java_read_each_other_and_share_a_group() {
    let broker = Broker::start();
    let (address, topic) = (broker.address(), "families");
    let families = [Program::Confluent, Program::Java];
    let mut contents = Contents::default();
    let modes = MODES.into_iter().zip(families.into_iter().cycle());
    for (first, (mode, program)) in (0..).step_by(COUNT as usize).zip(modes) {
        let indexes = first..first + COUNT;
        program.produce(&address, topic, indexes.clone(), mode);
        contents.add(Contents::of(indexes));
    }
    for program in families {
        let read = program.consume(&address, topic, "beginning");
        assert_eq!(read, contents.read_from(0), "{program:?}");
    }
    group_life(&broker, families[0], families[1]);
    broker.end();
}

#[test]
#[ignore = "needs Kafka, librdkafka, rdkafka, clients for Go and kcat; run by cargo xtask test"]
fn what_a_client_writes_every_client_reads() {
    let broker = Broker::start();
    let (address, topic) = (broker.address(), "written");
    let kcat = Kcat::of(&address);
    let mut contents = Contents::default();
    let mut first = 0;
    for mode in MODES {
        for program in Program::ALL {
            let indexes = first..first + COUNT;
            program.produce(&address, topic, indexes.clone(), mode);
            contents.add(Contents::of(indexes));
            first += COUNT;
        }
        let indexes = first..first + COUNT;
        kcat.produce(topic, indexes.clone(), mode);
        contents.add(Contents::of(indexes.clone()));
        for console in Console::ALL {
            contents.add(console.produce(&address, topic, indexes.clone(), mode));
        }
        first += COUNT;
    }
    let expected = contents.read_from(0);
    for program in Program::ALL {
        let read = program.consume(&address, topic, "beginning");
        assert_eq!(read, expected, "{program:?}");
    }
    assert_eq!(kcat.consume(topic, "beginning"), expected);
    for console in Console::ALL {
        let group = format!("{console:?}");
        let read = console.consume(&address, topic, &group, contents.len());
        assert_eq!(read, expected, "{console:?}");
    }
    broker.end();
}

/// It sends the timestamp of the first record as the largest one of the batch.
#[test]
#[ignore = "needs Kafka and KafkaJS; run by cargo xtask test"]
fn fresh_records_among_old_ones_of_kafkajs_are_found_by_their_time() {
    let broker = Broker::start();
    let mut node = Command::new("node");
    node.arg(source("kafkajs/mixed.js"))
        .args([&*broker.address(), "mixed", "60"])
        .env("NODE_PATH", installed("kafkajs/node_modules"));
    let report = run(&mut node);
    report.assert_success();
    assert_eq!(report.output.trim(), r#"{"offset":"1"}"#);
    broker.end();
}

#[test]
#[ignore = "needs Kafka, librdkafka, rdkafka, clients for Go and kcat; run by cargo xtask test"]
fn every_client_reads_from_the_place_it_names() {
    let broker = Broker::start();
    let (address, topic) = (broker.address(), "places");
    Program::Franz.produce(&address, topic, 0..COUNT, MODE);
    let contents = Contents::of(0..COUNT);
    let end = COUNT / PARTITIONS;
    let [fifth, none] = [5 * PARTITIONS, COUNT].map(|index| *TIME + index);
    for (program, kcat, start) in [
        ("beginning".to_owned(), "beginning".to_owned(), 0),
        ("end".to_owned(), "end".to_owned(), end),
        ("offset:3".to_owned(), "3".to_owned(), 3),
        (format!("time:{fifth}"), format!("s@{fifth}"), 5),
        (format!("time:{none}"), format!("s@{none}"), end),
    ] {
        let expected = contents.read_from(start);
        for client in Program::ALL {
            let read = client.consume(&address, topic, &program);
            assert_eq!(read, expected, "{client:?} {program}");
        }
        let seen = expected.into_iter().filter(|(_, part)| part.count > 0);
        let seen = Reading::from_iter(seen);
        let read = Kcat::of(&address).consume(topic, &kcat);
        assert_eq!(read, seen, "kcat {kcat}");
    }
    for (time, offset) in [("-2", 0), ("-1", end), (&*fifth.to_string(), 5)] {
        let expected = (0..PARTITIONS).map(|partition| format!(":{partition}:{offset}"));
        let offsets = java_offsets(&address, topic, time);
        assert_eq!(offsets, Vec::from_iter(expected), "{time}");
    }
    broker.end();
}

#[test]
#[ignore = "needs Kafka, librdkafka, rdkafka and clients for Go; run by cargo xtask test"]
fn members_of_a_group_come_leave_and_die() {
    let broker = Broker::start();
    let pairs = Vec::from_iter(Program::ALL.into_iter().zip(rotated()));
    in_parallel(AT_ONCE, pairs, |_, (one, other)| {
        group_life(&broker, one, other);
    });
    broker.end();
}

/// Returns the programs, rotated by one.
fn rotated() -> impl Iterator<Item = Program> {
    Program::ALL.into_iter().cycle().skip(1)
}

/// Time without a heartbeat after which a member counts as dead.
const SESSION_TIMEOUT: Duration = Duration::from_secs(6);

fn group_life(broker: &Broker, one: Program, other: Program) {
    let address = broker.address();
    let topic = format!("shared-{one:?}");
    let group = format!("group-{one:?}");
    let join = |program| Member::join(program, &address, &topic, &group);
    let produce = |round| {
        let indexes = round * COUNT..(round + 1) * COUNT;
        one.produce(&address, &topic, indexes, MODE);
        (round + 1) * COUNT / PARTITIONS
    };
    let end = produce(0);
    let first = join(one);
    wait_for_shares(&[&first]);
    wait_for_reading(&[&first], &[], end);

    let second = join(other);
    wait_for_shares(&[&first, &second]);
    let end = produce(1);
    wait_for_reading(&[&first, &second], &[], end);
    let mut ranges = second.leave();
    wait_for_shares(&[&first]);

    let third = join(other);
    wait_for_shares(&[&first, &third]);
    let end = produce(2);
    wait_for_reading(&[&first, &third], &ranges, end);
    ranges.extend(third.die());
    let died = Instant::now();
    wait_for_shares(&[&first]);
    // Its last heartbeat was at most half a second old, plus a moment on a slow machine.
    assert!(died.elapsed() > SESSION_TIMEOUT / 2, "{one:?} {other:?}");
    ranges.extend(first.leave());

    let end = produce(3);
    let fourth = join(one);
    wait_for_reading(&[&fourth], &ranges, end);
    ranges.extend(fourth.leave());
    assert_each_once(&ranges, end);
}

#[test]
#[ignore = "needs Kafka, clients for Go and kcat; run by cargo xtask test"]
fn tools_go_on_from_what_their_group_has_read() {
    let broker = Broker::start();
    let (address, topic) = (broker.address(), "continued");
    for round in 0..2 {
        let indexes = 0..(round + 1) * COUNT;
        Program::Franz.produce(&address, topic, round * COUNT..indexes.end, MODE);
        let expected = Contents::of(indexes).read_from(round * COUNT / PARTITIONS);
        let read = Kcat::of(&address).consume_as_member(topic, "kcat");
        assert_eq!(read, expected, "kcat");
        let count = usize::try_from(COUNT).unwrap();
        for console in Console::ALL {
            let group = format!("{console:?}");
            let read = console.consume(&address, topic, &group, count);
            assert_eq!(read, expected, "{console:?}");
        }
    }
    broker.end();
}

#[test]
#[ignore = "needs Kafka, librdkafka, rdkafka and clients for Go; run by cargo xtask test"]
fn every_client_creates_and_deletes_topics() {
    let broker = Broker::start();
    let address = broker.address();
    Program::Franz.produce(&address, "kept", 0..COUNT, MODE);
    for program in Program::ALL {
        let topic = format!("made-{program:?}");
        let events = program.spawn(&address, "admin", &topic, 0, &[]).end();
        let event = events.last().unwrap();
        assert_eq!(event["partitions"], PARTITIONS, "{program:?}");
        assert_eq!(event["gone"], true, "{program:?}");
    }
    let topic = "made-java";
    let tool = |arguments: &[&str]| java_tool(&address, "TopicCommand", arguments);
    tool(&["--create", "--topic", topic, "--partitions", "4"]);
    assert_eq!(java_offsets(&address, topic, "-1").len(), 4);
    tool(&["--delete", "--topic", topic]);
    wait_until("deletion", || {
        !tool(&["--list"]).lines().any(|line| line == topic)
    });
    let read = Program::Franz.consume(&address, "kept", "beginning");
    assert_eq!(read, Contents::of(0..COUNT).read_from(0));
    broker.end();
}

#[test]
#[ignore = "needs Kafka; run by cargo xtask test"]
fn the_performance_tools_of_kafka_run() {
    let broker = Broker::start();
    for folder in ["java", "java-3.9"] {
        let tool = |class: &str, arguments: &[&str]| {
            let mut command = java_by(folder, &format!("org.apache.kafka.tools.{class}"));
            let report = run(command.args(["--topic", folder]).args(arguments));
            report.assert_success();
            report.output
        };
        let address = format!("bootstrap.servers={}", broker.address());
        let options = [
            "--record-size",
            "1000",
            "--throughput",
            "-1",
            "--producer-props",
        ];
        let records = ["--num-records", "20000"];
        let sent = tool(
            "ProducerPerformance",
            &[&records[..], &options, &[&address]].concat(),
        );
        assert!(sent.contains("20000 records sent"), "{sent}");
        let options = [
            "--messages",
            "20000",
            "--timeout",
            "50000",
            "--bootstrap-server",
        ];
        let read = tool(
            "ConsumerPerformance",
            &[&options[..], &[&broker.address()]].concat(),
        );
        let last = read.lines().last().unwrap();
        let count = last.split(", ").nth(4).and_then(|it| it.parse().ok());
        assert!(count.is_some_and(|count: u64| count >= 20000), "{read}");
    }
    broker.end();
}

#[test]
#[ignore = "needs Kafka, librdkafka, rdkafka and clients for Go; run by cargo xtask test"]
fn restarts_lose_nothing_and_repeat_nothing() {
    let mut broker = Broker::start();
    for programs in Program::ALL.chunks(AT_ONCE) {
        live_through_restarts(&mut broker, programs);
    }
    broker.end();
}

fn live_through_restarts(broker: &mut Broker, programs: &[Program]) {
    let address = broker.address();
    let lives = programs
        .iter()
        .map(|program| Life::start(*program, &address));
    let lives = Vec::from_iter(lives);
    wait_for_progress(&lives);
    broker.stop();
    broker.resume();
    wait_for_progress(&lives);
    broker.kill();
    broker.resume();
    wait_for_progress(&lives);
    let read = lives.into_iter().map(|life| life.end(&address));
    let read = Vec::from_iter(read);
    broker.stop();
    broker.resume();
    in_parallel(AT_ONCE, read, |_, (program, topic, count)| {
        go_on_from(program, &address, &topic, count);
    });
}

/// Writes more records, and checks that a new member of a group whose former members have read
/// `count` records continues there.
fn go_on_from(program: Program, broker: &str, topic: &str, count: u64) {
    Program::Franz.produce(broker, topic, count..count + COUNT, MODE);
    let end = (count + COUNT) / PARTITIONS;
    let before = (0..PARTITIONS).map(|partition| (partition, 0..count / PARTITIONS));
    let before = Vec::from_iter(before);
    let member = Member::join(program, broker, topic, topic);
    wait_for_reading(&[&member], &before, end);
    assert_each_once(&[before, member.leave()].concat(), end);
}

/// An idempotent producer and a group member that keep running while the broker restarts.
struct Life {
    program: Program,
    topic: String,
    producer: Running,
    member: Member,
}

impl Life {
    fn start(program: Program, broker: &str) -> Life {
        let topic = format!("restarts-{program:?}");
        let time = format!("time={}", *TIME);
        let first = format!("first={COUNT}");
        let options = [&*time, &first, "acks=idempotent", "codec=lz4"];
        // A member may not see a topic that is made after it joined.
        Program::Franz.produce(broker, &topic, 0..COUNT, MODE);
        Life {
            program,
            producer: program.spawn(broker, "restart", &topic, 2 * PARTITIONS, &options),
            member: Member::join(program, broker, &topic, &topic),
            topic,
        }
    }

    fn acknowledged(&self) -> u64 {
        let events = self.producer.events();
        let last = events
            .last()
            .and_then(|event| event["acknowledged"].as_u64());
        last.unwrap_or(0)
    }

    fn read(&self) -> u64 {
        let ranges = self.member.ranges();
        ranges.iter().map(|(_, range)| range.end).max().unwrap_or(0)
    }

    /// Ends both, and checks that acknowledged records are present once, in order, and were read.
    /// Returns their number.
    fn end(self, broker: &str) -> (Program, String, u64) {
        self.producer.stop();
        let events = self.producer.end();
        let count = COUNT + events.last().unwrap()["acknowledged"].as_u64().unwrap();
        let read = Program::Franz.consume(broker, &self.topic, "beginning");
        let expected = Contents::of(0..count).read_from(0);
        assert_eq!(read, expected, "{:?}", self.program);
        wait_for_reading(&[&self.member], &[], count / PARTITIONS);
        self.member.leave();
        (self.program, self.topic, count)
    }
}

/// Waits until every producer has written more, and every member has read more.
fn wait_for_progress(lives: &[Life]) {
    for life in lives {
        let (written, read) = (life.acknowledged(), life.read());
        let what = format!("progress of {:?}", life.program);
        wait_until(&what, || {
            life.acknowledged() > written + COUNT && life.read() > read
        });
    }
}

#[test]
#[ignore = "needs Kafka and clients for Go; run by cargo xtask test"]
fn kafkas_tool_finds_damage() {
    let mut kafka = Kafka::start();
    for first in [0, COUNT] {
        Program::Franz.produce(&kafka.address(), "damaged", first..first + COUNT, MODE);
    }
    kafka.stop();
    assert_eq!(faults(&kafka.data()), [""; 0]);
    let folder = kafka.data().join(format!("damaged-{JAVA_PARTITION}"));
    let log = folder.join("00000000000000000000.log");
    let intact = fs::read(&log).unwrap();
    let mut torn = intact.clone();
    *torn.last_mut().unwrap() ^= 1;
    fs::write(&log, torn).unwrap();
    assert_ne!(faults(&kafka.data()), [""; 0]);
    // The second batch gets another offset, which no checksum covers.
    let length = u32::from_be_bytes(intact[8..12].try_into().unwrap());
    let second = 12 + usize::try_from(length).unwrap();
    let mut gap = intact;
    gap[second + 7] += 1;
    fs::write(&log, gap).unwrap();
    assert_ne!(faults(&kafka.data()), [""; 0]);
}

#[test]
#[ignore = "needs Kafka and clients for Go; run by cargo xtask test"]
fn a_folder_of_kafka_is_served_as_it_is() {
    let mut kafka = Kafka::start();
    let mut first = 0;
    // Unacknowledged records come neither first, since a Kafka that has just started may lose them,
    // nor last, since one that is killed may lose them.
    let modes = || MODES.into_iter().cycle().skip(4).take(MODES.len());
    // The ranges that the group has read and committed at Kafka.
    let mut ranges = Vec::new();
    let reads_up_to = |program, address: &str, ranges: &[PartRange], end| {
        let member = Member::join(program, address, "taken", "readers");
        wait_for_reading(&[&member], ranges, end / PARTITIONS);
        [ranges, &member.leave()].concat()
    };
    // Stopped, and killed.
    for end in [Kafka::stop, Kafka::kill] {
        for mode in modes() {
            Program::Franz.produce(&kafka.address(), "taken", first..first + COUNT, mode);
            first += COUNT;
        }
        ranges = reads_up_to(Program::Franz, &kafka.address(), &ranges, first);
        end(&mut kafka);
        let broker = Broker::with_folder_of(&kafka.data());
        let expected = Contents::of(0..first).read_from(0);
        for program in [Program::Franz, Program::Confluent] {
            let read = program.consume(&broker.address(), "taken", "beginning");
            assert_eq!(read, expected, "{program:?}");
        }
        Program::Franz.produce(&broker.address(), "taken", first..first + COUNT, MODE);
        let read = Program::Franz.consume(&broker.address(), "taken", "beginning");
        assert_eq!(read, Contents::of(0..first + COUNT).read_from(0));
        let continued = reads_up_to(Program::Sarama, &broker.address(), &ranges, first + COUNT);
        assert_each_once(&continued, (first + COUNT) / PARTITIONS);
        broker.end();
        kafka.resume();
    }
    kafka.stop();
}
