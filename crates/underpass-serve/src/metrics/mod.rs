//! What workers count.

pub(crate) mod board;
pub(crate) mod tally;
