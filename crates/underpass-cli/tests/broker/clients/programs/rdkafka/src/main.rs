//! The scenarios by rdkafka, which is librdkafka for Rust. See ../README.md.

use std::collections::{BTreeMap, HashMap};
use std::env;
use std::error::Error;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread::park_timeout;
use std::time::{Duration, Instant};

use futures_executor::block_on;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{
    BaseConsumer, CommitMode, Consumer, ConsumerContext, DefaultConsumerContext, Rebalance,
};
use rdkafka::message::{DeliveryResult, Message};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer, ProducerContext};
use rdkafka::{ClientContext, Offset, TopicPartitionList};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

const PARTITIONS: i32 = 4;
const TIMEOUT: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(200);

/// The pause between batches of the scenario `restart`, so that readers keep up.
const PACE: Duration = Duration::from_millis(50);

type Outcome<T> = Result<T, Box<dyn Error>>;

struct Arguments {
    broker: String,
    scenario: String,
    topic: String,
    count: i64,
    seed: String,
    options: HashMap<String, String>,
}

fn main() -> Outcome<()> {
    let mut words = env::args().skip(1);
    let mut word = || {
        words
            .next()
            .ok_or("BROKER SCENARIO TOPIC N SEED [NAME=VALUE…]")
    };
    let mut arguments = Arguments {
        broker: word()?,
        scenario: word()?,
        topic: word()?,
        count: word()?.parse()?,
        seed: word()?,
        options: HashMap::new(),
    };
    let options = words.filter_map(|word| {
        let (name, value) = word.split_once('=')?;
        Some((name.to_owned(), value.to_owned()))
    });
    arguments.options = options.collect();
    match &*arguments.scenario {
        "produce" | "restart" => produce(&arguments),
        "consume" => consume(&arguments),
        "group" => group(&arguments),
        "admin" => admin(&arguments),
        other => Err(format!("unknown scenario {other:?}").into()),
    }
}

impl Arguments {
    fn option<'a>(&'a self, name: &str, or: &'a str) -> &'a str {
        self.options.get(name).map_or(or, |value| value)
    }

    fn config(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", &self.broker);
        config
    }

    fn payload(&self, index: i64) -> String {
        let sum = Sha256::digest(format!("{}:{index}", self.seed));
        let len = 1 + usize::from(u16::from_be_bytes([sum[0], sum[1]])) % 1000;
        let digest = hex(&sum);
        digest.repeat(len / digest.len() + 1)[..len].to_owned()
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Counts acknowledged records.
#[derive(Default)]
struct Deliveries(AtomicI64);

impl ClientContext for Deliveries {}

impl ProducerContext for Deliveries {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, _opaque: ()) {
        match result {
            Ok(_) => drop(self.0.fetch_add(1, Ordering::Relaxed)),
            Err((error, _)) => eprintln!("{error}"),
        }
    }
}

fn produce(arguments: &Arguments) -> Outcome<()> {
    let stop = stop()?;
    let acks = arguments.option("acks", "idempotent");
    let is_idempotent = acks == "idempotent";
    let mut config = arguments.config();
    config
        .set("acks", if is_idempotent { "all" } else { acks })
        .set("enable.idempotence", is_idempotent.to_string())
        .set("compression.type", arguments.option("codec", "none"));
    let producer: BaseProducer<Deliveries> = config.create_with_context(Deliveries::default())?;
    let acknowledged = || producer.context().0.load(Ordering::Relaxed);
    let time: i64 = arguments.option("time", "0").parse()?;
    let begin: i64 = arguments.option("first", "0").parse()?;
    for first in (begin..).step_by(usize::try_from(arguments.count)?) {
        let next = first + arguments.count;
        for index in first..next {
            let (key, payload) = (format!("k{index}"), arguments.payload(index));
            let record = BaseRecord::to(&arguments.topic)
                .partition((index % i64::from(PARTITIONS)).try_into()?)
                .key(&key)
                .payload(&payload)
                .timestamp(time + index);
            producer.send(record).map_err(|(error, _)| error)?;
        }
        producer.flush(TIMEOUT)?;
        if acknowledged() != next - begin {
            return Err("not everything was acknowledged".into());
        }
        if arguments.scenario == "produce" || stop.load(Ordering::Relaxed) {
            break;
        }
        println!("{}", json!({"acknowledged": acknowledged()}));
        producer.poll(PACE);
    }
    println!("{}", json!({"acknowledged": acknowledged(), "done": true}));
    Ok(())
}

/// The records read from a partition.
struct Reading {
    offsets: Range<i64>,
    next: i64,
    count: i64,
    hash: Sha256,
}

fn consume(arguments: &Arguments) -> Outcome<()> {
    let mut config = arguments.config();
    config
        .set("group.id", "none")
        .set("enable.auto.commit", "false");
    let consumer: BaseConsumer = config.create()?;
    let mut readings = BTreeMap::new();
    let mut assigned = TopicPartitionList::new();
    for partition in partitions(&consumer, &arguments.topic)? {
        let offsets = offsets(&consumer, arguments, partition)?;
        let from = Offset::Offset(offsets.start);
        assigned.add_partition_offset(&arguments.topic, partition, from)?;
        let reading = Reading {
            next: offsets.start,
            count: 0,
            hash: Sha256::new(),
            offsets,
        };
        readings.insert(partition, reading);
    }
    consumer.assign(&assigned)?;
    while readings
        .values()
        .any(|reading| reading.next < reading.offsets.end)
    {
        let Some(record) = consumer.poll(POLL) else {
            continue;
        };
        let record = record?;
        let reading = readings
            .get_mut(&record.partition())
            .ok_or("another partition")?;
        if reading.offsets.end <= record.offset() {
            continue;
        }
        reading.next = record.offset() + 1;
        reading.count += 1;
        for bytes in [record.key(), record.payload()] {
            reading.hash.update(bytes.unwrap_or_default());
            reading.hash.update("\n");
        }
    }
    let parts = readings.into_iter().map(|(partition, reading)| {
        let sha256 = hex(&reading.hash.finalize());
        let start = reading.offsets.start;
        let part = json!({"start": start, "count": reading.count, "sha256": sha256});
        (partition.to_string(), part)
    });
    println!("{}", json!({"partitions": Value::Object(parts.collect())}));
    Ok(())
}

fn partitions(consumer: &BaseConsumer, topic: &str) -> Outcome<Vec<i32>> {
    let metadata = consumer.fetch_metadata(Some(topic), TIMEOUT)?;
    let topic = metadata.topics().first().ok_or("no such topic")?;
    Ok(topic
        .partitions()
        .iter()
        .map(|partition| partition.id())
        .collect())
}

/// Returns the offsets where reading a partition starts and ends.
fn offsets(consumer: &BaseConsumer, arguments: &Arguments, partition: i32) -> Outcome<Range<i64>> {
    let topic = &arguments.topic;
    let (low, high) = consumer.fetch_watermarks(topic, partition, TIMEOUT)?;
    let from = arguments.option("from", "beginning");
    let start = match from.split_once(':') {
        None if from == "end" => high,
        None => low,
        Some(("offset", offset)) => offset.parse()?,
        Some((_, time)) => {
            let mut times = TopicPartitionList::new();
            times.add_partition_offset(topic, partition, Offset::Offset(time.parse()?))?;
            let found = consumer.offsets_for_times(times, TIMEOUT)?;
            let found = found.find_partition(topic, partition).ok_or("no answer")?;
            match found.offset() {
                Offset::Offset(offset) => offset,
                _ => high,
            }
        }
    };
    Ok(start..high)
}

/// Prints assignments.
struct Assignments;

impl ClientContext for Assignments {}

impl ConsumerContext for Assignments {
    fn post_rebalance(&self, _consumer: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        let mut assigned = match rebalance {
            Rebalance::Assign(list) => {
                let elements = list.elements();
                Vec::from_iter(elements.iter().map(|one| one.partition()))
            }
            _ => Vec::new(),
        };
        assigned.sort_unstable();
        println!("{}", json!({"assigned": assigned}));
    }
}

fn group(arguments: &Arguments) -> Outcome<()> {
    let stop = stop()?;
    let mut config = arguments.config();
    config
        .set("group.id", arguments.option("group", ""))
        .set("enable.auto.commit", "false")
        .set("auto.offset.reset", "earliest")
        .set("session.timeout.ms", "6000")
        .set("heartbeat.interval.ms", "500")
        .set("partition.assignment.strategy", "range");
    let consumer: BaseConsumer<Assignments> = config.create_with_context(Assignments)?;
    consumer.subscribe(&[&arguments.topic])?;
    while !stop.load(Ordering::Relaxed) {
        let Some(record) = consumer.poll(POLL) else {
            continue;
        };
        let Ok(record) = record else {
            continue;
        };
        if let Err(error) = consumer.commit_message(&record, CommitMode::Sync) {
            println!("{}", json!({"error": error.to_string()}));
            continue;
        }
        let (partition, offset) = (record.partition(), record.offset());
        println!(
            "{}",
            json!({"partition": partition, "first": offset, "next": offset + 1})
        );
    }
    drop(consumer);
    println!("{}", json!({"left": true}));
    Ok(())
}

fn admin(arguments: &Arguments) -> Outcome<()> {
    let config = arguments.config();
    let client: AdminClient<DefaultClientContext> = config.create()?;
    let consumer: BaseConsumer<DefaultConsumerContext> = config.create()?;
    let (topic, options) = (&*arguments.topic, AdminOptions::new());
    let new = NewTopic::new(topic, PARTITIONS, TopicReplication::Fixed(1));
    for outcome in block_on(client.create_topics([&new], &options))? {
        outcome.map_err(|(_, code)| code)?;
    }
    let is_listed = || -> Outcome<bool> {
        let metadata = consumer.fetch_metadata(None, TIMEOUT)?;
        Ok(metadata.topics().iter().any(|one| one.name() == topic))
    };
    let has_come = wait_until(&is_listed)?;
    let count = partitions(&consumer, topic)?.len();
    for outcome in block_on(client.delete_topics(&[topic], &options))? {
        outcome.map_err(|(_, code)| code)?;
    }
    let is_gone = wait_until(&|| Ok(!is_listed()?))?;
    println!(
        "{}",
        json!({"partitions": count, "gone": has_come && is_gone})
    );
    Ok(())
}

/// Waits until a condition holds; metadata may lag behind the response to an administrator.
fn wait_until(holds: &dyn Fn() -> Outcome<bool>) -> Outcome<bool> {
    let deadline = Instant::now() + Duration::from_secs(30);
    while Instant::now() < deadline {
        if holds()? {
            return Ok(true);
        }
        park_timeout(Duration::from_millis(100));
    }
    Ok(false)
}

/// Returns a flag that SIGTERM sets.
fn stop() -> Outcome<Arc<AtomicBool>> {
    let stop = Arc::<AtomicBool>::default();
    signal_hook::flag::register(signal_hook::consts::SIGTERM, Arc::clone(&stop))?;
    Ok(stop)
}
