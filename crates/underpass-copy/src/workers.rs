//! The threads that copy, and their rate limit.

pub(crate) mod pool;
pub(crate) mod throttle;
