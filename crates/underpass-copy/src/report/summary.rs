//! What a copy came to.

use serde::Serialize;
use underpass::Account;

use crate::report::event::EntryKind;

/// All that was done, counted.
#[derive(Clone, Debug, Default, Serialize)]
pub struct CopySummary {
    /// Regular files copied.
    pub files: u64,
    /// Folders made.
    pub directories: u64,
    /// Symbolic links made.
    pub symlinks: u64,
    /// FIFOs, sockets and devices made.
    pub specials: u64,
    /// Names that became other names of a file copied before.
    pub hard_links: u64,
    /// Names whose destination stays as it is.
    pub skipped: u64,
    /// How many of them because somebody was asked and said no.
    #[serde(skip)]
    pub declined: u64,
    /// Errors.
    pub errors: u64,
    /// Warnings.
    pub warnings: u64,
    /// Bytes that an earlier copy had left, equal, and that were not copied again.
    pub resumed_bytes: u64,
    /// Files that were read back and found equal.
    pub verified: u64,
    /// How the bytes of all files travelled.
    pub account: Account,
    /// Whether it was stopped before its end.
    pub ended: CopyEnd,
}

/// How a copy ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CopyEnd {
    /// All that could be done was.
    #[default]
    ByItself,
    /// Somebody asked it to stop.
    Stopped,
}

impl CopySummary {
    pub(crate) fn count_copied(&mut self, kind: EntryKind) {
        let counter = match kind {
            EntryKind::File => &mut self.files,
            EntryKind::Directory => &mut self.directories,
            EntryKind::Symlink => &mut self.symlinks,
            EntryKind::Special => &mut self.specials,
        };
        *counter += 1;
    }

    /// Adds the counts of another part.
    pub(crate) fn add(&mut self, other: &CopySummary) {
        self.files += other.files;
        self.directories += other.directories;
        self.symlinks += other.symlinks;
        self.specials += other.specials;
        self.hard_links += other.hard_links;
        self.skipped += other.skipped;
        self.declined += other.declined;
        self.errors += other.errors;
        self.warnings += other.warnings;
        self.resumed_bytes += other.resumed_bytes;
        self.verified += other.verified;
        self.account.add(&other.account);
    }
}
