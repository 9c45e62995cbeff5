//! The one error: what was being done, and who is at fault.

use std::{fmt, io};

pub(crate) type Result<T> = std::result::Result<T, Error>;

/// Why a measurement came to nothing. No figure is made of what went wrong.
#[derive(Debug)]
pub enum Error {
    /// The kernel refused something.
    System {
        /// What was being done.
        context: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// What arrived is not what was sent or asked for.
    Answer(String),
    /// One of those measured did not start, or ended by itself.
    Contender(String),
    /// This machine lacks something, or what was asked for is impossible.
    Setting(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::System { context, source } => write!(f, "{context}: {source}"),
            Error::Answer(what) => write!(f, "wrong answer: {what}"),
            Error::Contender(what) | Error::Setting(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for Error {}

impl Error {
    /// Says whose it is.
    pub(crate) fn of(self, name: &str) -> Error {
        match self {
            Error::System { context, source } => Error::System {
                context: format!("{name}: {context}"),
                source,
            },
            Error::Answer(what) => Error::Answer(format!("{name}: {what}")),
            Error::Contender(what) => Error::Contender(format!("{name}: {what}")),
            Error::Setting(what) => Error::Setting(what),
        }
    }
}

/// Does all of it, whatever fails; the first failure is told.
pub(crate) fn all(done: impl Iterator<Item = Result<()>>) -> Result<()> {
    done.fold(Ok(()), Result::and)
}

/// Adds what was being done to an error of the kernel.
pub(crate) trait ErrorContext<T> {
    fn context(self, context: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: Into<io::Error>> ErrorContext<T> for std::result::Result<T, E> {
    fn context(self, context: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|source| Error::System {
            context: context(),
            source: source.into(),
        })
    }
}
