//! The problems of one entry, in GNU's words.

use std::ffi::{OsStr, OsString};
use std::fmt::{self, Write};
use std::os::unix::ffi::OsStrExt;

use rustix::io::Errno;
use serde::Serialize;
use underpass::errno::meaning;

use crate::report::quote::{Charset, Quoted, QuotedIfNeeded, QuotedWord};

/// An error or a warning about one entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The failed operation.
    pub kind: ProblemKind,
    /// The displayed path it concerns.
    pub path: OsString,
    /// The other path, or the attribute, that the message names.
    pub other: Option<OsString>,
    /// The errno of the kernel.
    pub errno: Option<Errno>,
    /// The call that failed.
    pub call: Option<&'static str>,
    /// For an incomplete copy, the bytes that had reached the destination, holes included.
    pub moved: Option<u64>,
    /// Whether it is an error.
    pub severity: Severity,
}

/// Whether a problem is an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// It is: the exit code is 1.
    Error,
    /// It is not.
    Warning,
}

impl Problem {
    /// Creates the error of a call about one name.
    pub(crate) fn failed(kind: ProblemKind, path: impl Into<OsString>, errno: Errno) -> Self {
        Self {
            errno: Some(errno),
            ..Self::new(kind, path)
        }
    }

    /// Creates an error without an errno.
    pub(crate) fn new(kind: ProblemKind, path: impl Into<OsString>) -> Self {
        Self {
            call: kind.call(),
            kind,
            path: path.into(),
            other: None,
            errno: None,
            moved: None,
            severity: Severity::Error,
        }
    }

    pub(crate) fn with_other(mut self, other: impl Into<OsString>) -> Self {
        self.other = Some(other.into());
        self
    }

    pub(crate) fn by_call(mut self, call: &'static str) -> Self {
        self.call = Some(call);
        self
    }

    /// Returns whether a lack of space is the reason that the file does not exist, or is still the
    /// old one. A file that exists and has lost an attribute, or may have lost its content, does
    /// not count.
    pub fn found_no_space(&self) -> bool {
        let is_full = matches!(self.errno, Some(Errno::NOSPC | Errno::DQUOT));
        let makes_it = matches!(
            self.kind,
            ProblemKind::Write
                | ProblemKind::Copy
                | ProblemKind::Clone
                | ProblemKind::CreateFile
                | ProblemKind::CreateDirectory
                | ProblemKind::CreateSymlink
                | ProblemKind::CreateHardLink
                | ProblemKind::CreateFifo
                | ProblemKind::CreateSpecial
                | ProblemKind::MakeParent
        );
        is_full && makes_it && self.severity == Severity::Error
    }

    pub(crate) fn warning(mut self) -> Self {
        self.severity = Severity::Warning;
        self
    }
}

/// The file at the other end of an incomplete transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtherEnd<'a> {
    /// The source.
    From(&'a OsStr),
    /// The destination.
    To(&'a OsStr),
}

/// Declares [`ProblemKind`]: the words of each kind, GNU's if GNU has any, and the call that
/// usually fails. `{a}` is the path, `{b}` the other one; `{n}` and `{why}` are the value of the
/// kind. Two messages quote the path otherwise. The words are part of a kind's documentation.
macro_rules! problem_kinds {
    ($($(#[$doc:meta])* $kind:ident $(($value:ty))?: $words:literal $(, $call:literal)?;)*) => {
        /// The failed operation.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum ProblemKind {
            $($(#[$doc])* #[doc = concat!("`", $words, "`")] $kind $(($value))?,)*
        }

        impl ProblemKind {
            fn words(&self) -> &'static str {
                match self {
                    $(Self::$kind { .. } => $words,)*
                }
            }

            fn call(&self) -> Option<&'static str> {
                match self {
                    $($(Self::$kind { .. } => Some($call),)?)*
                    _ => None,
                }
            }
        }
    };
}

problem_kinds! {
    /// The last of several operands can't be opened as a folder.
    Target: "target {a}", "openat";
    /// The argument of `-t` can't be opened as a folder.
    TargetDirectory: "target directory {a}", "openat";
    /// The source can't be looked up.
    Stat: "cannot stat {a}", "fstatat";
    /// The destination can't be looked up.
    StatDestination: "cannot stat {a}", "fstatat";
    OmittedDirectory: "-r not specified; omitting directory {a}";
    FileTwice: "warning: source file {a} specified more than once";
    DirectoryTwice: "warning: source directory {a} specified more than once";
    IntoItself: "cannot copy a directory, {a}, into itself, {b}";
    /// A symbolic link leads to a folder above it.
    Cycle: "cannot copy cyclic symbolic link {a}";
    SameFile: "{a} and {b} are the same file";
    OverNonDirectory: "cannot overwrite non-directory {a} with directory {b}";
    OverDirectory: "cannot overwrite directory {a} with non-directory {b}";
    JustCreated: "will not overwrite just-created {a} with {b}";
    ThroughJustCreated: "will not copy {b} through just-created symlink {a}";
    BackupWouldDestroy: "backing up {a} might destroy source;  {b} not copied";
    Backup: "cannot backup {a}", "renameat2";
    /// The old destination could not be renamed back.
    Restore: "cannot un-backup {a}", "renameat2";
    Dangling: "not writing through dangling symlink {a}";
    /// The destination stays (`--update=none-fail`).
    NotReplacing: "not replacing {a}";
    /// The existing destination can't be removed.
    Remove: "cannot remove {a}", "unlinkat";
    Open: "cannot open {a} for reading", "openat";
    /// A source folder can't be opened.
    OpenDirectory: "cannot access {a}", "openat";
    /// The entries of a folder can't be read.
    ReadDirectory: "cannot access {a}", "getdents64";
    Replaced: "skipping file {a}, as it was replaced while being copied";
    /// A file can't be created, or opened for writing.
    CreateFile: "cannot create regular file {a}", "openat";
    CreateDirectory: "cannot create directory {a}", "mkdirat";
    CreateSymlink: "cannot create symbolic link {a}{ to b}", "symlinkat";
    CreateHardLink: "cannot create hard link {a} to {b}", "linkat";
    CreateFifo: "cannot create fifo {a}", "mknodat";
    /// A device or socket can't be created.
    CreateSpecial: "cannot create special file {a}", "mknodat";
    HardLinkToDirectory: "will not create hard link {a} to directory {b}";
    ReadSymlink: "cannot read symbolic link {a}", "readlinkat";
    UnknownType: "{a} has unknown file type";
    RelativeSymlink: "{a bare}: can make relative symbolic links only in current directory";
    /// The file can't be cloned, as demanded: destination, source.
    Clone: "failed to clone {a} from {b}", "ioctl FICLONE";
    /// Reading the source failed: source, and destination if a transfer had started.
    Read: "error reading {a}";
    /// Writing the destination failed: destination, source.
    Write: "error writing {a}";
    /// The transfer failed, and neither side is known to be at fault.
    Copy: "error copying {a} to {b}";
    Shrunk: "{a} became shorter while it was copied";
    Ownership: "failed to preserve ownership for {a}", "fchownat";
    Times: "preserving times for {a}", "utimensat";
    /// Permission bits can't be set.
    Mode: "preserving permissions for {a in prose}", "fchmod";
    /// Access control lists can't be set.
    Acl: "preserving permissions for {a in prose}", "fsetxattr";
    /// Extended attributes can't be set; the other name is one of them.
    Xattr: "setting attribute{s or b} for {a}", "fsetxattr";
    Context: "failed to set the security context of {a}", "fsetxattr";
    Sync: "failed to sync {a}", "fsync";
    /// The file system of a destination can't be synced at the end: any file on it may be lost.
    SyncFileSystem: "failed to sync the file system of {a}", "syncfs";
    /// Written data may not be stored.
    Close: "failed to close {a}", "close";
    Rename: "cannot rename the finished copy to {a}", "renameat2";
    Differs(u64): "{a} differs from its source at byte {n}";
    Resume: "cannot resume {a}";
    Moved: "{a} was moved while it was copied; the rest of it was not copied";
    /// A symbolic link appeared at the destination during the copy.
    Planted: "not writing through {a}, which has become a symbolic link";
    /// A pattern is invalid, with the reason.
    Pattern(String): "{why}";
    /// A source folder of `--parents`, or a file whose metadata is preserved, can't be queried.
    ParentAttributes: "failed to get attributes of {a}";
    /// A folder of `--parents` can't be created.
    MakeParent: "cannot make directory {a}";
    ParentNotDirectory: "{a} exists but is not a directory";
    /// The copy was stopped: source, destination. This many bytes are in place.
    Stopped(u64): "stopped copying {a} after {n} bytes";
    Refused: "cannot copy {a} to {b} with the only mechanism allowed";
}

/// A problem as a message, with paths quoted for a charset.
#[derive(Clone, Copy, Debug)]
pub struct ProblemMessage<'a> {
    problem: &'a Problem,
    charset: Charset,
}

impl Problem {
    /// Returns the message of GNU `cp`, without the prefix: the failed operation and, if a call
    /// failed, the C library's message for the errno.
    pub fn message(&self, charset: Charset) -> ProblemMessage<'_> {
        let problem = self;
        ProblemMessage { problem, charset }
    }

    /// Returns the other file of an incomplete transfer, if the message names only one.
    pub fn other_end(&self) -> Option<OtherEnd<'_>> {
        let other = self.other.as_deref()?;
        match self.kind {
            ProblemKind::Write => Some(OtherEnd::From(other)),
            ProblemKind::Read | ProblemKind::Shrunk | ProblemKind::Stopped(_) => {
                Some(OtherEnd::To(other))
            }
            _ => None,
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.message(Charset::Utf8).fmt(f)
    }
}

impl fmt::Display for ProblemMessage<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { problem, charset } = *self;
        let path = problem.path.as_bytes();
        let other = problem.other.as_deref().map(OsStrExt::as_bytes);
        let mut parts = problem.kind.words().split('{');
        f.write_str(parts.next().unwrap_or_default())?;
        for part in parts {
            let (place, rest) = part.split_once('}').unwrap_or((part, ""));
            match place {
                "a" => Quoted(path, charset).fmt(f)?,
                "b" => Quoted(other.unwrap_or_default(), charset).fmt(f)?,
                " to b" if other.is_none() => (),
                " to b" => write!(f, " to {}", Quoted(other.unwrap_or_default(), charset))?,
                "s or b" => match other {
                    Some(other) => write!(f, " {}", Quoted(other, charset))?,
                    None => f.write_char('s')?,
                },
                "a in prose" => QuotedWord(path, charset).fmt(f)?,
                "a bare" => QuotedIfNeeded(path, charset).fmt(f)?,
                _ => problem.kind.detail(f)?,
            }
            f.write_str(rest)?;
        }
        match problem.errno {
            Some(errno) => write!(f, ": {}", meaning(errno)),
            None => Ok(()),
        }
    }
}

impl ProblemKind {
    /// Formats the value of the kind.
    fn detail(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Differs(number) | Self::Stopped(number) => write!(f, "{number}"),
            Self::Pattern(why) => f.write_str(why),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_other_file_is_reported_where_the_words_name_one() {
        let problem = |kind| Problem::new(kind, "a").with_other("b");
        let other = |kind| problem(kind).other_end().map(|end| format!("{end:?}"));
        assert_eq!(other(ProblemKind::Write).as_deref(), Some(r#"From("b")"#));
        for kind in [
            ProblemKind::Read,
            ProblemKind::Shrunk,
            ProblemKind::Stopped(3),
        ] {
            assert_eq!(other(kind).as_deref(), Some(r#"To("b")"#));
        }
        for kind in [
            ProblemKind::Copy,
            ProblemKind::Clone,
            ProblemKind::Refused,
            ProblemKind::SameFile,
        ] {
            assert!(
                problem(kind.clone()).to_string().contains("'b'"),
                "{kind:?}"
            );
            assert_eq!(other(kind), None);
        }
        assert_eq!(Problem::new(ProblemKind::Read, "a").other_end(), None);
    }

    #[test]
    fn a_problem_reads_as_gnu_words_it() {
        let problem = Problem::failed(ProblemKind::Open, "a", Errno::ACCESS);
        let expected = "cannot open 'a' for reading: Permission denied";
        assert_eq!(problem.to_string(), expected);
        assert_eq!(problem.call, Some("openat"));
        let problem = Problem::new(ProblemKind::SameFile, "a b").with_other("it's");
        assert_eq!(problem.to_string(), r#"'a b' and "it's" are the same file"#);
        let problem = Problem::failed(ProblemKind::Acl, "é", Errno::IO);
        let expected = r"preserving permissions for '\303\251': Input/output error";
        assert_eq!(problem.message(Charset::Ascii).to_string(), expected);
    }
}
