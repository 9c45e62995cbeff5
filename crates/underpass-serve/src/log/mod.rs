//! The access log: a line for every response, written by a separate thread.
//!
//! ```text
//!  worker 0: LogWriter ──► LogBuffer ─┐   (bounded)
//!  worker 1: LogWriter ──► LogBuffer ─┼──► LogThread ──► write(2), O_APPEND
//!                                     │      ▲
//!                        LogReopen ───┴──────┘  SIGUSR1, after a rotation
//! ```
//!
//! A worker never waits for the disk: when its buffer is full, lines are dropped, counted and
//! reported. The thread is woken at most twenty times a second.

mod buffer;
mod combined;
mod json;
mod options;
mod thread;

use std::sync::Arc;

pub(crate) use buffer::LogWriter;
pub use options::{Access, LogFormat, LogOptions, LogReopen};

use crate::error::Error;
use buffer::LogBuffers;

/// An open log. When the last clone is dropped, its thread writes what is queued and ends.
#[derive(Clone, Debug)]
pub(crate) struct AccessLog {
    pub(crate) buffers: Arc<LogBuffers>,
    _closing: Arc<LogCloser>,
    options: LogOptions,
}

impl AccessLog {
    /// Opens the file and starts the writer; nothing where the log is off.
    pub(crate) fn open(options: &LogOptions) -> Result<Option<AccessLog>, Error> {
        let Some(target) = thread::open(&options.access)? else {
            return Ok(None);
        };
        let buffers = Arc::new(LogBuffers::default());
        thread::start(target, Arc::clone(&buffers), options)?;
        Ok(Some(AccessLog {
            _closing: Arc::new(LogCloser(Arc::clone(&buffers))),
            buffers,
            options: options.clone(),
        }))
    }

    pub(crate) fn format(&self) -> LogFormat {
        self.options.format
    }

    /// A writer for one more worker.
    pub(crate) fn writer(&self) -> LogWriter {
        LogWriter::new(&self.buffers, &self.options)
    }
}

/// Closes the buffers when the last clone of the log is dropped.
#[derive(Debug)]
struct LogCloser(Arc<LogBuffers>);

impl Drop for LogCloser {
    fn drop(&mut self) {
        self.0.close();
    }
}
