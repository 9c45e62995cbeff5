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
//! | `process`, `worker`, `mover`, `role` | those measured |
//! | `proc`, `window`, `trace`, `noise`, `machine` | what they cost, and what else went on |
//! | `rounds`, `stats`, `run` | the order of things, and what may be said of figures |
//! | `document` | the result: everything else is made from it |
//! | `render`, `compare` | what people are shown of it, and what changed between two |
//!
//! A figure is believed for these reasons: content is verified by hash beforehand and counted to
//! its last byte while measuring; contenders alternate within a run and share processor, files and
//! load; the primary figure is processor time, which a slow other side does not change; a
//! difference within the spread is not printed as one.

#![forbid(unsafe_code)]

pub mod compare;
pub mod document;
mod error;
pub mod experiment;
mod machine;
mod mover;
mod network;
mod noise;
mod proc;
mod process;
mod progress;
mod render;
mod role;
mod rounds;
mod run;
mod scratch;
pub mod stats;
mod throttle;
mod trace;
mod window;
mod worker;

pub use error::Error;
pub use machine::Machine;
pub use mover::Settings as MoverSettings;
pub use role::Role;
