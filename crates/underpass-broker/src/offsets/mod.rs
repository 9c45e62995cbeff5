//! The topic of committed offsets and groups.

pub(crate) mod batch;
pub(crate) mod groups;
pub(crate) mod records;
