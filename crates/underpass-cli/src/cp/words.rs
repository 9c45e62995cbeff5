//! Arguments that are one word of a few.

use std::ffi::OsStr;
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;

use underpass::{Cloning, Holes, Mechanism};
use underpass_copy::{Charset, Fsync, OverwritePolicy, QuotedWord};

use super::mistake::UsageError;

/// Words and their meanings. Neighbours with the same meaning are listed on one line.
pub(super) type Choices<T> = &'static [(&'static str, T)];

/// How backups are named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BackupNames {
    None,
    Simple,
    Existing,
    Numbered,
}

/// What `--preserve` can name.
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

pub(super) const MECHANISMS: Choices<Mechanism> = &[
    ("clone", Mechanism::Clone),
    ("copy_range", Mechanism::CopyRange),
    ("sendfile", Mechanism::Sendfile),
    ("splice", Mechanism::Splice),
    ("read_write", Mechanism::ReadWrite),
];

/// What a word, or the beginning of one, means. `about` is what it is an argument of.
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

/// The words alone.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn backup(word: &str) -> Result<BackupNames, String> {
        choose(word.as_ref(), "backup type", BACKUPS, Charset::Ascii)
            .map_err(|mistake| mistake.message.to_string_lossy().into_owned())
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
    fn words_that_are_none_are_told_with_those_there_are() {
        let expected = "invalid argument 'x' for 'backup type'\nValid arguments are:\n  - 'none', \
                        'off'\n  - 'simple', 'never'\n  - 'existing', 'nil'\n  - 'numbered', 't'";
        assert_eq!(backup("x"), Err(expected.to_owned()));
        let ambiguous = backup("").expect_err("everything begins so");
        assert!(ambiguous.starts_with("ambiguous argument '' for 'backup type'"));
    }
}
