//! How a server ends.

pub(crate) mod phase;
pub(crate) mod switch;
