//! What a copy is asked to do: plain data, decided by whoever reads a command line.

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use underpass::{Cloning, Holes, Mechanism};

/// All that a copy is asked to do. The default is `cp` without an option.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// What is made of a source (`-l`, `-s`, `--attributes-only`).
    pub manner: Manner,
    /// Whether folders are entered (`-r`).
    pub recursion: Recursion,
    /// Which symbolic links are followed (`-P`, `-H`, `-L`).
    pub links: Links,
    /// What of a file's metadata goes along (`-p`, `--preserve`, `--no-preserve`).
    pub preserve: Preserve,
    /// What happens to a destination that is there already (`-n`, `-i`, `-u`).
    pub existing: Existing,
    /// What is removed to make way (`-f`, `--remove-destination`).
    pub making_way: MakingWay,
    /// What happens to the old destination before it is overwritten (`-b`, `--backup`, `-S`).
    pub backup: Backup,
    /// What the last operand is (`-t`, `-T`).
    pub target: Target,
    /// What stands below the target folder (`--parents`).
    pub naming: Naming,
    /// Slashes at the end of a source (`--strip-trailing-slashes`).
    pub slashes: Slashes,
    /// Whether other file systems are entered (`-x`).
    pub borders: Borders,
    /// What special files become in recursion (`--copy-contents`).
    pub specials: Specials,
    /// What a symbolic link to a folder in the place of a destination folder is
    /// (`--keep-directory-symlink`).
    pub folder_links: FolderLinks,
    /// A symbolic link that leads nowhere in the place of a destination (`POSIXLY_CORRECT`).
    pub dangling: Dangling,
    /// Holes of files (`--sparse`).
    pub holes: Holes,
    /// Shared blocks (`--reflink`).
    pub cloning: Cloning,
    /// The only mechanism that may move bytes (`--only`).
    pub only: Option<Mechanism>,
    /// How a file comes to its name (`--atomic`).
    pub placement: Placement,
    /// What is on disk when the copy is said to be done (`--fsync`).
    pub durability: Durability,
    /// Whether copies are read back (`--verify`).
    pub verification: Verification,
    /// Whether what an earlier copy left is gone on with (`--resume`).
    pub leftovers: Leftovers,
    /// Which names take part, in the order given: the last one that matches decides
    /// (`--exclude`, `--include`).
    pub rules: Vec<Rule>,
    /// Whether anything is done at all (`--dry-run`).
    pub effect: Effect,
    /// Bytes per second, all files together (`--bwlimit`).
    pub bytes_per_second_max: Option<u64>,
    /// How many files at once (`-j`), at most [`Options::JOBS_MAX`]; 1 also means that what is told
    /// comes at once.
    pub jobs: Option<NonZeroUsize>,
}

impl Options {
    /// More files at once than this would need more descriptors than a process usually has, and
    /// no disk or server has been seen to gain by it.
    pub const JOBS_MAX: usize = 128;
}

/// What is made of a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Manner {
    /// A copy.
    #[default]
    Copy,
    /// A file's metadata without its content.
    AttributesOnly,
    /// Another name of the same file.
    HardLink,
    /// A symbolic link to it.
    SymbolicLink,
}

/// Whether folders are entered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Recursion {
    /// A folder is an error.
    #[default]
    Off,
    /// Folders are copied with all that is in them.
    On,
}

/// Which symbolic links of the source are followed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Links {
    /// All, or none where folders are entered: what `cp` does when it isn't told.
    #[default]
    Unsaid,
    /// None: links are copied as links.
    Kept,
    /// Those named on the command line.
    FollowedOnCommandLine,
    /// All.
    Followed,
}

/// What of the metadata goes along.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Preserve {
    /// Permission bits and access control lists.
    pub mode: Wish,
    /// Owner and group.
    pub ownership: Wish,
    /// Times of last access and change.
    pub timestamps: Wish,
    /// Several names of one file stay names of one file.
    pub links: Wish,
    /// The security context.
    pub context: Wish,
    /// Extended attributes.
    pub xattr: Wish,
}

/// How much something is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wish {
    /// Explicitly not.
    Refused,
    /// Nothing was said.
    #[default]
    Unsaid,
    /// Where it can be had; where it can't, nothing is said of it.
    Tried,
    /// Failing to is told, and no error.
    Told,
    /// Failing to is an error.
    Required,
}

impl Wish {
    /// Whether it is to be done at all.
    pub fn is_wanted(self) -> bool {
        self >= Self::Tried
    }
}

/// What happens to a destination that is there already and is no folder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Existing {
    /// It is overwritten.
    #[default]
    Overwritten,
    /// Somebody is asked.
    Asked(Update),
    /// It stays, and nothing is said.
    Kept,
    /// It stays, and that is an error.
    KeptAsError,
    /// It stays unless it is older.
    KeptUnlessOlder,
}

/// Whether asking is spared where the destination is not older.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Update {
    /// Asked in any case.
    #[default]
    All,
    /// One that is not older stays, without asking.
    Older,
}

/// What is removed to make way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MakingWay {
    /// Nothing: an existing file is overwritten in place.
    #[default]
    Nothing,
    /// A file that can't be opened for writing (`--force`).
    Unwritable,
    /// Every existing file, first (`--remove-destination`).
    Everything,
}

/// What happens to the old destination.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Backup {
    /// It is lost.
    #[default]
    None,
    /// It is renamed: name and suffix.
    Simple(OsString),
    /// It is renamed: `name.~1~`, `name.~2~` and so on.
    Numbered,
    /// Numbered where a numbered one is there already, else with this suffix.
    Existing(OsString),
}

/// What the last operand is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Target {
    /// A folder that is copied into, if it is one; otherwise the name of the copy.
    #[default]
    LastOperand,
    /// The name of the copy, whatever is there (`-T`).
    LastOperandAsName,
    /// This folder; all operands are sources (`-t`).
    Folder(PathBuf),
}

/// What stands below the target folder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Naming {
    /// The last component of the source.
    #[default]
    LastComponent,
    /// All of the source's path; folders that lack are made (`--parents`).
    Parents,
}

/// Slashes at the end of a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Slashes {
    /// They count: `link/` is the folder it leads to.
    #[default]
    Kept,
    /// They are taken away.
    Stripped,
}

/// Whether other file systems are entered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Borders {
    /// They are.
    #[default]
    Crossed,
    /// A folder that is a mount point stays empty.
    Kept,
}

/// What special files become in recursion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Specials {
    /// Special files.
    #[default]
    Recreated,
    /// Regular files with what can be read from them.
    Read,
}

/// A symbolic link to a folder in the place of a destination folder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FolderLinks {
    /// Is in the way.
    #[default]
    Refused,
    /// Is followed.
    Followed,
}

/// A symbolic link that leads nowhere in the place of a destination.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dangling {
    /// Is an error.
    #[default]
    Refused,
    /// Is written through, as POSIX wants it.
    WrittenThrough,
}

/// How a file comes to its name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// It is written under it; an existing one is overwritten in place and keeps its owner, mode
    /// and links.
    #[default]
    InPlace,
    /// It is written beside it and renamed once it is complete: nobody ever sees half a file.
    Atomic,
}

/// What is on disk when the copy is said to be done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// What the kernel wrote by then.
    #[default]
    Unsaid,
    /// Every file, when it is done.
    File,
    /// Every file, and the folder that names it.
    Folder,
    /// Everything, at the end of all.
    End,
}

/// Whether copies are read back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verification {
    /// No.
    #[default]
    Off,
    /// They are read from disk and compared with the source.
    On,
}

/// Whether what an earlier copy left is gone on with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Leftovers {
    /// No: every file is copied from its beginning.
    #[default]
    Overwritten,
    /// As far as a destination's content equals the source's, it stays, and only the rest is
    /// copied.
    Resumed,
}

/// A pattern of names, as a line of a `.gitignore`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rule {
    /// What matches takes no part.
    Exclude(String),
    /// What matches takes part all the same.
    Include(String),
}

/// Whether anything is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Effect {
    /// Yes.
    #[default]
    Real,
    /// It is only told what would be done.
    ToldOnly,
}
