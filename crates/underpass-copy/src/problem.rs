//! What can go wrong with one name, in the words that users of `cp` know.

use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::OsStrExt;

use rustix::io::Errno;

use crate::quote::Quoted;

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
    /// Reading the source.
    Read,
    /// Writing the destination.
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
    /// Somebody asked to stop before the file was complete: source, destination. So many bytes of it
    /// are there.
    Stopped(u64),
    /// The mechanism that was demanded can't copy this: source, destination.
    Refused,
}

impl What {
    /// The call that usually tells it.
    fn call(&self) -> Option<&'static str> {
        todo!()
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = Quoted(self.path.as_bytes());
        todo!("{path:?}")
    }
}
