//! Requests of every kind and version, made by another implementation of the protocol: the seeds
//! for damaged requests and for a fuzzer.

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::create_topics_request::{
    CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig,
};
use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic, ForgottenTopic};
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::leave_group_request::MemberIdentity;
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
};
use kafka_protocol::messages::offset_for_leader_epoch_request::{
    OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use kafka_protocol::messages::*;
use kafka_protocol::protocol::{Encodable, Request, StrBytes};
use underpass_broker::protocol::apis::APIS;

/// Returns requests with headers, by the name of their kind and version: two for each, one of them
/// empty.
pub(crate) fn seeds() -> Vec<(String, Vec<u8>)> {
    let mut seeds = Vec::new();
    for api in APIS {
        for version in api.served_from..=api.advertised.1 {
            let name = format!("{}-{version}", api.name);
            let (empty, full) = pair(api.key, version);
            seeds.push((format!("{name}-empty"), empty));
            seeds.push((name, full));
        }
    }
    seeds
}

fn pair(key: i16, version: i16) -> (Vec<u8>, Vec<u8>) {
    let of = |new: i16| version >= new;
    match key {
        0 => encoded(version, &produce()),
        1 => encoded(version, &fetch(version)),
        2 => encoded(version, &list_offsets(version)),
        3 => encoded(version, &metadata(version)),
        8 => encoded(version, &offset_commit(version)),
        9 => encoded(version, &offset_fetch(version)),
        10 => encoded(version, &find_coordinator(version)),
        11 => encoded(version, &join_group(version)),
        12 => {
            let request = HeartbeatRequest::default()
                .with_group_id(group())
                .with_generation_id(3)
                .with_member_id(text("member"))
                .with_group_instance_id(of(3).then(|| text("instance")));
            encoded(version, &request)
        }
        13 => encoded(version, &leave_group(version)),
        14 => encoded(version, &sync_group(version)),
        18 => {
            let name = |name| text(if of(3) { name } else { "" });
            let request = ApiVersionsRequest::default()
                .with_client_software_name(name("client"))
                .with_client_software_version(name("1.0"));
            encoded(version, &request)
        }
        19 => encoded(version, &create_topics()),
        20 => encoded(version, &delete_topics(version)),
        22 => {
            let request = InitProducerIdRequest::default()
                .with_transactional_id(Some(text("transaction").into()))
                .with_transaction_timeout_ms(60_000)
                .with_producer_id(if of(3) { 7.into() } else { (-1).into() })
                .with_producer_epoch(if of(3) { 1 } else { -1 });
            encoded(version, &request)
        }
        23 => encoded(version, &offset_for_leader_epoch(version)),
        other => panic!("request {other} has no seed"),
    }
}

/// Returns the frames of an empty request and of this one.
fn encoded<R: Request + Default>(version: i16, request: &R) -> (Vec<u8>, Vec<u8>) {
    let frame = |request: &R| {
        let header = RequestHeader::default()
            .with_request_api_key(R::KEY)
            .with_request_api_version(version)
            .with_correlation_id(77)
            .with_client_id(Some(text("seed")));
        let mut frame = BytesMut::new();
        let encoded = header.encode(&mut frame, R::header_version(version));
        encoded.expect("a header");
        let encoded = request.encode(&mut frame, version);
        encoded.unwrap_or_else(|error| panic!("request {} {version}: {error}", R::KEY));
        frame.to_vec()
    };
    (frame(&R::default()), frame(request))
}

fn text(text: &'static str) -> StrBytes {
    StrBytes::from_static_str(text)
}

fn group() -> GroupId {
    GroupId(text("group"))
}

fn topic() -> TopicName {
    TopicName(text("orders"))
}

/// Returns the name of the topic in versions that have names.
fn name_in(version: i16, last: i16) -> TopicName {
    match version <= last {
        true => topic(),
        false => TopicName::default(),
    }
}

fn produce() -> ProduceRequest {
    let data = |index: i32, records: Option<&'static [u8]>| {
        PartitionProduceData::default()
            .with_index(index)
            .with_records(records.map(Bytes::from_static))
    };
    let topic = TopicProduceData::default()
        .with_name(topic())
        .with_partition_data(vec![data(0, Some(&[7; 80])), data(1, None)]);
    ProduceRequest::default()
        .with_transactional_id(Some(text("transaction").into()))
        .with_acks(-1)
        .with_timeout_ms(30_000)
        .with_topic_data(vec![topic])
}

fn fetch(version: i16) -> FetchRequest {
    let partition = FetchPartition::default()
        .with_partition(3)
        .with_current_leader_epoch(if version >= 9 { 2 } else { -1 })
        .with_fetch_offset(5)
        .with_partition_max_bytes(1 << 20);
    let wanted = FetchTopic::default()
        .with_topic(name_in(version, 12))
        .with_partitions(vec![partition.clone(), partition]);
    let forgotten = ForgottenTopic::default()
        .with_topic(name_in(version, 12))
        .with_partitions(vec![1, 2]);
    let request = FetchRequest::default()
        .with_max_wait_ms(500)
        .with_min_bytes(1)
        .with_max_bytes(50 << 20)
        .with_topics(vec![wanted]);
    let request = match version {
        ..7 => request,
        _ => request
            .with_session_id(9)
            .with_session_epoch(1)
            .with_forgotten_topics_data(vec![forgotten]),
    };
    match version {
        ..12 => request,
        _ => request
            .with_rack_id(text("rack"))
            .with_cluster_id(Some(text("cluster"))),
    }
}

fn list_offsets(version: i16) -> ListOffsetsRequest {
    let partition = |index: i32, timestamp: i64| {
        ListOffsetsPartition::default()
            .with_partition_index(index)
            .with_current_leader_epoch(if version >= 4 { 2 } else { -1 })
            .with_timestamp(timestamp)
    };
    let topic = ListOffsetsTopic::default()
        .with_name(topic())
        .with_partitions(vec![partition(0, -1), partition(1, 1_700_000_000_000)]);
    ListOffsetsRequest::default()
        .with_replica_id((-1).into())
        .with_isolation_level(i8::from(version >= 2))
        .with_topics(vec![topic])
}

fn metadata(version: i16) -> MetadataRequest {
    let topic = MetadataRequestTopic::default().with_name(Some(topic()));
    MetadataRequest::default()
        .with_topics(Some(vec![topic.clone(), topic]))
        .with_include_topic_authorized_operations(version >= 8)
}

fn offset_commit(version: i16) -> OffsetCommitRequest {
    let partition = OffsetCommitRequestPartition::default()
        .with_partition_index(1)
        .with_committed_offset(12)
        .with_committed_leader_epoch(if version >= 6 { 2 } else { -1 })
        .with_committed_metadata(Some(text("note")));
    let topic = OffsetCommitRequestTopic::default()
        .with_name(topic())
        .with_partitions(vec![partition]);
    OffsetCommitRequest::default()
        .with_group_id(group())
        .with_generation_id_or_member_epoch(3)
        .with_member_id(text("member"))
        .with_group_instance_id((version >= 7).then(|| text("instance")))
        .with_topics(vec![topic])
}

fn offset_fetch(version: i16) -> OffsetFetchRequest {
    if version < 8 {
        let topic = OffsetFetchRequestTopic::default()
            .with_name(topic())
            .with_partition_indexes(vec![0, 1]);
        return OffsetFetchRequest::default()
            .with_group_id(group())
            .with_topics(Some(vec![topic]))
            .with_require_stable(version >= 7);
    }
    let topic = OffsetFetchRequestTopics::default()
        .with_name(topic())
        .with_partition_indexes(vec![0, 1]);
    let group = OffsetFetchRequestGroup::default()
        .with_group_id(group())
        .with_member_id((version >= 9).then(|| text("member")))
        .with_topics(Some(vec![topic]));
    let all = group.clone().with_topics(None);
    OffsetFetchRequest::default()
        .with_groups(vec![group, all])
        .with_require_stable(true)
}

fn find_coordinator(version: i16) -> FindCoordinatorRequest {
    let request = FindCoordinatorRequest::default().with_key_type(i8::from(version >= 1));
    match version {
        ..4 => request.with_key(text("group")),
        _ => request.with_coordinator_keys(vec![text("group"), text("another")]),
    }
}

fn join_group(version: i16) -> JoinGroupRequest {
    let protocol = JoinGroupRequestProtocol::default()
        .with_name(text("range"))
        .with_metadata(Bytes::from_static(&[0, 1, 0, 0]));
    JoinGroupRequest::default()
        .with_group_id(group())
        .with_session_timeout_ms(45_000)
        .with_rebalance_timeout_ms(if version >= 1 { 300_000 } else { -1 })
        .with_group_instance_id((version >= 5).then(|| text("instance")))
        .with_protocol_type(text("consumer"))
        .with_protocols(vec![protocol.clone(), protocol])
        .with_reason((version >= 8).then(|| text("because")))
}

fn leave_group(version: i16) -> LeaveGroupRequest {
    let member = MemberIdentity::default()
        .with_member_id(text("member"))
        .with_group_instance_id(Some(text("instance")))
        .with_reason((version >= 5).then(|| text("because")));
    let request = LeaveGroupRequest::default().with_group_id(group());
    match version {
        ..3 => request.with_member_id(text("member")),
        _ => request.with_members(vec![member.clone(), member]),
    }
}

fn sync_group(version: i16) -> SyncGroupRequest {
    let assignment = SyncGroupRequestAssignment::default()
        .with_member_id(text("member"))
        .with_assignment(Bytes::from_static(&[0, 1, 0, 0]));
    SyncGroupRequest::default()
        .with_group_id(group())
        .with_generation_id(3)
        .with_member_id(text("member"))
        .with_group_instance_id((version >= 3).then(|| text("instance")))
        .with_protocol_type((version >= 5).then(|| text("consumer")))
        .with_protocol_name((version >= 5).then(|| text("range")))
        .with_assignments(vec![assignment.clone(), assignment])
}

fn create_topics() -> CreateTopicsRequest {
    let assignment = CreatableReplicaAssignment::default()
        .with_partition_index(0)
        .with_broker_ids(vec![1.into()]);
    let config = CreatableTopicConfig::default()
        .with_name(text("retention.ms"))
        .with_value(Some(text("1000")));
    let topic = CreatableTopic::default()
        .with_name(topic())
        .with_num_partitions(-1)
        .with_replication_factor(-1)
        .with_assignments(vec![assignment])
        .with_configs(vec![config.clone(), config.with_value(None)]);
    CreateTopicsRequest::default()
        .with_topics(vec![topic])
        .with_timeout_ms(30_000)
        .with_validate_only(true)
}

fn delete_topics(version: i16) -> DeleteTopicsRequest {
    let named = DeleteTopicState::default().with_name(Some(topic()));
    let numbered = DeleteTopicState::default().with_name(None);
    let request = DeleteTopicsRequest::default().with_timeout_ms(30_000);
    match version {
        ..6 => request.with_topic_names(vec![topic(), topic()]),
        _ => request.with_topics(vec![named, numbered]),
    }
}

fn offset_for_leader_epoch(version: i16) -> OffsetForLeaderEpochRequest {
    let partition = OffsetForLeaderPartition::default()
        .with_partition(1)
        .with_current_leader_epoch(2)
        .with_leader_epoch(1);
    let topic = OffsetForLeaderTopic::default()
        .with_topic(topic())
        .with_partitions(vec![partition]);
    OffsetForLeaderEpochRequest::default()
        .with_replica_id(match version {
            ..3 => (-2).into(),
            _ => (-1).into(),
        })
        .with_topics(vec![topic])
}
