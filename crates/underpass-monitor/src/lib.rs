//! Metrics and health, on a separate listener.
//!
//! | path | response |
//! |---|---|
//! | `/metrics` | all metrics, in the text format of Prometheus |
//! | `/health` | 200 while the server runs, 503 while it stops |
//! | `/ready` | the same: connections are accepted only after all workers have started |
//!
//! The listener is for operators: its connections are counted separately, so that it responds when
//! clients have to wait, and clients that may read files may not read the metrics. One request per
//! connection, each with a deadline.

#![forbid(unsafe_code)]

mod address;
mod page;
mod process;
mod service;

pub use address::{StatusAddress, StatusOptions};
pub use page::MetricsPage;
pub use service::{METRICS_CONNECTIONS_MAX, MetricsService, MetricsSource};
