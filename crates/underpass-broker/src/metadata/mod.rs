//! The topics, and the file that stores them.

pub(crate) mod broker_configs;
pub(crate) mod changes;
pub(crate) mod configs;
pub(crate) mod file;
pub(crate) mod names;
pub(crate) mod security;
pub(crate) mod topic_id;
pub(crate) mod topics;
