//! Listening: the sockets that are opened for addresses.

pub(crate) mod config;
pub(crate) mod listeners;
pub(crate) mod tcp;
pub(crate) mod unix;
