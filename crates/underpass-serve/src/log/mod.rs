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
mod rotation;
mod thread;

use std::fs;
use std::os::fd::AsFd;
use std::sync::Arc;

use underpass_net::{HandedFile, User};

pub(crate) use buffer::LogWriter;
pub use options::{Access, LogFormat, LogOptions, LogReopen};
pub(crate) use rotation::rotation_obstacle;

use crate::error::Error;
use buffer::LogBuffers;
use thread::{LogFile, LogOrigin};

/// An open log. When the last clone is dropped, its thread writes the queued lines and ends.
#[derive(Clone, Debug)]
pub(crate) struct AccessLog {
    pub(crate) buffers: Arc<LogBuffers>,
    _closing: Arc<LogCloser>,
    file: LogFile,
    options: LogOptions,
    origin: LogOrigin,
}

impl AccessLog {
    /// Opens the file for writing as `user`, and starts the writer; `None` if the log is off. If
    /// the file cannot be opened, continues with the one `handed` over by an earlier process.
    pub(crate) fn open(
        options: &LogOptions,
        user: Option<&User>,
        handed: Option<HandedFile>,
    ) -> Result<Option<AccessLog>, Error> {
        let Some((file, origin)) = thread::open(&options.access, user, handed)? else {
            return Ok(None);
        };
        let file = LogFile::from(file);
        let buffers = Arc::new(LogBuffers::default());
        thread::start(file.clone(), Arc::clone(&buffers), options)?;
        Ok(Some(AccessLog {
            _closing: Arc::new(LogCloser(Arc::clone(&buffers))),
            buffers,
            file,
            options: options.clone(),
            origin,
        }))
    }

    /// Removes a file that was created for a server that could not start.
    pub(crate) fn discard(&self) {
        if let (LogOrigin::Created, Access::File(path)) = (self.origin, &self.options.access)
            && fs::metadata(path).is_ok_and(|there| there.len() == 0)
        {
            let _ = fs::remove_file(path);
        }
    }

    /// Returns the open file and its path, for a successor; `None` if the log is standard output.
    pub(crate) fn handed(&self) -> Option<HandedFile> {
        let Access::File(path) = &self.options.access else {
            return None;
        };
        Some(HandedFile {
            name: path.to_str()?.to_owned(),
            file: self.file.current().as_fd().try_clone_to_owned().ok()?,
        })
    }

    pub(crate) fn format(&self) -> LogFormat {
        self.options.format
    }

    /// Creates a writer for one more worker.
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
