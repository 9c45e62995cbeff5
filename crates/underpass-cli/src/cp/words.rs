//! The values of options: words and rates, and errors of values and options.

use std::ffi::{OsStr, OsString};
use std::fmt::{self, Write};
use std::os::unix::ffi::OsStrExt;

use bytesize::ByteSize;
use underpass::{Cloning, Holes, Mechanism};
use underpass_copy::{Charset, Fsync, OverwritePolicy, QuotedWord};

/// Words and their meanings. Adjacent words with the same meaning are listed on one line.
pub(super) type Choices<T> = &'static [(&'static str, T)];

/// The naming of backups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BackupNames {
    None,
    Simple,
    Existing,
    Numbered,
}

/// The attributes that `--preserve` accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PreservedAttribute {
    Mode,
    Timestamps,
    Ownership,
    Links,
    Context,
    Xattr,
    All,
}

/// What is explained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Explains {
    #[default]
    Nothing,
    /// Each file, and the sum.
    Files,
    /// All files together.
    Summary,
}

/// Whether something is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    Auto,
    Always,
    Never,
}

pub(super) const UPDATES: Choices<OverwritePolicy> = &[
    ("all", OverwritePolicy::Overwrite),
    ("none", OverwritePolicy::Keep),
    ("none-fail", OverwritePolicy::Fail),
    ("older", OverwritePolicy::UpdateOlder),
];

pub(super) const BACKUPS: Choices<BackupNames> = &[
    ("none", BackupNames::None),
    ("off", BackupNames::None),
    ("simple", BackupNames::Simple),
    ("never", BackupNames::Simple),
    ("existing", BackupNames::Existing),
    ("nil", BackupNames::Existing),
    ("numbered", BackupNames::Numbered),
    ("t", BackupNames::Numbered),
];

pub(super) const ATTRIBUTES: Choices<PreservedAttribute> = &[
    ("mode", PreservedAttribute::Mode),
    ("timestamps", PreservedAttribute::Timestamps),
    ("ownership", PreservedAttribute::Ownership),
    ("links", PreservedAttribute::Links),
    ("context", PreservedAttribute::Context),
    ("xattr", PreservedAttribute::Xattr),
    ("all", PreservedAttribute::All),
];

pub(super) const SPARSE: Choices<Holes> = &[
    ("never", Holes::Fill),
    ("auto", Holes::Keep),
    ("always", Holes::Find),
];

pub(super) const REFLINK: Choices<Cloning> = &[
    ("auto", Cloning::Auto),
    ("always", Cloning::Always),
    ("never", Cloning::Never),
];

pub(super) const WHENS: Choices<When> = &[
    ("auto", When::Auto),
    ("always", When::Always),
    ("never", When::Never),
];

pub(super) const FSYNC: Choices<Fsync> = &[
    ("file", Fsync::File),
    ("dir", Fsync::Folder),
    ("end", Fsync::End),
];

pub(super) const EXPLAINS: Choices<Explains> =
    &[("files", Explains::Files), ("summary", Explains::Summary)];

pub(super) const MECHANISMS: Choices<Mechanism> = &[
    ("clone", Mechanism::Clone),
    ("copy_range", Mechanism::CopyRange),
    ("sendfile", Mechanism::Sendfile),
    ("splice", Mechanism::Splice),
    ("read_write", Mechanism::ReadWrite),
];

/// Returns the meaning of a word, or of a unique prefix. `about` names the option.
pub(super) fn choose<T: Copy + PartialEq>(
    word: &OsStr,
    about: &str,
    choices: Choices<T>,
    charset: Charset,
) -> Result<T, UsageError> {
    let word = word.as_bytes();
    if let Some((_, exact)) = choices.iter().find(|(name, _)| name.as_bytes() == word) {
        return Ok(*exact);
    }
    let mut meant = choices
        .iter()
        .filter(|(name, _)| name.as_bytes().starts_with(word))
        .map(|(_, meaning)| *meaning);
    let fault = match meant.next() {
        Some(first) if meant.all(|other| other == first) => return Ok(first),
        Some(_) => "ambiguous",
        None => "invalid",
    };
    let (word, about) = (
        QuotedWord(word, charset),
        QuotedWord(about.as_bytes(), charset),
    );
    let valid = list(choices, charset);
    Err(UsageError::with_hint(format_args!(
        "{fault} argument {word} for {about}\nValid arguments are:{valid}"
    )))
}

/// Returns only the words.
pub(super) fn names<T>(choices: Choices<T>) -> Vec<&'static str> {
    choices.iter().map(|(name, _)| *name).collect()
}

fn list<T: PartialEq>(choices: Choices<T>, charset: Charset) -> String {
    let mut list = String::new();
    let mut before = None;
    for (name, meaning) in choices {
        let lead = match before == Some(meaning) {
            true => ", ",
            false => "\n  - ",
        };
        // Writing to a string can't fail.
        let _ = write!(list, "{lead}{}", QuotedWord(name.as_bytes(), charset));
        before = Some(meaning);
    }
    list
}

/// Parses bytes per second, in rsync's format: a number of KiB, or one with a suffix. `K`, `KiB`,
/// `M`, `G`, `T` are powers of 1024, `KB`, `MB`, `GB`, `TB` powers of 1000, `B` is single bytes. 0
/// means no limit. `None` if it is invalid.
pub(super) fn read_rate(rate: &OsStr) -> Option<Option<u64>> {
    let rate = rate.to_str()?;
    let unit = match rate.bytes().last()? {
        b'0'..=b'9' | b'.' => "KiB",
        b'b' | b'B' => "",
        _ => "iB",
    };
    let ByteSize(bytes) = format!("{rate}{unit}").parse().ok()?;
    let is_zero = !rate.bytes().any(|byte| matches!(byte, b'1'..=b'9'));
    Some((!is_zero).then_some(bytes.max(1)))
}

/// An invalid command line. The message quotes the given words, which need not be UTF-8.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UsageError {
    pub(super) message: OsString,
    /// Whether a hint at `--help` follows the message.
    pub(super) has_hint: bool,
}

impl UsageError {
    /// Creates an error about misused options, with a hint at `--help`.
    pub(super) fn with_hint(message: impl fmt::Display) -> Self {
        Self {
            message: message.to_string().into(),
            has_hint: true,
        }
    }

    /// Creates an error that `--help` does not explain.
    pub(super) fn without_hint(message: impl fmt::Display) -> Self {
        Self {
            has_hint: false,
            ..Self::with_hint(message)
        }
    }

    /// Creates an error about misused options that quotes a given word.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn backup(word: &str) -> Result<BackupNames, String> {
        choose(word.as_ref(), "backup type", BACKUPS, Charset::Ascii)
            .map_err(|error| error.message.to_string_lossy().into_owned())
    }

    #[test]
    fn words_may_be_short() {
        assert_eq!(backup("no"), Ok(BackupNames::None));
        assert_eq!(backup("si"), Ok(BackupNames::Simple));
        assert_eq!(backup("t"), Ok(BackupNames::Numbered));
        assert_eq!(backup("o"), Ok(BackupNames::None));
        assert!(backup("n").is_err());
        let none = choose("none".as_ref(), "--update", UPDATES, Charset::Ascii);
        assert_eq!(
            none,
            Ok(OverwritePolicy::Keep),
            "though none-fail begins so, too"
        );
    }

    #[test]
    fn words_that_are_none_are_reported_with_those_there_are() {
        let expected = "invalid argument 'x' for 'backup type'\nValid arguments are:\n  - 'none', \
                        'off'\n  - 'simple', 'never'\n  - 'existing', 'nil'\n  - 'numbered', 't'";
        assert_eq!(backup("x"), Err(expected.to_owned()));
        let ambiguous = backup("").expect_err("everything begins so");
        assert!(ambiguous.starts_with("ambiguous argument '' for 'backup type'"));
    }

    #[test]
    fn rates_are_read_as_rsync_reads_them() {
        for (rate, expected) in [
            ("1", Some(Some(1024))),
            ("1k", Some(Some(1024))),
            ("1.5M", Some(Some(3 << 19))),
            ("2GiB", Some(Some(2 << 30))),
            ("2MB", Some(Some(2_000_000))),
            ("100b", Some(Some(100))),
            ("0", Some(None)),
            ("", None),
            ("M", None),
            ("1x", None),
            ("1kk", None),
            ("-1", None),
            ("1.2.3", None),
        ] {
            assert_eq!(read_rate(rate.as_ref()), expected, "{rate}");
        }
    }
}
