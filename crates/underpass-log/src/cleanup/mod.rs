//! Keeps logs small: retention deletes old segments, and compaction, which is the rest of this
//! module, keeps the latest record of each key.
//!
//! ```text
//!  plan ─► map: keys of the records not yet compacted, until it is full
//!    └──► for each group of segments from the start on:
//!           reader ─► keep, rewrite or drop each batch ─► writer (.cleaned) ─► swap
//! ```
//!
//! Offsets stay: a compacted log has gaps. A record is removed if a later one has its key. A
//! tombstone, a record without a value, is removed some time (`delete.retention.ms`) after the
//! first compaction that has met it, so that consumers see it.
//!
//! Records of transactions are kept, and so are tombstones after them: whether such a record
//! counts depends on the end of its transaction.

mod cleaning;
mod error;
mod map;
mod pace;
mod pass;
mod plan;
mod reader;
pub(crate) mod retention;
mod swap;
mod writer;

pub use self::cleaning::CleanerStats;
pub(crate) use self::cleaning::{CleanableFolder, Cleaning, lower_priority};
#[cfg(test)]
pub(crate) use self::{pace::Pace, pass::CleanPass, plan::CleanablePart};
