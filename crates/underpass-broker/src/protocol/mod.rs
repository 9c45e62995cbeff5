//! Kafka's protocol: decodes bytes into borrowed structures, and encodes them.
//!
//! ```text
//!  frame ─► header: key, version ─► the table of that message ─► structure
//!  structure ─► the same table ─► bytes, with gaps for records that stay in files
//! ```
//!
//! The tables are generated from the schemas that Kafka publishes (`cargo xtask kafka-tables`).

pub mod apis;
pub(crate) mod error_code;
pub mod header;
mod reader;
pub mod tables;
#[cfg(test)]
mod tests;
pub mod wire;
mod writer;

pub use reader::{DecodeError, DecodeFault, MessageVersion, Reader};
pub use writer::{Gap, Writer};
