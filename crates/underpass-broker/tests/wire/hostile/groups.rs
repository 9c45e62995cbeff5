//! Invalid members and excessive groups.

use bytes::Bytes;
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::leave_group_request::MemberIdentity;
use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use kafka_protocol::messages::{
    FindCoordinatorRequest, HeartbeatRequest, JoinGroupRequest, JoinGroupResponse,
    LeaveGroupRequest, OffsetCommitRequest, OffsetFetchRequest, SyncGroupRequest,
};
use kafka_protocol::protocol::StrBytes;
use underpass_testkit::wait_until;

use crate::support::batch::batch;
use crate::support::broker::BrokerProcess;
use crate::support::client::{Client, topic_name};
use crate::{MEMORY_MAX, group, text};

const NONE: i16 = 0;
const UNKNOWN_TOPIC_OR_PARTITION: i16 = 3;
const OFFSET_METADATA_TOO_LARGE: i16 = 12;
const ILLEGAL_GENERATION: i16 = 22;
const INCONSISTENT_GROUP_PROTOCOL: i16 = 23;
const INVALID_GROUP_ID: i16 = 24;
const UNKNOWN_MEMBER_ID: i16 = 25;
const INVALID_SESSION_TIMEOUT: i16 = 26;
const REBALANCE_IN_PROGRESS: i16 = 27;
const INVALID_COMMIT_OFFSET_SIZE: i16 = 28;
const INVALID_REQUEST: i16 = 42;
const MEMBER_ID_REQUIRED: i16 = 79;
const GROUP_MAX_SIZE_REACHED: i16 = 81;
const FENCED_INSTANCE_ID: i16 = 82;

/// The longest session timeout that is accepted: half an hour.
const SESSION_TIMEOUT_MAX_MS: i32 = 30 * 60 * 1000;

fn started() -> (BrokerProcess, Client) {
    let broker = BrokerProcess::start();
    let mut client = broker.connect();
    client.create_topic("t");
    find_coordinator(&mut client);
    (broker, client)
}

/// Asks for a coordinator, which creates the topic of offsets.
fn find_coordinator(client: &mut Client) {
    let request = FindCoordinatorRequest::default().with_key(text("g"));
    assert_eq!(client.ask(3, &request).error_code, NONE);
}

/// A JoinGroup request of a consumer with one protocol and a session longer than any test.
fn join_request(group_id: &str, member_id: &str) -> JoinGroupRequest {
    JoinGroupRequest::default()
        .with_group_id(group(group_id))
        .with_member_id(text(member_id))
        .with_session_timeout_ms(SESSION_TIMEOUT_MAX_MS)
        .with_rebalance_timeout_ms(30_000)
        .with_protocol_type(text("consumer"))
        .with_protocols(vec![protocol("range", 10)])
}

fn protocol(name: &str, bytes: usize) -> JoinGroupRequestProtocol {
    JoinGroupRequestProtocol::default()
        .with_name(text(name))
        .with_metadata(Bytes::from(vec![b'm'; bytes]))
}

/// Joins a group with the ID that the broker assigns.
fn join(client: &mut Client, request: &JoinGroupRequest) -> JoinGroupResponse {
    let assigned = client.ask(6, request);
    assert_eq!(assigned.error_code, MEMBER_ID_REQUIRED);
    let request = request.clone().with_member_id(assigned.member_id);
    client.ask(6, &request)
}

fn sync_request(joined: &JoinGroupResponse, assignments: usize) -> SyncGroupRequest {
    let one = SyncGroupRequestAssignment::default()
        .with_member_id(joined.member_id.clone())
        .with_assignment(Bytes::from_static(b"partitions"));
    SyncGroupRequest::default()
        .with_group_id(group("g"))
        .with_member_id(joined.member_id.clone())
        .with_generation_id(joined.generation_id)
        .with_assignments(vec![one; assignments])
}

/// A commit of offset 5 in a partition, without a group member.
fn commit_request(partition: i32, metadata: &str) -> OffsetCommitRequest {
    let partition = OffsetCommitRequestPartition::default()
        .with_partition_index(partition)
        .with_committed_offset(5)
        .with_committed_metadata(Some(text(metadata)));
    let topic = OffsetCommitRequestTopic::default()
        .with_name(topic_name("t"))
        .with_partitions(vec![partition]);
    OffsetCommitRequest::default()
        .with_group_id(group("g"))
        .with_generation_id_or_member_epoch(-1)
        .with_topics(vec![topic])
}

fn committed(client: &mut Client, request: &OffsetCommitRequest) -> i16 {
    let response = client.ask(6, request);
    response.topics[0].partitions[0].error_code
}

#[test]
fn members_that_wait_for_others_keep_no_request() {
    const BYTES: usize = 60 << 20;
    let (broker, mut client) = started();
    let waiting = ["a", "b", "c", "d"].map(|name| {
        // A member that does not rejoin in time is removed.
        let first = join_request(name, "").with_rebalance_timeout_ms(SESSION_TIMEOUT_MAX_MS);
        let first = join(&mut client, &first);
        let heartbeat = HeartbeatRequest::default()
            .with_group_id(group(name))
            .with_member_id(first.member_id)
            .with_generation_id(first.generation_id);
        let mut second = broker.connect();
        let assigned = second.ask(6, &join_request(name, ""));
        let request = join_request(name, &assigned.member_id);
        let request = request.with_protocols(vec![protocol("range", BYTES)]);
        second.send_request(6, &request);
        wait_until("rebalance", || {
            client.ask(3, &heartbeat).error_code == REBALANCE_IN_PROGRESS
        });
        second
    });
    // The state of the groups, and the latest request.
    broker.end_well((waiting.len() + 2) * BYTES + MEMORY_MAX);
}

#[test]
fn joins_that_cannot_be_are_refused_with_the_errors_of_kafka() {
    let (broker, mut client) = started();
    let mut refused = |request: &JoinGroupRequest| client.ask(6, request).error_code;
    assert_eq!(refused(&join_request("", "")), INVALID_GROUP_ID);
    assert_eq!(refused(&join_request("g", "nobody")), UNKNOWN_MEMBER_ID);
    for timeout in [i32::MIN, -1, 0, 5_999, SESSION_TIMEOUT_MAX_MS + 1, i32::MAX] {
        let request = join_request("g", "").with_session_timeout_ms(timeout);
        assert_eq!(refused(&request), INVALID_SESSION_TIMEOUT, "{timeout}");
    }
    let without = join_request("g", "").with_protocols(Vec::new());
    assert_eq!(refused(&without), INCONSISTENT_GROUP_PROTOCOL);
    let without = join_request("g", "").with_protocol_type(text(""));
    assert_eq!(refused(&without), INCONSISTENT_GROUP_PROTOCOL);
    let first = join_request("g", "").with_rebalance_timeout_ms(i32::MIN);
    assert_eq!(join(&mut client, &first).error_code, NONE);
    let mut refused = |request: &JoinGroupRequest| client.ask(6, request).error_code;
    let other = join_request("g", "").with_protocol_type(text("connect"));
    assert_eq!(refused(&other), INCONSISTENT_GROUP_PROTOCOL);
    let other = join_request("g", "").with_protocols(vec![protocol("sticky", 1)]);
    assert_eq!(refused(&other), INCONSISTENT_GROUP_PROTOCOL);
    broker.end_well(MEMORY_MAX);
}

#[test]
fn what_members_do_needs_their_id_and_the_generation() {
    let (broker, mut client) = started();
    let joined = join(&mut client, &join_request("g", ""));
    assert_eq!((joined.error_code, joined.generation_id), (NONE, 1));
    let mut heartbeat = |group_id: &str, member: &StrBytes, generation: i32| {
        let request = HeartbeatRequest::default()
            .with_group_id(group(group_id))
            .with_member_id(member.clone())
            .with_generation_id(generation);
        client.ask(4, &request).error_code
    };
    let (member, nobody) = (&joined.member_id, &text("nobody"));
    assert_eq!(heartbeat("", member, 1), INVALID_GROUP_ID);
    assert_eq!(heartbeat("other", member, 1), UNKNOWN_MEMBER_ID);
    assert_eq!(heartbeat("g", nobody, 1), UNKNOWN_MEMBER_ID);
    for generation in [i32::MIN, -1, 0, 2, i32::MAX] {
        assert_eq!(heartbeat("g", member, generation), ILLEGAL_GENERATION);
    }
    assert_eq!(heartbeat("g", member, 1), NONE);

    let sync = sync_request(&joined, 1);
    let mut synced = |request: &SyncGroupRequest| client.ask(4, request).error_code;
    assert_eq!(
        synced(&sync.clone().with_group_id(group(""))),
        INVALID_GROUP_ID
    );
    assert_eq!(
        synced(&sync.clone().with_generation_id(2)),
        ILLEGAL_GENERATION
    );
    assert_eq!(
        synced(&sync.clone().with_member_id(nobody.clone())),
        UNKNOWN_MEMBER_ID
    );
    let static_one = sync.clone().with_group_instance_id(Some(text("one")));
    assert_eq!(synced(&static_one), UNKNOWN_MEMBER_ID);
    assert_eq!(synced(&sync), NONE);

    let mut left = |members: &[&StrBytes]| {
        let member = |id: &&StrBytes| MemberIdentity::default().with_member_id((*id).clone());
        let request = LeaveGroupRequest::default()
            .with_group_id(group("g"))
            .with_members(members.iter().map(member).collect());
        let members = client.ask(4, &request).members;
        members.iter().map(|one| one.error_code).collect::<Vec<_>>()
    };
    assert!(left(&[]).is_empty());
    assert_eq!(left(&[nobody, nobody]), [UNKNOWN_MEMBER_ID; 2]);
    assert_eq!(left(&[member, member]), [NONE, UNKNOWN_MEMBER_ID]);
    broker.end_well(MEMORY_MAX);
}

#[test]
fn a_static_member_that_was_replaced_is_fenced() {
    let (broker, mut client) = started();
    let one = join_request("g", "").with_group_instance_id(Some(text("one")));
    let first = client.ask(6, &one);
    let second = client.ask(6, &one);
    assert_eq!((first.error_code, second.error_code), (NONE, NONE));
    assert_ne!(first.member_id, second.member_id);
    let heartbeat = HeartbeatRequest::default()
        .with_group_id(group("g"))
        .with_member_id(first.member_id)
        .with_group_instance_id(Some(text("one")))
        .with_generation_id(first.generation_id);
    assert_eq!(client.ask(4, &heartbeat).error_code, FENCED_INSTANCE_ID);
    broker.end_well(MEMORY_MAX);
}

#[test]
fn commits_that_cannot_be_are_refused_with_the_errors_of_kafka() {
    let (broker, mut client) = started();
    for partition in [-1, 4, i32::MAX, i32::MIN] {
        let code = committed(&mut client, &commit_request(partition, ""));
        assert_eq!(code, UNKNOWN_TOPIC_OR_PARTITION, "{partition}");
    }
    let long = "m".repeat(4097);
    let code = committed(&mut client, &commit_request(0, &long));
    assert_eq!(code, OFFSET_METADATA_TOO_LARGE);
    let by_a_member = commit_request(0, "").with_generation_id_or_member_epoch(3);
    assert_eq!(committed(&mut client, &by_a_member), ILLEGAL_GENERATION);
    assert_eq!(committed(&mut client, &commit_request(0, &long[1..])), NONE);
    let joined = join(&mut client, &join_request("g", ""));
    assert_eq!(joined.error_code, NONE);
    assert_eq!(
        committed(&mut client, &commit_request(0, "")),
        UNKNOWN_MEMBER_ID
    );
    let late = commit_request(0, "")
        .with_member_id(joined.member_id)
        .with_generation_id_or_member_epoch(7);
    assert_eq!(committed(&mut client, &late), ILLEGAL_GENERATION);
    let fetch = OffsetFetchRequest::default().with_group_id(group("g"));
    let fetched = client.ask(7, &fetch.with_topics(None));
    assert_eq!(fetched.topics[0].partitions[0].committed_offset, 5);
    broker.end_well(MEMORY_MAX);
}

#[test]
fn a_commit_that_is_larger_than_a_batch_may_be_is_refused() {
    let (broker, mut client) = started();
    let mut request = commit_request(0, &"m".repeat(4000));
    let partition = request.topics[0].partitions[0].clone();
    request.topics[0].partitions = vec![partition; 1000];
    let response = client.ask(6, &request);
    let mut codes = response.topics[0]
        .partitions
        .iter()
        .map(|one| one.error_code);
    assert!(codes.all(|code| code == INVALID_COMMIT_OFFSET_SIZE));
    assert_eq!(committed(&mut client, &commit_request(0, "")), NONE);
    broker.end_well(2 * MEMORY_MAX);
}

#[test]
fn commits_of_a_connection_are_made_in_its_order() {
    let (broker, mut client) = started();
    for round in 0..20 {
        assert_eq!(client.produce("t", 0, batch(1, 10)).0, NONE);
        assert_eq!(client.produce_with(1, "t", 1, batch(1, 10)).0, NONE);
        // The first commit waits for an unsynced record, the second does not wait.
        let (mut first, mut second) = (commit_request(0, ""), commit_request(0, ""));
        let mut unsynced = first.topics[0].partitions[0].clone();
        (unsynced.partition_index, unsynced.committed_offset) = (1, round + 1);
        first.topics[0].partitions.push(unsynced);
        second.topics[0].partitions[0].committed_offset = 100 + round;
        for request in [&first, &second] {
            client.send_request(6, request);
        }
        for _ in 0..2 {
            let response = client.response::<OffsetCommitRequest>(6);
            assert_eq!(response.topics[0].partitions[0].error_code, NONE);
        }
        assert_eq!(client.committed("g", "t", 0), 100 + round);
        assert_eq!(client.committed("g", "t", 1), round + 1);
    }
    broker.end_well(MEMORY_MAX);
}

#[test]
fn a_coordinator_of_no_group_is_not_found() {
    let (broker, mut client) = started();
    // The type of transactions has a different error.
    for kind in [2, -1, i8::MAX] {
        let request = FindCoordinatorRequest::default()
            .with_key(text("g"))
            .with_key_type(kind);
        assert_eq!(
            client.ask(3, &request).error_code,
            INVALID_REQUEST,
            "{kind}"
        );
    }
    broker.end_well(MEMORY_MAX);
}

#[test]
fn a_member_may_name_thousands_of_protocols() {
    let (broker, mut client) = started();
    let protocols = (0..20_000).map(|number| protocol(&format!("p{number}"), 5));
    let request = join_request("g", "").with_protocols(protocols.collect());
    let joined = join(&mut client, &request);
    assert_eq!(joined.error_code, NONE);
    // The leader assigns to the same member several times, and the last assignment counts.
    let synced = client.ask(4, &sync_request(&joined, 20_000));
    assert_eq!(
        (synced.error_code, &synced.assignment[..]),
        (NONE, &b"partitions"[..])
    );
    broker.end_well(2 * MEMORY_MAX);
}

#[test]
fn what_members_bring_is_kept_up_to_a_limit() {
    let (broker, mut client) = started();
    let mut codes = Vec::new();
    for number in 0..4 {
        let name = format!("g{number}");
        let large = join_request(&name, "").with_protocols(vec![protocol("range", 90 << 20)]);
        let assigned = client.ask(6, &join_request(&name, ""));
        assert_eq!(assigned.error_code, MEMBER_ID_REQUIRED);
        let joined = client.ask(6, &large.with_member_id(assigned.member_id));
        codes.push(joined.error_code);
    }
    assert_eq!(
        codes,
        [NONE, NONE, GROUP_MAX_SIZE_REACHED, GROUP_MAX_SIZE_REACHED]
    );
    // Other members can still join and leave.
    assert_eq!(
        join(&mut broker.connect(), &join_request("small", "")).error_code,
        NONE
    );
    broker.end_well(1 << 30);
}

#[test]
fn names_of_any_length_that_a_frame_can_carry_come_back_whole() {
    let (broker, mut client) = started();
    // A member ID is the client's name with a suffix, and must be a valid string.
    let name = "n".repeat(32_767);
    let long = join_request("g", "").with_group_instance_id(Some(text(&name)));
    for version in [5, 6] {
        let joined = client.ask(version, &long);
        assert_eq!(joined.error_code, NONE);
        assert_eq!(joined.members.len(), 1);
    }
    let group_id = "g".repeat(32_767);
    let joined = join(&mut client, &join_request(&group_id, ""));
    assert_eq!(joined.error_code, NONE);
    // Kafka's strings are no longer than that in any encoding.
    for length in [32_768, 100_000] {
        let mut client = broker.connect();
        client.send_request(6, &join_request(&"g".repeat(length), ""));
        client.expect_end();
        broker.hear("cannot be read");
    }
    broker.end_well(MEMORY_MAX);
}

#[test]
fn requests_of_groups_before_there_is_a_topic_for_them_are_answered() {
    let broker = BrokerProcess::start();
    let mut client = broker.connect();
    client.create_topic("t");
    let code = committed(&mut client, &commit_request(0, ""));
    assert_eq!(
        code, 15,
        "COORDINATOR_NOT_AVAILABLE: the client looks for it"
    );
    let joined = join(&mut client, &join_request("g", ""));
    assert_eq!(joined.error_code, NONE);
    let synced = client.ask(4, &sync_request(&joined, 1));
    assert_ne!(synced.error_code, NONE);
    find_coordinator(&mut client);
    broker.end_well(MEMORY_MAX);
}
