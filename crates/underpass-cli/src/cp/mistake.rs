//! What is wrong with a command line.

use std::ffi::{OsStr, OsString};
use std::fmt;

/// A command line that makes no sense, and what is said of it. Not all of it need be UTF-8: words
/// are shown as they were given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mistake {
    pub(super) message: OsString,
    pub(super) hint: Hint,
}

/// What stands behind the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hint {
    /// That there is `--help`.
    TryHelp,
    Nothing,
}

impl Mistake {
    /// A misuse of options.
    pub(super) fn usage(message: impl fmt::Display) -> Self {
        Self {
            message: message.to_string().into(),
            hint: Hint::TryHelp,
        }
    }

    /// A use of options that can't be had.
    pub(super) fn plain(message: impl fmt::Display) -> Self {
        Self {
            hint: Hint::Nothing,
            ..Self::usage(message)
        }
    }

    /// A misuse, with a word as it was given in the middle.
    pub(super) fn about(before: &str, word: &OsStr, after: &str) -> Self {
        let mut message = OsString::from(before);
        message.push(word);
        message.push(after);
        Self {
            message,
            hint: Hint::TryHelp,
        }
    }
}
