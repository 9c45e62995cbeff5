//! Rounds: in which order contenders run, who drops out, and what the figures show.

pub(crate) mod interleave;
pub(crate) mod lineup;
pub(crate) mod progress;
pub(crate) mod run;
