//! Rounds: in which order contenders run, which of them drop out, and what their figures show.

pub(crate) mod contenders;
pub(crate) mod interleave;
pub(crate) mod metric;
pub(crate) mod progress;
pub(crate) mod runner;
