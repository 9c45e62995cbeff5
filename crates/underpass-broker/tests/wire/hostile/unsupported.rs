//! Requests that this broker does not support: the client gets a reason, and the log a warning.

use kafka_protocol::messages::{FindCoordinatorRequest, InitProducerIdRequest, TransactionalId};

use crate::support::broker::BrokerProcess;
use crate::support::client::raw;

const INVALID_REQUEST: i16 = 42;
const TRANSACTIONAL_ID_AUTHORIZATION_FAILED: i16 = 53;
const DESCRIBE_PRODUCERS: i16 = 61;
const ALTER_CLIENT_QUOTAS: i16 = 49;

#[test]
fn requests_that_are_not_there_are_logged_once_per_client() {
    let broker = BrokerProcess::start();
    for key in [
        DESCRIBE_PRODUCERS,
        DESCRIBE_PRODUCERS,
        ALTER_CLIENT_QUOTAS,
        DESCRIBE_PRODUCERS,
    ] {
        let mut client = broker.connect();
        client.send(&raw(key, 1, &[0; 20]));
        client.expect_end();
    }
    // Another client at the same address.
    let mut other = raw(DESCRIBE_PRODUCERS, 1, &[0; 20]);
    other[10] = b'd';
    let mut client = broker.connect();
    client.send(&other);
    client.expect_end();
    let (_, log) = broker.stop_and_read();
    let warnings = |what: &str| {
        let warned = |line: &&str| line.contains("WARN") && line.contains(what);
        log.lines().filter(warned).count()
    };
    assert_eq!(
        warnings("client \"c\": DescribeProducers (request 61)"),
        1,
        "{log}"
    );
    assert_eq!(
        warnings("client \"c\": AlterClientQuotas (request 49)"),
        1,
        "{log}"
    );
    assert_eq!(
        warnings("client \"d\": DescribeProducers (request 61)"),
        1,
        "{log}"
    );
}

#[test]
fn clients_with_transactions_learn_that_there_are_none() {
    let broker = BrokerProcess::start();
    let mut client = broker.connect();
    let request = FindCoordinatorRequest::default()
        .with_key("x".into())
        .with_key_type(1);
    for version in [1, 2, 3] {
        let found = client.ask(version, &request);
        assert_eq!(found.error_code, TRANSACTIONAL_ID_AUTHORIZATION_FAILED);
        let message = found.error_message.expect("a reason");
        assert!(
            message.contains("transactions are not supported"),
            "{message}"
        );
    }
    let request = FindCoordinatorRequest::default()
        .with_coordinator_keys(vec!["x".into()])
        .with_key_type(1);
    for version in [4, 5, 6] {
        let found = client.ask(version, &request).coordinators.remove(0);
        assert_eq!(found.error_code, INVALID_REQUEST);
        let message = found.error_message.expect("a reason");
        assert!(
            message.contains("transactions are not supported"),
            "{message}"
        );
    }
    let id = Some(TransactionalId("x".into()));
    let request = InitProducerIdRequest::default().with_transactional_id(id);
    assert_eq!(client.ask(4, &request).error_code, INVALID_REQUEST);
    let (_, log) = broker.stop_and_read();
    let warned = |line: &&str| line.contains("WARN") && line.contains("transactions are not");
    assert_eq!(log.lines().filter(warned).count(), 1, "{log}");
}
