//! What is wrong with a command line.

use std::ffi::{OsStr, OsString};
use std::fmt;

/// A command line that makes no sense, and what is said of it. Not all of it need be UTF-8: words
/// are shown as they were given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UsageError {
    pub(super) message: OsString,
    pub(super) hint: UsageHint,
}

/// What stands behind the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UsageHint {
    /// That there is `--help`.
    TryHelp,
    Nothing,
}

impl UsageError {
    /// A misuse of options.
    pub(super) fn with_hint(message: impl fmt::Display) -> Self {
        Self {
            message: message.to_string().into(),
            hint: UsageHint::TryHelp,
        }
    }

    /// A use of options that can't be had.
    pub(super) fn without_hint(message: impl fmt::Display) -> Self {
        Self {
            hint: UsageHint::Nothing,
            ..Self::with_hint(message)
        }
    }

    /// A misuse, with a word as it was given in the middle.
    pub(super) fn about(before: &str, word: &OsStr, after: &str) -> Self {
        let mut message = OsString::from(before);
        message.push(word);
        message.push(after);
        Self {
            message,
            hint: UsageHint::TryHelp,
        }
    }
}
