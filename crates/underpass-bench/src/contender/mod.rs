//! The measured programs. Each one is a separate process, measured from outside.

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
