//! What concerns the process as a whole: its rights, its descriptors, its signals, its service
//! manager.

pub(crate) mod confine;
pub(crate) mod notify;
pub(crate) mod resources;
pub(crate) mod signals;
pub(crate) mod user;
