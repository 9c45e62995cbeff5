//! What is wrong with a command line.

use std::ffi::{OsStr, OsString};
use std::fmt;

/// An invalid command line. The message shows words as they were given, which need not be UTF-8.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UsageError {
    pub(super) message: OsString,
    /// A hint at `--help` follows the message.
    pub(super) has_hint: bool,
}

impl UsageError {
    /// A misuse of options, with a hint at `--help`.
    pub(super) fn with_hint(message: impl fmt::Display) -> Self {
        Self {
            message: message.to_string().into(),
            has_hint: true,
        }
    }

    /// An error that `--help` does not explain.
    pub(super) fn without_hint(message: impl fmt::Display) -> Self {
        Self {
            has_hint: false,
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
            has_hint: true,
        }
    }
}
