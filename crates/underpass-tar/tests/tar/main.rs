//! Archives of other programs read by the reader, its own ones read by them, and damaged ones by
//! both.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod damaged;
mod foreign;
mod listing;
