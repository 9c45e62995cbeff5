//! Topics: what there is, and the file that remembers it.

pub(crate) mod configs;
pub(crate) mod file;
pub(crate) mod names;
pub(crate) mod topic_id;
pub(crate) mod topics;
