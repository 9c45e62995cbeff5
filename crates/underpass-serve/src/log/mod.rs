//! The access log: a line for every answer, written by a thread of its own.
//!
//! ```text
//!  worker 0: Pen ──► shelf ─┐   (a bounded buffer each)
//!  worker 1: Pen ──► shelf ─┼──► writer ──► write(2), O_APPEND
//!                           │      ▲
//!                 Reopen ───┴──────┘  SIGUSR1, after a rotation
//! ```
//!
//! A worker never waits for the disk: where the writer does not follow and the buffer is full,
//! lines are dropped, counted and told. The writer is woken at most twenty times a second.

mod buffer;
mod combined;
mod json;
mod options;
mod record;
mod thread;

use std::sync::Arc;

pub(crate) use buffer::{LogCounters, LogWriter};
pub use options::{Access, LogFormat, LogOptions, LogReopen};
pub(crate) use record::{LogRecord, RequestText};

use crate::error::Error;
use buffer::LogBuffers;

/// A log that is open. Dropping the last clone lets its writer end after what is queued.
#[derive(Clone, Debug)]
pub(crate) struct AccessLog {
    shelves: Arc<LogBuffers>,
    _closing: Arc<LogCloser>,
    options: LogOptions,
}

impl AccessLog {
    /// Opens the file and starts the writer; nothing where the log is off.
    pub(crate) fn open(options: &LogOptions) -> Result<Option<AccessLog>, Error> {
        let Some(target) = thread::LogSink::open(&options.access)? else {
            return Ok(None);
        };
        let shelves = Arc::new(LogBuffers::default());
        thread::start(target, Arc::clone(&shelves), options.reopen.clone())?;
        Ok(Some(AccessLog {
            _closing: Arc::new(LogCloser(Arc::clone(&shelves))),
            shelves,
            options: options.clone(),
        }))
    }

    pub(crate) fn format(&self) -> LogFormat {
        self.options.format
    }

    /// What a worker writes with.
    pub(crate) fn pen(&self) -> LogWriter {
        let shelf = self.shelves.add();
        LogWriter::new(
            Arc::clone(&self.shelves),
            shelf,
            self.options.format,
            self.options.queue_bytes_max,
        )
    }

    pub(crate) fn tally(&self) -> &LogCounters {
        self.shelves.tally()
    }

    /// Bytes that wait to be written.
    pub(crate) fn queued(&self) -> u64 {
        self.shelves.queued()
    }
}

/// Tells the writer that nobody is left who could write.
#[derive(Debug)]
struct LogCloser(Arc<LogBuffers>);

impl Drop for LogCloser {
    fn drop(&mut self) {
        self.0.close();
    }
}
