//! Every option of `cp`, once: parsing, `--help`, the man page and completions come from here.

/// What an option asks for, whichever way it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Id {
    Archive,
    Atomic,
    AttributesOnly,
    Backup,
    BandwidthLimit,
    Context,
    CopyContents,
    Debug,
    Dereference,
    DereferenceOperands,
    DryRun,
    Exclude,
    Explain,
    Force,
    Fsync,
    Help,
    Include,
    Interactive,
    Jobs,
    Json,
    KeepDirectorySymlink,
    Link,
    NoClobber,
    NoDereference,
    NoDereferenceLinks,
    NoPreserve,
    NoTargetDirectory,
    OneFileSystem,
    Only,
    Parents,
    Preserve,
    Progress,
    Recursive,
    Reflink,
    RemoveDestination,
    Resume,
    Sparse,
    StripTrailingSlashes,
    Suffix,
    SymbolicLink,
    TargetDirectory,
    Update,
    Verbose,
    Verify,
    Version,
}

/// What follows a long option, or a short one that can't do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Argument {
    None,
    Required(&'static str),
    /// Behind `=` only.
    Optional(&'static str),
}

/// Whose option it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Group {
    Gnu,
    /// Understood by GNU, but told nobody.
    GnuUntold,
    Underpass,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Definition {
    pub(super) id: Id,
    /// The letters; the first one is the usual one.
    pub(super) short: &'static str,
    pub(super) long: Option<&'static str>,
    pub(super) argument: Argument,
    pub(super) group: Group,
    /// Words that are possible arguments, where there are only those.
    pub(super) words: &'static [&'static str],
    pub(super) help: &'static str,
}

/// One of GNU's; ours say so behind it.
const fn option(
    id: Id,
    short: &'static str,
    long: &'static str,
    argument: Argument,
    help: &'static str,
) -> Definition {
    Definition {
        id,
        short,
        long: if long.is_empty() { None } else { Some(long) },
        argument,
        group: Group::Gnu,
        words: &[],
        help,
    }
}

impl Definition {
    const fn words(mut self, words: &'static [&'static str]) -> Self {
        self.words = words;
        self
    }

    const fn ours(mut self) -> Self {
        self.group = Group::Underpass;
        self
    }

    const fn untold(mut self) -> Self {
        self.group = Group::GnuUntold;
        self
    }

    pub(super) fn is_gnu(&self) -> bool {
        self.group != Group::Underpass
    }
}

use Argument::{None as Bare, Optional, Required};

/// In GNU's order, which messages about abbreviations show; ours behind them.
pub(super) const OPTIONS: &[Definition] = &[
    option(
        Id::Archive,
        "a",
        "archive",
        Bare,
        "copy trees as they are: -dR --preserve=all",
    ),
    option(
        Id::AttributesOnly,
        "",
        "attributes-only",
        Bare,
        "copy metadata and leave the content alone",
    ),
    option(
        Id::Backup,
        "b",
        "backup",
        Optional("CONTROL"),
        "rename an existing destination first; how it is named is CONTROL's matter (see below). -b \
         takes none",
    )
    .words(&[
        "none", "off", "numbered", "t", "existing", "nil", "simple", "never",
    ]),
    option(
        Id::CopyContents,
        "",
        "copy-contents",
        Bare,
        "with -R, read FIFOs and devices instead of making new ones",
    ),
    option(
        Id::Debug,
        "",
        "debug",
        Bare,
        "tell how each file was copied, in GNU's terms; includes -v",
    ),
    option(
        Id::Dereference,
        "L",
        "dereference",
        Bare,
        "follow all symbolic links in SOURCE",
    ),
    option(
        Id::Force,
        "f",
        "force",
        Bare,
        "remove a destination that can't be opened for writing, and try again",
    ),
    option(
        Id::Interactive,
        "i",
        "interactive",
        Bare,
        "ask before overwriting; the last one of -i and -n counts",
    ),
    option(
        Id::KeepDirectorySymlink,
        "",
        "keep-directory-symlink",
        Bare,
        "copy into an existing symbolic link to a directory as if it were one",
    ),
    option(
        Id::Link,
        "l",
        "link",
        Bare,
        "make hard links instead of copies",
    ),
    option(
        Id::NoClobber,
        "n",
        "no-clobber",
        Bare,
        "leave existing files alone and say nothing; the last one of -i and -n counts",
    ),
    option(
        Id::NoDereference,
        "P",
        "no-dereference",
        Bare,
        "follow no symbolic link in SOURCE: copy the link",
    ),
    option(
        Id::NoPreserve,
        "",
        "no-preserve",
        Required("ATTRIBUTES"),
        "leave these attributes out again (a list, as for --preserve)",
    ),
    option(
        Id::NoTargetDirectory,
        "T",
        "no-target-directory",
        Bare,
        "DEST is the copy's own name, even if there is a directory",
    ),
    option(
        Id::OneFileSystem,
        "x",
        "one-file-system",
        Bare,
        "enter no other file systems",
    ),
    option(
        Id::Parents,
        "",
        "parents",
        Bare,
        "repeat all of SOURCE's path below DIRECTORY",
    ),
    option(Id::Parents, "", "path", Bare, "").untold(),
    option(
        Id::Preserve,
        "p",
        "preserve",
        Optional("ATTRIBUTES"),
        "keep attributes, a list of: mode, ownership, timestamps (these three if there is no list, \
         and with -p), links, context, xattr, all",
    ),
    option(
        Id::Recursive,
        "Rr",
        "recursive",
        Bare,
        "copy directories with all that is in them",
    ),
    option(
        Id::RemoveDestination,
        "",
        "remove-destination",
        Bare,
        "remove existing files before copying, whether writable or not",
    ),
    option(
        Id::Sparse,
        "",
        "sparse",
        Required("WHEN"),
        "auto: keep the holes of SOURCE; always: make holes of zeros, too; never: fill holes",
    )
    .words(&["auto", "always", "never"]),
    option(
        Id::Reflink,
        "",
        "reflink",
        Optional("WHEN"),
        "share blocks with SOURCE. auto: where the file system can; always (also without WHEN): \
         or fail; never: copy every byte",
    )
    .words(&["auto", "always", "never"]),
    option(
        Id::StripTrailingSlashes,
        "",
        "strip-trailing-slashes",
        Bare,
        "take slashes off the end of each SOURCE",
    ),
    option(
        Id::Suffix,
        "S",
        "suffix",
        Required("SUFFIX"),
        "end the names of backups with it",
    ),
    option(
        Id::SymbolicLink,
        "s",
        "symbolic-link",
        Bare,
        "make symbolic links instead of copies",
    ),
    option(
        Id::TargetDirectory,
        "t",
        "target-directory",
        Required("DIRECTORY"),
        "copy every SOURCE into DIRECTORY",
    ),
    option(
        Id::Update,
        "u",
        "update",
        Optional("UPDATE"),
        "which existing files are overwritten. older (also without UPDATE): those older than \
         SOURCE; all; none; none-fail: none, and that is an error",
    )
    .words(&["all", "none", "none-fail", "older"]),
    option(Id::Verbose, "v", "verbose", Bare, "name every file"),
    option(
        Id::Context,
        "Z",
        "context",
        Optional("CONTEXT"),
        "security context of the copy; ignored where the kernel has no SELinux",
    ),
    option(Id::Help, "", "help", Bare, "show this and exit"),
    option(
        Id::Version,
        "",
        "version",
        Bare,
        "show the version and exit",
    ),
    option(Id::NoDereferenceLinks, "d", "", Bare, "-P --preserve=links"),
    option(
        Id::DereferenceOperands,
        "H",
        "",
        Bare,
        "follow symbolic links named on the command line",
    ),
    option(
        Id::Jobs,
        "j",
        "jobs",
        Required("N"),
        "copy N files at once [default: the number of processors, at most 16; as cp 1]",
    )
    .ours(),
    option(
        Id::Progress,
        "g",
        "progress",
        Optional("WHEN"),
        "show how far it is. auto: on a terminal, after a second; always (also without WHEN); \
         never [default: auto; as cp never]",
    )
    .ours()
    .words(&["auto", "always", "never"]),
    option(
        Id::Atomic,
        "",
        "atomic",
        Bare,
        "write beside the destination and rename: nobody sees half a file",
    )
    .ours(),
    option(
        Id::Fsync,
        "",
        "fsync",
        Optional("WHAT"),
        "have it on disk. file (also without WHAT): each file when it is done; dir: its directory, \
         too; end: everything, at the end",
    )
    .ours()
    .words(&["file", "dir", "end"]),
    option(
        Id::Verify,
        "",
        "verify",
        Bare,
        "read copies back from disk and compare them",
    )
    .ours(),
    option(
        Id::Resume,
        "",
        "resume",
        Bare,
        "go on with what an earlier copy left, as far as its content is right",
    )
    .ours(),
    option(
        Id::Exclude,
        "",
        "exclude",
        Required("PATTERN"),
        "leave out what matches, as in .gitignore; the last pattern that matches counts",
    )
    .ours(),
    option(
        Id::Include,
        "",
        "include",
        Required("PATTERN"),
        "copy what matches although it was excluded",
    )
    .ours(),
    option(
        Id::DryRun,
        "",
        "dry-run",
        Bare,
        "only tell what would be done",
    )
    .ours(),
    option(
        Id::Only,
        "",
        "only",
        Required("MECHANISM"),
        "move bytes this way or not at all: clone, copy_range, sendfile, splice, read_write",
    )
    .ours()
    .words(&["clone", "copy_range", "sendfile", "splice", "read_write"]),
    option(
        Id::Explain,
        "",
        "explain",
        Bare,
        "tell for each file what was planned, what was refused and how its bytes travelled",
    )
    .ours(),
    option(
        Id::Json,
        "",
        "json",
        Bare,
        "tell all of it on standard output, an object per line",
    )
    .ours(),
    option(
        Id::BandwidthLimit,
        "",
        "bwlimit",
        Required("RATE"),
        "at most RATE per second, all files together: KiB, or with a suffix K, M, G, T (powers of \
         1024) or KB, MB, GB, TB (of 1000)",
    )
    .ours(),
];
