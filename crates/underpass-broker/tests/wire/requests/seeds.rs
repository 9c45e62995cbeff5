//! Requests of every kind and version, made by another implementation of the protocol: the seeds
//! for damaged requests and for a fuzzer.

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::alter_user_scram_credentials_request::{
    ScramCredentialDeletion, ScramCredentialUpsertion,
};
use kafka_protocol::messages::create_acls_request::AclCreation;
use kafka_protocol::messages::create_partitions_request::{
    CreatePartitionsAssignment, CreatePartitionsTopic,
};
use kafka_protocol::messages::create_topics_request::{
    CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig,
};
use kafka_protocol::messages::delete_acls_request::DeleteAclsFilter;
use kafka_protocol::messages::delete_records_request::{
    DeleteRecordsPartition, DeleteRecordsTopic,
};
use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::describe_client_quotas_request::ComponentData;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::describe_log_dirs_request::DescribableLogDirTopic;
use kafka_protocol::messages::describe_topic_partitions_request::{Cursor, TopicRequest};
use kafka_protocol::messages::describe_user_scram_credentials_request::UserName;
use kafka_protocol::messages::elect_leaders_request::TopicPartitions;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic, ForgottenTopic};
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::leave_group_request::MemberIdentity;
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::list_partition_reassignments_request as reassignments;
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::offset_delete_request::{
    OffsetDeleteRequestPartition, OffsetDeleteRequestTopic,
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
        15 => {
            let request = DescribeGroupsRequest::default()
                .with_groups(vec![group(), group()])
                .with_include_authorized_operations(of(3));
            encoded(version, &request)
        }
        16 => {
            let filter = |new, name| {
                if of(new) {
                    vec![text(name)]
                } else {
                    Vec::new()
                }
            };
            let request = ListGroupsRequest::default()
                .with_states_filter(filter(4, "Stable"))
                .with_types_filter(filter(5, "classic"));
            encoded(version, &request)
        }
        17 => {
            let request = SaslHandshakeRequest::default().with_mechanism(text("SCRAM-SHA-256"));
            encoded(version, &request)
        }
        18 => {
            let name = |name| text(if of(3) { name } else { "" });
            let request = ApiVersionsRequest::default()
                .with_client_software_name(name("client"))
                .with_client_software_version(name("1.0"));
            encoded(version, &request)
        }
        19 => encoded(version, &create_topics()),
        20 => encoded(version, &delete_topics(version)),
        21 => encoded(version, &delete_records()),
        22 => {
            let request = InitProducerIdRequest::default()
                .with_transactional_id(Some(text("transaction").into()))
                .with_transaction_timeout_ms(60_000)
                .with_producer_id(if of(3) { 7.into() } else { (-1).into() })
                .with_producer_epoch(if of(3) { 1 } else { -1 });
            encoded(version, &request)
        }
        23 => encoded(version, &offset_for_leader_epoch(version)),
        29 => {
            let request = DescribeAclsRequest::default()
                .with_resource_type_filter(2)
                .with_resource_name_filter(Some(text("orders")))
                .with_pattern_type_filter(2)
                .with_principal_filter(Some(text("User:anna")))
                .with_host_filter(Some(text("*")))
                .with_operation(1)
                .with_permission_type(1);
            encoded(version, &request)
        }
        30 => {
            let rule = AclCreation::default()
                .with_resource_type(2)
                .with_resource_name(text("orders"))
                .with_resource_pattern_type(4)
                .with_principal(text("User:anna"))
                .with_host(text("*"))
                .with_operation(3)
                .with_permission_type(3);
            let request = CreateAclsRequest::default().with_creations(vec![rule.clone(), rule]);
            encoded(version, &request)
        }
        31 => {
            let filter = DeleteAclsFilter::default()
                .with_resource_type_filter(2)
                .with_resource_name_filter(Some(text("orders")))
                .with_pattern_type_filter(1)
                .with_principal_filter(Some(text("User:anna")))
                .with_operation(1)
                .with_permission_type(1);
            let request = DeleteAclsRequest::default().with_filters(vec![filter.clone(), filter]);
            encoded(version, &request)
        }
        32 => encoded(version, &describe_configs(version)),
        33 => encoded(version, &alter_configs()),
        35 => {
            let topic = DescribableLogDirTopic::default()
                .with_topic(topic())
                .with_partitions(vec![0, 1]);
            let request = DescribeLogDirsRequest::default().with_topics(Some(vec![topic]));
            encoded(version, &request)
        }
        36 => {
            let token = Bytes::from_static(b"n,,n=anna,r=abc");
            let request = SaslAuthenticateRequest::default().with_auth_bytes(token);
            encoded(version, &request)
        }
        37 => encoded(version, &create_partitions()),
        42 => {
            let request = DeleteGroupsRequest::default().with_groups_names(vec![group(), group()]);
            encoded(version, &request)
        }
        43 => {
            let partitions = TopicPartitions::default()
                .with_topic(topic())
                .with_partitions(vec![0, 1]);
            let request = ElectLeadersRequest::default()
                .with_election_type(i8::from(of(1)))
                .with_topic_partitions(Some(vec![partitions]))
                .with_timeout_ms(30_000);
            encoded(version, &request)
        }
        44 => encoded(version, &incremental_alter_configs()),
        46 => {
            let topic = reassignments::ListPartitionReassignmentsTopics::default()
                .with_name(topic())
                .with_partition_indexes(vec![0, 1]);
            let request = ListPartitionReassignmentsRequest::default()
                .with_timeout_ms(30_000)
                .with_topics(Some(vec![topic]));
            encoded(version, &request)
        }
        47 => {
            let partition = OffsetDeleteRequestPartition::default().with_partition_index(1);
            let topic = OffsetDeleteRequestTopic::default()
                .with_name(topic())
                .with_partitions(vec![partition]);
            let request = OffsetDeleteRequest::default()
                .with_group_id(group())
                .with_topics(vec![topic]);
            encoded(version, &request)
        }
        48 => {
            let component = ComponentData::default()
                .with_entity_type(text("user"))
                .with_match_type(0)
                .with_match(Some(text("anna")));
            let request = DescribeClientQuotasRequest::default().with_components(vec![component]);
            encoded(version, &request)
        }
        50 => {
            let user = UserName::default().with_name(text("anna"));
            let users = Some(vec![user.clone(), user]);
            let request = DescribeUserScramCredentialsRequest::default().with_users(users);
            encoded(version, &request)
        }
        51 => encoded(version, &alter_users()),
        60 => {
            let request = DescribeClusterRequest::default()
                .with_include_cluster_authorized_operations(true)
                .with_endpoint_type(if of(1) { 2 } else { 1 })
                .with_include_fenced_brokers(of(2));
            encoded(version, &request)
        }
        75 => {
            let cursor = Cursor::default()
                .with_topic_name(topic())
                .with_partition_index(3);
            let request = DescribeTopicPartitionsRequest::default()
                .with_topics(vec![TopicRequest::default().with_name(topic())])
                .with_response_partition_limit(7)
                .with_cursor(Some(cursor));
            encoded(version, &request)
        }
        other => panic!("request {other} has no seed"),
    }
}

fn alter_users() -> AlterUserScramCredentialsRequest {
    let deletion = ScramCredentialDeletion::default()
        .with_name(text("ben"))
        .with_mechanism(2);
    let upsertion = ScramCredentialUpsertion::default()
        .with_name(text("anna"))
        .with_mechanism(1)
        .with_iterations(4096)
        .with_salt(Bytes::from_static(&[7; 16]))
        .with_salted_password(Bytes::from_static(&[8; 32]));
    AlterUserScramCredentialsRequest::default()
        .with_deletions(vec![deletion])
        .with_upsertions(vec![upsertion])
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

fn delete_records() -> DeleteRecordsRequest {
    let partition = DeleteRecordsPartition::default()
        .with_partition_index(1)
        .with_offset(-1);
    let topic = DeleteRecordsTopic::default()
        .with_name(topic())
        .with_partitions(vec![partition.clone(), partition]);
    DeleteRecordsRequest::default()
        .with_topics(vec![topic])
        .with_timeout_ms(30_000)
}

fn describe_configs(version: i16) -> DescribeConfigsRequest {
    let resource = |kind: i8, name| {
        DescribeConfigsResource::default()
            .with_resource_type(kind)
            .with_resource_name(text(name))
    };
    let keys = Some(vec![text("retention.ms"), text("segment.bytes")]);
    DescribeConfigsRequest::default()
        .with_resources(vec![
            resource(2, "orders").with_configuration_keys(keys),
            resource(4, "1").with_configuration_keys(None),
        ])
        .with_include_synonyms(true)
        .with_include_documentation(version >= 3)
}

fn alter_configs() -> AlterConfigsRequest {
    let config = alter_configs_request::AlterableConfig::default()
        .with_name(text("retention.ms"))
        .with_value(Some(text("1000")));
    let resource = alter_configs_request::AlterConfigsResource::default()
        .with_resource_type(2)
        .with_resource_name(text("orders"))
        .with_configs(vec![config.clone(), config.with_value(None)]);
    AlterConfigsRequest::default()
        .with_resources(vec![resource])
        .with_validate_only(true)
}

fn incremental_alter_configs() -> IncrementalAlterConfigsRequest {
    let config = incremental_alter_configs_request::AlterableConfig::default()
        .with_name(text("retention.ms"))
        .with_config_operation(2)
        .with_value(Some(text("1000")));
    let resource = incremental_alter_configs_request::AlterConfigsResource::default()
        .with_resource_type(2)
        .with_resource_name(text("orders"))
        .with_configs(vec![config.clone(), config.with_value(None)]);
    IncrementalAlterConfigsRequest::default()
        .with_resources(vec![resource])
        .with_validate_only(true)
}

fn create_partitions() -> CreatePartitionsRequest {
    let assignment = CreatePartitionsAssignment::default().with_broker_ids(vec![1.into()]);
    let of_topic = |assignments| {
        CreatePartitionsTopic::default()
            .with_name(topic())
            .with_count(6)
            .with_assignments(assignments)
    };
    CreatePartitionsRequest::default()
        .with_topics(vec![of_topic(None), of_topic(Some(vec![assignment]))])
        .with_timeout_ms(30_000)
        .with_validate_only(true)
}
