//! The options of a copy: plain data, independent of any command line.

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use underpass::{Cloning, Holes, Mechanism};

/// The options of a copy. The default is `cp` without an option.
#[derive(Clone, Debug, Default)]
pub struct CopyOptions {
    /// The kind of copy to make (`-l`, `-s`, `--attributes-only`).
    pub copy_mode: CopyMode,
    /// Copies folders with their content (`-r`); without it a folder is an error.
    pub recursive: bool,
    /// The symbolic links of the source to follow (`-P`, `-H`, `-L`).
    pub dereference: Dereference,
    /// The metadata to preserve (`-p`, `--preserve`, `--no-preserve`).
    pub preserve: Preserve,
    /// The treatment of an existing destination other than a folder (`-n`, `-i`, `-u`).
    pub overwrite: OverwritePolicy,
    /// The existing files to remove first (`-f`, `--remove-destination`).
    pub remove_existing: RemoveExisting,
    /// The backup of the old destination before it is overwritten (`-b`, `--backup`, `-S`).
    pub backup: Backup,
    /// The meaning of the last operand (`-t`, `-T`).
    pub target: CopyTarget,
    /// Repeats the whole path of a source below the target folder, and creates missing folders
    /// there (`--parents`); without it the last component is the name of the copy.
    pub parents: bool,
    /// Removes slashes at the end of a source (`--strip-trailing-slashes`); without it `link/` is
    /// the target folder of the link.
    pub strip_trailing_slashes: bool,
    /// Leaves a folder that is a mount point empty (`-x`).
    pub one_file_system: bool,
    /// In recursion, copies the readable content of special files instead of creating special files
    /// (`--copy-contents`).
    pub copy_contents: bool,
    /// Follows an existing symbolic link to a folder as a destination folder
    /// (`--keep-directory-symlink`).
    pub keep_directory_symlink: bool,
    /// Writes through a destination that is a dangling symbolic link (`POSIXLY_CORRECT`); without
    /// it such a link is an error.
    pub write_through_dangling: bool,
    /// Treatment of holes (`--sparse`).
    pub holes: Holes,
    /// Sharing of blocks (`--reflink`).
    pub cloning: Cloning,
    /// The only mechanism that may move bytes (`--only`).
    pub only: Option<Mechanism>,
    /// Writes a file under a temporary name and renames it when it is complete (`--atomic`);
    /// without it an existing file is overwritten in place and keeps owner, mode and links.
    pub atomic: bool,
    /// The files to sync to disk (`--fsync`).
    pub fsync: Fsync,
    /// Reads copies back from disk and compares them with their sources (`--verify`).
    pub verify: bool,
    /// Keeps the part of an existing file that equals the source, and copies the rest (`--resume`).
    pub resume: bool,
    /// Rules for the names to copy, in the order given: the last rule that matches decides
    /// (`--exclude`, `--include`).
    pub filters: Vec<FilterRule>,
    /// Reports the actions of a copy without doing them (`--dry-run`).
    pub dry_run: bool,
    /// Maximum bytes per second, for all files together (`--bwlimit`).
    pub bytes_per_second_max: Option<u64>,
    /// The number of files copied in parallel (`-j`), at most [`CopyOptions::JOBS_MAX`]; by default
    /// the number of processors, at most 16. With 1 each event is delivered as it happens.
    pub jobs: Option<NonZeroUsize>,
}

impl CopyOptions {
    /// The maximum number of files copied in parallel: more would need more descriptors than a
    /// process usually has, and no disk or server has been seen to gain by it.
    pub const JOBS_MAX: usize = 128;
}

/// The metadata to preserve.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Preserve {
    /// Permission bits and access control lists.
    pub mode: PreserveLevel,
    /// Owner and group.
    pub ownership: PreserveLevel,
    /// Times of last access and modification.
    pub timestamps: PreserveLevel,
    /// Hard links: several names of one file stay names of one file.
    pub links: PreserveLevel,
    /// The security context.
    pub context: PreserveLevel,
    /// Extended attributes.
    pub xattr: PreserveLevel,
}

/// Whether an attribute is preserved, and the effect of a failure to do so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum PreserveLevel {
    /// Not preserved, by an option.
    Never,
    /// Not preserved, by default.
    #[default]
    Unset,
    /// A failure is not reported.
    BestEffort,
    /// A failure is a warning.
    Warn,
    /// A failure is an error.
    Required,
}

impl PreserveLevel {
    /// Returns whether it is to be preserved at all.
    pub fn is_wanted(self) -> bool {
        self >= Self::BestEffort
    }
}

/// The kind of copy to make.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CopyMode {
    /// A copy.
    #[default]
    Copy,
    /// A file with the metadata of the source, without its content.
    AttributesOnly,
    /// Another name of the same file.
    HardLink,
    /// A symbolic link to the source.
    SymbolicLink,
}

/// The symbolic links of the source to follow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dereference {
    /// None in recursion, otherwise all.
    #[default]
    Default,
    /// None: links are copied as links.
    Never,
    /// The operands.
    CommandLine,
    /// All.
    Always,
}

/// The treatment of an existing destination other than a folder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OverwritePolicy {
    /// It is overwritten.
    #[default]
    Overwrite,
    /// The user is asked.
    Ask(AskWhen),
    /// It stays.
    Keep,
    /// It stays, and that is an error.
    Fail,
    /// It is overwritten if it is older.
    UpdateOlder,
}

/// The condition for asking the user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AskWhen {
    /// Always.
    #[default]
    Always,
    /// If the destination is older; otherwise it stays.
    Older,
}

/// The existing files to remove first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RemoveExisting {
    /// None: existing files are overwritten in place.
    #[default]
    Never,
    /// Those that can't be opened for writing (`--force`).
    IfUnwritable,
    /// All (`--remove-destination`).
    Always,
}

/// The backup of the old destination.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Backup {
    /// No backup: the old destination is lost.
    #[default]
    None,
    /// It is renamed: name and suffix.
    Simple(OsString),
    /// It is renamed: `name.~1~`, `name.~2~` and so on.
    Numbered,
    /// Numbered where a numbered one exists, otherwise with this suffix.
    Existing(OsString),
}

/// The meaning of the last operand.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CopyTarget {
    /// A folder to copy into, if it is one; otherwise the name of the copy.
    #[default]
    Last,
    /// The name of the copy, even if it is a folder (`-T`).
    LastAsName,
    /// A source, like all operands: they are copied into this folder (`-t`).
    Folder(PathBuf),
}

/// The files to sync to disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fsync {
    /// None: the kernel writes them whenever it does.
    #[default]
    Never,
    /// Every file, when it is done.
    File,
    /// Every file, and the folder that contains its name.
    Folder,
    /// Everything, at the end of the copy.
    End,
}

/// A pattern of names, as in a line of a `.gitignore`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FilterRule {
    /// Excludes matching names.
    Exclude(String),
    /// Includes matching names, although they were excluded.
    Include(String),
}
