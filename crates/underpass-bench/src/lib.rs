//! Measures what zero-copy buys on this machine: experiments, statistics, reports.
//!
//! ```text
//!    processor 0                        processor 1
//!   ┌──────────────────────────┐       ┌─────────────────────────────┐
//!   │ contender A │ contender B│◄─────►│ bench: makes the load, or   │
//!   │   (one at a time)        │       │ receives the bytes; reads   │
//!   └──────────────────────────┘       │ the contender's usage       │
//!                                      └─────────────────────────────┘
//! ```
//!
//! Contenders are processes, this project's own included, and all are measured from outside with
//! the same clocks. This crate uses the mover's public interface only, and knows our server only as
//! a program that listens.
//!
//! - `contender`: the measured processes
//! - `load`: requests to servers
//! - `tls`: their encryption
//! - `machine`: the usage of processes, and other load on the machine
//! - `rounds`: the order of contenders, and the metrics of their samples
//! - `experiment`: the measurements, with their options
//! - `document`: the result, from which `render` and `compare` make reports
//!
//! The figures can be believed because bodies are verified by hash beforehand and counted to their
//! last byte while measuring; contenders alternate within a run and share processor, files and
//! load; the primary figure is processor time, which a slow other side doesn't change; and a
//! difference within the spread is not printed as one.

#![forbid(unsafe_code)]

pub mod compare;
mod contender;
mod content;
pub mod document;
mod error;
mod experiment;
mod load;
mod machine;
mod measure;
mod render;
mod report_file;
mod rounds;
pub mod stats;
mod tls;

pub use contender::receiver::receive_for_others;
pub use contender::role::SubprocessRole;
pub use error::Error;
pub use experiment::RunScale;
pub use experiment::sizes::{host_and_port, parse_count};
pub use experiment::{
    cold::ColdOptions, copy::FileCopyOptions, http::HttpOptions, log::LogBenchOptions,
    many::ManyOptions, small::SmallOptions, socket::SocketOptions, tree::TreeOptions,
};
pub use machine::Machine;
pub use measure::{Benchmark, RunSettings, measure};
pub use report_file::{check_report_path, write_report};
