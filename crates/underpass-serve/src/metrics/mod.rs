//! What workers count.

pub(crate) mod registry;
pub(crate) mod worker_metrics;
