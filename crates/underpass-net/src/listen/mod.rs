//! Listening: addresses, and the sockets that are opened for them.

pub(crate) mod address;
pub(crate) mod config;
pub(crate) mod listeners;
pub(crate) mod machine;
pub(crate) mod tcp;
pub(crate) mod unix;
