//! A property that holds for any bytes sent as a request: a function that panics if it is violated,
//! for the tests of this program and for the fuzzer (`fuzz/` in the repository).

use bytes::{Buf, Bytes, BytesMut};
use kafka_protocol::messages as oracle;
use kafka_protocol::protocol::{Decodable, HeaderVersion, Request};
use underpass_broker::protocol::header::{RequestHeader, RequestStart, read_header};
use underpass_broker::protocol::wire::Message;
use underpass_broker::protocol::{DecodeError, DecodeFault, Reader, Writer, tables};

/// The largest count or length in a message for which the other implementation is called if ours
/// rejects it: that one allocates memory before it checks for the data.
const ORACLE_COUNT_MAX: i32 = 1 << 12;

const METADATA: i16 = 3;
const OFFSET_FETCH: i16 = 9;

/// A body that was decoded and encoded again, and the number of bytes left after it.
#[derive(Debug, PartialEq)]
struct Recoded {
    bytes: Vec<u8>,
    left: usize,
}

/// The codecs of two implementations for a kind of request.
struct Codec {
    key: i16,
    ours: fn(&[u8], i16) -> Result<Recoded, DecodeError>,
    oracle: fn(&[u8], i16) -> OracleReading,
    header_version: fn(i16) -> i16,
}

/// The result of the other implementation for a body.
#[derive(Debug)]
enum OracleReading {
    Rejected,
    /// The number of bytes left, and the body encoded again, if possible.
    Accepted(usize, Option<Vec<u8>>),
}

/// Checks that bytes are a request or an error. A request is encoded again without getting longer,
/// and no part of it is a whole request. Another implementation decodes the same, and rejects what
/// ours rejects, unless ours is known to be stricter.
pub(crate) fn requests(data: &[u8]) {
    let (header, body) = match read_header(data) {
        Ok(RequestStart::Known(header, _, body)) => (header, body.rest()),
        Ok(RequestStart::Unknown(_) | RequestStart::UnknownApiVersions(_)) => return,
        Err(error) => {
            assert!(error.at <= data.len(), "{error}");
            return;
        }
    };
    let codecs = codecs();
    let codec = codecs.iter().find(|codec| codec.key == header.key);
    let codec = codec.expect("every kind that is answered has a table");
    header_agrees(codec, data, &header, body);
    let read = (codec.ours)(body, header.version);
    match read {
        Ok(read) => agrees(codec, body, header.version, &read),
        Err(error) => {
            assert!(error.at <= body.len(), "{error}");
            rejected(codec, body, header.version, error);
        }
    }
}

fn header_agrees(codec: &Codec, data: &[u8], header: &RequestHeader<'_>, body: &[u8]) {
    let mut there = Bytes::copy_from_slice(data);
    let version = (codec.header_version)(header.version);
    let theirs = oracle::RequestHeader::decode(&mut there, version).expect("a header");
    assert_eq!(there, body, "the body begins elsewhere");
    assert_eq!(theirs.correlation_id, header.correlation_id);
    assert_eq!(theirs.client_id.as_deref(), header.client_id);
}

fn agrees(codec: &Codec, body: &[u8], version: i16, read: &Recoded) {
    let bytes = &read.bytes;
    assert!(bytes.len() <= body.len() - read.left, "it has grown");
    let again = Recoded {
        bytes: bytes.clone(),
        left: 0,
    };
    assert_eq!((codec.ours)(bytes, version).as_ref(), Ok(&again));
    for cut in (0..bytes.len()).step_by(bytes.len() / 64 + 1) {
        let error = (codec.ours)(&bytes[..cut], version).expect_err("a part of it");
        let is_cut = matches!(error.fault, DecodeFault::CutOff | DecodeFault::Length);
        assert!(is_cut, "{error} in the first {cut} bytes");
    }
    match (codec.oracle)(bytes, version) {
        OracleReading::Accepted(0, Some(theirs)) => assert_eq!(&theirs, bytes),
        other => panic!("what we write is not read: {other:?}"),
    }
    // The other implementation keeps unknown tagged fields and writes them again, unless their
    // number is negative as a signed 32-bit one.
    let mut tags = body.windows(4);
    if tags.all(|bytes| bytes.iter().any(|byte| byte & 0x80 == 0))
        && let OracleReading::Accepted(left, Some(theirs)) = (codec.oracle)(body, version)
    {
        assert_eq!(left, read.left, "it ends elsewhere");
        assert_eq!((codec.ours)(&theirs, version).as_ref(), Ok(&again));
    }
}

fn rejected(codec: &Codec, body: &[u8], version: i16, error: DecodeError) {
    if !counts_are_small(body) {
        return;
    }
    let theirs = (codec.oracle)(body, version);
    // The other implementation accepts varints that are too long or exceed 32 bits. It ignores the
    // sizes of known tagged fields, and limits neither these nor strings.
    let is_stricter = match error.fault {
        DecodeFault::Varint | DecodeFault::Trailing => true,
        DecodeFault::CutOff | DecodeFault::Length => (codec.header_version)(version) == 2,
        // The other implementation allows null in all versions if it is allowed in one.
        DecodeFault::Null => matches!((codec.key, version), (METADATA, ..10) | (OFFSET_FETCH, 1)),
        _ => false,
    };
    let is_rejected = matches!(theirs, OracleReading::Rejected);
    assert!(is_stricter || is_rejected, "{error}, but not there");
}

/// Whether all aligned and unaligned 32-bit numbers and all varints are small.
fn counts_are_small(body: &[u8]) -> bool {
    let mut fixed = body.windows(4).filter_map(<[u8]>::first_chunk);
    let mut variable = body.windows(3);
    fixed.all(|bytes| i32::from_be_bytes(*bytes) <= ORACLE_COUNT_MAX)
        && variable.all(|bytes| bytes.iter().any(|byte| byte & 0x80 == 0))
}

fn codecs() -> [Codec; 38] {
    macro_rules! codecs {
        ($($module:ident $message:ident),*) => {
            [$(Codec {
                key: oracle::$message::KEY,
                ours: |bytes, version| {
                    recoded::<tables::$module::$message>(bytes, version)
                },
                oracle: oracle_reading::<oracle::$message>,
                header_version: oracle::$message::header_version,
            }),*]
        };
    }
    codecs!(
        api_versions ApiVersionsRequest, create_topics CreateTopicsRequest,
        delete_topics DeleteTopicsRequest, fetch FetchRequest,
        find_coordinator FindCoordinatorRequest, heartbeat HeartbeatRequest,
        init_producer_id InitProducerIdRequest, join_group JoinGroupRequest,
        leave_group LeaveGroupRequest, list_offsets ListOffsetsRequest,
        metadata MetadataRequest, offset_commit OffsetCommitRequest,
        offset_fetch OffsetFetchRequest, offset_for_leader_epoch OffsetForLeaderEpochRequest,
        produce ProduceRequest, sync_group SyncGroupRequest,
        alter_configs AlterConfigsRequest,
        create_partitions CreatePartitionsRequest,
        delete_groups DeleteGroupsRequest,
        delete_records DeleteRecordsRequest,
        describe_cluster DescribeClusterRequest,
        describe_configs DescribeConfigsRequest,
        describe_groups DescribeGroupsRequest,
        describe_log_dirs DescribeLogDirsRequest,
        describe_topic_partitions DescribeTopicPartitionsRequest,
        elect_leaders ElectLeadersRequest,
        incremental_alter_configs IncrementalAlterConfigsRequest,
        list_groups ListGroupsRequest,
        list_partition_reassignments ListPartitionReassignmentsRequest,
        offset_delete OffsetDeleteRequest,
        sasl_handshake SaslHandshakeRequest,
        sasl_authenticate SaslAuthenticateRequest,
        describe_user_scram_credentials DescribeUserScramCredentialsRequest,
        alter_user_scram_credentials AlterUserScramCredentialsRequest,
        describe_acls DescribeAclsRequest, create_acls CreateAclsRequest,
        delete_acls DeleteAclsRequest,
        describe_client_quotas DescribeClientQuotasRequest
    )
}

fn recoded<'a, M: Message<'a>>(bytes: &'a [u8], number: i16) -> Result<Recoded, DecodeError> {
    let mut from = Reader::new(bytes);
    let version = M::version(number).expect("a version that is answered has a table");
    let message = M::read(&mut from, version)?;
    let mut to = Writer::default();
    message.write(&mut to, version);
    let (bytes, gaps) = to.into_parts();
    assert!(gaps.is_empty(), "what was received is in memory");
    let left = from.rest().len();
    Ok(Recoded { bytes, left })
}

fn oracle_reading<R: Request>(bytes: &[u8], version: i16) -> OracleReading {
    let mut there = Bytes::copy_from_slice(bytes);
    let Ok(read) = R::decode(&mut there, version) else {
        return OracleReading::Rejected;
    };
    let mut again = BytesMut::new();
    let written = read.encode(&mut again, version);
    OracleReading::Accepted(there.remaining(), written.ok().map(|()| again.to_vec()))
}
