//! Access rules, with Kafka's numbers for their parts.

use serde::{Deserialize, Serialize};

/// The name of the only resource of the type cluster.
pub(crate) const CLUSTER: &str = "kafka-cluster";

/// Defines an enum with Kafka's numbers and names.
macro_rules! numbered {
    ($(#[$meta:meta])* $name:ident { $($(#[$of:meta])* $variant:ident = $number:literal,)* }) => {
        $(#[$meta])*
        #[derive(
            Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize,
        )]
        #[serde(rename_all = "SCREAMING_SNAKE_CASE")]
        pub(crate) enum $name {
            $($(#[$of])* $variant = $number,)*
        }

        impl $name {
            #[cfg(test)]
            #[allow(dead_code, reason = "not of every type")]
            pub(crate) const ALL: &[$name] = &[$($name::$variant,)*];

            pub(crate) fn number(self) -> i8 {
                self as i8
            }

            pub(crate) fn numbered(number: i8) -> Option<$name> {
                match number {
                    $($number => Some($name::$variant),)*
                    _ => None,
                }
            }
        }
    };
}

numbered! {
    /// The type of a resource.
    ResourceType {
        Topic = 2,
        Group = 3,
        Cluster = 4,
        TransactionalId = 5,
        DelegationToken = 6,
        User = 7,
    }
}

numbered! {
    /// The meaning of the name in a rule.
    PatternType {
        /// The name, or `*` for all.
        Literal = 3,
        /// All names that start with it.
        Prefixed = 4,
    }
}

numbered! {
    /// An operation, or all of them.
    AclOperation {
        All = 2,
        Read = 3,
        Write = 4,
        Create = 5,
        Delete = 6,
        Alter = 7,
        Describe = 8,
        ClusterAction = 9,
        DescribeConfigs = 10,
        AlterConfigs = 11,
        IdempotentWrite = 12,
        CreateTokens = 13,
        DescribeTokens = 14,
        TwoPhaseCommit = 15,
    }
}

numbered! {
    /// Whether a rule allows or denies.
    Permission {
        Deny = 2,
        Allow = 3,
    }
}

/// A rule.
#[derive(Clone, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Acl {
    pub(crate) resource: ResourceType,
    pub(crate) pattern: PatternType,
    pub(crate) name: String,
    /// A principal, or `User:*` for all.
    pub(crate) principal: String,
    /// An address, or `*` for all.
    pub(crate) host: String,
    pub(crate) operation: AclOperation,
    pub(crate) permission: Permission,
}

/// The longest name, principal or host in a rule, in bytes.
const TEXT_BYTES_MAX: usize = 1024;

impl Acl {
    /// Checks a rule that a client wants to add.
    ///
    /// # Errors
    /// The reason why it is refused.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.name.is_empty() {
            return Err("invalid empty resource name".to_owned());
        }
        if self.resource == ResourceType::Cluster && self.name != CLUSTER {
            return Err(format!(
                "the only name of the resource CLUSTER is {CLUSTER}"
            ));
        }
        if !self
            .principal
            .split_once(':')
            .is_some_and(|(kind, name)| !kind.is_empty() && !name.is_empty())
        {
            return Err(format!(
                "{:?} is no principal: expected a type, a colon and a name",
                self.principal
            ));
        }
        if self.host.is_empty() {
            return Err("invalid empty host".to_owned());
        }
        let texts = [&self.name, &self.principal, &self.host];
        match texts.into_iter().any(|text| text.len() > TEXT_BYTES_MAX) {
            true => Err(format!("a text has more than {TEXT_BYTES_MAX} bytes")),
            false => Ok(()),
        }
    }
}
