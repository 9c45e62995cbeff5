//! A client that sends any bytes and returns the responses.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::offset_fetch_request::OffsetFetchRequestTopic;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{
    ApiVersionsRequest, FetchRequest, FetchResponse, FindCoordinatorRequest, GroupId,
    MetadataRequest, OffsetCommitRequest, OffsetFetchRequest, ProduceRequest, RequestHeader,
    TopicName,
};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, Request, StrBytes};
use underpass_testkit::WAIT_MAX;

/// A connection to a broker.
#[derive(Debug)]
pub(crate) struct Client<S = TcpStream>(S);

/// The correlation ID of all requests.
const CORRELATION_ID: i32 = 77;

/// Returns the bytes of a request with its header, without the length.
pub(crate) fn encoded<R: Request>(version: i16, request: &R) -> Vec<u8> {
    let header = RequestHeader::default()
        .with_request_api_key(R::KEY)
        .with_request_api_version(version)
        .with_correlation_id(CORRELATION_ID)
        .with_client_id(Some("hostile".into()));
    let mut frame = BytesMut::new();
    let encoded = header.encode(&mut frame, R::header_version(version));
    encoded.expect("a header");
    request.encode(&mut frame, version).expect("a request");
    frame.to_vec()
}

/// Returns a request with a header of version 1 and this body.
pub(crate) fn raw(key: i16, version: i16, body: &[u8]) -> Vec<u8> {
    let mut frame = [key.to_be_bytes(), version.to_be_bytes()].concat();
    frame.extend_from_slice(&CORRELATION_ID.to_be_bytes());
    frame.extend_from_slice(&[0, 1, b'c']);
    frame.extend_from_slice(body);
    frame
}

/// Returns a request with a header of version 2, for flexible requests.
pub(crate) fn raw_flexible(key: i16, version: i16, body: &[u8]) -> Vec<u8> {
    raw(key, version, &[&[0], body].concat())
}

/// Returns a frame: the length, and the bytes.
pub(crate) fn framed(bytes: &[u8]) -> Vec<u8> {
    let length = i32::try_from(bytes.len()).expect("a frame");
    [&length.to_be_bytes()[..], bytes].concat()
}

impl Client {
    pub(crate) fn connect(at: SocketAddr) -> Client {
        let stream = TcpStream::connect_timeout(&at, WAIT_MAX).expect("a connection");
        stream.set_read_timeout(Some(WAIT_MAX)).expect("a limit");
        stream.set_write_timeout(Some(WAIT_MAX)).expect("a limit");
        stream.set_nodelay(true).expect("no delay");
        Client(stream)
    }

    /// Returns another handle to the same connection.
    pub(crate) fn another(&self) -> Client {
        Client(self.0.try_clone().expect("a descriptor"))
    }

    /// Shuts down the sending side.
    pub(crate) fn finish(&self) {
        let _may_be_closed = self.0.shutdown(Shutdown::Write);
    }
}

impl<S: Read + Write> Client<S> {
    /// Makes a client on a stream of another kind.
    pub(crate) fn over(stream: S) -> Client<S> {
        Client(stream)
    }

    /// Sends raw bytes. The broker may have closed the connection.
    pub(crate) fn try_write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.0.write_all(bytes)
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) {
        self.try_write(bytes).expect("the broker reads");
    }

    /// Sends a frame.
    pub(crate) fn send(&mut self, frame: &[u8]) {
        self.write(&framed(frame));
    }

    /// Sends a frame, unless the broker has closed the connection.
    pub(crate) fn send_or_end(&mut self, frame: &[u8]) {
        let _may_be_closed = self.try_write(&framed(frame));
    }

    /// Waits for this many bytes of any response.
    pub(crate) fn read_some(&mut self, count: usize) {
        self.try_read(count).expect("it is sent");
    }

    /// Waits for bytes; the broker may close the connection.
    pub(crate) fn try_read(&mut self, count: usize) -> std::io::Result<()> {
        self.0.read_exact(&mut vec![0; count])
    }

    pub(crate) fn send_request<R: Request>(&mut self, version: i16, request: &R) {
        self.send(&encoded(version, request));
    }

    /// Sends a request and waits for the response.
    pub(crate) fn ask<R: Request>(&mut self, version: i16, request: &R) -> R::Response {
        self.send_request(version, request);
        self.response::<R>(version)
    }

    /// Receives the response to a request of this kind.
    pub(crate) fn response<R: Request>(&mut self, version: i16) -> R::Response {
        let frame = self.receive().expect("a response");
        response_of::<R>(version, frame)
    }

    /// Receives the next frame; `None` if the broker has closed the connection.
    pub(crate) fn receive(&mut self) -> Option<Bytes> {
        let mut length = [0; 4];
        self.read(&mut length)?;
        let length = usize::try_from(i32::from_be_bytes(length)).expect("a length");
        let mut frame = vec![0; length];
        self.read(&mut frame).expect("a whole frame");
        Some(frame.into())
    }

    fn read(&mut self, into: &mut [u8]) -> Option<()> {
        match self.0.read_exact(into) {
            Ok(()) => Some(()),
            Err(error) if is_end(error.kind()) => None,
            Err(error) => panic!("neither a response nor the end: {error}"),
        }
    }

    /// Expects the broker to close the connection without another response.
    #[track_caller]
    pub(crate) fn expect_end(&mut self) {
        let frame = self.receive();
        assert!(frame.is_none(), "it answers {frame:?}");
    }

    /// Appends a batch with acks=all; returns the error code and the offset.
    pub(crate) fn produce(&mut self, topic: &str, partition: i32, batch: Vec<u8>) -> (i16, i64) {
        self.produce_with(-1, topic, partition, batch)
    }

    /// Appends a batch with another number of acks, which must not be 0.
    pub(crate) fn produce_with(
        &mut self,
        acks: i16,
        topic: &str,
        partition: i32,
        batch: Vec<u8>,
    ) -> (i16, i64) {
        let request = produce_request(acks, &[(topic, partition, Some(batch))]);
        let response = self.ask(9, &request);
        let answer = &response.responses[0].partition_responses[0];
        (answer.error_code, answer.base_offset)
    }

    /// Creates a topic with the default number of partitions.
    pub(crate) fn create_topic(&mut self, name: &str) {
        let topic = kafka_protocol::messages::metadata_request::MetadataRequestTopic::default();
        let topic = topic.with_name(Some(topic_name(name)));
        let request = MetadataRequest::default()
            .with_topics(Some(vec![topic]))
            .with_allow_auto_topic_creation(true);
        let response = self.ask(9, &request);
        assert_eq!(response.topics[0].error_code, 0);
    }

    /// Asks for a coordinator, which creates the topic of offsets.
    #[track_caller]
    pub(crate) fn find_coordinator(&mut self) {
        let request = FindCoordinatorRequest::default().with_key("g".into());
        assert_eq!(self.ask(3, &request).error_code, 0);
    }

    /// Commits an offset without being a member of the group; returns the error code.
    pub(crate) fn commit(&mut self, group: &str, topic: &str, partition: i32, offset: i64) -> i16 {
        let partition = OffsetCommitRequestPartition::default()
            .with_partition_index(partition)
            .with_committed_offset(offset);
        let topic = OffsetCommitRequestTopic::default()
            .with_name(topic_name(topic))
            .with_partitions(vec![partition]);
        let request = OffsetCommitRequest::default()
            .with_group_id(group_id(group))
            .with_generation_id_or_member_epoch(-1)
            .with_topics(vec![topic]);
        self.ask(6, &request).topics[0].partitions[0].error_code
    }

    /// Returns the offset that a group has committed; −1 for none.
    #[track_caller]
    pub(crate) fn committed(&mut self, group: &str, topic: &str, partition: i32) -> i64 {
        let topic = OffsetFetchRequestTopic::default()
            .with_name(topic_name(topic))
            .with_partition_indexes(vec![partition]);
        let request = OffsetFetchRequest::default()
            .with_group_id(group_id(group))
            .with_topics(Some(vec![topic]));
        let response = self.ask(7, &request);
        let committed = &response.topics[0].partitions[0];
        assert_eq!((response.error_code, committed.error_code), (0, 0));
        committed.committed_offset
    }

    /// Does what producers and consumers usually do.
    #[track_caller]
    pub(crate) fn behave(&mut self) {
        let versions = self.ask(3, &ApiVersionsRequest::default());
        assert_eq!(versions.error_code, 0);
        self.create_topic(GOOD_TOPIC);
        let (code, offset) = self.produce(GOOD_TOPIC, 0, super::batch::batch(2, 100));
        assert_eq!(code, 0);
        let fetched = self.fetch(GOOD_TOPIC, 0, offset);
        let partition = &fetched.responses[0].partitions[0];
        assert_eq!(partition.error_code, 0);
        let records = partition.records.as_ref().expect("records");
        assert!(records.len() > 200, "{records:?}");
    }

    pub(crate) fn fetch(&mut self, topic: &str, partition: i32, offset: i64) -> FetchResponse {
        self.ask(11, &fetch_request(topic, partition, offset))
    }
}

/// The topic of well-behaved clients.
const GOOD_TOPIC: &str = "good";

pub(crate) fn response_of<R: Request>(version: i16, mut frame: Bytes) -> R::Response {
    // The header: the correlation ID, and tagged fields in flexible versions.
    let is_flexible = R::Response::header_version(version) == 1;
    assert_eq!(&frame[..4], CORRELATION_ID.to_be_bytes());
    let _header = frame.split_to(4 + usize::from(is_flexible));
    let response = R::Response::decode(&mut frame, version).expect("a response");
    assert!(frame.is_empty(), "{frame:?} is behind the response");
    response
}

fn group_id(name: &str) -> GroupId {
    GroupId(StrBytes::from_string(name.to_owned()))
}

pub(crate) fn topic_name(name: &str) -> TopicName {
    TopicName(StrBytes::from_string(name.to_owned()))
}

/// A Produce request with one topic per partition.
pub(crate) fn produce_request(
    acks: i16,
    batches: &[(&str, i32, Option<Vec<u8>>)],
) -> ProduceRequest {
    let topics = batches.iter().map(|(topic, partition, records)| {
        let data = PartitionProduceData::default()
            .with_index(*partition)
            .with_records(records.clone().map(Bytes::from));
        TopicProduceData::default()
            .with_name(topic_name(topic))
            .with_partition_data(vec![data])
    });
    ProduceRequest::default()
        .with_acks(acks)
        .with_timeout_ms(30_000)
        .with_topic_data(topics.collect())
}

/// A Fetch request that does not wait.
pub(crate) fn fetch_request(topic: &str, partition: i32, offset: i64) -> FetchRequest {
    let partition = FetchPartition::default()
        .with_partition(partition)
        .with_fetch_offset(offset)
        .with_partition_max_bytes(1 << 20);
    let topic = FetchTopic::default()
        .with_topic(topic_name(topic))
        .with_partitions(vec![partition]);
    FetchRequest::default()
        .with_max_wait_ms(0)
        .with_min_bytes(1)
        .with_max_bytes(1 << 20)
        .with_topics(vec![topic])
}

fn is_end(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe
    )
}
