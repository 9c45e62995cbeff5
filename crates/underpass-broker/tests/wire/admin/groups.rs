//! Groups: listed, described and deleted.

use bytes::Bytes;
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::leave_group_request::MemberIdentity;
use kafka_protocol::messages::offset_delete_request::{
    OffsetDeleteRequestPartition, OffsetDeleteRequestTopic,
};
use kafka_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use kafka_protocol::messages::{
    DeleteGroupsRequest, DescribeGroupsRequest, JoinGroupRequest, LeaveGroupRequest,
    ListGroupsRequest, OffsetDeleteRequest, SyncGroupRequest,
};
use kafka_protocol::protocol::StrBytes;

use crate::support::broker::BrokerProcess;
use crate::support::client::{Client, topic_name};
use crate::{MEMORY_MAX, create, group, text};

const UNKNOWN_TOPIC_OR_PARTITION: i16 = 3;
const INVALID_GROUP_ID: i16 = 24;
const NON_EMPTY_GROUP: i16 = 68;
const GROUP_ID_NOT_FOUND: i16 = 69;
const GROUP_SUBSCRIBED_TO_TOPIC: i16 = 86;

/// What Kafka without ACLs answers.
const GROUP_OPERATIONS: i32 = 3400;

/// The subscription of a consumer to the topic `t`.
const SUBSCRIPTION: &[u8] = b"\0\0\0\0\0\x01\0\x01t\xff\xff\xff\xff";

fn started() -> (BrokerProcess, Client) {
    let broker = BrokerProcess::start();
    let mut client = broker.connect();
    client.find_coordinator();
    create(&mut client, "t", 2, &[]);
    create(&mut client, "u", 1, &[]);
    (broker, client)
}

/// Brings one member to a generation; returns its id.
#[track_caller]
fn join(client: &mut Client, id: &str, kind: &str) -> StrBytes {
    let protocol = JoinGroupRequestProtocol::default()
        .with_name(text("range"))
        .with_metadata(Bytes::from_static(SUBSCRIPTION));
    let request = JoinGroupRequest::default()
        .with_group_id(group(id))
        .with_session_timeout_ms(1_800_000)
        .with_rebalance_timeout_ms(30_000)
        .with_protocol_type(text(kind))
        .with_protocols(vec![protocol]);
    let joined = client.ask(3, &request);
    assert_eq!(joined.error_code, 0);
    let assignment = SyncGroupRequestAssignment::default()
        .with_member_id(joined.member_id.clone())
        .with_assignment(Bytes::from_static(b"work"));
    let request = SyncGroupRequest::default()
        .with_group_id(group(id))
        .with_generation_id(joined.generation_id)
        .with_member_id(joined.member_id.clone())
        .with_assignments(vec![assignment]);
    assert_eq!(client.ask(3, &request).error_code, 0);
    joined.member_id
}

#[track_caller]
fn leave(client: &mut Client, id: &str, member: &StrBytes) {
    let member = MemberIdentity::default().with_member_id(member.clone());
    let request = LeaveGroupRequest::default()
        .with_group_id(group(id))
        .with_members(vec![member]);
    assert_eq!(client.ask(4, &request).members[0].error_code, 0);
}

/// Returns the listed groups: name, protocol type and state.
fn listed(client: &mut Client, states: &[&str], types: &[&str]) -> Vec<(String, String, String)> {
    let filter = |names: &[&str]| names.iter().map(|name| text(name)).collect();
    let request = ListGroupsRequest::default()
        .with_states_filter(filter(states))
        .with_types_filter(filter(types));
    let listed = client.ask(5, &request);
    assert_eq!(listed.error_code, 0);
    let groups = listed.groups.into_iter().map(|group| {
        assert_eq!(&*group.group_type, "classic");
        let state = group.group_state.to_string();
        (
            group.group_id.to_string(),
            group.protocol_type.to_string(),
            state,
        )
    });
    groups.collect()
}

#[test]
fn groups_are_listed_by_their_states_and_types() {
    let (broker, mut client) = started();
    assert!(listed(&mut client, &[], &[]).is_empty());
    assert_eq!(client.commit("simple", "t", 0, 1), 0);
    join(&mut client, "workers", "connect");
    let simple = ("simple".to_owned(), String::new(), "Empty".to_owned());
    let workers = (
        "workers".to_owned(),
        "connect".to_owned(),
        "Stable".to_owned(),
    );
    let both = [simple.clone(), workers.clone()];
    assert_eq!(listed(&mut client, &[], &[]), both);
    assert_eq!(
        listed(&mut client, &["stable", "empty"], &["Classic"]),
        both
    );
    assert_eq!(listed(&mut client, &["Empty"], &[]), [simple]);
    assert_eq!(listed(&mut client, &["Stable", "Dead"], &[]), [workers]);
    assert!(listed(&mut client, &["no state"], &[]).is_empty());
    assert!(listed(&mut client, &[], &["consumer"]).is_empty());
    for version in 0..=4 {
        assert_eq!(
            client
                .ask(version, &ListGroupsRequest::default())
                .groups
                .len(),
            2
        );
    }
    broker.end_well(MEMORY_MAX);
}

#[test]
fn groups_are_described_with_their_members() {
    let (broker, mut client) = started();
    let member = join(&mut client, "g", "consumer");
    for version in 0..=6 {
        let request = DescribeGroupsRequest::default()
            .with_groups(vec![group("none"), group("g"), group("g")])
            .with_include_authorized_operations(version >= 3);
        let described = client.ask(version, &request).groups;
        let [one, none] = &described[..] else {
            panic!("{described:?}");
        };
        assert_eq!((one.error_code, &*one.group_state), (0, "Stable"));
        assert_eq!(
            (&*one.protocol_type, &*one.protocol_data),
            ("consumer", "range")
        );
        let [found] = &one.members[..] else {
            panic!("{one:?}");
        };
        assert_eq!(found.member_id, member);
        assert_eq!(
            (&*found.client_id, &*found.client_host),
            ("hostile", "/127.0.0.1")
        );
        assert_eq!(&found.member_metadata[..], SUBSCRIPTION);
        assert_eq!(&found.member_assignment[..], b"work");
        if version >= 3 {
            assert_eq!(one.authorized_operations, GROUP_OPERATIONS);
        }
        assert_eq!((&*none.group_state, none.members.len()), ("Dead", 0));
        let code = if version < 6 { 0 } else { GROUP_ID_NOT_FOUND };
        assert_eq!(
            (none.error_code, none.error_message.is_some()),
            (code, version >= 6)
        );
    }
    leave(&mut client, "g", &member);
    let request = DescribeGroupsRequest::default().with_groups(vec![group("g")]);
    let empty = client.ask(6, &request).groups.remove(0);
    assert_eq!((&*empty.group_state, &*empty.protocol_data), ("Empty", ""));
    broker.end_well(MEMORY_MAX);
}

#[test]
fn groups_without_members_are_deleted_for_good() {
    let (broker, mut client) = started();
    for version in 0..=2 {
        assert_eq!(client.commit("gone", "t", 0, 1), 0);
        let member = join(&mut client, "left", "consumer");
        let busy = join(&mut client, "busy", "consumer");
        leave(&mut client, "left", &member);
        let names = ["busy", "gone", "left", "none", "gone", ""];
        let request = DeleteGroupsRequest::default()
            .with_groups_names(names.iter().map(|name| group(name)).collect());
        let results = client.ask(version, &request).results;
        let results = results
            .iter()
            .map(|it| (it.group_id.as_str(), it.error_code));
        let expected = [
            ("", GROUP_ID_NOT_FOUND),
            ("busy", NON_EMPTY_GROUP),
            ("gone", 0),
            ("left", 0),
            ("none", GROUP_ID_NOT_FOUND),
        ];
        assert_eq!(Vec::from_iter(results), expected);
        leave(&mut client, "busy", &busy);
    }
    assert_eq!(client.committed("gone", "t", 0), -1);
    let broker = BrokerProcess::start_in(broker.kill());
    let mut client = broker.connect();
    let left = listed(&mut client, &[], &[]);
    assert_eq!(
        left.iter().map(|(name, ..)| name).collect::<Vec<_>>(),
        ["busy"]
    );
    assert_eq!(client.committed("gone", "t", 0), -1);
    broker.end_well(MEMORY_MAX);
}

fn delete_offsets(client: &mut Client, id: &str, topics: &[(&str, i32)]) -> (i16, Vec<i16>) {
    let topics = topics.iter().map(|(topic, partition)| {
        let partition = OffsetDeleteRequestPartition::default().with_partition_index(*partition);
        OffsetDeleteRequestTopic::default()
            .with_name(topic_name(topic))
            .with_partitions(vec![partition])
    });
    let request = OffsetDeleteRequest::default()
        .with_group_id(group(id))
        .with_topics(topics.collect());
    let response = client.ask(0, &request);
    let codes = response.topics.iter().flat_map(|topic| &topic.partitions);
    (
        response.error_code,
        codes.map(|one| one.error_code).collect(),
    )
}

#[test]
fn offsets_of_a_group_are_deleted_unless_it_subscribes_to_the_topic() {
    let (broker, mut client) = started();
    let none = Vec::new;
    assert_eq!(
        delete_offsets(&mut client, "", &[("t", 0)]),
        (INVALID_GROUP_ID, none())
    );
    assert_eq!(
        delete_offsets(&mut client, "g", &[("t", 0)]),
        (GROUP_ID_NOT_FOUND, none())
    );
    for (topic, partition) in [("t", 0), ("t", 1), ("u", 0)] {
        // Offsets beyond the end of their log would be lowered by the restart.
        assert_eq!(client.commit("g", topic, partition, 0), 0);
    }
    let asked = [("t", 0), ("none", 0), ("t", 99), ("t", 0)];
    let codes = vec![0, UNKNOWN_TOPIC_OR_PARTITION, 0, 0];
    assert_eq!(delete_offsets(&mut client, "g", &asked), (0, codes));
    let member = join(&mut client, "g", "consumer");
    let codes = vec![GROUP_SUBSCRIBED_TO_TOPIC, 0];
    assert_eq!(
        delete_offsets(&mut client, "g", &[("t", 1), ("u", 0)]),
        (0, codes)
    );
    leave(&mut client, "g", &member);
    let committed = |client: &mut Client| {
        let of = |(topic, partition)| client.committed("g", topic, partition);
        [("t", 0), ("t", 1), ("u", 0)].map(of)
    };
    assert_eq!(committed(&mut client), [-1, 0, -1]);
    join(&mut client, "g", "connect");
    let refused = delete_offsets(&mut client, "g", &[("t", 1)]);
    assert_eq!(refused, (NON_EMPTY_GROUP, none()));
    let broker = BrokerProcess::start_in(broker.kill());
    assert_eq!(committed(&mut broker.connect()), [-1, 0, -1]);
    broker.end_well(MEMORY_MAX);
}
