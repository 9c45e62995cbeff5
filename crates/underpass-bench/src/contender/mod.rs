//! The programs that are measured: each one is a process of its own, measured from outside.

pub(crate) mod mover;
pub(crate) mod named;
pub(crate) mod process;
pub(crate) mod receiver;
pub(crate) mod role;
pub(crate) mod scratch;
pub(crate) mod server;
pub(crate) mod server_metrics;
pub(crate) mod subprocess;
pub(crate) mod worker_process;
