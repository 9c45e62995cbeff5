//! The operations that clients are told they may do: all, since there are no ACLs.

/// Bits by the codes of Kafka's `AclOperation`.
const READ: i32 = 1 << 3;
const WRITE: i32 = 1 << 4;
const CREATE: i32 = 1 << 5;
const DELETE: i32 = 1 << 6;
const ALTER: i32 = 1 << 7;
const DESCRIBE: i32 = 1 << 8;
const CLUSTER_ACTION: i32 = 1 << 9;
const DESCRIBE_CONFIGS: i32 = 1 << 10;
const ALTER_CONFIGS: i32 = 1 << 11;
const IDEMPOTENT_WRITE: i32 = 1 << 12;

/// The value for operations that the client has not asked for.
const NOT_ASKED: i32 = i32::MIN;

pub(crate) fn of_cluster(is_asked: bool) -> i32 {
    let operations = CREATE | ALTER | DESCRIBE | CLUSTER_ACTION | IDEMPOTENT_WRITE;
    asked(is_asked, operations | DESCRIBE_CONFIGS | ALTER_CONFIGS)
}

pub(crate) fn of_topic(is_asked: bool) -> i32 {
    let operations = READ | WRITE | CREATE | DELETE | ALTER | DESCRIBE;
    asked(is_asked, operations | DESCRIBE_CONFIGS | ALTER_CONFIGS)
}

pub(crate) fn of_group(is_asked: bool) -> i32 {
    let operations = READ | DELETE | DESCRIBE;
    asked(is_asked, operations | DESCRIBE_CONFIGS | ALTER_CONFIGS)
}

fn asked(is_asked: bool, operations: i32) -> i32 {
    match is_asked {
        true => operations,
        false => NOT_ASKED,
    }
}
