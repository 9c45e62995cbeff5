//! The metrics of workers.

pub(crate) mod exposition;
pub(crate) mod registry;
pub(crate) mod worker_metrics;
