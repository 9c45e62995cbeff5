//! Requests of administrators over the wire: what they show, what they change, and what is left of
//! it after a restart.

mod cluster;
mod configs;
mod groups;
mod partitions;
