//! The error of this crate, by the side at fault.

use std::io;

pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a measurement failed. No figure comes from a failed measurement.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel returned an error.
    #[error("{context}: {source}")]
    System {
        /// The operation that failed.
        context: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// The bytes that arrived are not those that were sent or requested.
    #[error("wrong answer: {0}")]
    Answer(String),
    /// A contender did not start, or ended by itself.
    #[error("{0}")]
    Contender(String),
    /// This machine lacks something, or a request is impossible.
    #[error("{0}")]
    Setting(String),
}

impl Error {
    /// Whether a socket has nothing to receive yet.
    pub(crate) fn would_block(&self) -> bool {
        matches!(self, Error::System { source, .. } if source.kind() == io::ErrorKind::WouldBlock)
    }

    /// Adds the name of the contender at fault.
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

/// Does all of them, whichever fail; returns the errors as notes on figures that are complete.
pub(crate) fn notes(done: impl Iterator<Item = Result<()>>) -> Vec<String> {
    let errors = done.filter_map(Result::err);
    errors.map(|error| error.to_string()).collect()
}

/// Adds what failed to an error of the kernel.
pub(crate) trait ErrorContext<T> {
    fn context(self, context: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: Into<io::Error>> ErrorContext<T> for Result<T, E> {
    fn context(self, context: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|source| Error::System {
            context: context(),
            source: source.into(),
        })
    }
}
