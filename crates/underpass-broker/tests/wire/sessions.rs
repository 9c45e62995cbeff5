//! Fetch sessions (KIP-227): later responses have only partitions with news.

use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic, ForgottenTopic};
use kafka_protocol::messages::{DeleteTopicsRequest, FetchRequest, MetadataRequest};

use crate::support::batch::batch;
use crate::support::broker::BrokerProcess;
use crate::support::client::{Client, fetch_request, topic_name};
use crate::{MEMORY_MAX, create};

const TOPIC: &str = "sessions";

const NONE: i16 = 0;
const UNKNOWN_TOPIC_OR_PARTITION: i16 = 3;
const FETCH_SESSION_ID_NOT_FOUND: i16 = 70;
const INVALID_FETCH_SESSION_EPOCH: i16 = 71;
const FETCH_SESSION_TOPIC_ID_ERROR: i16 = 106;

/// A consumer with a session.
struct Consumer {
    version: i16,
    /// Named as requests of the version name it.
    topic: FetchTopic,
    session: i32,
    epoch: i32,
}

/// A partition of a response: its number, its error, the bytes of records, the high watermark.
type Found = (i32, i16, usize, i64);

impl Consumer {
    /// Begins a session with these partitions and offsets.
    #[track_caller]
    fn begin(client: &mut Client, version: i16, wanted: &[(i32, i64)]) -> (Consumer, Vec<Found>) {
        let described = client.ask(12, &MetadataRequest::default().with_topics(None));
        let mut topics = described.topics.iter();
        let known = topics.find(|one| one.name == Some(topic_name(TOPIC)));
        let topic = match version >= 13 {
            true => FetchTopic::default().with_topic_id(known.unwrap().topic_id),
            false => FetchTopic::default().with_topic(topic_name(TOPIC)),
        };
        let mut consumer = Consumer {
            version,
            topic,
            session: 0,
            epoch: 0,
        };
        let (error, session, found) = consumer.ask(client, consumer.request(wanted));
        assert_eq!(error, NONE);
        assert_ne!(session, 0);
        consumer.session = session;
        (consumer, found)
    }

    fn request(&self, wanted: &[(i32, i64)]) -> FetchRequest {
        let partitions = wanted.iter().map(|(partition, offset)| {
            FetchPartition::default()
                .with_partition(*partition)
                .with_fetch_offset(*offset)
                .with_partition_max_bytes(1 << 20)
        });
        let topic = self.topic.clone().with_partitions(partitions.collect());
        let has_topic = !wanted.is_empty();
        fetch_request(TOPIC, 0, 0)
            .with_session_id(self.session)
            .with_session_epoch(self.epoch)
            .with_topics(has_topic.then_some(topic).into_iter().collect())
    }

    /// Returns the error, the session and the partitions of the response.
    #[track_caller]
    fn ask(&self, client: &mut Client, request: FetchRequest) -> (i16, i32, Vec<Found>) {
        let response = client.ask(self.version, &request);
        let mut found = Vec::new();
        for topic in &response.responses {
            assert_eq!(topic.topic_id, self.topic.topic_id);
            assert_eq!(topic.topic, self.topic.topic);
            found.extend(topic.partitions.iter().map(|one| {
                let bytes = one.records.as_ref().map_or(0, |records| records.len());
                let (number, watermark) = (one.partition_index, one.high_watermark);
                (number, one.error_code, bytes, watermark)
            }));
        }
        (response.error_code, response.session_id, found)
    }

    /// Fetches in the next epoch, with these changes.
    #[track_caller]
    fn next(&mut self, client: &mut Client, changed: &[(i32, i64)]) -> Vec<Found> {
        self.epoch += 1;
        let (error, session, found) = self.ask(client, self.request(changed));
        assert_eq!((error, session), (NONE, self.session));
        found
    }

    /// Fetches in the next epoch without these partitions.
    #[track_caller]
    fn forget(&mut self, client: &mut Client, partitions: &[i32]) -> Vec<Found> {
        self.epoch += 1;
        let forgotten = ForgottenTopic::default()
            .with_topic(self.topic.topic.clone())
            .with_topic_id(self.topic.topic_id)
            .with_partitions(partitions.to_vec());
        let request = self.request(&[]);
        let request = request.with_forgotten_topics_data(vec![forgotten]);
        let (error, session, found) = self.ask(client, request);
        assert_eq!((error, session), (NONE, self.session));
        found
    }
}

fn started() -> (BrokerProcess, Client) {
    let broker = BrokerProcess::start();
    let mut client = broker.connect();
    create(&mut client, TOPIC, 4, &[]);
    (broker, client)
}

#[test]
fn responses_of_a_session_have_what_is_new_in_every_version() {
    for version in 7..=17 {
        let (broker, mut client) = started();
        let bytes = batch(1, 100).len();
        let wanted = [(0, 0), (1, 0), (2, 0)];
        let (mut consumer, found) = Consumer::begin(&mut client, version, &wanted);
        assert_eq!(
            found,
            [0, 1, 2].map(|one| (one, NONE, 0, 0)),
            "version {version}"
        );
        assert_eq!(consumer.next(&mut client, &[]), []);
        client.produce(TOPIC, 1, batch(1, 100));
        assert_eq!(consumer.next(&mut client, &[]), [(1, NONE, bytes, 1)]);
        // Records come again until the offset changes.
        assert_eq!(consumer.next(&mut client, &[]), [(1, NONE, bytes, 1)]);
        assert_eq!(consumer.next(&mut client, &[(1, 1)]), []);
        // A partition is added, another removed.
        assert_eq!(consumer.next(&mut client, &[(3, 0)]), [(3, NONE, 0, 0)]);
        client.produce(TOPIC, 0, batch(1, 100));
        client.produce(TOPIC, 2, batch(1, 100));
        assert_eq!(consumer.forget(&mut client, &[0]), [(2, NONE, bytes, 1)]);
        // The session continues on another connection.
        let mut client = broker.connect();
        assert_eq!(consumer.next(&mut client, &[(2, 1)]), []);
        broker.end_well(MEMORY_MAX);
    }
}

#[test]
fn what_is_no_request_of_a_session_is_refused_and_it_goes_on() {
    let (broker, mut client) = started();
    let (mut consumer, _) = Consumer::begin(&mut client, 12, &[(0, 0), (1, 0)]);
    let refused = |client: &mut Client, session, epoch, version| {
        let other = Consumer {
            session,
            epoch,
            version,
            topic: FetchTopic::default(),
        };
        other.ask(client, other.request(&[]))
    };
    let id = consumer.session;
    for (session, epoch, version, error) in [
        (id, 2, 12, INVALID_FETCH_SESSION_EPOCH),
        (id, i32::MIN, 12, INVALID_FETCH_SESSION_EPOCH),
        (id ^ 1, 1, 12, FETCH_SESSION_ID_NOT_FOUND),
        (0, 1, 12, FETCH_SESSION_ID_NOT_FOUND),
        (-1, 1, 12, FETCH_SESSION_ID_NOT_FOUND),
        (id, 1, 13, FETCH_SESSION_TOPIC_ID_ERROR),
    ] {
        let found = refused(&mut client, session, epoch, version);
        assert_eq!(found, (error, 0, Vec::new()), "{session} {epoch} {version}");
    }
    assert_eq!(consumer.next(&mut client, &[]), []);
    // Without partitions it ends.
    consumer.epoch += 1;
    let forgotten = ForgottenTopic::default()
        .with_topic(topic_name(TOPIC))
        .with_partitions(vec![0, 1]);
    let last = consumer
        .request(&[])
        .with_forgotten_topics_data(vec![forgotten]);
    assert_eq!(consumer.ask(&mut client, last), (NONE, 0, Vec::new()));
    consumer.epoch += 1;
    let (error, ..) = consumer.ask(&mut client, consumer.request(&[]));
    assert_eq!(error, FETCH_SESSION_ID_NOT_FOUND);
    broker.end_well(MEMORY_MAX);
}

#[test]
fn an_error_is_in_each_response_until_it_is_over() {
    let (broker, mut client) = started();
    let (mut consumer, _) = Consumer::begin(&mut client, 12, &[(0, 0), (9, 0)]);
    let unknown = |partition| (partition, UNKNOWN_TOPIC_OR_PARTITION, 0, -1);
    assert_eq!(consumer.next(&mut client, &[]), [unknown(9)]);
    assert_eq!(consumer.forget(&mut client, &[9]), []);
    let deleted = DeleteTopicsRequest::default()
        .with_topic_names(vec![topic_name(TOPIC)])
        .with_timeout_ms(10_000);
    assert_eq!(client.ask(5, &deleted).responses[0].error_code, NONE);
    assert_eq!(consumer.next(&mut client, &[]), [unknown(0)]);
    assert_eq!(consumer.next(&mut client, &[]), [unknown(0)]);
    create(&mut client, TOPIC, 1, &[]);
    assert_eq!(consumer.next(&mut client, &[]), [(0, NONE, 0, 0)]);
    assert_eq!(consumer.next(&mut client, &[]), []);
    broker.end_well(MEMORY_MAX);
}

#[test]
fn partitions_take_turns_when_a_response_is_full() {
    let (broker, mut client) = started();
    for partition in 0..3 {
        for _ in 0..4 {
            client.produce(TOPIC, partition, batch(1, 1000));
        }
    }
    let wanted = [(0, 0), (1, 0), (2, 0)];
    let (mut consumer, _) = Consumer::begin(&mut client, 11, &wanted);
    let mut served = Vec::new();
    for _ in 0..6 {
        consumer.epoch += 1;
        // Room for one batch.
        let request = consumer.request(&[]).with_max_bytes(1);
        let (_, _, found) = consumer.ask(&mut client, request);
        served.extend(found.iter().filter(|one| one.2 > 0).map(|one| one.0));
    }
    assert_eq!(served, [0, 1, 2, 0, 1, 2]);
    broker.end_well(MEMORY_MAX);
}
