//! Users that clients add, change and remove.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use bytes::Bytes;
use kafka_protocol::messages::alter_user_scram_credentials_request::{
    ScramCredentialDeletion, ScramCredentialUpsertion,
};
use kafka_protocol::messages::describe_user_scram_credentials_request::UserName;
use kafka_protocol::messages::{
    AlterUserScramCredentialsRequest, DescribeUserScramCredentialsRequest,
};
use sha2::Sha256;

use super::{SASL_AUTHENTICATION_FAILED, start, start_in};
use crate::support::client::Client;
use crate::text;

const UNSUPPORTED_SASL_MECHANISM: i16 = 33;
const POLICY_VIOLATION: i16 = 44;
const RESOURCE_NOT_FOUND: i16 = 91;
const DUPLICATE_RESOURCE: i16 = 92;
const UNACCEPTABLE_CREDENTIAL: i16 = 93;

/// The salt of all passwords.
const SALT: &[u8] = b"0123456789abcdef";

fn upsertion(user: &str, password: &str, iterations: i32) -> ScramCredentialUpsertion {
    let mut salted = [0; 32];
    let count = iterations.unsigned_abs();
    pbkdf2::pbkdf2_hmac::<Sha256>(password.as_bytes(), SALT, count, &mut salted);
    ScramCredentialUpsertion::default()
        .with_name(text(user))
        .with_mechanism(1)
        .with_iterations(iterations)
        .with_salt(Bytes::from_static(SALT))
        .with_salted_password(Bytes::copy_from_slice(&salted))
}

fn deletion(user: &str) -> ScramCredentialDeletion {
    ScramCredentialDeletion::default()
        .with_name(text(user))
        .with_mechanism(1)
}

/// Changes users; returns their error codes.
fn alter(
    client: &mut Client,
    upsertions: Vec<ScramCredentialUpsertion>,
    deletions: Vec<ScramCredentialDeletion>,
) -> Vec<(String, i16)> {
    let request = AlterUserScramCredentialsRequest::default()
        .with_upsertions(upsertions)
        .with_deletions(deletions);
    let results = client.ask(0, &request).results.into_iter();
    results
        .map(|one| (one.user.to_string(), one.error_code))
        .collect()
}

/// A user with an error code, or mechanisms and their iterations.
type DescribedUser = (String, i16, Vec<(i8, i32)>);

/// Describes users.
fn describe(client: &mut Client, users: &[&str]) -> Vec<DescribedUser> {
    let users = users
        .iter()
        .map(|user| UserName::default().with_name(text(user)));
    let request = DescribeUserScramCredentialsRequest::default().with_users(Some(users.collect()));
    let response = client.ask(0, &request);
    assert_eq!(response.error_code, 0);
    let results = response.results.into_iter().map(|one| {
        let infos = one.credential_infos.iter();
        let infos = infos.map(|info| (info.mechanism, info.iterations));
        (one.user.to_string(), one.error_code, infos.collect())
    });
    results.collect()
}

fn as_anna(broker: &crate::support::broker::BrokerProcess) -> Client {
    let mut client = broker.connect();
    assert_eq!(client.log_in("anna", "secret"), 0);
    client
}

#[test]
fn users_that_clients_add_log_in_until_they_are_removed() {
    let broker = start("");
    let mut admin = as_anna(&broker);
    let altered = alter(&mut admin, vec![upsertion("carl", "third", 4096)], vec![]);
    assert_eq!(altered, [("carl".to_owned(), 0)]);
    for (password, code) in [("third", 0), ("secret", SASL_AUTHENTICATION_FAILED)] {
        assert_eq!(broker.connect().log_in("carl", password), code);
        assert_eq!(broker.connect().log_in_plainly("carl", password), code);
    }
    let described = describe(&mut admin, &[]);
    let both = vec![(1, 8192), (2, 8192)];
    let expected = [
        ("anna".to_owned(), 0, both.clone()),
        ("ben".to_owned(), 0, both),
        ("carl".to_owned(), 0, vec![(1, 4096)]),
    ];
    assert_eq!(described, expected);
    let folder = broker.kill();
    let file = folder.path().join("underpass-metadata.json");
    let mode = fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "others could guess the passwords");
    assert!(!fs::read_to_string(&file).unwrap().contains("third"));
    let broker = start_in(folder, "");
    assert_eq!(broker.connect().log_in("carl", "third"), 0);
    let mut admin = as_anna(&broker);
    let altered = alter(
        &mut admin,
        vec![upsertion("carl", "fourth", 16_384)],
        vec![],
    );
    assert_eq!(altered, [("carl".to_owned(), 0)]);
    assert_eq!(
        broker.connect().log_in("carl", "third"),
        SASL_AUTHENTICATION_FAILED
    );
    assert_eq!(
        broker.connect().log_in_plainly("carl", "third"),
        SASL_AUTHENTICATION_FAILED
    );
    assert_eq!(broker.connect().log_in("carl", "fourth"), 0);
    let altered = alter(&mut admin, vec![], vec![deletion("carl")]);
    assert_eq!(altered, [("carl".to_owned(), 0)]);
    assert_eq!(
        broker.connect().log_in("carl", "fourth"),
        SASL_AUTHENTICATION_FAILED
    );
    assert_eq!(
        broker.connect().log_in_plainly("carl", "fourth"),
        SASL_AUTHENTICATION_FAILED
    );
    let (_, log) = broker.stop_and_read();
    for secret in ["third", "fourth"] {
        assert!(!log.contains(secret), "{log}");
    }
}

#[test]
fn changes_of_users_that_cannot_be_made_are_refused_as_by_kafka() {
    let broker = start("");
    let mut admin = as_anna(&broker);
    let good = || upsertion("carl", "third", 4096);
    for (upsertions, deletions, code) in [
        (
            vec![upsertion("carl", "x", 4095)],
            vec![],
            UNACCEPTABLE_CREDENTIAL,
        ),
        (
            vec![upsertion("carl", "x", 16_385)],
            vec![],
            UNACCEPTABLE_CREDENTIAL,
        ),
        (
            vec![upsertion("carl", "x", -1)],
            vec![],
            UNACCEPTABLE_CREDENTIAL,
        ),
        (
            vec![good().with_salt(Bytes::new())],
            vec![],
            UNACCEPTABLE_CREDENTIAL,
        ),
        (
            vec![good().with_salted_password(Bytes::new())],
            vec![],
            UNACCEPTABLE_CREDENTIAL,
        ),
        (
            vec![good().with_mechanism(3)],
            vec![],
            UNSUPPORTED_SASL_MECHANISM,
        ),
        (vec![good(), good()], vec![], DUPLICATE_RESOURCE),
        (vec![good()], vec![deletion("carl")], DUPLICATE_RESOURCE),
        (
            vec![good().with_name(text(""))],
            vec![],
            UNACCEPTABLE_CREDENTIAL,
        ),
        (
            vec![good().with_name(text("anna"))],
            vec![],
            POLICY_VIOLATION,
        ),
        (vec![], vec![deletion("anna")], POLICY_VIOLATION),
        (vec![], vec![deletion("carl")], RESOURCE_NOT_FOUND),
        (
            vec![],
            vec![deletion("carl").with_mechanism(0)],
            UNSUPPORTED_SASL_MECHANISM,
        ),
    ] {
        let shown = format!("{upsertions:?} {deletions:?}");
        let altered = alter(&mut admin, upsertions, deletions);
        assert_eq!(altered.len(), 1, "{shown}");
        assert_eq!(altered[0].1, code, "{shown}");
    }
    let mixed = alter(&mut admin, vec![good()], vec![deletion("dora")]);
    assert_eq!(
        mixed,
        [
            ("carl".to_owned(), 0),
            ("dora".to_owned(), RESOURCE_NOT_FOUND)
        ]
    );
    let codes = describe(&mut admin, &["carl", "dora", "ben", "ben"]);
    let codes: Vec<_> = codes
        .into_iter()
        .map(|(user, code, _)| (user, code))
        .collect();
    let expected = [
        ("ben".to_owned(), DUPLICATE_RESOURCE),
        ("carl".to_owned(), 0),
        ("dora".to_owned(), RESOURCE_NOT_FOUND),
    ];
    assert_eq!(codes, expected);
    broker.stop();
}
