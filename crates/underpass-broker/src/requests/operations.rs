//! The operations that clients are told they may do.

use crate::security::access::ClientAccess;
use crate::security::acl::AclOperation::{self, *};
use crate::security::acl::{CLUSTER, ResourceType};

/// The operations on each type of resource.
const OF_CLUSTER: [AclOperation; 7] = [
    Create,
    Alter,
    Describe,
    ClusterAction,
    DescribeConfigs,
    AlterConfigs,
    IdempotentWrite,
];
const OF_TOPIC: [AclOperation; 8] = [
    Read,
    Write,
    Create,
    Delete,
    Alter,
    Describe,
    DescribeConfigs,
    AlterConfigs,
];
const OF_GROUP: [AclOperation; 5] = [Read, Delete, Describe, DescribeConfigs, AlterConfigs];

/// The value for operations that the client has not asked for.
const NOT_ASKED: i32 = i32::MIN;

/// Returns the operations on the cluster; none if the client may not describe it, as in Kafka.
pub(crate) fn of_cluster(is_asked: bool, access: &ClientAccess) -> i32 {
    match is_asked && !access.allows_cluster(Describe) {
        true => 0,
        false => asked(is_asked, &OF_CLUSTER, |one| {
            access.allows(one, ResourceType::Cluster, CLUSTER)
        }),
    }
}

pub(crate) fn of_topic(is_asked: bool, access: &ClientAccess, name: &str) -> i32 {
    asked(is_asked, &OF_TOPIC, |one| access.allows_topic(one, name))
}

pub(crate) fn of_group(is_asked: bool, access: &ClientAccess, name: &str) -> i32 {
    asked(is_asked, &OF_GROUP, |one| access.allows_group(one, name))
}

/// Returns a bit for each allowed operation.
fn asked(
    is_asked: bool,
    operations: &[AclOperation],
    is_allowed: impl Fn(AclOperation) -> bool,
) -> i32 {
    if !is_asked {
        return NOT_ASKED;
    }
    let allowed = operations.iter().filter(|one| is_allowed(**one));
    allowed.fold(0, |bits, one| bits | 1 << one.number())
}
