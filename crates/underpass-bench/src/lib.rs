//! Measures what zero-copy buys on this machine: experiments, statistics, reports.
//!
//! ```text
//!    processor 0                        processor 1
//!   ┌──────────────────────────┐       ┌─────────────────────────────┐
//!   │ contender A │ contender B│◄─────►│ bench: makes the load, or   │
//!   │   (one at a time)        │       │ takes the bytes; reads what │
//!   └──────────────────────────┘       │ the contender cost          │
//!                                      └─────────────────────────────┘
//! ```
//!
//! The wall: those measured are processes, this project's own included, and all are measured
//! from outside by the same clocks. This crate knows the mover only by its public face (a case is
//! a `Policy` that a mover process is given) and our server only as a program that listens.
//!
//! | module | what it knows |
//! |---|---|
//! | `process`, `porter`, `mover`, `role` | those measured |
//! | `server`, `load` | servers among them, and what is asked of those |
//! | `proc`, `window`, `trace`, `noise`, `machine` | what they cost, and what else went on |
//! | `rounds`, `lineup`, `stats`, `run` | the order of things, and what may be said of figures |
//! | `document` | the result: everything else is made from it |
//! | `render`, `compare` | what people are shown of it, and what changed between two |
//!
//! A figure is believed for these reasons: content is verified by hash beforehand and counted to
//! its last byte while measuring; contenders alternate within a run and share processor, files and
//! load; the primary figure is processor time, which a slow other side does not change; a
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
mod rounds;
pub mod stats;

pub use contender::receiver::receive_for_others;
pub use contender::role::SubprocessRole;
pub use error::Error;
pub use experiment::RunScale;
pub use experiment::{
    cold::ColdOptions, copy::FileCopyOptions, http::HttpOptions, many::ManyOptions,
    small::SmallOptions, socket::SocketOptions, tree::TreeOptions,
};
pub use machine::Machine;
pub use machine::network::{become_isolated, set_up_loopback};
pub use measure::{Benchmark, RunSettings, measure};
