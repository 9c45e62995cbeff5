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

pub(crate) mod address;
mod exposition;
mod process;
pub(crate) mod service;
