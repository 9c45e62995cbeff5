//! The network layer without HTTP.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod proxy;
mod seams;
