//! What to copy and how: plain data, from whoever reads a command line.

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use underpass::{Cloning, Holes, Mechanism};

use crate::metadata::Preserve;

/// The options of a copy. The default is `cp` without an option.
#[derive(Clone, Debug, Default)]
pub struct CopyOptions {
    /// What is made of a source (`-l`, `-s`, `--attributes-only`).
    pub copy_mode: CopyMode,
    /// Copies folders with all that is in them (`-r`); without it a folder is an error.
    pub recursive: bool,
    /// Which symbolic links of the source are followed (`-P`, `-H`, `-L`).
    pub dereference: Dereference,
    /// Which metadata is preserved (`-p`, `--preserve`, `--no-preserve`).
    pub preserve: Preserve,
    /// What happens to an existing destination that is no folder (`-n`, `-i`, `-u`).
    pub overwrite: OverwritePolicy,
    /// Which existing files are removed first (`-f`, `--remove-destination`).
    pub remove_existing: RemoveExisting,
    /// What happens to the old destination before it is overwritten (`-b`, `--backup`, `-S`).
    pub backup: Backup,
    /// What the last operand is (`-t`, `-T`).
    pub target: CopyTarget,
    /// Repeats the whole path of a source below the target folder, and makes the folders that are
    /// missing there (`--parents`); without it the last component is the name of the copy.
    pub parents: bool,
    /// Removes slashes at the end of a source (`--strip-trailing-slashes`); without it `link/` is
    /// the folder that the link leads to.
    pub strip_trailing_slashes: bool,
    /// Leaves a folder that is a mount point empty (`-x`).
    pub one_file_system: bool,
    /// In recursion, copies what can be read from special files instead of making special files
    /// (`--copy-contents`).
    pub copy_contents: bool,
    /// Follows a symbolic link to a folder in the place of a destination folder
    /// (`--keep-directory-symlink`).
    pub keep_directory_symlink: bool,
    /// Writes through a destination that is a dangling symbolic link (`POSIXLY_CORRECT`); without
    /// it such a link is an error.
    pub write_through_dangling: bool,
    /// Holes of files (`--sparse`).
    pub holes: Holes,
    /// Shared blocks (`--reflink`).
    pub cloning: Cloning,
    /// The only mechanism that may move bytes (`--only`).
    pub only: Option<Mechanism>,
    /// Writes a file beside its destination and renames it when it is complete (`--atomic`);
    /// without it an existing file is overwritten in place and keeps owner, mode and links.
    pub atomic: bool,
    /// What is written to disk (`--fsync`).
    pub fsync: Fsync,
    /// Reads copies back from disk and compares them with their sources (`--verify`).
    pub verify: bool,
    /// Keeps what equals the source of an existing file, and copies the rest (`--resume`).
    pub resume: bool,
    /// Which names are copied, in the order given: the last rule that matches decides
    /// (`--exclude`, `--include`).
    pub filters: Vec<FilterRule>,
    /// Reports what would be done, and does nothing (`--dry-run`).
    pub dry_run: bool,
    /// Bytes per second, all files together (`--bwlimit`).
    pub bytes_per_second_max: Option<u64>,
    /// How many files are copied at once (`-j`), at most [`CopyOptions::JOBS_MAX`]; without a
    /// number as many as there are processors, at most 16. With 1 each event is delivered as it
    /// happens.
    pub jobs: Option<NonZeroUsize>,
}

impl CopyOptions {
    /// More files at once than this would need more descriptors than a process usually has, and
    /// no disk or server has been seen to gain by it.
    pub const JOBS_MAX: usize = 128;
}

/// What is made of a source.
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

/// Which symbolic links of the source are followed.
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

/// What happens to an existing destination that is no folder.
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

/// When the user is asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AskWhen {
    /// Always.
    #[default]
    Always,
    /// If the destination is older; otherwise it stays.
    Older,
}

/// Which existing files are removed first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RemoveExisting {
    /// None: they are overwritten in place.
    #[default]
    Never,
    /// Those that can't be opened for writing (`--force`).
    IfUnwritable,
    /// All (`--remove-destination`).
    Always,
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
    /// Numbered where a numbered one exists, otherwise with this suffix.
    Existing(OsString),
}

/// What the last operand is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CopyTarget {
    /// A folder to copy into, if it is one; otherwise the name of the copy.
    #[default]
    Last,
    /// The name of the copy, whatever is there (`-T`).
    LastAsName,
    /// A source, as all operands: they are copied into this folder (`-t`).
    Folder(PathBuf),
}

/// What is written to disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fsync {
    /// What the kernel has written by the end.
    #[default]
    Never,
    /// Every file, when it is done.
    File,
    /// Every file, and the folder that names it.
    Folder,
    /// Everything, at the end.
    End,
}

/// A pattern of names, as a line of a `.gitignore`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FilterRule {
    /// Leaves out what matches.
    Exclude(String),
    /// Copies what matches, although it was excluded.
    Include(String),
}
