//! Options of the access log.

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{Arc, Mutex};
use std::thread::Thread;

use serde::Deserialize;

/// Options of the access log.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct LogOptions {
    /// The destination: `off`, `-` or `/dev/stdout` for standard output, or the path of a file,
    /// which is appended to.
    pub access: Access,
    /// The format of a line.
    pub format: LogFormat,
    /// Reopens the file, after a rotation.
    #[serde(skip)]
    pub reopen: LogReopen,
}

/// The destination of log lines.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(from = "PathBuf")]
pub enum Access {
    /// None.
    #[default]
    Off,
    /// Standard output.
    Output,
    /// A file, created if it does not exist.
    File(PathBuf),
}

/// The format of a log line.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "kebab-case")]
pub enum LogFormat {
    /// The combined log format of NCSA, which every analyser reads.
    #[default]
    Combined,
    /// A JSON object with everything that is known about the response.
    Json,
}

impl FromStr for LogFormat {
    type Err = String;

    fn from_str(word: &str) -> Result<LogFormat, String> {
        match word {
            "combined" => Ok(LogFormat::Combined),
            "json" => Ok(LogFormat::Json),
            _ => Err(format!(
                "{word:?} is not a log format; expected combined or json"
            )),
        }
    }
}

impl From<PathBuf> for Access {
    fn from(path: PathBuf) -> Access {
        match path.to_str() {
            Some("off") => Access::Off,
            // Opened by name, a file would be written at two offsets; opening a socket would fail.
            Some("-" | "/dev/stdout" | "/dev/fd/1" | "/proc/self/fd/1") => Access::Output,
            _ => Access::File(path),
        }
    }
}

impl Access {
    /// Returns the name for messages.
    pub(super) fn name(&self) -> String {
        match self {
            Access::Off | Access::Output => "standard output".into(),
            Access::File(path) => path.display().to_string(),
        }
    }
}

/// A handle that reopens the file of a log. Clones are the same handle.
#[derive(Clone, Debug, Default)]
pub struct LogReopen {
    state: Arc<Mutex<ReopenState>>,
}

#[derive(Debug, Default)]
struct ReopenState {
    times: u64,
    /// The thread to wake on a request.
    writer: Option<Thread>,
}

impl LogReopen {
    /// Requests that the file is reopened, and returns immediately: lines go into the old file for
    /// a moment; none is lost or truncated. If the file cannot be opened, writing to the old one
    /// continues, with a warning.
    pub fn ask(&self) {
        let Ok(mut state) = self.state.lock() else {
            return;
        };
        state.times += 1;
        if let Some(writer) = &state.writer {
            writer.unpark();
        }
    }

    /// Returns the number of requests so far.
    pub(super) fn times(&self) -> u64 {
        self.state.lock().map_or(0, |state| state.times)
    }

    /// Makes requests wake the calling thread from now on.
    pub(super) fn wake_me(&self) {
        if let Ok(mut state) = self.state.lock() {
            state.writer = Some(std::thread::current());
        }
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
