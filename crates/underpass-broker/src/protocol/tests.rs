//! Tests the tables against another implementation of the protocol and with invalid messages.

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages as oracle;
use kafka_protocol::protocol::{Decodable, Encodable};

use crate::protocol::apis::APIS;
use crate::protocol::header::{RequestStart, read_header, write_header};
use crate::protocol::wire::{Message, Records, Uuid};
use crate::protocol::{DecodeFault, Reader, Writer, tables};

/// Pseudorandom numbers.
pub(crate) struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        // splitmix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % end
    }
}

/// A type with random samples.
pub(crate) trait Sample {
    fn sample(random: &mut Random) -> Self;
}

macro_rules! sample_numbers {
    ($($number:ty),*) => {$(
        impl Sample for $number {
            fn sample(random: &mut Random) -> Self {
                match random.below(4) {
                    0 => 0 as $number,
                    1 => -1i64 as $number,
                    _ => random.below(u64::MAX) as $number,
                }
            }
        }
    )*};
}

sample_numbers!(i8, i16, u16, i32, i64, f64);

impl Sample for bool {
    fn sample(random: &mut Random) -> Self {
        random.below(2) == 1
    }
}

impl Sample for Uuid {
    fn sample(random: &mut Random) -> Self {
        match random.below(3) {
            0 => Uuid::default(),
            _ => Uuid([random.below(256) as u8; 16]),
        }
    }
}

const TEXTS: [&str; 5] = ["", "a", "orders", "h\u{e4}\u{1f600}", LONG];
const LONG: &str = "a name that is longer than sixty-four bytes, so that its length, which is \
                    variable, takes two bytes where it is one more than one hundred and twenty-six";

impl Sample for &str {
    fn sample(random: &mut Random) -> Self {
        TEXTS[random.below(5) as usize]
    }
}

impl Sample for &[u8] {
    fn sample(random: &mut Random) -> Self {
        TEXTS[random.below(5) as usize].as_bytes()
    }
}

impl Sample for Records<'_> {
    fn sample(random: &mut Random) -> Self {
        match random.below(4) {
            0 => Records::Null,
            _ => Records::Bytes(Sample::sample(random)),
        }
    }
}

impl<T: Sample> Sample for Option<T> {
    fn sample(random: &mut Random) -> Self {
        (random.below(3) > 0).then(|| T::sample(random))
    }
}

impl<T: Sample> Sample for Vec<T> {
    fn sample(random: &mut Random) -> Self {
        (0..random.below(4)).map(|_| T::sample(random)).collect()
    }
}

fn encoded<'a, M: Message<'a>>(message: &M, number: i16) -> Vec<u8> {
    let mut to = Writer::default();
    message.write(&mut to, M::version(number).unwrap());
    let (bytes, gaps) = to.into_parts();
    assert!(gaps.is_empty());
    bytes
}

/// Checks that the other implementation reads our bytes and writes the same, and that we read them.
fn check<'a, M, O>(_of: &M, bytes: &'a [u8], number: i16, what: &str)
where
    M: Message<'a>,
    O: Decodable + Encodable,
{
    let version = M::version(number).unwrap();
    let mut from = Reader::new(bytes);
    let ours = match M::read(&mut from, version) {
        Ok(ours) => ours,
        // The sample is from a later version.
        Err(error) if error.fault == DecodeFault::Null => return,
        Err(error) => panic!("{what}: {error}"),
    };
    from.end().unwrap();
    assert_eq!(encoded(&ours, number), bytes, "{what}");
    let mut there = Bytes::copy_from_slice(bytes);
    let theirs = O::decode(&mut there, number);
    let theirs = theirs.unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(there.is_empty(), "{what}: bytes are left there");
    let mut again = BytesMut::new();
    theirs.encode(&mut again, number).unwrap();
    assert_eq!(&again[..], bytes, "{what}");
}

const ROUNDS: u64 = 60;

macro_rules! agrees {
    ($module:ident, $message:ident, $versions:expr) => {
        for number in $versions {
            for round in 0..ROUNDS {
                let mut random = Random(round << 8 | number as u64);
                let sample = tables::$module::$message::sample(&mut random);
                let bytes = encoded(&sample, number);
                let what = format!("{} {number} {round}", stringify!($message));
                check::<_, oracle::$message>(&sample, &bytes, number, &what);
            }
        }
    };
}

#[test]
fn every_version_of_every_message_is_that_of_another_implementation() {
    agrees!(api_versions, ApiVersionsRequest, 0..=4);
    agrees!(api_versions, ApiVersionsResponse, 0..=4);
    agrees!(create_topics, CreateTopicsRequest, 2..=7);
    agrees!(create_topics, CreateTopicsResponse, 2..=7);
    agrees!(delete_topics, DeleteTopicsRequest, 1..=6);
    agrees!(delete_topics, DeleteTopicsResponse, 1..=6);
    agrees!(fetch, FetchRequest, 4..=17);
    agrees!(fetch, FetchResponse, 4..=17);
    agrees!(find_coordinator, FindCoordinatorRequest, 0..=6);
    agrees!(find_coordinator, FindCoordinatorResponse, 0..=6);
    agrees!(heartbeat, HeartbeatRequest, 0..=4);
    agrees!(heartbeat, HeartbeatResponse, 0..=4);
    agrees!(init_producer_id, InitProducerIdRequest, 0..=5);
    agrees!(init_producer_id, InitProducerIdResponse, 0..=5);
    agrees!(join_group, JoinGroupRequest, 0..=9);
    agrees!(join_group, JoinGroupResponse, 0..=9);
    agrees!(leave_group, LeaveGroupRequest, 0..=5);
    agrees!(leave_group, LeaveGroupResponse, 0..=5);
    agrees!(list_offsets, ListOffsetsRequest, 1..=10);
    agrees!(list_offsets, ListOffsetsResponse, 1..=10);
    agrees!(metadata, MetadataRequest, 0..=13);
    agrees!(metadata, MetadataResponse, 0..=13);
    agrees!(offset_commit, OffsetCommitRequest, 2..=9);
    agrees!(offset_commit, OffsetCommitResponse, 2..=9);
    agrees!(offset_fetch, OffsetFetchRequest, 1..=9);
    agrees!(offset_fetch, OffsetFetchResponse, 1..=9);
    agrees!(offset_for_leader_epoch, OffsetForLeaderEpochRequest, 2..=4);
    agrees!(offset_for_leader_epoch, OffsetForLeaderEpochResponse, 2..=4);
    agrees!(produce, ProduceRequest, 3..=12);
    agrees!(produce, ProduceResponse, 3..=12);
    agrees!(sync_group, SyncGroupRequest, 0..=5);
    agrees!(sync_group, SyncGroupResponse, 0..=5);
    agrees!(alter_configs, AlterConfigsRequest, 0..=2);
    agrees!(alter_configs, AlterConfigsResponse, 0..=2);
    agrees!(create_partitions, CreatePartitionsRequest, 0..=3);
    agrees!(create_partitions, CreatePartitionsResponse, 0..=3);
    agrees!(delete_groups, DeleteGroupsRequest, 0..=2);
    agrees!(delete_groups, DeleteGroupsResponse, 0..=2);
    agrees!(delete_records, DeleteRecordsRequest, 0..=2);
    agrees!(delete_records, DeleteRecordsResponse, 0..=2);
    agrees!(describe_cluster, DescribeClusterRequest, 0..=2);
    agrees!(describe_cluster, DescribeClusterResponse, 0..=2);
    agrees!(describe_configs, DescribeConfigsRequest, 1..=4);
    agrees!(describe_configs, DescribeConfigsResponse, 1..=4);
    agrees!(describe_groups, DescribeGroupsRequest, 0..=6);
    agrees!(describe_groups, DescribeGroupsResponse, 0..=6);
    agrees!(describe_log_dirs, DescribeLogDirsRequest, 1..=4);
    agrees!(describe_log_dirs, DescribeLogDirsResponse, 1..=4);
    agrees!(
        describe_topic_partitions,
        DescribeTopicPartitionsRequest,
        0..=0
    );
    agrees!(
        describe_topic_partitions,
        DescribeTopicPartitionsResponse,
        0..=0
    );
    agrees!(elect_leaders, ElectLeadersRequest, 0..=2);
    agrees!(elect_leaders, ElectLeadersResponse, 0..=2);
    agrees!(
        incremental_alter_configs,
        IncrementalAlterConfigsRequest,
        0..=1
    );
    agrees!(
        incremental_alter_configs,
        IncrementalAlterConfigsResponse,
        0..=1
    );
    agrees!(list_groups, ListGroupsRequest, 0..=5);
    agrees!(list_groups, ListGroupsResponse, 0..=5);
    agrees!(
        list_partition_reassignments,
        ListPartitionReassignmentsRequest,
        0..=0
    );
    agrees!(
        list_partition_reassignments,
        ListPartitionReassignmentsResponse,
        0..=0
    );
    agrees!(offset_delete, OffsetDeleteRequest, 0..=0);
    agrees!(offset_delete, OffsetDeleteResponse, 0..=0);
}

#[test]
fn messages_about_users_and_rules_are_those_of_another_implementation() {
    agrees!(sasl_handshake, SaslHandshakeRequest, 0..=1);
    agrees!(sasl_handshake, SaslHandshakeResponse, 0..=1);
    agrees!(sasl_authenticate, SaslAuthenticateRequest, 0..=2);
    agrees!(sasl_authenticate, SaslAuthenticateResponse, 0..=2);
    agrees!(
        describe_user_scram_credentials,
        DescribeUserScramCredentialsRequest,
        0..=0
    );
    agrees!(
        describe_user_scram_credentials,
        DescribeUserScramCredentialsResponse,
        0..=0
    );
    agrees!(
        alter_user_scram_credentials,
        AlterUserScramCredentialsRequest,
        0..=0
    );
    agrees!(
        alter_user_scram_credentials,
        AlterUserScramCredentialsResponse,
        0..=0
    );
    agrees!(describe_client_quotas, DescribeClientQuotasRequest, 0..=1);
    agrees!(describe_client_quotas, DescribeClientQuotasResponse, 0..=1);
    agrees!(describe_acls, DescribeAclsRequest, 1..=3);
    agrees!(describe_acls, DescribeAclsResponse, 1..=3);
    agrees!(create_acls, CreateAclsRequest, 1..=3);
    agrees!(create_acls, CreateAclsResponse, 1..=3);
    agrees!(delete_acls, DeleteAclsRequest, 1..=3);
    agrees!(delete_acls, DeleteAclsResponse, 1..=3);
}

#[test]
fn null_is_read_in_the_versions_that_have_it() {
    macro_rules! read {
        ($module:ident $message:ident, $number:expr, $bytes:expr) => {{
            let version = tables::$module::$message::version($number).unwrap();
            let read: Result<tables::$module::$message<'_>, _> =
                crate::protocol::wire::Wire::read(&mut Reader::new($bytes), version);
            read.map(drop).map_err(|error| error.fault)
        }};
    }
    let none = [0xff; 4];
    let null = Err(DecodeFault::Null);
    assert_eq!(read!(metadata MetadataRequest, 0, &none), null);
    assert_eq!(read!(metadata MetadataRequest, 1, &none), Ok(()));
    let unnamed = [0, 0, 0, 1, 0xff, 0xff];
    assert_eq!(read!(metadata MetadataRequest, 1, &unnamed), null);
    let unnamed = [&[2][..], &[0; 16], &[0, 0, 1, 0, 0, 0]].concat();
    assert_eq!(
        read!(metadata MetadataRequest, 9, &[2, 0, 0, 1, 0, 0, 0]),
        null
    );
    assert_eq!(read!(metadata MetadataRequest, 10, &unnamed), Ok(()));
    let all = [0, 1, b'g', 0xff, 0xff, 0xff, 0xff];
    assert_eq!(read!(offset_fetch OffsetFetchRequest, 1, &all), null);
    assert_eq!(read!(offset_fetch OffsetFetchRequest, 2, &all), Ok(()));
}

#[test]
fn a_fetch_leaves_gaps_for_records_that_stay_in_files() {
    use tables::fetch::*;
    for number in 4..=17 {
        for partitions in [0, 1, 3] {
            let records: Vec<Vec<u8>> =
                (0..partitions).map(|size| vec![7; 50 * size + 1]).collect();
            let response = |elsewhere: bool| FetchResponse {
                responses: vec![FetchableTopicResponse {
                    topic: "orders",
                    topic_id: Uuid([9; 16]),
                    partitions: records
                        .iter()
                        .map(|records| FetchResponsePartitionData {
                            high_watermark: 5,
                            records: match elsewhere {
                                true => Records::Elsewhere(records.len() as u32),
                                false => Records::Bytes(records),
                            },
                            ..FetchResponsePartitionData::default()
                        })
                        .collect(),
                }],
                ..FetchResponse::default()
            };
            let whole = encoded(&response(false), number);
            let mut to = Writer::default();
            let version = FetchResponse::version(number).unwrap();
            crate::protocol::wire::Wire::write(&response(true), &mut to, version);
            assert_eq!(to.length(), whole.len() as u64);
            let (bytes, gaps) = to.into_parts();
            let (mut filled, mut from) = (Vec::new(), 0);
            for (gap, records) in gaps.iter().zip(&records) {
                filled.extend_from_slice(&bytes[from..gap.at]);
                assert_eq!(gap.length as usize, records.len());
                filled.extend_from_slice(records);
                from = gap.at;
            }
            filled.extend_from_slice(&bytes[from..]);
            assert_eq!((filled, gaps.len()), (whole.clone(), partitions));
            let mut there = Bytes::from(whole);
            let read = oracle::FetchResponse::decode(&mut there, number).unwrap();
            assert!(there.is_empty());
            let theirs = &read.responses[0].partitions;
            let theirs: Vec<_> = theirs
                .iter()
                .map(|one| one.records.clone().unwrap())
                .collect();
            assert_eq!(theirs, records);
        }
    }
}

#[test]
fn headers_are_those_of_their_versions() {
    for api in APIS {
        for version in api.served_from..=api.advertised.1 {
            let flexible = version >= api.flexible;
            let ours = oracle::RequestHeader::default()
                .with_request_api_key(api.key)
                .with_request_api_version(version)
                .with_correlation_id(77)
                .with_client_id(Some("me".to_owned().into()));
            let mut frame = BytesMut::new();
            ours.encode(&mut frame, if flexible { 2 } else { 1 })
                .unwrap();
            frame.extend_from_slice(b"body");
            let Ok(RequestStart::Known(header, of, rest)) = read_header(&frame) else {
                panic!("{api:?} {version}");
            };
            assert_eq!((header.correlation_id, header.client_id), (77, Some("me")));
            assert_eq!((of, rest.rest()), (&api, &b"body"[..]));
            let mut to = Writer::default();
            write_header(&mut to, of, header.version, header.correlation_id);
            let is_flexible = flexible && api.name != "ApiVersions";
            assert_eq!(to.length(), 4 + u64::from(is_flexible));
        }
    }
    let unknown = |key: i16, version: i16| {
        let mut frame = [key.to_be_bytes(), version.to_be_bytes()].concat();
        frame.extend_from_slice(&[0; 6]);
        read_header(&frame).map(|start| match start {
            RequestStart::Known(..) => "known",
            RequestStart::UnknownApiVersions(_) => "api versions",
            RequestStart::Unknown(_) => "unknown",
        })
    };
    assert_eq!(unknown(18, 99), Ok("api versions"));
    assert_eq!(unknown(0, 2), Ok("unknown"));
    assert_eq!(unknown(1, 18), Ok("unknown"));
    assert_eq!(unknown(99, 0), Ok("unknown"));
    assert!(read_header(&[0; 7]).is_err());
}

/// Reads any bytes as any message.
fn read_all(bytes: &[u8]) {
    macro_rules! read {
        ($($module:ident $message:ident),*) => {$(
            for number in tables::$module::$message::VERSIONS {
                let version = tables::$module::$message::version(number).unwrap();
                let mut from = Reader::new(bytes);
                let read: Result<tables::$module::$message, _> =
                    crate::protocol::wire::Wire::read(&mut from, version);
                if let (Ok(read), Ok(())) = (read, from.end()) {
                    // A message that was read is written and read again unchanged.
                    let again = encoded(&read, number);
                    let mut from = Reader::new(&again);
                    let same: Result<tables::$module::$message, _> =
                        crate::protocol::wire::Wire::read(&mut from, version);
                    assert_eq!(same.map(|same| same == read), Ok(true));
                }
            }
        )*};
    }
    read!(
        create_topics CreateTopicsRequest, fetch FetchRequest, join_group JoinGroupRequest,
        metadata MetadataRequest, offset_commit OffsetCommitRequest, produce ProduceRequest,
        offset_fetch OffsetFetchRequest, list_offsets ListOffsetsRequest,
        offset_for_leader_epoch OffsetForLeaderEpochRequest,
        describe_topic_partitions DescribeTopicPartitionsRequest,
        describe_configs DescribeConfigsRequest, elect_leaders ElectLeadersRequest,
        incremental_alter_configs IncrementalAlterConfigsRequest
    );
    let _ = read_header(bytes);
}

#[test]
fn damaged_messages_are_errors() {
    let mut random = Random(1);
    for round in 0..200 {
        let mut bytes = match round % 3 {
            0 => encoded(&tables::produce::ProduceRequest::sample(&mut random), 9),
            1 => encoded(&tables::fetch::FetchRequest::sample(&mut random), 12),
            _ => encoded(&tables::metadata::MetadataRequest::sample(&mut random), 1),
        };
        for _ in 0..random.below(6) {
            if !bytes.is_empty() {
                let at = random.below(bytes.len() as u64) as usize;
                bytes[at] = random.below(256) as u8;
            }
        }
        bytes.truncate(random.below(bytes.len() as u64 + 1) as usize);
        read_all(&bytes);
    }
}

#[test]
fn lengths_are_not_believed() {
    let version = tables::metadata::MetadataRequest::version(0).unwrap();
    let read = |bytes: &[u8]| {
        let read: Result<tables::metadata::MetadataRequest, _> =
            crate::protocol::wire::Wire::read(&mut Reader::new(bytes), version);
        read.map(drop).map_err(|error| error.fault)
    };
    assert_eq!(read(&[0x7f, 0xff, 0xff, 0xff]), Err(DecodeFault::Length));
    assert_eq!(read(&[0xff, 0xff, 0xff, 0xfe]), Err(DecodeFault::Length));
    assert_eq!(read(&[0, 0, 0]), Err(DecodeFault::CutOff));
    // As many elements as bytes, each of which would take more memory.
    let many = [&0x0020_0000i32.to_be_bytes()[..], &vec![0; 0x0020_0000]].concat();
    assert_eq!(read(&many), Err(DecodeFault::Elements));
    let mut flexible = Reader::new(&[0xff, 0xff, 0xff, 0xff, 0xff, 0x01]);
    assert_eq!(
        flexible.varint().map_err(|error| error.fault),
        Err(DecodeFault::Varint)
    );
    let flexible = tables::metadata::MetadataRequest::version(9).unwrap();
    let long = |length: usize| {
        let mut to = Writer::default();
        to.string_length(flexible, Some(length));
        to.put(&vec![b'a'; length]);
        let (bytes, _) = to.into_parts();
        let read = Reader::new(&bytes).string(flexible);
        read.map(|text| text.map(str::len))
            .map_err(|error| error.fault)
    };
    assert_eq!(long(32_767), Ok(Some(32_767)));
    assert_eq!(long(32_768), Err(DecodeFault::Length));
}
