//! Configurations of topics and of the broker.

use std::collections::BTreeMap;

use kafka_protocol::messages::alter_configs_request::{
    AlterConfigsResource as Replacement, AlterableConfig as ReplacedConfig,
};
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::describe_configs_response::{
    DescribeConfigsResourceResult, DescribeConfigsResult,
};
use kafka_protocol::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig,
};
use kafka_protocol::messages::{
    AlterConfigsRequest, DescribeConfigsRequest, IncrementalAlterConfigsRequest,
};

use crate::support::batch::batch;
use crate::support::broker::BrokerProcess;
use crate::support::client::Client;
use crate::{MEMORY_MAX, create, text};

const UNKNOWN_TOPIC_OR_PARTITION: i16 = 3;
const MESSAGE_TOO_LARGE: i16 = 10;
const INVALID_TOPIC_EXCEPTION: i16 = 17;
const INVALID_CONFIG: i16 = 40;
const INVALID_REQUEST: i16 = 42;
const POLICY_VIOLATION: i16 = 44;

const TOPIC: i8 = 2;
const BROKER: i8 = 4;
const BROKER_LOGGER: i8 = 8;
const GROUP: i8 = 32;

const SET: i8 = 0;
const DELETE: i8 = 1;
const APPEND: i8 = 2;
const SUBTRACT: i8 = 3;

/// The sources of values.
const OF_TOPIC: i8 = 1;
const OF_BROKER: i8 = 4;
const DEFAULT: i8 = 5;

fn describe(client: &mut Client, version: i16, kind: i8, name: &str) -> DescribeConfigsResult {
    let resource = DescribeConfigsResource::default()
        .with_resource_type(kind)
        .with_resource_name(text(name))
        .with_configuration_keys(None);
    let request = DescribeConfigsRequest::default()
        .with_resources(vec![resource.clone(), resource])
        .with_include_synonyms(true);
    let mut results = client.ask(version, &request).results;
    assert_eq!(results.len(), 1, "it is described once");
    results.remove(0)
}

type Configs = BTreeMap<String, DescribeConfigsResourceResult>;

#[track_caller]
fn configs(client: &mut Client, kind: i8, name: &str) -> Configs {
    let described = describe(client, 4, kind, name);
    assert_eq!(described.error_code, 0, "{described:?}");
    let configs = described.configs.into_iter();
    configs
        .map(|config| (config.name.to_string(), config))
        .collect()
}

/// Returns value, source, and the names and sources of the synonyms.
fn shown<'c>(configs: &'c Configs, name: &str) -> (Option<&'c str>, i8, Vec<(&'c str, i8)>) {
    let config = &configs[name];
    let synonyms = config.synonyms.iter();
    let synonyms = synonyms.map(|synonym| (&*synonym.name, synonym.source));
    (
        config.value.as_deref(),
        config.config_source,
        synonyms.collect(),
    )
}

/// Changes values of a resource; returns the error code and the message.
fn update(
    client: &mut Client,
    (kind, name): (i8, &str),
    changes: &[(&str, i8, Option<&str>)],
) -> (i16, String) {
    let request = update_request((kind, name), changes);
    let mut response = client.ask(1, &request);
    let one = response.responses.remove(0);
    (
        one.error_code,
        one.error_message
            .map_or_else(String::new, |why| why.to_string()),
    )
}

fn update_request(
    (kind, name): (i8, &str),
    changes: &[(&str, i8, Option<&str>)],
) -> IncrementalAlterConfigsRequest {
    let changes = changes.iter().map(|(name, operation, value)| {
        AlterableConfig::default()
            .with_name(text(name))
            .with_config_operation(*operation)
            .with_value(value.map(text))
    });
    let resource = AlterConfigsResource::default()
        .with_resource_type(kind)
        .with_resource_name(text(name))
        .with_configs(changes.collect());
    IncrementalAlterConfigsRequest::default().with_resources(vec![resource])
}

fn replace(client: &mut Client, version: i16, name: &str, values: &[(&str, Option<&str>)]) -> i16 {
    let values = values.iter().map(|(name, value)| {
        ReplacedConfig::default()
            .with_name(text(name))
            .with_value(value.map(text))
    });
    let resource = Replacement::default()
        .with_resource_type(TOPIC)
        .with_resource_name(text(name))
        .with_configs(values.collect());
    let request = AlterConfigsRequest::default().with_resources(vec![resource]);
    client.ask(version, &request).responses[0].error_code
}

#[test]
fn a_topic_has_all_of_kafkas_keys_with_their_sources() {
    let broker = BrokerProcess::start();
    let mut client = broker.connect();
    create(
        &mut client,
        "t",
        1,
        &[("retention.ms", "1000"), ("segment.bytes", "1048576")],
    );
    let configs = configs(&mut client, TOPIC, "t");
    assert_eq!(configs.len(), 33);
    assert!(
        configs
            .values()
            .all(|config| !config.read_only && !config.is_sensitive)
    );
    let own = ("retention.ms", OF_TOPIC);
    assert_eq!(
        shown(&configs, "retention.ms"),
        (Some("1000"), OF_TOPIC, vec![own])
    );
    let synonyms = vec![("segment.bytes", OF_TOPIC), ("log.segment.bytes", DEFAULT)];
    assert_eq!(
        shown(&configs, "segment.bytes"),
        (Some("1048576"), OF_TOPIC, synonyms)
    );
    let synonyms = vec![("message.max.bytes", DEFAULT)];
    assert_eq!(
        shown(&configs, "max.message.bytes"),
        (Some("1048588"), DEFAULT, synonyms)
    );
    assert_eq!(
        shown(&configs, "segment.ms"),
        (Some("604800000"), DEFAULT, vec![])
    );
    let kinds = [
        "preallocate",
        "compression.type",
        "segment.bytes",
        "segment.ms",
    ];
    let kinds = kinds.map(|name| configs[name].config_type);
    assert_eq!(kinds, [1, 2, 3, 5]);
    for version in 1..=4 {
        let described = describe(&mut client, version, TOPIC, "t");
        assert_eq!((described.error_code, described.configs.len()), (0, 33));
    }
    // Only some keys, without synonyms.
    let resource = DescribeConfigsResource::default()
        .with_resource_type(TOPIC)
        .with_resource_name(text("t"))
        .with_configuration_keys(Some(vec![text("segment.ms"), text("no.such.key")]));
    let request = DescribeConfigsRequest::default().with_resources(vec![resource]);
    let described = client.ask(4, &request).results.remove(0).configs;
    assert_eq!((described.len(), described[0].synonyms.len()), (1, 0));
    broker.end_well(MEMORY_MAX);
}

#[test]
fn the_broker_has_all_of_kafkas_keys_and_none_can_be_changed() {
    let broker = BrokerProcess::start();
    let mut client = broker.connect();
    let all = configs(&mut client, BROKER, "1");
    assert!(all.len() > 300);
    assert!(all.values().all(|config| config.read_only));
    let synonyms = vec![("num.partitions", OF_BROKER), ("num.partitions", DEFAULT)];
    assert_eq!(
        shown(&all, "num.partitions"),
        (Some("4"), OF_BROKER, synonyms)
    );
    let folder = broker.folder().to_str();
    assert_eq!(
        shown(&all, "log.dirs"),
        (folder, OF_BROKER, vec![("log.dirs", OF_BROKER)])
    );
    assert_eq!(shown(&all, "node.id").0, Some("1"));
    assert_eq!(shown(&all, "log.retention.ms"), (None, DEFAULT, vec![]));
    assert!(all["ssl.keystore.password"].is_sensitive);
    assert!(
        configs(&mut client, BROKER, "").is_empty(),
        "no dynamic defaults"
    );
    for name in ["1", ""] {
        let change = ("log.retention.ms", SET, Some("1"));
        let (code, why) = update(&mut client, (BROKER, name), &[change]);
        assert_eq!(code, INVALID_REQUEST);
        assert!(why.contains("configuration file"), "{why}");
    }
    broker.end_well(MEMORY_MAX);
}

#[test]
fn resources_that_are_not_there_have_the_errors_of_kafka() {
    let broker = BrokerProcess::start();
    let mut client = broker.connect();
    client.find_coordinator();
    for (kind, name, code) in [
        (TOPIC, "none", UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "a/b", INVALID_TOPIC_EXCEPTION),
        (TOPIC, "", INVALID_TOPIC_EXCEPTION),
        (BROKER, "2", INVALID_REQUEST),
        (BROKER, "01", INVALID_REQUEST),
        (BROKER, "x", INVALID_REQUEST),
        (BROKER_LOGGER, "1", INVALID_REQUEST),
        (GROUP, "g", INVALID_REQUEST),
        (0, "t", INVALID_REQUEST),
        (i8::MIN, "t", INVALID_REQUEST),
    ] {
        let described = describe(&mut client, 4, kind, name);
        assert_eq!(
            (described.error_code, described.configs.len()),
            (code, 0),
            "{kind} {name}"
        );
        assert!(described.error_message.is_some());
        if code != INVALID_TOPIC_EXCEPTION {
            let change = ("retention.ms", SET, Some("1"));
            let (changed, why) = update(&mut client, (kind, name), &[change]);
            assert_eq!(changed, code, "{kind} {name}: {why}");
        }
    }
    // The topic of offsets is compacted, whatever the defaults are.
    let offsets = configs(&mut client, TOPIC, "__consumer_offsets");
    assert_eq!(shown(&offsets, "cleanup.policy").0, Some("compact"));
    let change = ("retention.ms", SET, Some("1"));
    let changed = update(&mut client, (TOPIC, "__consumer_offsets"), &[change]);
    assert_eq!(changed.0, POLICY_VIOLATION);
    broker.end_well(MEMORY_MAX);
}

#[test]
fn values_are_changed_one_by_one_and_obeyed_at_once_and_after_a_restart() {
    let broker = BrokerProcess::start();
    let mut client = broker.connect();
    create(&mut client, "t", 1, &[("retention.ms", "1000")]);
    let topic = (TOPIC, "t");
    let replicas = "leader.replication.throttled.replicas";
    let changes = [
        ("max.message.bytes", SET, Some(" 500 ")),
        ("retention.ms", DELETE, None),
        (replicas, APPEND, Some("0:1,1:1")),
        ("min.insync.replicas", SET, Some("2")),
    ];
    assert_eq!(client.produce("t", 0, batch(1, 600)).0, 0);
    // First only checked.
    let request = update_request(topic, &changes).with_validate_only(true);
    assert_eq!(client.ask(0, &request).responses[0].error_code, 0);
    assert_eq!(client.produce("t", 0, batch(1, 600)).0, 0);
    assert_eq!(update(&mut client, topic, &changes), (0, String::new()));
    assert_eq!(client.produce("t", 0, batch(1, 600)).0, MESSAGE_TOO_LARGE);
    assert_eq!(
        update(&mut client, topic, &[(replicas, SUBTRACT, Some("0:1"))]).0,
        0
    );
    let broker = BrokerProcess::start_in(broker.stop());
    let mut client = broker.connect();
    let all = configs(&mut client, TOPIC, "t");
    let own = all
        .values()
        .filter(|config| config.config_source == OF_TOPIC);
    let own = own.map(|config| (&*config.name, config.value.as_deref().unwrap()));
    assert_eq!(
        Vec::from_iter(own),
        [(replicas, "1:1"), ("max.message.bytes", "500")]
    );
    assert_eq!(client.produce("t", 0, batch(1, 600)).0, MESSAGE_TOO_LARGE);
    for version in 0..=2 {
        let values = [("segment.ms", Some("5000"))];
        assert_eq!(replace(&mut client, version, "t", &values), 0);
        let all = configs(&mut client, TOPIC, "t");
        let own = all
            .values()
            .filter(|config| config.config_source == OF_TOPIC);
        assert_eq!(
            own.map(|config| &*config.name).collect::<Vec<_>>(),
            ["segment.ms"]
        );
    }
    assert_eq!(client.produce("t", 0, batch(1, 600)).0, 0);
    broker.end_well(MEMORY_MAX);
}

#[test]
fn a_change_is_made_as_a_whole_or_not_at_all() {
    let broker = BrokerProcess::start();
    let mut client = broker.connect();
    create(&mut client, "t", 1, &[]);
    let good = ("retention.ms", SET, Some("1000"));
    for (change, code) in [
        (("retention.ms", SET, Some("1")), INVALID_REQUEST),
        (("segment.bytes", SET, Some("1")), INVALID_CONFIG),
        (("segment.bytes", SET, None), INVALID_REQUEST),
        (("segment.bytes", APPEND, Some("1048576")), INVALID_CONFIG),
        (("segment.bytes", 4, Some("1048576")), INVALID_REQUEST),
        (("segment.bytes", -1, Some("1048576")), INVALID_REQUEST),
        (
            ("cleanup.policy", APPEND, Some("compacted")),
            INVALID_CONFIG,
        ),
        (("cleanup.policy", SUBTRACT, Some("delete")), INVALID_CONFIG),
        (("no.such.key", SET, Some("1")), INVALID_CONFIG),
        (("no.such.key", APPEND, Some("1")), INVALID_CONFIG),
    ] {
        let (refused, why) = update(&mut client, (TOPIC, "t"), &[good, change]);
        assert_eq!(refused, code, "{change:?}");
        assert!(why.contains(change.0), "{why}");
    }
    for values in [
        &[("retention.ms", None)][..],
        &[("retention.ms", Some("1")), ("retention.ms", Some("1"))],
    ] {
        assert_eq!(replace(&mut client, 2, "t", values), INVALID_REQUEST);
    }
    assert_eq!(
        replace(&mut client, 2, "t", &[("retention.ms", Some("x"))]),
        INVALID_CONFIG
    );
    // A resource that is there twice is refused once.
    let mut request = update_request((TOPIC, "t"), &[good]);
    request.resources.push(request.resources[0].clone());
    let responses = client.ask(1, &request).responses;
    let codes = responses.iter().map(|response| response.error_code);
    assert_eq!(Vec::from_iter(codes), [INVALID_REQUEST]);
    let all = configs(&mut client, TOPIC, "t");
    assert!(all.values().all(|config| config.config_source == DEFAULT));
    broker.end_well(MEMORY_MAX);
}
