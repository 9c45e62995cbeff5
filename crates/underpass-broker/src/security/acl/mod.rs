//! Access control lists with Kafka's meaning: who may do what with which resource, from where.

mod binding;
mod filter;
mod table;

pub(crate) use binding::{Acl, AclOperation, CLUSTER, PatternType, Permission, ResourceType};
pub(crate) use filter::{AclFilter, FilterFields};
pub(crate) use table::{AclTable, Decision, Requester};
