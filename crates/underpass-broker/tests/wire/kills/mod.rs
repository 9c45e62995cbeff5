//! A broker that is repeatedly killed under load: no acknowledged batch is lost or duplicated, and
//! each partition has the batches in the order of their producer.

mod compaction;
mod offsets;

use std::collections::{HashMap, VecDeque};
use std::{env, fs};

use kafka_protocol::messages::{InitProducerIdRequest, MetadataRequest, ProduceRequest};
use underpass_log::batch::{BatchHeader, RecordKeys, check};
use underpass_testkit::SeededRandom;

use crate::support::batch::batch_of;
use crate::support::broker::BrokerProcess;
use crate::support::client::{Client, encoded, produce_request, response_of};

const TOPIC: &str = "killed";
const PARTITIONS: i32 = 4;

/// The number of requests that Kafka clients have in flight if order matters.
const UNANSWERED_MAX: usize = 5;

/// The version of the Produce requests.
const PRODUCE: i16 = 9;

/// An idempotent producer of batches with one record, to one partition.
struct KilledProducer {
    partition: i32,
    id: i64,
    next: i32,
    unanswered: VecDeque<i32>,
    /// The offsets of acknowledged batches, by sequence number.
    acknowledged: HashMap<i32, i64>,
}

impl KilledProducer {
    fn new(client: &mut Client, partition: i32) -> KilledProducer {
        let answer = client.ask(
            4,
            &InitProducerIdRequest::default().with_transactional_id(None),
        );
        assert_eq!(answer.error_code, 0);
        KilledProducer {
            partition,
            id: answer.producer_id.0,
            next: 0,
            unanswered: VecDeque::new(),
            acknowledged: HashMap::new(),
        }
    }

    /// Sends a batch. The broker may be dead.
    fn send(&self, client: &mut Client, sequence: i32) {
        let batch = batch_of(self.id, 0, sequence);
        let request = produce_request(-1, &[(TOPIC, self.partition, Some(batch))]);
        client.send_or_end(&encoded(PRODUCE, &request));
    }

    fn begin(&mut self, client: &mut Client) {
        let sequence = self.next;
        self.next += 1;
        self.unanswered.push_back(sequence);
        self.send(client, sequence);
    }
}

/// Repeats unanswered batches, then sends new ones until `answers` answers have arrived and others
/// are pending. With `None`, sends no new ones and waits for all answers.
fn produce(client: &mut Client, producers: &mut [KilledProducer], answers: Option<usize>) {
    let mut sent = VecDeque::new();
    for (number, producer) in producers.iter().enumerate() {
        for sequence in &producer.unanswered {
            producer.send(client, *sequence);
            sent.push_back((number, *sequence));
        }
    }
    for received in 0.. {
        for (number, producer) in producers.iter_mut().enumerate() {
            while answers.is_some() && producer.unanswered.len() < UNANSWERED_MAX {
                sent.push_back((number, producer.next));
                producer.begin(client);
            }
        }
        let Some((number, sequence)) = sent.pop_front() else {
            return;
        };
        if answers == Some(received) {
            return;
        }
        let frame = client.receive().expect("it is alive");
        let answer = response_of::<ProduceRequest>(PRODUCE, frame);
        let answer = &answer.responses[0].partition_responses[0];
        assert_eq!(answer.error_code, 0, "sequence {sequence}");
        let producer = &mut producers[number];
        assert_eq!(producer.unanswered.pop_front(), Some(sequence));
        let before = producer.acknowledged.insert(sequence, answer.base_offset);
        assert_eq!(before, None);
    }
}

/// Returns every batch of a partition.
fn read(client: &mut Client, partition: i32) -> Vec<BatchHeader> {
    let mut headers: Vec<BatchHeader> = Vec::new();
    loop {
        let next = headers.last().map_or(0, BatchHeader::next_offset);
        let fetched = client.fetch(TOPIC, partition, next);
        let fetched = &fetched.responses[0].partitions[0];
        assert_eq!(fetched.error_code, 0);
        if next == fetched.high_watermark {
            return headers;
        }
        let mut rest = &fetched.records.as_ref().unwrap()[..];
        while let Some(header) = BatchHeader::parse(rest).filter(|it| it.size <= rest.len()) {
            let (batch, behind) = rest.split_at(header.size);
            check(batch, RecordKeys::Optional).unwrap();
            headers.push(header);
            rest = behind;
        }
    }
}

/// Returns the cluster ID that a broker reports.
fn cluster_id(broker: &BrokerProcess) -> String {
    let answer = broker.connect().ask(9, &MetadataRequest::default());
    answer.cluster_id.unwrap().to_string()
}

#[test]
fn every_folder_has_a_cluster_id_and_keeps_it() {
    let broker = BrokerProcess::start();
    let id = cluster_id(&broker);
    assert_eq!(id.len(), 22);
    let is_base64url = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    assert!(id.bytes().all(is_base64url), "{id}");
    assert_ne!(cluster_id(&BrokerProcess::start()), id);
    let folder = broker.kill();
    let properties = fs::read_to_string(folder.path().join("meta.properties")).unwrap();
    assert!(
        properties.contains(&format!("cluster.id={id}\n")),
        "{properties}"
    );
    let broker = BrokerProcess::start_in(folder);
    assert_eq!(cluster_id(&broker), id);
    // As if another broker had created the folder.
    let folder = broker.stop();
    let path = folder.path().join("meta.properties");
    fs::write(&path, properties.replace(&id, "4L6g3nShT-eMCtK--X86sw")).unwrap();
    let broker = BrokerProcess::start_in(folder);
    assert_eq!(cluster_id(&broker), "4L6g3nShT-eMCtK--X86sw");
    broker.stop();
}

#[test]
fn kills_under_load_lose_nothing_and_repeat_nothing() {
    let kills = env::var("UNDERPASS_KILLS").map_or(300, |kills| kills.parse().unwrap());
    let mut random = SeededRandom::new(1);
    let mut broker = BrokerProcess::start();
    let mut client = broker.connect();
    client.create_topic(TOPIC);
    let producers = (0..PARTITIONS).map(|partition| KilledProducer::new(&mut client, partition));
    let mut producers = Vec::from_iter(producers);
    for _ in 0..kills {
        let mut client = broker.connect();
        let answers = random.below(100);
        produce(&mut client, &mut producers, Some(answers));
        broker = BrokerProcess::start_in(broker.kill());
    }
    let mut client = broker.connect();
    produce(&mut client, &mut producers, None);
    for producer in &producers {
        let there = read(&mut client, producer.partition);
        let sequences: Vec<_> = there.iter().map(|batch| batch.base_sequence).collect();
        assert_eq!(sequences, Vec::from_iter(0..producer.next));
        for (batch, offset) in there.iter().zip(0..) {
            assert_eq!(
                (batch.producer_id, batch.base_offset),
                (producer.id, offset)
            );
            assert_eq!(producer.acknowledged[&batch.base_sequence], offset);
        }
        assert!(producer.next > 0);
    }
    broker.stop();
}
