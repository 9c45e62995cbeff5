//! The rights that each request needs, one rule at a time.

use std::collections::BTreeSet;

use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::delete_records_request::{
    DeleteRecordsPartition, DeleteRecordsTopic,
};
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::offset_delete_request::{
    OffsetDeleteRequestPartition, OffsetDeleteRequestTopic,
};
use kafka_protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopics,
};
use kafka_protocol::messages::offset_for_leader_epoch_request::{
    OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use kafka_protocol::messages::{
    alter_configs_request, create_partitions_request, describe_topic_partitions_request,
    incremental_alter_configs_request, *,
};
use underpass_broker::protocol::apis::APIS;

use super::acls::{CLUSTER, GROUP, TOPIC, TRANSACTION, allow, as_user, create, delete_all};
use super::{AUTHORIZER, start};
use crate::support::batch::batch;
use crate::support::client::{Client, topic_name};
use crate::{group, text};

const READ: i8 = 3;
const WRITE: i8 = 4;
const CREATE: i8 = 5;
const DELETE: i8 = 6;
const ALTER: i8 = 7;
const DESCRIBE: i8 = 8;
const DESCRIBE_CONFIGS: i8 = 10;
const ALTER_CONFIGS: i8 = 11;
const IDEMPOTENT_WRITE: i8 = 12;

const TOPIC_DENIED: i16 = 29;
const GROUP_DENIED: i16 = 30;
const CLUSTER_DENIED: i16 = 31;
const TRANSACTION_DENIED: i16 = 53;

/// The topic, the group and the transaction of the requests.
const T: (i8, &str) = (TOPIC, "t");
const G: (i8, &str) = (GROUP, "g");
const X: (i8, &str) = (TRANSACTION, "x");
const C: (i8, &str) = (CLUSTER, "kafka-cluster");

/// A request, the rules that allow it, and the error code without them.
struct Case {
    api: &'static str,
    rules: &'static [((i8, &'static str), i8)],
    denied: i16,
    /// Returns the error code.
    ask: fn(&mut Client) -> i16,
}

const fn case(
    api: &'static str,
    rules: &'static [((i8, &'static str), i8)],
    denied: i16,
    ask: fn(&mut Client) -> i16,
) -> Case {
    Case {
        api,
        rules,
        denied,
        ask,
    }
}

/// Requests that need no rights.
const FREE: [&str; 4] = [
    "ApiVersions",
    "SaslHandshake",
    "SaslAuthenticate",
    "DescribeCluster",
];

const CASES: &[Case] = &[
    case("Produce", &[(T, WRITE)], TOPIC_DENIED, |it| {
        it.produce("t", 0, batch(1, 10)).0
    }),
    case("Fetch", &[(T, READ)], TOPIC_DENIED, |it| fetched(it, "t")),
    case("ListOffsets", &[(T, DESCRIBE)], TOPIC_DENIED, listed_offset),
    case("ListOffsets", &[(T, READ)], TOPIC_DENIED, listed_offset),
    case(
        "OffsetForLeaderEpoch",
        &[(T, DESCRIBE)],
        TOPIC_DENIED,
        end_of_epoch,
    ),
    case("Metadata", &[(T, DESCRIBE)], TOPIC_DENIED, |it| {
        described(it, "t")
    }),
    case(
        "Metadata",
        &[((TOPIC, "new"), DESCRIBE), ((TOPIC, "new"), CREATE)],
        TOPIC_DENIED,
        |it| described(it, "new"),
    ),
    case(
        "Metadata",
        &[((TOPIC, "newer"), WRITE), (C, CREATE)],
        TOPIC_DENIED,
        |it| described(it, "newer"),
    ),
    case(
        "CreateTopics",
        &[((TOPIC, "made"), CREATE)],
        TOPIC_DENIED,
        made,
    ),
    case("CreateTopics", &[(C, CREATE)], TOPIC_DENIED, made),
    case(
        "DeleteTopics",
        &[((TOPIC, "gone"), DELETE)],
        TOPIC_DENIED,
        deleted,
    ),
    case(
        "DeleteRecords",
        &[(T, DELETE)],
        TOPIC_DENIED,
        records_deleted,
    ),
    case("CreatePartitions", &[(T, ALTER)], TOPIC_DENIED, extended),
    case(
        "DescribeTopicPartitions",
        &[(T, DESCRIBE)],
        TOPIC_DENIED,
        partitions,
    ),
    case(
        "DescribeConfigs",
        &[(T, DESCRIBE_CONFIGS)],
        TOPIC_DENIED,
        |it| configs(it, 2, "t"),
    ),
    case(
        "DescribeConfigs",
        &[(T, ALTER_CONFIGS)],
        TOPIC_DENIED,
        |it| configs(it, 2, "t"),
    ),
    case(
        "DescribeConfigs",
        &[(C, DESCRIBE_CONFIGS)],
        CLUSTER_DENIED,
        |it| configs(it, 4, "1"),
    ),
    case("AlterConfigs", &[(T, ALTER_CONFIGS)], TOPIC_DENIED, |it| {
        replaced(it, 2, "t")
    }),
    case(
        "AlterConfigs",
        &[(C, ALTER_CONFIGS)],
        CLUSTER_DENIED,
        |it| replaced(it, 4, "1"),
    ),
    case(
        "IncrementalAlterConfigs",
        &[(T, ALTER_CONFIGS)],
        TOPIC_DENIED,
        |it| updated(it, 2, "t"),
    ),
    case(
        "IncrementalAlterConfigs",
        &[(C, ALTER_CONFIGS)],
        CLUSTER_DENIED,
        |it| updated(it, 4, "1"),
    ),
    case(
        "InitProducerId",
        &[(C, IDEMPOTENT_WRITE)],
        CLUSTER_DENIED,
        producer,
    ),
    case(
        "InitProducerId",
        &[((TOPIC, "any"), WRITE)],
        CLUSTER_DENIED,
        producer,
    ),
    case(
        "InitProducerId",
        &[(X, WRITE)],
        TRANSACTION_DENIED,
        transaction,
    ),
    case("FindCoordinator", &[(G, DESCRIBE)], GROUP_DENIED, |it| {
        coordinator(it, "g", 0)
    }),
    case("FindCoordinator", &[(G, READ)], GROUP_DENIED, |it| {
        coordinators(it, "g", 0)
    }),
    case(
        "FindCoordinator",
        &[(X, DESCRIBE)],
        TRANSACTION_DENIED,
        |it| coordinators(it, "x", 1),
    ),
    case("JoinGroup", &[(G, READ)], GROUP_DENIED, |it| {
        it.ask(5, &JoinGroupRequest::default().with_group_id(group("g")))
            .error_code
    }),
    case("SyncGroup", &[(G, READ)], GROUP_DENIED, |it| {
        it.ask(3, &SyncGroupRequest::default().with_group_id(group("g")))
            .error_code
    }),
    case("Heartbeat", &[(G, READ)], GROUP_DENIED, |it| {
        it.ask(3, &HeartbeatRequest::default().with_group_id(group("g")))
            .error_code
    }),
    case("LeaveGroup", &[(G, READ)], GROUP_DENIED, |it| {
        it.ask(3, &LeaveGroupRequest::default().with_group_id(group("g")))
            .error_code
    }),
    case(
        "OffsetCommit",
        &[(G, READ), (T, READ)],
        GROUP_DENIED,
        |it| it.commit("g", "t", 0, 0),
    ),
    case(
        "OffsetFetch",
        &[(G, DESCRIBE), (T, DESCRIBE)],
        GROUP_DENIED,
        offsets,
    ),
    case("DescribeGroups", &[(G, DESCRIBE)], GROUP_DENIED, |it| {
        it.ask(
            4,
            &DescribeGroupsRequest::default().with_groups(vec![group("g")]),
        )
        .groups[0]
            .error_code
    }),
    case("DeleteGroups", &[(G, DELETE)], GROUP_DENIED, |it| {
        it.ask(
            1,
            &DeleteGroupsRequest::default().with_groups_names(vec![group("g")]),
        )
        .results[0]
            .error_code
    }),
    case("OffsetDelete", &[(G, DELETE)], GROUP_DENIED, |it| {
        offsets_deleted(it).0
    }),
    case("ElectLeaders", &[(C, ALTER)], CLUSTER_DENIED, |it| {
        it.ask(2, &ElectLeadersRequest::default()).error_code
    }),
    case("DescribeLogDirs", &[(C, DESCRIBE)], CLUSTER_DENIED, |it| {
        it.ask(4, &DescribeLogDirsRequest::default()).error_code
    }),
    case(
        "ListPartitionReassignments",
        &[(C, DESCRIBE)],
        CLUSTER_DENIED,
        |it| {
            it.ask(0, &ListPartitionReassignmentsRequest::default())
                .error_code
        },
    ),
    case(
        "DescribeClientQuotas",
        &[(C, DESCRIBE_CONFIGS)],
        CLUSTER_DENIED,
        quotas,
    ),
    case(
        "DescribeUserScramCredentials",
        &[(C, DESCRIBE)],
        CLUSTER_DENIED,
        |it| {
            it.ask(0, &DescribeUserScramCredentialsRequest::default())
                .error_code
        },
    ),
    case(
        "AlterUserScramCredentials",
        &[(C, ALTER)],
        CLUSTER_DENIED,
        user_altered,
    ),
    case("DescribeAcls", &[(C, DESCRIBE)], CLUSTER_DENIED, |it| {
        it.ask(2, &DescribeAclsRequest::default()).error_code
    }),
    case("CreateAcls", &[(C, ALTER)], CLUSTER_DENIED, |it| {
        create(it, vec![allow("x", T, READ)])[0]
    }),
    case("DeleteAcls", &[(C, ALTER)], CLUSTER_DENIED, acls_deleted),
];

fn fetched(client: &mut Client, topic: &str) -> i16 {
    client.fetch(topic, 0, 0).responses[0].partitions[0].error_code
}

fn listed_offset(client: &mut Client) -> i16 {
    let partition = ListOffsetsPartition::default().with_timestamp(-1);
    let topic = ListOffsetsTopic::default()
        .with_name(topic_name("t"))
        .with_partitions(vec![partition]);
    let request = ListOffsetsRequest::default()
        .with_replica_id((-1).into())
        .with_topics(vec![topic]);
    client.ask(5, &request).topics[0].partitions[0].error_code
}

fn end_of_epoch(client: &mut Client) -> i16 {
    let partition = OffsetForLeaderPartition::default().with_current_leader_epoch(-1);
    let topic = OffsetForLeaderTopic::default()
        .with_topic(topic_name("t"))
        .with_partitions(vec![partition]);
    let request = OffsetForLeaderEpochRequest::default().with_topics(vec![topic]);
    client.ask(4, &request).topics[0].partitions[0].error_code
}

fn described(client: &mut Client, topic: &str) -> i16 {
    let topic = MetadataRequestTopic::default().with_name(Some(topic_name(topic)));
    let request = MetadataRequest::default()
        .with_topics(Some(vec![topic]))
        .with_allow_auto_topic_creation(true);
    client.ask(9, &request).topics[0].error_code
}

fn made(client: &mut Client) -> i16 {
    let topic = CreatableTopic::default()
        .with_name(topic_name("made"))
        .with_num_partitions(1)
        .with_replication_factor(1);
    let request = CreateTopicsRequest::default()
        .with_topics(vec![topic])
        .with_validate_only(true);
    client.ask(7, &request).topics[0].error_code
}

fn deleted(client: &mut Client) -> i16 {
    let request = DeleteTopicsRequest::default().with_topic_names(vec![topic_name("gone")]);
    client.ask(5, &request).responses[0].error_code
}

fn records_deleted(client: &mut Client) -> i16 {
    let partition = DeleteRecordsPartition::default().with_offset(0);
    let topic = DeleteRecordsTopic::default()
        .with_name(topic_name("t"))
        .with_partitions(vec![partition]);
    let request = DeleteRecordsRequest::default().with_topics(vec![topic]);
    client.ask(2, &request).topics[0].partitions[0].error_code
}

fn extended(client: &mut Client) -> i16 {
    let topic = create_partitions_request::CreatePartitionsTopic::default()
        .with_name(topic_name("t"))
        .with_count(8)
        .with_assignments(None);
    let request = CreatePartitionsRequest::default()
        .with_topics(vec![topic])
        .with_validate_only(true);
    client.ask(2, &request).results[0].error_code
}

fn partitions(client: &mut Client) -> i16 {
    let topic = describe_topic_partitions_request::TopicRequest::default();
    let request = DescribeTopicPartitionsRequest::default()
        .with_topics(vec![topic.with_name(topic_name("t"))])
        .with_response_partition_limit(10);
    client.ask(0, &request).topics[0].error_code
}

fn configs(client: &mut Client, kind: i8, name: &str) -> i16 {
    let resource = DescribeConfigsResource::default()
        .with_resource_type(kind)
        .with_resource_name(text(name))
        .with_configuration_keys(None);
    let request = DescribeConfigsRequest::default().with_resources(vec![resource]);
    client.ask(4, &request).results[0].error_code
}

fn replaced(client: &mut Client, kind: i8, name: &str) -> i16 {
    let resource = alter_configs_request::AlterConfigsResource::default()
        .with_resource_type(kind)
        .with_resource_name(text(name));
    let request = AlterConfigsRequest::default()
        .with_resources(vec![resource])
        .with_validate_only(true);
    client.ask(2, &request).responses[0].error_code
}

fn updated(client: &mut Client, kind: i8, name: &str) -> i16 {
    let resource = incremental_alter_configs_request::AlterConfigsResource::default()
        .with_resource_type(kind)
        .with_resource_name(text(name));
    let request = IncrementalAlterConfigsRequest::default()
        .with_resources(vec![resource])
        .with_validate_only(true);
    client.ask(1, &request).responses[0].error_code
}

fn producer(client: &mut Client) -> i16 {
    let request = InitProducerIdRequest::default().with_transactional_id(None);
    client.ask(4, &request).error_code
}

fn transaction(client: &mut Client) -> i16 {
    let request = InitProducerIdRequest::default().with_transactional_id(Some(text("x").into()));
    client.ask(4, &request).error_code
}

fn coordinator(client: &mut Client, key: &str, kind: i8) -> i16 {
    let request = FindCoordinatorRequest::default()
        .with_key(text(key))
        .with_key_type(kind);
    client.ask(3, &request).error_code
}

fn coordinators(client: &mut Client, key: &str, kind: i8) -> i16 {
    let request = FindCoordinatorRequest::default()
        .with_coordinator_keys(vec![text(key)])
        .with_key_type(kind);
    client.ask(4, &request).coordinators[0].error_code
}

fn offsets(client: &mut Client) -> i16 {
    let topic = OffsetFetchRequestTopics::default()
        .with_name(topic_name("t"))
        .with_partition_indexes(vec![0]);
    let asked = OffsetFetchRequestGroup::default()
        .with_group_id(group("g"))
        .with_topics(Some(vec![topic]));
    let request = OffsetFetchRequest::default().with_groups(vec![asked]);
    let group = &client.ask(8, &request).groups[0];
    match group.error_code {
        0 => group.topics[0].partitions[0].error_code,
        code => code,
    }
}

/// Returns the error codes of the group and of the partition.
fn offsets_deleted(client: &mut Client) -> (i16, i16) {
    let topic = OffsetDeleteRequestTopic::default()
        .with_name(topic_name("t"))
        .with_partitions(vec![OffsetDeleteRequestPartition::default()]);
    let request = OffsetDeleteRequest::default()
        .with_group_id(group("g"))
        .with_topics(vec![topic]);
    let response = client.ask(0, &request);
    let topic = response.topics.first();
    let partition = topic.map_or(0, |topic| topic.partitions[0].error_code);
    (response.error_code, partition)
}

fn quotas(client: &mut Client) -> i16 {
    let response = client.ask(1, &DescribeClientQuotasRequest::default());
    response.error_code
}

fn user_altered(client: &mut Client) -> i16 {
    let deletion = alter_user_scram_credentials_request::ScramCredentialDeletion::default();
    let deletion = deletion.with_name(text("nobody")).with_mechanism(1);
    let request = AlterUserScramCredentialsRequest::default().with_deletions(vec![deletion]);
    client.ask(0, &request).results[0].error_code
}

fn acls_deleted(client: &mut Client) -> i16 {
    let filter = delete_acls_request::DeleteAclsFilter::default()
        .with_resource_type_filter(TOPIC)
        .with_resource_name_filter(Some(text("nothing")))
        .with_operation(1)
        .with_permission_type(1);
    super::acls::delete(client, vec![filter])[0].0
}

const DENIALS: [i16; 4] = [
    TOPIC_DENIED,
    GROUP_DENIED,
    CLUSTER_DENIED,
    TRANSACTION_DENIED,
];

/// As a user without rules nothing works; as a super user everything; and with exactly the rules of
/// a case, that case.
#[test]
fn every_request_needs_its_rights_and_no_others() {
    let broker = start(AUTHORIZER);
    let mut admin = as_user(&broker, "anna", "secret");
    admin.create_topic("t");
    admin.create_topic("gone");
    let mut ben = as_user(&broker, "ben", "0ther");
    for case in CASES {
        let rules: Vec<_> = case
            .rules
            .iter()
            .map(|(on, what)| allow("ben", *on, *what))
            .collect();
        let shown = format!("{} {:?}", case.api, case.rules);
        assert_eq!((case.ask)(&mut ben), case.denied, "{shown}: denied");
        // Any part of the rules does not suffice.
        for left_out in 0..rules.len() {
            let mut fewer = rules.clone();
            fewer.remove(left_out);
            assert!(create(&mut admin, fewer).iter().all(|code| *code == 0));
            assert!(
                DENIALS.contains(&(case.ask)(&mut ben)),
                "{shown} without {left_out}"
            );
            delete_all(&mut admin);
        }
        assert!(create(&mut admin, rules).iter().all(|code| *code == 0));
        let code = (case.ask)(&mut ben);
        assert!(!DENIALS.contains(&code), "{shown}: {code}");
        delete_all(&mut admin);
        assert_eq!((case.ask)(&mut ben), case.denied, "{shown}: denied again");
    }
    let covered: BTreeSet<_> = CASES.iter().map(|case| case.api).chain(FREE).collect();
    let lists = ["ListGroups"];
    let all: BTreeSet<_> = APIS.iter().map(|api| api.name).collect();
    assert_eq!(
        covered
            .union(&lists.into())
            .copied()
            .collect::<BTreeSet<_>>(),
        all
    );
    broker.stop();
}

#[test]
fn super_users_may_do_everything() {
    let broker = start(AUTHORIZER);
    let mut admin = as_user(&broker, "anna", "secret");
    admin.create_topic("t");
    for case in CASES {
        let code = (case.ask)(&mut admin);
        assert!(!DENIALS.contains(&code), "{}: {code}", case.api);
    }
    broker.stop();
}

#[test]
fn what_a_client_may_not_describe_is_left_out_of_lists() {
    let broker = start(AUTHORIZER);
    let mut admin = as_user(&broker, "anna", "secret");
    for topic in ["seen", "hidden"] {
        admin.create_topic(topic);
        admin.find_coordinator();
        for group in ["seen", "hidden"] {
            assert_eq!(admin.commit(group, topic, 0, 0), 0);
        }
    }
    let rules = vec![
        allow("ben", (TOPIC, "seen"), DESCRIBE),
        allow("ben", (GROUP, "seen"), DESCRIBE),
    ];
    assert_eq!(create(&mut admin, rules), [0, 0]);
    let mut ben = as_user(&broker, "ben", "0ther");
    let request = MetadataRequest::default()
        .with_topics(None)
        .with_include_cluster_authorized_operations(true)
        .with_include_topic_authorized_operations(true);
    let all = ben.ask(9, &request);
    let names: Vec<_> = all
        .topics
        .iter()
        .flat_map(|topic| topic.name.clone())
        .collect();
    assert_eq!(names, [topic_name("seen")]);
    assert_eq!(all.topics[0].topic_authorized_operations, 1 << DESCRIBE);
    assert_eq!(all.cluster_authorized_operations, 0);
    let listed = ben.ask(3, &ListGroupsRequest::default());
    let listed: Vec<_> = listed
        .groups
        .iter()
        .map(|one| one.group_id.clone())
        .collect();
    assert_eq!(listed, [group("seen")]);
    let described = ben.ask(
        4,
        &DescribeGroupsRequest::default()
            .with_groups(vec![group("hidden"), group("seen")])
            .with_include_authorized_operations(true),
    );
    let codes = described
        .groups
        .iter()
        .map(|one| (one.group_id.to_string(), one.error_code));
    let expected = [("seen".to_owned(), 0), ("hidden".to_owned(), GROUP_DENIED)];
    assert_eq!(codes.collect::<Vec<_>>(), expected);
    assert_eq!(described.groups[0].authorized_operations, 1 << DESCRIBE);
    let offsets = OffsetFetchRequestGroup::default()
        .with_group_id(group("seen"))
        .with_topics(None);
    let offsets = ben.ask(8, &OffsetFetchRequest::default().with_groups(vec![offsets]));
    let topics: Vec<_> = offsets.groups[0]
        .topics
        .iter()
        .map(|one| one.name.clone())
        .collect();
    assert_eq!(topics, [topic_name("seen")]);
    let partitions = ben.ask(
        0,
        &DescribeTopicPartitionsRequest::default().with_response_partition_limit(100),
    );
    let names: Vec<_> = partitions
        .topics
        .iter()
        .flat_map(|one| one.name.clone())
        .collect();
    assert_eq!(names, [topic_name("seen")]);
    // A topic by its id tells no more than that it exists.
    let id = admin
        .ask(12, &MetadataRequest::default().with_topics(None))
        .topics;
    let id = id
        .iter()
        .find(|one| one.name == Some(topic_name("hidden")))
        .unwrap()
        .topic_id;
    let hidden = MetadataRequestTopic::default()
        .with_name(None)
        .with_topic_id(id);
    let hidden = ben.ask(
        12,
        &MetadataRequest::default().with_topics(Some(vec![hidden])),
    );
    assert_eq!(
        (hidden.topics[0].error_code, &hidden.topics[0].name),
        (100, &None)
    );
    broker.stop();
}
