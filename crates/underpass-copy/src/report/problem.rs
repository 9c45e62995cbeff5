//! What can go wrong with one name, in the words that users of `cp` know.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::OsStrExt;

use rustix::io::Errno;

use crate::report::quote::{Charset, Quoted, QuotedIfNeeded, Word};

/// Something that went wrong, or that somebody has to know, about one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// What could not be done. Its `Display` is the message of GNU `cp`, without the prefix and
    /// without the kernel's words.
    pub what: What,
    /// The name it is about, as it would be shown.
    pub path: OsString,
    /// The other name that the message mentions, if it mentions one.
    pub other: Option<OsString>,
    /// What the kernel said.
    pub errno: Option<Errno>,
    /// The call that said it.
    pub call: Option<&'static str>,
    /// Bytes of the content that had reached the destination, holes included: of a copy that broke
    /// off on the way.
    pub moved: Option<u64>,
    /// Whether the copy has failed by it.
    pub severity: Severity,
}

/// Whether a copy has failed by a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// It has: the exit code is 1.
    Error,
    /// It hasn't.
    Warning,
}

impl Problem {
    /// An error of a call about one name.
    pub(crate) fn of(what: What, path: impl Into<OsString>, errno: Errno) -> Self {
        Self {
            errno: Some(errno),
            ..Self::said(what, path)
        }
    }

    /// An error that no call told.
    pub(crate) fn said(what: What, path: impl Into<OsString>) -> Self {
        Self {
            call: what.call(),
            what,
            path: path.into(),
            other: None,
            errno: None,
            moved: None,
            severity: Severity::Error,
        }
    }

    pub(crate) fn and(mut self, other: impl Into<OsString>) -> Self {
        self.other = Some(other.into());
        self
    }

    pub(crate) fn by(mut self, call: &'static str) -> Self {
        self.call = Some(call);
        self
    }

    pub(crate) fn warning(mut self) -> Self {
        self.severity = Severity::Warning;
        self
    }
}

/// The file at the other end of content that did not get there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtherEnd<'a> {
    /// It came from this one.
    From(&'a OsStr),
    /// It was to get into this one.
    To(&'a OsStr),
}

/// What could not be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// The last of several operands, or with `-t`, is no folder.
    Target,
    /// The operand of `-t` is no folder.
    TargetDirectory,
    /// The source is not to be seen.
    Stat,
    /// The destination is not to be seen.
    StatDestination,
    /// A folder without `-r`.
    OmittedDirectory,
    /// The same source twice on the command line.
    FileTwice,
    /// The same folder twice on the command line.
    DirectoryTwice,
    /// A folder would be copied into itself: source, destination.
    IntoItself,
    /// A folder was met again below itself through a symbolic link.
    Cycle,
    /// Source and destination are one file.
    SameFile,
    /// An existing file is in the place of a folder: destination, source.
    OverNonDirectory,
    /// A folder is in the place of a file: destination.
    OverDirectory,
    /// What this run has made would be overwritten by something else: destination, source.
    JustCreated,
    /// Making a backup would rename the source: destination, source.
    BackupWouldDestroy,
    /// The old destination could not be renamed.
    Backup,
    /// The old destination could not get its name back.
    Restore,
    /// The destination is a symbolic link that leads nowhere.
    Dangling,
    /// The destination stays (`--update=none-fail`).
    NotReplacing,
    /// Something that was to make way.
    Remove,
    /// A file to read.
    Open,
    /// A folder to read.
    OpenDirectory,
    /// A folder's entries.
    ReadDirectory,
    /// What was opened is not what was seen before.
    Replaced,
    /// A new file.
    CreateFile,
    /// A new folder.
    CreateDirectory,
    /// A new symbolic link: link, what it leads to.
    CreateSymlink,
    /// A new name of a file: name, file.
    CreateHardLink,
    /// A new FIFO.
    CreateFifo,
    /// A new device or socket.
    CreateSpecial,
    /// Several names of one folder.
    HardLinkToDirectory,
    /// A symbolic link's content.
    ReadSymlink,
    /// Something that is neither file nor folder nor anything known.
    UnknownType,
    /// Relative symbolic links lead astray in another folder.
    RelativeSymlink,
    /// Shared blocks that were demanded: destination, source.
    Clone,
    /// Reading the source: it, and the destination if content was on its way.
    Read,
    /// Writing the destination: it, and the source.
    Write,
    /// Bytes did not get there, and neither side is known to be at fault.
    Copy,
    /// The source ended before its end.
    Shrunk,
    /// Owner or group of the copy.
    Ownership,
    /// Times of the copy.
    Times,
    /// Permission bits of the copy.
    Mode,
    /// Access control lists of the copy.
    Acl,
    /// An extended attribute.
    Xattr,
    /// The security context.
    Context,
    /// A file or folder that should be on disk.
    Sync,
    /// The name a complete file should get.
    Rename,
    /// The copy differs from the source from this offset on.
    Differs(u64),
    /// What an earlier copy left can't be gone on with.
    Resume,
    /// A folder was moved while it was copied; what was left in it was not copied.
    Moved,
    /// A symbolic link appeared in the place of the destination while the copy went on.
    Planted,
    /// A pattern that makes no sense, and why.
    Pattern(String),
    /// Attributes of a folder of `--parents`.
    ParentAttributes,
    /// A folder of `--parents` that can't be made.
    MakeParent,
    /// What is in the place of a folder of `--parents` is none.
    ParentNotDirectory,
    /// Somebody asked to stop before the file was complete: source, destination. So many of its
    /// bytes are there.
    Stopped(u64),
    /// The mechanism that was demanded can't copy this: source, destination.
    Refused,
}

impl What {
    /// The call that usually tells it.
    fn call(&self) -> Option<&'static str> {
        Some(match self {
            Self::Target | Self::TargetDirectory | Self::Open | Self::OpenDirectory => "openat",
            Self::Stat | Self::StatDestination => "fstatat",
            Self::Backup | Self::Restore | Self::Rename => "renameat2",
            Self::Remove => "unlinkat",
            Self::ReadDirectory => "getdents64",
            Self::CreateFile => "openat",
            Self::CreateDirectory => "mkdirat",
            Self::CreateSymlink => "symlinkat",
            Self::CreateHardLink => "linkat",
            Self::CreateFifo | Self::CreateSpecial => "mknodat",
            Self::ReadSymlink => "readlinkat",
            Self::Clone => "ioctl FICLONE",
            Self::Ownership => "fchownat",
            Self::Times => "utimensat",
            Self::Mode => "fchmod",
            Self::Acl | Self::Xattr | Self::Context => "fsetxattr",
            Self::Sync => "fsync",
            _ => return None,
        })
    }
}

/// A problem in words, with names quoted for a charset.
#[derive(Clone, Copy, Debug)]
pub struct Worded<'a> {
    problem: &'a Problem,
    charset: Charset,
}

impl Problem {
    /// The message of GNU `cp`, without the prefix: what could not be done and, where a call told,
    /// the C library's words for that.
    pub fn worded(&self, charset: Charset) -> Worded<'_> {
        let problem = self;
        Worded { problem, charset }
    }

    /// The other file of a copy that broke off, where the words name one only.
    pub fn other_end(&self) -> Option<OtherEnd<'_>> {
        let other = self.other.as_deref()?;
        match self.what {
            What::Write => Some(OtherEnd::From(other)),
            What::Read | What::Shrunk | What::Stopped(_) => Some(OtherEnd::To(other)),
            _ => None,
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.worded(Charset::Utf8).fmt(f)
    }
}

impl fmt::Display for Worded<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { problem, charset } = *self;
        let path = problem.path.as_bytes();
        let other = problem.other.as_deref().map(OsStrExt::as_bytes);
        let mut parts = problem.what.words(other.is_some()).split('{');
        f.write_str(parts.next().unwrap_or_default())?;
        for part in parts {
            let (place, rest) = part.split_once('}').unwrap_or((part, ""));
            match place {
                "a" => Quoted(path, charset).fmt(f)?,
                "b" => Quoted(other.unwrap_or_default(), charset).fmt(f)?,
                "a in prose" => Word(path, charset).fmt(f)?,
                "a bare" => QuotedIfNeeded(path, charset).fmt(f)?,
                _ => problem.what.detail(f)?,
            }
            f.write_str(rest)?;
        }
        match problem.errno {
            Some(errno) => write!(f, ": {}", meaning(errno)),
            None => Ok(()),
        }
    }
}

/// The C library's words for an errno.
fn meaning(errno: Errno) -> String {
    let meaning = std::io::Error::from(errno).to_string();
    match meaning.rsplit_once(" (os error") {
        Some((meaning, _)) => meaning.to_owned(),
        None => meaning,
    }
}

impl What {
    /// GNU's words, where GNU has any. `{a}` is the path, `{b}` the other one, `{n}` a number,
    /// `{why}` a reason; two messages quote the path as others don't.
    fn words(&self, names_other: bool) -> &'static str {
        match self {
            Self::Target => "target {a}",
            Self::TargetDirectory => "target directory {a}",
            Self::Stat | Self::StatDestination => "cannot stat {a}",
            Self::OmittedDirectory => "-r not specified; omitting directory {a}",
            Self::FileTwice => "warning: source file {a} specified more than once",
            Self::DirectoryTwice => "warning: source directory {a} specified more than once",
            Self::IntoItself => "cannot copy a directory, {a}, into itself, {b}",
            Self::Cycle => "cannot copy cyclic symbolic link {a}",
            Self::SameFile => "{a} and {b} are the same file",
            Self::OverNonDirectory => "cannot overwrite non-directory {a} with directory {b}",
            Self::OverDirectory => "cannot overwrite directory {a} with non-directory",
            Self::JustCreated => "will not overwrite just-created {a} with {b}",
            // Two blanks: GNU has them.
            Self::BackupWouldDestroy => "backing up {a} might destroy source;  {b} not copied",
            Self::Backup => "cannot backup {a}",
            Self::Restore => "cannot un-backup {a}",
            Self::Dangling => "not writing through dangling symlink {a}",
            Self::NotReplacing => "not replacing {a}",
            Self::Remove => "cannot remove {a}",
            Self::Open => "cannot open {a} for reading",
            Self::OpenDirectory | Self::ReadDirectory => "cannot access {a}",
            Self::Replaced => "skipping file {a}, as it was replaced while being copied",
            Self::CreateFile => "cannot create regular file {a}",
            Self::CreateDirectory => "cannot create directory {a}",
            Self::CreateSymlink if names_other => "cannot create symbolic link {a} to {b}",
            Self::CreateSymlink => "cannot create symbolic link {a}",
            Self::CreateHardLink => "cannot create hard link {a} to {b}",
            Self::CreateFifo => "cannot create fifo {a}",
            Self::CreateSpecial => "cannot create special file {a}",
            Self::HardLinkToDirectory => "will not create hard link {a} to directory {b}",
            Self::ReadSymlink => "cannot read symbolic link {a}",
            Self::UnknownType => "{a} has unknown file type",
            Self::RelativeSymlink => {
                "{a bare}: can make relative symbolic links only in current directory"
            }
            Self::Clone => "failed to clone {a} from {b}",
            Self::Read => "error reading {a}",
            Self::Write => "error writing {a}",
            Self::Copy => "error copying {a} to {b}",
            Self::Shrunk => "{a} became shorter while it was copied",
            Self::Ownership => "failed to preserve ownership for {a}",
            Self::Times => "preserving times for {a}",
            Self::Mode | Self::Acl => "preserving permissions for {a in prose}",
            Self::Xattr if names_other => "setting attribute {b} for {a}",
            Self::Xattr => "setting attributes for {a}",
            Self::Context => "failed to set the security context of {a}",
            Self::Sync => "failed to sync {a}",
            Self::Rename => "cannot rename the finished copy to {a}",
            Self::Differs(_) => "{a} differs from its source at byte {n}",
            Self::Resume => "cannot go on with {a}",
            Self::Moved => "{a} was moved while it was copied; the rest of it was not copied",
            Self::Planted => "not writing through {a}, which has become a symbolic link",
            Self::Pattern(_) => "{why}",
            Self::ParentAttributes => "failed to get attributes of {a}",
            Self::MakeParent => "cannot make directory {a}",
            Self::ParentNotDirectory => "{a} exists but is not a directory",
            Self::Stopped(_) => "stopped copying {a} after {n} bytes",
            Self::Refused => "cannot copy {a} to {b} by the only way allowed",
        }
    }

    /// What the words leave a place for, beside names.
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
    fn the_other_file_is_told_where_the_words_name_one() {
        let problem = |what| Problem::said(what, "a").and("b");
        let other = |what| problem(what).other_end().map(|end| format!("{end:?}"));
        assert_eq!(other(What::Write).as_deref(), Some(r#"From("b")"#));
        for what in [What::Read, What::Shrunk, What::Stopped(3)] {
            assert_eq!(other(what).as_deref(), Some(r#"To("b")"#));
        }
        for what in [What::Copy, What::Clone, What::Refused, What::SameFile] {
            assert!(
                problem(what.clone()).to_string().contains("'b'"),
                "{what:?}"
            );
            assert_eq!(other(what), None);
        }
        assert_eq!(Problem::said(What::Read, "a").other_end(), None);
    }

    #[test]
    fn a_problem_reads_as_gnu_words_it() {
        let problem = Problem::of(What::Open, "a", Errno::ACCESS);
        let expected = "cannot open 'a' for reading: Permission denied";
        assert_eq!(problem.to_string(), expected);
        assert_eq!(problem.call, Some("openat"));
        let problem = Problem::said(What::SameFile, "a b").and("it's");
        assert_eq!(problem.to_string(), r#"'a b' and "it's" are the same file"#);
        let problem = Problem::of(What::Acl, "é", Errno::IO);
        let expected = r"preserving permissions for '\303\251': Input/output error";
        assert_eq!(problem.worded(Charset::Ascii).to_string(), expected);
    }
}
