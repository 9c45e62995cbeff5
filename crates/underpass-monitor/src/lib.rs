//! Metrics and health, on a separate listener.
//!
//! | path | answer |
//! |---|---|
//! | `/metrics` | all counts, in the text format of Prometheus |
//! | `/health` | 200 while the server runs, 503 while it stops |
//! | `/ready` | the same: connections are accepted only after all workers have started |
//!
//! The listener is one of operators: its connections are counted apart, so that it answers where
//! clients have to wait, and clients who may read files may not read this. One request per
//! connection; every one has its deadline.

#![forbid(unsafe_code)]

mod address;
mod page;
mod process;
mod service;

pub use address::{StatusAddress, StatusOptions};
pub use page::MetricsPage;
pub use service::{METRICS_CONNECTIONS_MAX, MetricsService, MetricsSource};
