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

mod combined;
mod json;
mod record;
mod shelf;
mod writer;

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{Arc, Mutex};
use std::thread::Thread;

use serde::Deserialize;

pub(crate) use record::{Record, Said};
pub(crate) use shelf::{LogTally, Pen};

use crate::error::Error;
use shelf::Shelves;

/// What is written about requests, and where to.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct LogOptions {
    /// Where lines go: `off`, `-` for standard output, or the path of a file, which is appended to.
    pub access: Access,
    /// How a line looks.
    pub format: LogFormat,
    /// Bytes of lines that may wait for the disk, for each worker. What comes beyond is dropped and
    /// counted: a full or stuck disk must not stop the server. 4 MiB are about 20,000 lines.
    #[serde(deserialize_with = "underpass_net::size::bytes")]
    pub queue_bytes_max: usize,
    /// Asks for the file to be opened anew. Whoever rotates logs keeps a clone.
    #[serde(skip)]
    pub reopen: Reopen,
}

/// Where lines go.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(from = "PathBuf")]
pub enum Access {
    /// Nowhere.
    #[default]
    Off,
    /// Standard output.
    Output,
    /// A file, which is made if it is not there.
    File(PathBuf),
}

/// How a line looks.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "kebab-case")]
pub enum LogFormat {
    /// NCSA combined, which every analyser reads.
    #[default]
    Combined,
    /// An object of JSON with everything that is known of the answer.
    Json,
}

impl Default for LogOptions {
    /// Off: most who serve a folder do not read a log.
    fn default() -> LogOptions {
        LogOptions {
            access: Access::Off,
            format: LogFormat::Combined,
            queue_bytes_max: 4 << 20,
            reopen: Reopen::default(),
        }
    }
}

impl FromStr for LogFormat {
    type Err = String;

    fn from_str(word: &str) -> Result<LogFormat, String> {
        match word {
            "combined" => Ok(LogFormat::Combined),
            "json" => Ok(LogFormat::Json),
            _ => Err(format!(
                "{word:?} is no format of logs; there are combined and json"
            )),
        }
    }
}

impl From<PathBuf> for Access {
    fn from(path: PathBuf) -> Access {
        match path.to_str() {
            Some("off") => Access::Off,
            Some("-") => Access::Output,
            _ => Access::File(path),
        }
    }
}

/// A switch that has a log's file opened anew. Clones are the same switch.
#[derive(Clone, Debug, Default)]
pub struct Reopen {
    state: Arc<Mutex<Asked>>,
}

#[derive(Debug, Default)]
struct Asked {
    times: u64,
    /// Who has to wake up.
    writer: Option<Thread>,
}

impl Reopen {
    /// Asks. Does not wait: lines go on into the old file for a moment, none is lost or cut. Where
    /// the file cannot be opened, the old one is written on, and a warning says why.
    pub fn ask(&self) {
        let Ok(mut state) = self.state.lock() else {
            return;
        };
        state.times += 1;
        if let Some(writer) = &state.writer {
            writer.unpark();
        }
    }

    /// How often it was asked for.
    fn times(&self) -> u64 {
        self.state.lock().map_or(0, |state| state.times)
    }

    /// The calling thread is woken from now on.
    fn wake_me(&self) {
        if let Ok(mut state) = self.state.lock() {
            state.writer = Some(std::thread::current());
        }
    }
}

/// A log that is open. Dropping the last clone lets its writer end after what is queued.
#[derive(Clone, Debug)]
pub(crate) struct Log {
    shelves: Arc<Shelves>,
    _closing: Arc<Closing>,
    options: LogOptions,
}

impl Log {
    /// Opens the file and starts the writer; nothing where the log is off.
    pub(crate) fn open(options: &LogOptions) -> Result<Option<Log>, Error> {
        let Some(target) = writer::Target::open(&options.access)? else {
            return Ok(None);
        };
        let shelves = Arc::new(Shelves::default());
        writer::start(target, Arc::clone(&shelves), options.reopen.clone())?;
        Ok(Some(Log {
            _closing: Arc::new(Closing(Arc::clone(&shelves))),
            shelves,
            options: options.clone(),
        }))
    }

    pub(crate) fn format(&self) -> LogFormat {
        self.options.format
    }

    /// What a worker writes with.
    pub(crate) fn pen(&self) -> Pen {
        let shelf = self.shelves.add();
        Pen::new(
            Arc::clone(&self.shelves),
            shelf,
            self.options.format,
            self.options.queue_bytes_max,
        )
    }

    pub(crate) fn tally(&self) -> &LogTally {
        self.shelves.tally()
    }

    /// Bytes that wait to be written.
    pub(crate) fn queued(&self) -> u64 {
        self.shelves.queued()
    }
}

/// Tells the writer that nobody is left who could write.
#[derive(Debug)]
struct Closing(Arc<Shelves>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_word_or_a_path() {
        let access = |text: &str| Access::from(PathBuf::from(text));
        assert_eq!(access("off"), Access::Off);
        assert_eq!(access("-"), Access::Output);
        assert_eq!(access("./off"), Access::File("./off".into()));
    }
}
