//! Requests over the wire: those of administrators, logins and rights, fetch sessions, hostile
//! ones, all kinds of them damaged, and a broker that is killed.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod admin;
mod compaction;
mod hostile;
mod kills;
mod requests;
mod security;
mod sessions;
#[path = "../support/mod.rs"]
mod support;

use kafka_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use kafka_protocol::messages::{CreateTopicsRequest, GroupId};
use kafka_protocol::protocol::StrBytes;

use crate::support::client::{Client, topic_name};

/// The memory limit of an unoptimized broker without large requests, in bytes.
const MEMORY_MAX: usize = 128 << 20;

fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

fn group(id: &str) -> GroupId {
    GroupId(text(id))
}

/// Creates a topic with these values of its own.
#[track_caller]
fn create(client: &mut Client, name: &str, partitions: i32, configs: &[(&str, &str)]) {
    let configs = configs.iter().map(|(name, value)| {
        CreatableTopicConfig::default()
            .with_name(text(name))
            .with_value(Some(text(value)))
    });
    let topic = CreatableTopic::default()
        .with_name(topic_name(name))
        .with_num_partitions(partitions)
        .with_replication_factor(1)
        .with_configs(configs.collect());
    let request = CreateTopicsRequest::default().with_topics(vec![topic]);
    assert_eq!(client.ask(7, &request).topics[0].error_code, 0);
}

/// The broker of the other tests.
#[test]
fn broker_process() {
    support::broker::run_if_asked();
}
