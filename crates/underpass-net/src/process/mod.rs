//! Rights, descriptors, signals and the service manager of the process.

pub(crate) mod confine;
pub(crate) mod notify;
pub(crate) mod resources;
pub(crate) mod signals;
pub(crate) mod user;
