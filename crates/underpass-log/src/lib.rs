//! Kafka's log on disk: segments, indexes, recovery and retention. Independent of sockets and of
//! the protocol.
//!
//! ```text
//!  workers ── append ─► queue ─► writer ── pwritev ─► segments ◄── read ── workers
//!                                  └─► syncer ── fdatasync ─► high watermark, answers
//! ```

#![forbid(unsafe_code)]

mod append;
mod appender;
pub mod batch;
mod cleanup;
mod config;
mod error;
mod files;
#[cfg(any(test, feature = "fuzz"))]
#[doc(hidden)]
#[path = "../tests/promises/mod.rs"]
pub mod fuzz;
mod index;
mod manager;
mod partition;
mod position;
mod producers;
mod recovery;
mod segment;
#[cfg(test)]
mod tests;
mod threads;

pub use appender::{AppendError, Appended};
pub use cleanup::CleanerStats;
pub use config::{
    CleanerOptions, CleanupPolicy, ConfigType, ConfigValues, DataFolderOptions, FlushPolicy,
    TOPIC_CONFIGS, TopicConfig, TopicConfigKey,
};
pub use error::LogError;
pub use files::disk::DiskWait;
pub use manager::{FoundPartition, LogManager};
pub use partition::{FirstBatch, LogOffsets, LogRead, PartitionLog, RangeEnd, ReadError};
pub use position::TopicPartition;
pub use producers::SequenceError;
pub use recovery::Repairs;
pub use threads::{Acks, Append, Completion, SyncStats, WatermarkObserver};
