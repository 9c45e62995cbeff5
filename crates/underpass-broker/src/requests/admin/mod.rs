//! Requests of administrators: to describe the cluster, and to change it.

pub(crate) mod acls;
pub(crate) mod cluster;
pub(crate) mod configs;
pub(crate) mod groups;
pub(crate) mod partitions;
pub(crate) mod replicas;
pub(crate) mod users;
