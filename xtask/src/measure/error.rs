//! The one error of the harness: what was being done, and who is at fault.

use std::{fmt, io};

pub(crate) type Result<T> = std::result::Result<T, Error>;

#[derive(Debug)]
pub(crate) enum Error {
    /// The kernel refused something.
    System { doing: String, source: io::Error },
    /// An answer is not the one that was asked for; no figure may be made of it.
    Answer(String),
    /// A server did not start, or ended by itself.
    Server(String),
    /// This machine lacks something, or the command line asks for the impossible.
    Setting(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::System { doing, source } => write!(f, "{doing}: {source}"),
            Error::Answer(what) => write!(f, "wrong answer: {what}"),
            Error::Server(what) => write!(f, "server under test: {what}"),
            Error::Setting(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for Error {}

/// Adds what was being done to an error of the kernel.
pub(crate) trait Doing<T> {
    fn doing(self, doing: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: Into<io::Error>> Doing<T> for std::result::Result<T, E> {
    fn doing(self, doing: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|source| Error::System {
            doing: doing(),
            source: source.into(),
        })
    }
}
