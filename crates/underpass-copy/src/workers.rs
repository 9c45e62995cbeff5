//! The threads that copy, and how fast they may.

pub(crate) mod pool;
pub(crate) mod throttle;
