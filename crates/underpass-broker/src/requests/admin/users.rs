//! DescribeUserScramCredentials, AlterUserScramCredentials and DescribeClientQuotas.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use crate::broker::Broker;
use crate::protocol::error_code::{ErrorCode, Refused};
use crate::protocol::tables::alter_user_scram_credentials::{
    AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
};
use crate::protocol::tables::describe_client_quotas::DescribeClientQuotasResponse;
use crate::protocol::tables::describe_user_scram_credentials::{
    DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResponseCredentialInfo, DescribeUserScramCredentialsResult,
};
use crate::security::access::ClientAccess;
use crate::security::acl::AclOperation;
use crate::security::principal::NAME_BYTES_MAX;
use crate::security::scram::{ScramCredential, ScramMechanism};
use crate::security::users::{USERS_MAX, UserCredentials};

const DESCRIBED_TWICE: &str = "the request has this user twice";
const ALTERED_TWICE: &str = "a credential cannot be altered twice in a request";
/// The largest number of changes in a request: each is hashed.
const ALTERED_MAX: usize = 1000;

const DENIED: &str = "the client may not change users";
const NO_USER: &str = "there is no such user";
const NO_CREDENTIAL: &str = "the user has no credential of this mechanism";

/// The users with the iterations of their credentials.
pub(crate) type DescribedUsers = BTreeMap<String, BTreeMap<ScramMechanism, u32>>;

/// Returns all users, those of the file included.
pub(crate) fn all(broker: &Broker) -> DescribedUsers {
    let mut users = DescribedUsers::new();
    // Those of the file come last, because they apply.
    for table in [broker.users.added(), broker.users.of_file()] {
        for (user, credentials) in &*table {
            let credentials = credentials.iter();
            let credentials = credentials.map(|(mechanism, one)| (*mechanism, one.iterations));
            users.entry(user.clone()).or_default().extend(credentials);
        }
    }
    users
}

pub(crate) fn describe<'a>(
    request: &DescribeUserScramCredentialsRequest<'a>,
    users: &'a DescribedUsers,
    access: &ClientAccess,
) -> DescribeUserScramCredentialsResponse<'a> {
    if !access.allows_cluster(AclOperation::Describe) {
        return DescribeUserScramCredentialsResponse {
            error_code: ErrorCode::ClusterAuthorizationFailed.number(),
            error_message: Some("the client may not describe users"),
            ..DescribeUserScramCredentialsResponse::default()
        };
    }
    let asked = request.users.iter().flatten().map(|user| user.name);
    let asked = Vec::from_iter(asked);
    let results = match asked.is_empty() {
        true => users
            .iter()
            .map(|(user, own)| described(user, own))
            .collect(),
        false => {
            let mut counts = BTreeMap::<&str, usize>::new();
            asked
                .iter()
                .for_each(|user| *counts.entry(user).or_default() += 1);
            let results = counts
                .into_iter()
                .map(|(user, count)| match users.get(user) {
                    _ if count > 1 => {
                        refused_user(user, ErrorCode::DuplicateResource, DESCRIBED_TWICE)
                    }
                    Some(own) => described(user, own),
                    None => refused_user(user, ErrorCode::ResourceNotFound, NO_USER),
                });
            results.collect()
        }
    };
    DescribeUserScramCredentialsResponse {
        results,
        ..DescribeUserScramCredentialsResponse::default()
    }
}

fn described<'a>(
    user: &'a str,
    own: &BTreeMap<ScramMechanism, u32>,
) -> DescribeUserScramCredentialsResult<'a> {
    let infos = own.iter().map(|(mechanism, iterations)| {
        DescribeUserScramCredentialsResponseCredentialInfo {
            mechanism: mechanism.number(),
            iterations: i32::try_from(*iterations).unwrap_or(i32::MAX),
        }
    });
    DescribeUserScramCredentialsResult {
        user,
        credential_infos: infos.collect(),
        ..DescribeUserScramCredentialsResult::default()
    }
}

fn refused_user<'a>(
    user: &'a str,
    code: ErrorCode,
    why: &'static str,
) -> DescribeUserScramCredentialsResult<'a> {
    DescribeUserScramCredentialsResult {
        user,
        error_code: code.number(),
        error_message: Some(why),
        ..DescribeUserScramCredentialsResult::default()
    }
}

/// Answers that there are no quotas, which tools ask for before they ask for users.
pub(crate) fn quotas<'a>(access: &ClientAccess) -> DescribeClientQuotasResponse<'a> {
    match access.allows_cluster(AclOperation::DescribeConfigs) {
        true => DescribeClientQuotasResponse {
            entries: Some(Vec::new()),
            ..DescribeClientQuotasResponse::default()
        },
        false => DescribeClientQuotasResponse {
            error_code: ErrorCode::ClusterAuthorizationFailed.number(),
            error_message: Some("the client may not describe quotas"),
            ..DescribeClientQuotasResponse::default()
        },
    }
}

/// A change of a credential: the new one, or none to delete it.
type CredentialChange = (ScramMechanism, Option<ScramCredential>);

/// The results, for each user of a request.
pub(crate) type AlteredUsers<'a> = BTreeMap<&'a str, Result<(), Refused>>;

/// Changes credentials, and answers when that is written. The changes of a user are made together
/// or not at all.
pub(crate) async fn alter<'a>(
    request: &AlterUserScramCredentialsRequest<'a>,
    broker: &Arc<Broker>,
    access: &ClientAccess,
) -> AlteredUsers<'a> {
    let names = request.deletions.iter().map(|one| one.name);
    let names = names.chain(request.upsertions.iter().map(|one| one.name));
    if !access.allows_cluster(AclOperation::Alter) {
        let denied = || Err((ErrorCode::ClusterAuthorizationFailed, DENIED.to_owned()));
        return names.map(|user| (user, denied())).collect();
    }
    let count = request.deletions.len() + request.upsertions.len();
    if count > ALTERED_MAX {
        let why = format!("{count} changes; expected {ALTERED_MAX} at most");
        let refused = || Err((ErrorCode::PolicyViolation, why.clone()));
        return names.map(|user| (user, refused())).collect();
    }
    let deletions = request.deletions.iter().map(|one| {
        let change = mechanism(one.mechanism).map(|mechanism| (mechanism, None));
        (one.name, change)
    });
    let upsertions = request.upsertions.iter().map(|one| {
        let change = mechanism(one.mechanism).and_then(|mechanism| {
            let iterations = ScramCredential::check(one.iterations, one.salt);
            let iterations = iterations.map_err(unacceptable)?;
            if one.salted_password.len() != mechanism.hash_bytes() {
                return Err(unacceptable(
                    "the salted password has another length".to_owned(),
                ));
            }
            let (salt, salted) = (one.salt, one.salted_password);
            let credential = ScramCredential::of_salted(mechanism, iterations, salt, salted);
            Ok((mechanism, Some(credential)))
        });
        (one.name, change)
    });
    let mut changes = BTreeMap::<&str, Vec<Result<CredentialChange, Refused>>>::new();
    for (user, change) in deletions.chain(upsertions) {
        changes.entry(user).or_default().push(change);
    }
    let of_file = broker.users.of_file();
    let checked = changes.into_iter().map(|(user, changes)| {
        let changes = checked(user, changes, &of_file);
        (user, changes)
    });
    let (names, checked): (Vec<_>, Vec<_>) = checked.unzip();
    let owned = names.iter().map(|name| (*name).to_owned()).collect();
    let worker = Arc::clone(broker);
    let write = move || {
        let publish = |users| worker.users.set_added(users);
        worker
            .topics
            .change_users(|users| applied(users, owned, checked), publish)
    };
    let written = tokio::task::spawn_blocking(write).await;
    let results = match written {
        Ok(Ok(results)) => results,
        Ok(Err(error)) => {
            tracing::warn!("users cannot be changed: {error}");
            let failed = (ErrorCode::KafkaStorageError, error.to_string());
            vec![Err(failed); names.len()]
        }
        Err(_) => vec![Err((ErrorCode::UnknownServerError, String::new())); names.len()],
    };
    names.into_iter().zip(results).collect()
}

fn mechanism(number: i8) -> Result<ScramMechanism, Refused> {
    let unknown = || {
        (
            ErrorCode::UnsupportedSaslMechanism,
            "unknown mechanism".to_owned(),
        )
    };
    ScramMechanism::numbered(number).ok_or_else(unknown)
}

fn unacceptable(why: String) -> Refused {
    (ErrorCode::UnacceptableCredential, why)
}

/// Checks the changes of a user with each other.
fn checked(
    user: &str,
    changes: Vec<Result<CredentialChange, Refused>>,
    of_file: &UserCredentials,
) -> Result<Vec<CredentialChange>, Refused> {
    if user.is_empty() || user.len() > NAME_BYTES_MAX || user.contains('\0') {
        return Err(unacceptable(
            "the name is empty, too long or has a NUL".to_owned(),
        ));
    }
    let changes: Vec<CredentialChange> = changes.into_iter().collect::<Result<_, _>>()?;
    let mechanisms: HashSet<i8> = changes.iter().map(|(one, _)| one.number()).collect();
    if mechanisms.len() < changes.len() {
        return Err((ErrorCode::DuplicateResource, ALTERED_TWICE.to_owned()));
    }
    match of_file.contains_key(user) {
        true => {
            let why = "the user is in the file of users: change it there".to_owned();
            Err((ErrorCode::PolicyViolation, why))
        }
        false => Ok(changes),
    }
}

/// Makes the changes of each user.
fn applied(
    users: &mut UserCredentials,
    names: Vec<String>,
    changes: Vec<Result<Vec<CredentialChange>, Refused>>,
) -> Vec<Result<(), Refused>> {
    let results = names.into_iter().zip(changes).map(|(user, changes)| {
        let changes = changes?;
        let mut own = users.get(&user).cloned().unwrap_or_default();
        for (mechanism, change) in changes {
            match change {
                Some(credential) => drop(own.insert(mechanism, credential)),
                None if own.remove(&mechanism).is_none() => {
                    return Err((ErrorCode::ResourceNotFound, NO_CREDENTIAL.to_owned()));
                }
                None => {}
            }
        }
        if !users.contains_key(&user) && users.len() >= USERS_MAX {
            let why = format!("there are {USERS_MAX} users");
            return Err((ErrorCode::PolicyViolation, why));
        }
        match own.is_empty() {
            true => drop(users.remove(&user)),
            false => drop(users.insert(user, own)),
        }
        Ok(())
    });
    results.collect()
}

pub(crate) fn altered<'a>(results: &'a AlteredUsers<'a>) -> AlterUserScramCredentialsResponse<'a> {
    let results = results.iter().map(|(user, result)| {
        let refused = result.as_ref().err();
        AlterUserScramCredentialsResult {
            user,
            error_code: refused.map_or(0, |(code, _)| code.number()),
            error_message: refused.map(|(_, why)| &**why),
        }
    });
    AlterUserScramCredentialsResponse {
        results: results.collect(),
        ..AlterUserScramCredentialsResponse::default()
    }
}
