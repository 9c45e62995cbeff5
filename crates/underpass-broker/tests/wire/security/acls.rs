//! Access rules that clients add, look for and remove.

use kafka_protocol::messages::create_acls_request::AclCreation;
use kafka_protocol::messages::delete_acls_request::DeleteAclsFilter;
use kafka_protocol::messages::{CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest};

use super::{AUTHORIZER, CLUSTER_AUTHORIZATION_FAILED, start, start_in};
use crate::support::broker::BrokerProcess;
use crate::support::client::Client;
use crate::text;

const INVALID_REQUEST: i16 = 42;
const POLICY_VIOLATION: i16 = 44;
const SECURITY_DISABLED: i16 = 54;

/// The numbers of types and operations.
pub(super) const TOPIC: i8 = 2;
pub(super) const GROUP: i8 = 3;
pub(super) const CLUSTER: i8 = 4;
pub(super) const TRANSACTION: i8 = 5;
pub(super) const LITERAL: i8 = 3;
const PREFIXED: i8 = 4;
const ANY: i8 = 1;
const MATCH: i8 = 2;
const READ: i8 = 3;
const DENY: i8 = 2;
pub(super) const ALLOW: i8 = 3;

/// A rule that allows a user an operation on a resource.
pub(super) fn allow(user: &str, (resource, name): (i8, &str), operation: i8) -> AclCreation {
    AclCreation::default()
        .with_resource_type(resource)
        .with_resource_name(text(name))
        .with_resource_pattern_type(LITERAL)
        .with_principal(text(&format!("User:{user}")))
        .with_host(text("*"))
        .with_operation(operation)
        .with_permission_type(ALLOW)
}

/// Adds rules; returns the error codes.
pub(super) fn create(client: &mut Client, rules: Vec<AclCreation>) -> Vec<i16> {
    let request = CreateAclsRequest::default().with_creations(rules);
    let results = client.ask(2, &request).results.into_iter();
    results.map(|result| result.error_code).collect()
}

fn everything() -> DeleteAclsFilter {
    DeleteAclsFilter::default()
        .with_resource_type_filter(ANY)
        .with_resource_name_filter(None)
        .with_pattern_type_filter(ANY)
        .with_principal_filter(None)
        .with_host_filter(None)
        .with_operation(ANY)
        .with_permission_type(ANY)
}

/// Removes rules; returns the error code and the number of removed ones of each filter.
pub(super) fn delete(client: &mut Client, filters: Vec<DeleteAclsFilter>) -> Vec<(i16, usize)> {
    let request = DeleteAclsRequest::default().with_filters(filters);
    let results = client.ask(2, &request).filter_results.into_iter();
    results
        .map(|result| (result.error_code, result.matching_acls.len()))
        .collect()
}

pub(super) fn delete_all(client: &mut Client) {
    assert_eq!(delete(client, vec![everything()])[0].0, 0);
}

/// Returns the error code, and the resources that have rules with their number.
fn describe(client: &mut Client, filter: &DeleteAclsFilter) -> (i16, Vec<(String, usize)>) {
    let request = DescribeAclsRequest::default()
        .with_resource_type_filter(filter.resource_type_filter)
        .with_resource_name_filter(filter.resource_name_filter.clone())
        .with_pattern_type_filter(filter.pattern_type_filter)
        .with_principal_filter(filter.principal_filter.clone())
        .with_host_filter(filter.host_filter.clone())
        .with_operation(filter.operation)
        .with_permission_type(filter.permission_type);
    let response = client.ask(2, &request);
    let resources = response.resources.iter();
    let resources = resources.map(|one| (one.resource_name.to_string(), one.acls.len()));
    (response.error_code, resources.collect())
}

pub(super) fn as_user(broker: &BrokerProcess, user: &str, password: &str) -> Client {
    let mut client = broker.connect();
    assert_eq!(client.log_in(user, password), 0);
    client
}

#[test]
fn rules_are_added_found_and_removed() {
    let broker = start(AUTHORIZER);
    let mut admin = as_user(&broker, "anna", "secret");
    let orders = allow("ben", (TOPIC, "orders"), READ);
    let rules = vec![
        orders.clone(),
        orders.clone().with_host(text("10.0.0.1")),
        orders.clone().with_permission_type(DENY),
        orders
            .clone()
            .with_resource_pattern_type(PREFIXED)
            .with_resource_name(text("ord")),
        allow("*", (GROUP, "*"), READ),
        orders,
    ];
    assert_eq!(create(&mut admin, rules), [0; 6]);
    let name = |name: &str| everything().with_resource_name_filter(Some(text(name)));
    let of = |counts: &[(&str, usize)]| {
        let counts = counts
            .iter()
            .map(|(name, count)| ((*name).to_owned(), *count));
        (0, counts.collect::<Vec<_>>())
    };
    for (filter, expected) in [
        (everything(), of(&[("orders", 3), ("ord", 1), ("*", 1)])),
        (name("orders"), of(&[("orders", 3)])),
        (
            name("orders").with_pattern_type_filter(MATCH),
            of(&[("orders", 3), ("ord", 1), ("*", 1)]),
        ),
        (
            everything().with_permission_type(DENY),
            of(&[("orders", 1)]),
        ),
        (
            everything().with_principal_filter(Some(text("User:*"))),
            of(&[("*", 1)]),
        ),
        (
            everything().with_host_filter(Some(text("10.0.0.1"))),
            of(&[("orders", 1)]),
        ),
        (everything().with_operation(4), of(&[])),
    ] {
        assert_eq!(describe(&mut admin, &filter), expected, "{filter:?}");
    }
    let folder = broker.kill();
    let broker = start_in(folder, AUTHORIZER);
    let mut admin = as_user(&broker, "anna", "secret");
    let expected = of(&[("orders", 3), ("ord", 1), ("*", 1)]);
    assert_eq!(
        describe(&mut admin, &everything()),
        expected,
        "after a restart"
    );
    let filters = vec![
        name("orders").with_permission_type(DENY),
        name("orders"),
        name("orders"),
        everything().with_resource_type_filter(0),
        everything().with_resource_type_filter(GROUP),
    ];
    let deleted = delete(&mut admin, filters);
    assert_eq!(
        deleted,
        [(0, 1), (0, 2), (0, 0), (INVALID_REQUEST, 0), (0, 1)]
    );
    assert_eq!(describe(&mut admin, &everything()), of(&[("ord", 1)]));
    broker.stop();
}

#[test]
fn rules_that_are_not_valid_are_refused_and_others_are_added() {
    let broker = start(AUTHORIZER);
    let mut admin = as_user(&broker, "anna", "secret");
    let good = || allow("ben", (TOPIC, "orders"), READ);
    let long = "x".repeat(2000);
    let bad = vec![
        good().with_resource_type(1),
        good().with_resource_type(8),
        good().with_resource_name(text("")),
        good().with_resource_name(text(&long)),
        good().with_resource_pattern_type(ANY),
        good().with_resource_pattern_type(MATCH),
        good().with_principal(text("ben")),
        good().with_principal(text(":ben")),
        good().with_principal(text("User:")),
        good().with_host(text("")),
        good().with_operation(ANY),
        good().with_operation(0),
        good().with_permission_type(ANY),
        allow("ben", (CLUSTER, "orders"), READ),
    ];
    let count = bad.len();
    let codes = create(&mut admin, [bad, vec![good()]].concat());
    assert_eq!(codes[..count], vec![INVALID_REQUEST; count]);
    assert_eq!(codes[count], 0);
    assert_eq!(
        describe(&mut admin, &everything()).1,
        [("orders".to_owned(), 1)]
    );
    let unknown = everything().with_pattern_type_filter(0);
    assert_eq!(describe(&mut admin, &unknown).0, INVALID_REQUEST);
    broker.stop();
}

#[test]
fn rules_have_a_limit_and_so_have_filters() {
    let broker = start(AUTHORIZER);
    let mut admin = as_user(&broker, "anna", "secret");
    let rule = |number: usize| allow("ben", (TOPIC, &number.to_string()), READ);
    let rules = |numbers: std::ops::Range<usize>| numbers.map(rule).collect::<Vec<_>>();
    assert_eq!(create(&mut admin, rules(0..10_000)), vec![0; 10_000]);
    assert_eq!(
        create(&mut admin, rules(9_999..10_001)),
        [POLICY_VIOLATION; 2]
    );
    assert_eq!(
        create(&mut admin, rules(100_000..200_000)),
        vec![POLICY_VIOLATION; 100_000]
    );
    assert_eq!(describe(&mut admin, &everything()).1.len(), 10_000);
    let many = delete(&mut admin, vec![everything(); 1001]);
    assert_eq!(many, vec![(POLICY_VIOLATION, 0); 1001]);
    let mut ben = as_user(&broker, "ben", "0ther");
    assert_eq!(
        ben.fetch("9999", 0, 0).responses[0].partitions[0].error_code,
        3
    );
    assert_eq!(delete(&mut admin, vec![everything()]), [(0, 10_000)]);
    assert_eq!(
        ben.fetch("9999", 0, 0).responses[0].partitions[0].error_code,
        29
    );
    broker.stop();
}

#[test]
fn without_an_authorizer_there_are_no_rules() {
    let broker = BrokerProcess::start();
    let mut client = broker.connect();
    assert_eq!(describe(&mut client, &everything()).0, SECURITY_DISABLED);
    let rule = allow("ben", (TOPIC, "orders"), READ);
    assert_eq!(create(&mut client, vec![rule]), [SECURITY_DISABLED]);
    assert_eq!(
        delete(&mut client, vec![everything()]),
        [(SECURITY_DISABLED, 0)]
    );
    client.behave();
    broker.stop();
}

#[test]
fn clients_without_a_login_are_anonymous() {
    let config = "[authorizer]\n\"super.users\" = ['User:ANONYMOUS']\n";
    let folder = tempfile::tempdir().unwrap();
    let broker = BrokerProcess::start_with(folder, config);
    let mut client = broker.connect();
    client.behave();
    let folder = broker.kill();
    let broker = BrokerProcess::start_with(folder, "[authorizer]\n");
    let mut client = broker.connect();
    assert_eq!(
        client
            .produce("good", 0, crate::support::batch::batch(1, 10))
            .0,
        29
    );
    assert_eq!(
        describe(&mut client, &everything()).0,
        CLUSTER_AUTHORIZATION_FAILED
    );
    let folder = broker.kill();
    let open = "[authorizer]\n\"allow.everyone.if.no.acl.found\" = true\n";
    let broker = BrokerProcess::start_with(folder, open);
    let mut client = broker.connect();
    client.behave();
    let deny = allow("*", (TOPIC, "good"), 4).with_permission_type(DENY);
    assert_eq!(create(&mut client, vec![deny]), [0]);
    assert_eq!(
        client
            .produce("good", 0, crate::support::batch::batch(1, 10))
            .0,
        29
    );
    client.create_topic("other");
    assert_eq!(
        client
            .produce("other", 0, crate::support::batch::batch(1, 10))
            .0,
        0
    );
    broker.stop();
}
