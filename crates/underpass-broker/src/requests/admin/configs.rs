//! DescribeConfigs, IncrementalAlterConfigs and AlterConfigs.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use underpass_log::{ConfigType, TOPIC_CONFIGS};

use crate::broker::Broker;
use crate::metadata::broker_configs::{self, BrokerConfig, PASSWORD};
use crate::metadata::changes::ChangeMode;
use crate::metadata::configs::{
    ConfigChange, ConfigOperation, ConfigSource, EffectiveConfig, Synonym, effective,
    replicas_in_sync,
};
use crate::metadata::names::check_name;
use crate::metadata::topics::{Topic, TopicMap};
use crate::options::ReplicationPolicy;
use crate::protocol::error_code::{ErrorCode, Refused};
use crate::protocol::tables::alter_configs::{
    AlterConfigsRequest, AlterConfigsResourceResponse, AlterConfigsResponse,
};
use crate::protocol::tables::describe_configs::{
    DescribeConfigsRequest, DescribeConfigsResource, DescribeConfigsResourceResult,
    DescribeConfigsResponse, DescribeConfigsResult, DescribeConfigsSynonym,
};
use crate::protocol::tables::incremental_alter_configs::{
    IncrementalAlterConfigsAlterableConfig, IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse, IncrementalAlterConfigsResponseAlterConfigsResourceResponse,
};
use crate::requests::topics::code_of;
use crate::security::access::ClientAccess;
use crate::security::acl::AclOperation;

/// The types of resources with configurations.
const TOPIC: i8 = 2;
const BROKER: i8 = 4;

/// The operations of IncrementalAlterConfigs.
const SET: i8 = 0;
const DELETE: i8 = 1;
const APPEND: i8 = 2;
const SUBTRACT: i8 = 3;

const TWICE: &str = "the request has this resource twice";
const DENIED: &str = "the client may not do this with the configuration";
const NOT_TOPICS: &str = "only topics and brokers have configurations here";
const NOT_DYNAMIC: &str = "the configuration of the broker is its configuration file; change that, \
                           and restart the broker";

/// The values of the broker that descriptions refer to.
pub(crate) struct InheritedConfigs {
    broker: Vec<BrokerConfig>,
    /// The synonyms of each topic key, in the order of [`TOPIC_CONFIGS`].
    synonyms: Vec<Vec<Synonym>>,
}

impl InheritedConfigs {
    pub(crate) fn of(broker: &Broker) -> InheritedConfigs {
        let defaults = &broker.options.topics.config;
        let synonyms = TOPIC_CONFIGS.iter();
        let synonyms = synonyms.map(|key| broker_configs::synonyms(key.name, defaults));
        InheritedConfigs {
            broker: broker_configs::all(&broker.options),
            synonyms: synonyms.collect(),
        }
    }
}

/// Describes resources, each once: otherwise a request could make a response of any size.
pub(crate) fn describe<'a>(
    request: &DescribeConfigsRequest<'a>,
    broker: &'a Broker,
    (topics, access): (&'a TopicMap, &ClientAccess),
    inherited: &'a InheritedConfigs,
) -> DescribeConfigsResponse<'a> {
    let mut seen = BTreeSet::new();
    let resources = request.resources.iter();
    let resources = resources.filter(|it| seen.insert((it.resource_type, it.resource_name)));
    let results = resources.map(|resource| {
        let result = DescribeConfigsResult {
            resource_type: resource.resource_type,
            resource_name: resource.resource_name,
            ..DescribeConfigsResult::default()
        };
        let synonyms = request.include_synonyms;
        let allowed = may(
            access,
            AclOperation::DescribeConfigs,
            resource.resource_type,
        );
        let allowed = allowed(resource.resource_name).map_err(|code| (code, DENIED));
        let configs =
            allowed.and_then(|()| described(resource, synonyms, (broker, topics, inherited)));
        match configs {
            Ok(configs) => DescribeConfigsResult { configs, ..result },
            Err((code, why)) => DescribeConfigsResult {
                error_code: code.number(),
                error_message: Some(why),
                ..result
            },
        }
    });
    DescribeConfigsResponse {
        results: results.collect(),
        ..DescribeConfigsResponse::default()
    }
}

/// Returns whether the client may do this with the configuration of a resource of a type, by its
/// name.
fn may(
    access: &ClientAccess,
    operation: AclOperation,
    kind: i8,
) -> impl Fn(&str) -> Result<(), ErrorCode> {
    move |name| match kind {
        TOPIC if !access.allows_topic(operation, name) => Err(ErrorCode::TopicAuthorizationFailed),
        TOPIC => Ok(()),
        _ if !access.allows_cluster(operation) => Err(ErrorCode::ClusterAuthorizationFailed),
        _ => Ok(()),
    }
}

fn described<'a>(
    resource: &DescribeConfigsResource<'_>,
    with_synonyms: bool,
    (broker, topics, inherited): (&'a Broker, &'a TopicMap, &'a InheritedConfigs),
) -> Result<Vec<DescribeConfigsResourceResult<'a>>, (ErrorCode, &'static str)> {
    let keys = resource.configuration_keys.iter().flatten().copied();
    let keys: BTreeSet<&str> = keys.collect();
    let is_asked = |name: &str| keys.is_empty() || keys.contains(name);
    match (resource.resource_type, resource.resource_name) {
        (TOPIC, name) => {
            check_name(name).map_err(|_| (ErrorCode::InvalidTopic, "invalid name of a topic"))?;
            let topic = topics.named(name);
            let unknown = (ErrorCode::UnknownTopicOrPartition, "there is no such topic");
            let topic: &Topic = topic.ok_or(unknown)?;
            let configs = effective(&topic.config, &broker.options.topics.config);
            let configs = configs.zip(&inherited.synonyms);
            let configs = configs.filter(|(config, _)| is_asked(config.key.name));
            Ok(configs
                .map(|(config, synonyms)| topic_config(config, synonyms, with_synonyms))
                .collect())
        }
        // The dynamic defaults of all brokers.
        (BROKER, "") => Ok(Vec::new()),
        (BROKER, id) if id == broker.options.node_id.to_string() => {
            let configs = inherited.broker.iter();
            let configs = configs.filter(|config| is_asked(config.name));
            Ok(configs
                .map(|config| broker_config(config, with_synonyms))
                .collect())
        }
        (BROKER, _) => Err((ErrorCode::InvalidRequest, "there is no broker with this id")),
        _ => Err((ErrorCode::InvalidRequest, NOT_TOPICS)),
    }
}

fn topic_config<'a>(
    config: EffectiveConfig<'a>,
    inherited: &'a [Synonym],
    with_synonyms: bool,
) -> DescribeConfigsResourceResult<'a> {
    let EffectiveConfig { key, value, source } = config;
    let own = (source == ConfigSource::Topic).then_some((key.name, value, source));
    let inherited = inherited.iter().map(|it| (it.name, &*it.value, it.source));
    let synonyms = own.into_iter().chain(inherited);
    DescribeConfigsResourceResult {
        name: key.name,
        value: Some(value),
        config_source: source.number(),
        synonyms: synonyms.filter(|_| with_synonyms).map(synonym).collect(),
        config_type: match key.kind {
            ConfigType::Boolean => 1,
            ConfigType::String => 2,
            ConfigType::Int => 3,
            ConfigType::Long => 5,
            ConfigType::Double => 6,
            ConfigType::List => 7,
        },
        ..DescribeConfigsResourceResult::default()
    }
}

fn broker_config(config: &BrokerConfig, with_synonyms: bool) -> DescribeConfigsResourceResult<'_> {
    let is_sensitive = config.kind == PASSWORD;
    let value = config.value.as_deref().filter(|_| !is_sensitive);
    let source = config.source;
    let own = value.filter(|_| source == ConfigSource::Broker);
    let own = own.map(|value| (config.name, value, source));
    let default = config.default.filter(|_| !is_sensitive);
    let default = default.map(|value| (config.name, value, ConfigSource::Default));
    let synonyms = own.into_iter().chain(default);
    DescribeConfigsResourceResult {
        name: config.name,
        value,
        read_only: true,
        config_source: source.number(),
        is_sensitive,
        synonyms: synonyms.filter(|_| with_synonyms).map(synonym).collect(),
        config_type: config.kind,
        ..DescribeConfigsResourceResult::default()
    }
}

fn synonym<'a>(
    (name, value, source): (&'a str, &'a str, ConfigSource),
) -> DescribeConfigsSynonym<'a> {
    DescribeConfigsSynonym {
        name,
        value: Some(value),
        source: source.number(),
    }
}

/// A resource to change: its type, its name, and the change or the reason why there is none.
type Asked<'a> = (i8, &'a str, Result<AskedChange, Refused>);

/// A change, and whether `min.insync.replicas` is taken as 1 in it.
type AskedChange = (ConfigChange, bool);

/// A resource that was changed or not.
pub(crate) type Altered<'a> = (i8, &'a str, Result<(), Refused>);

pub(crate) async fn update<'a>(
    request: &IncrementalAlterConfigsRequest<'a>,
    broker: &Arc<Broker>,
    access: &ClientAccess,
) -> Vec<Altered<'a>> {
    let policy = broker.options.replication;
    let asked = request.resources.iter().map(|resource| {
        let configs = resource.configs.iter();
        let updates = configs.map(|config| operation(config).map(|it| (config.name, it)));
        let change = updates.collect::<Result<Vec<_>, _>>();
        let change = change.and_then(|updates| {
            let (mut kept, mut clamped) = (Vec::new(), false);
            for (name, mut operation) in updates {
                if let ConfigOperation::Set(value) = &operation
                    && is_clamped(name, value, policy)?
                {
                    (operation, clamped) = (ConfigOperation::Delete, true);
                }
                kept.push((name.to_owned(), operation));
            }
            unique(kept.iter().map(|(name, _)| &**name))?;
            Ok((ConfigChange::Update(kept), clamped))
        });
        (resource.resource_type, resource.resource_name, change)
    });
    alter(asked.collect(), request.validate_only, (broker, access)).await
}

pub(crate) async fn replace<'a>(
    request: &AlterConfigsRequest<'a>,
    broker: &Arc<Broker>,
    access: &ClientAccess,
) -> Vec<Altered<'a>> {
    let policy = broker.options.replication;
    let asked = request.resources.iter().map(|resource| {
        let configs = resource.configs.iter();
        let change = unique(configs.clone().map(|config| config.name)).and_then(|()| {
            let (mut values, mut clamped) = (BTreeMap::new(), false);
            for config in configs {
                let value = config.value.ok_or_else(|| null(config.name))?;
                match is_clamped(config.name, value, policy)? {
                    true => clamped = true,
                    false => drop(values.insert(config.name.to_owned(), value.to_owned())),
                }
            }
            Ok((ConfigChange::Replace(values), clamped))
        });
        (resource.resource_type, resource.resource_name, change)
    });
    alter(asked.collect(), request.validate_only, (broker, access)).await
}

fn operation(
    config: &IncrementalAlterConfigsAlterableConfig<'_>,
) -> Result<ConfigOperation, Refused> {
    let value = || Ok(config.value.ok_or_else(|| null(config.name))?.to_owned());
    Ok(match config.config_operation {
        SET => ConfigOperation::Set(value()?),
        DELETE => ConfigOperation::Delete,
        APPEND => ConfigOperation::Append(value()?),
        SUBTRACT => ConfigOperation::Subtract(value()?),
        other => {
            let why = format!("{}: unknown operation {other}", config.name);
            return Err((ErrorCode::InvalidRequest, why));
        }
    })
}

fn null(name: &str) -> Refused {
    let why = format!("{name}: expected a value, not null");
    (ErrorCode::InvalidRequest, why)
}

/// Checks that no key occurs twice.
fn unique<'a>(mut names: impl Iterator<Item = &'a str>) -> Result<(), Refused> {
    let mut seen = BTreeSet::new();
    match names.find(|name| !seen.insert(*name)) {
        Some(name) => Err((ErrorCode::InvalidRequest, format!("{name} is there twice"))),
        None => Ok(()),
    }
}

/// Whether a value needs more replicas than one, and counts as the default.
///
/// # Errors
/// The policy rejects it.
fn is_clamped(name: &str, value: &str, policy: ReplicationPolicy) -> Result<bool, Refused> {
    match (replicas_in_sync(name, Some(value)), policy) {
        (None, _) => Ok(false),
        (Some(_), ReplicationPolicy::Clamp) => Ok(true),
        (Some(count), ReplicationPolicy::Reject) => {
            let why = format!("{name}={count}; there is one broker");
            Err((ErrorCode::InvalidConfig, why))
        }
    }
}

/// Changes the configurations of topics, all with one write.
async fn alter<'a>(
    asked: Vec<Asked<'a>>,
    validate_only: bool,
    (broker, access): (&Arc<Broker>, &ClientAccess),
) -> Vec<Altered<'a>> {
    let mut counts = HashMap::<(i8, &str), usize>::new();
    for (kind, name, _) in &asked {
        *counts.entry((*kind, name)).or_default() += 1;
    }
    let mut altered = Vec::with_capacity(counts.len());
    let (mut changes, mut clamped) = (Vec::new(), Vec::new());
    for (kind, name, change) in asked {
        let refused = |code, why: &str| Err((code, why.to_owned()));
        let denied = may(access, AclOperation::AlterConfigs, kind)(name).err();
        let outcome = match (counts.remove(&(kind, name)), kind) {
            (None, _) => continue,
            (Some(_), _) if denied.is_some() => {
                refused(denied.unwrap_or(ErrorCode::InvalidRequest), DENIED)
            }
            (Some(2..), _) => refused(ErrorCode::InvalidRequest, TWICE),
            (_, TOPIC) => change.map(|(change, is_clamped)| {
                changes.push((name.to_owned(), change));
                clamped.push(is_clamped);
            }),
            (_, BROKER) => refused(ErrorCode::InvalidRequest, NOT_DYNAMIC),
            _ => refused(ErrorCode::InvalidRequest, NOT_TOPICS),
        };
        altered.push((kind, name, outcome));
    }
    let mode = match validate_only {
        true => ChangeMode::CheckOnly,
        false => ChangeMode::Write,
    };
    let worker = Arc::clone(broker);
    let change = move || {
        let changes = changes.iter();
        let changes: Vec<_> = changes.map(|(name, change)| (&**name, change)).collect();
        worker.topics.alter_configs(&changes, mode)
    };
    let results = tokio::task::spawn_blocking(change).await;
    let mut results = results.unwrap_or_default().into_iter().zip(clamped);
    for (_, name, outcome) in altered.iter_mut().filter(|(_, _, outcome)| outcome.is_ok()) {
        *outcome = match results.next() {
            Some((Ok(()), is_clamped)) => {
                if is_clamped && mode == ChangeMode::Write {
                    tracing::warn!(
                        "topic {name:?} has one replica: min.insync.replicas taken as 1"
                    );
                }
                Ok(())
            }
            Some((Err(error), _)) => Err((code_of(&error), error.to_string())),
            None => Err((ErrorCode::UnknownServerError, String::new())),
        };
        if let Err((_, why)) = outcome {
            tracing::info!("the configuration of topic {name:?} is not changed: {why}");
        }
    }
    altered
}

pub(crate) fn updated<'a>(altered: &'a [Altered<'a>]) -> IncrementalAlterConfigsResponse<'a> {
    let responses = altered.iter().map(|(kind, name, outcome)| {
        let (error_code, error_message) = code_and_message(outcome);
        IncrementalAlterConfigsResponseAlterConfigsResourceResponse {
            error_code,
            error_message,
            resource_type: *kind,
            resource_name: name,
        }
    });
    IncrementalAlterConfigsResponse {
        responses: responses.collect(),
        ..IncrementalAlterConfigsResponse::default()
    }
}

pub(crate) fn replaced<'a>(altered: &'a [Altered<'a>]) -> AlterConfigsResponse<'a> {
    let responses = altered.iter().map(|(kind, name, outcome)| {
        let (error_code, error_message) = code_and_message(outcome);
        AlterConfigsResourceResponse {
            error_code,
            error_message,
            resource_type: *kind,
            resource_name: name,
        }
    });
    AlterConfigsResponse {
        responses: responses.collect(),
        ..AlterConfigsResponse::default()
    }
}

fn code_and_message(outcome: &Result<(), Refused>) -> (i16, Option<&str>) {
    match outcome {
        Ok(()) => (0, None),
        Err((code, why)) => (code.number(), Some(why)),
    }
}
