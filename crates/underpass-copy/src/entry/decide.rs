//! Decides the action for an entry: a pure table, from facts and options.

use std::cmp::Ordering;

use rustix::fs::{FileType, Stat};

use crate::entry::DestinationFacts;
use crate::entry::same_file::{Sameness, sameness};
use crate::fs::folder::{endpoint, file_type, is_folder};
use crate::options::{
    AskWhen, Backup, CopyMode, CopyOptions, Dereference, OverwritePolicy, PreserveLevel,
    RemoveExisting,
};
use crate::report::problem::ProblemKind;
use crate::tree::level::Role;

/// The options that apply to one entry.
impl CopyOptions {
    /// Returns whether symbolic links to a source are followed.
    pub(crate) fn follows(&self, role: Role) -> bool {
        match self.dereference {
            Dereference::Never => false,
            Dereference::CommandLine => role != Role::Inside,
            Dereference::Always => true,
            Dereference::Default => !self.recursive || self.copy_mode == CopyMode::HardLink,
        }
    }

    /// Whether other names of this file may follow that are to become names of its copy.
    pub(crate) fn keeps_links_of(&self, source: &Stat, role: Role) -> bool {
        self.preserve.links.is_wanted()
            && self.copy_mode != CopyMode::HardLink
            && (source.st_nlink > 1 || self.follows(role))
    }

    /// The bytes that a copy of a file moves, as far as its size and its blocks tell: holes are
    /// left out. Small files may have no blocks.
    pub(crate) fn bytes_to_move(&self, source: &Stat) -> u64 {
        let file = endpoint(source);
        match self.copy_mode {
            CopyMode::Copy => file.size.min(file.allocated.max(file.block_bytes)),
            _ => 0,
        }
    }

    /// What happens to the old destination.
    pub(crate) fn backup_of(&self, role: Role) -> &Backup {
        match role {
            Role::OwnBackup => &Backup::None,
            Role::Operand | Role::Inside => &self.backup,
        }
    }

    /// Returns whether a special file becomes a regular one.
    pub(crate) fn reads_specials(&self) -> bool {
        !self.recursive || self.copy_contents
    }

    pub(crate) fn removes_first(&self) -> bool {
        self.remove_existing == RemoveExisting::Always
    }

    /// Returns whether an existing symbolic link is replaced by its target as the destination,
    /// because the copy is written through it.
    pub(crate) fn follows_destination(&self, source: &Stat, role: Role) -> bool {
        let becomes_file = match file_type(source) {
            FileType::RegularFile => true,
            FileType::Directory => return self.keep_directory_symlink,
            FileType::Symlink => false,
            _ => self.reads_specials(),
        };
        becomes_file
            && !matches!(self.copy_mode, CopyMode::HardLink | CopyMode::SymbolicLink)
            && *self.backup_of(role) == Backup::None
            && !self.removes_first()
    }

    /// Returns whether the complete copy is renamed over the existing destination.
    fn renames_over(&self, source: &Stat, role: Role) -> bool {
        let can_be = match file_type(source) {
            FileType::RegularFile => true,
            FileType::Symlink => *self.backup_of(role) == Backup::None,
            FileType::Directory => false,
            _ => self.reads_specials(),
        };
        can_be && self.atomic && self.copy_mode == CopyMode::Copy
    }
}

/// The action for an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Write to the existing file, or enter the existing folder.
    Write,
    /// Remove the existing destination, then create the copy.
    Remove,
    /// Rename the existing destination, then create the copy.
    BackUp,
    /// Rename the complete copy over the existing destination.
    Replace,
    /// Back up the existing destination, then rename the complete copy over it.
    BackUpAndReplace,
    /// Keep the destination.
    Keep,
    /// Keep the destination, as one of the names of its file.
    KeepLinked,
    /// Do nothing: source and destination are the same, as requested.
    Nothing,
    /// Do nothing, and report an error.
    Refuse(ProblemKind),
    /// Take this action if the user agrees, otherwise keep the destination.
    Ask(Box<Action>),
}

/// Returns the reason not to copy a source, regardless of the destination.
pub(crate) fn refuse_source(
    source: &Stat,
    is_repeated: bool,
    options: &CopyOptions,
) -> Option<ProblemKind> {
    match is_folder(source) {
        true if !options.recursive => Some(ProblemKind::OmittedDirectory),
        false if is_repeated => Some(ProblemKind::FileTwice),
        _ => None,
    }
}

/// Decides the action for a source with an existing destination described by `facts`.
pub(crate) fn decide(
    source: &Stat,
    facts: &DestinationFacts,
    options: &CopyOptions,
    role: Role,
) -> Action {
    let pair = facts.pair.as_ref();
    let sameness = pair.map_or(Sameness::Proceed, |pair| sameness(pair, options, role));
    let overwrite = || match sameness {
        Sameness::NothingToDo => Action::Nothing,
        Sameness::SameFile => Action::Refuse(ProblemKind::SameFile),
        Sameness::Proceed => overwrite(source, facts, options, role),
    };
    if is_folder(source) || sameness == Sameness::SameFile {
        return overwrite();
    }
    let is_older = || {
        let timestamps = options.preserve.timestamps;
        newer(&facts.dest.stat, source, timestamps).is_lt()
    };
    match options.overwrite {
        OverwritePolicy::Overwrite => overwrite(),
        OverwritePolicy::Keep => Action::Keep,
        OverwritePolicy::Fail => Action::Refuse(ProblemKind::NotReplacing),
        OverwritePolicy::UpdateOlder | OverwritePolicy::Ask(AskWhen::Older) if !is_older() => {
            Action::KeepLinked
        }
        OverwritePolicy::UpdateOlder => overwrite(),
        OverwritePolicy::Ask(_) => Action::Ask(Box::new(overwrite())),
    }
}

/// Decides how a source replaces an existing destination.
fn overwrite(source: &Stat, facts: &DestinationFacts, options: &CopyOptions, role: Role) -> Action {
    match (is_folder(source), is_folder(&facts.dest.stat)) {
        (true, true) => return Action::Write,
        (true, false) if *options.backup_of(role) == Backup::None => {
            return Action::Refuse(ProblemKind::OverNonDirectory);
        }
        (false, true) => return Action::Refuse(ProblemKind::OverDirectory),
        (_, false) if facts.is_just_created => {
            return Action::Refuse(match facts.dest.link {
                Some(_) => ProblemKind::ThroughJustCreated,
                None => ProblemKind::JustCreated,
            });
        }
        (_, false) => (),
    }
    let renames_over = options.renames_over(source, role);
    if *options.backup_of(role) != Backup::None {
        return match facts.backup_is_source {
            true => Action::Refuse(ProblemKind::BackupWouldDestroy),
            false if renames_over => Action::BackUpAndReplace,
            false => Action::BackUp,
        };
    }
    let link_in_the_way = !options.follows(role) && file_type(source) != FileType::RegularFile;
    let has_other_names = options.preserve.links.is_wanted() && facts.dest.stat.st_nlink > 1;
    let is_in_the_way =
        options.copy_mode != CopyMode::AttributesOnly && (has_other_names || link_in_the_way);
    match options.removes_first() || is_in_the_way {
        true if renames_over => Action::Replace,
        true => Action::Remove,
        false => Action::Write,
    }
}

/// Compares the destination's modification time with the source's. If times are preserved, a
/// destination whose time was only truncated by its file system is not older.
fn newer(dest: &Stat, source: &Stat, timestamps: PreserveLevel) -> Ordering {
    let step = if timestamps.is_wanted() {
        granularity(dest)
    } else {
        1
    };
    let (theirs, ours) = (nanoseconds(source), nanoseconds(dest));
    let seconds = dest.st_mtime.cmp(&source.st_mtime);
    seconds.then(ours.cmp(&(theirs - theirs % step)))
}

/// Returns the apparent granularity of the destination's time in nanoseconds: the largest power of
/// ten that divides it, since a file system that keeps microseconds has no other times.
fn granularity(stat: &Stat) -> u64 {
    let (fraction, second) = (nanoseconds(stat), 1_000_000_000);
    let mut step = 1;
    while step < second && fraction.is_multiple_of(step * 10) {
        step *= 10;
    }
    step
}

#[allow(
    clippy::unnecessary_cast,
    reason = "its type differs between architectures"
)]
fn nanoseconds(stat: &Stat) -> u64 {
    stat.st_mtime_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::{ExistingDestination, Replaced};

    fn stat(kind: FileType) -> Stat {
        let mut stat = rustix::fs::stat("/").expect("the root");
        stat.st_nlink = 1;
        stat.st_mode = kind.as_raw_mode() | 0o644;
        stat
    }

    fn facts(kind: FileType) -> DestinationFacts {
        DestinationFacts {
            dest: ExistingDestination {
                stat: stat(kind),
                link: None,
                replaced: Replaced::KeepsAttributes,
            },
            pair: None,
            is_just_created: false,
            backup_is_source: false,
        }
    }

    const FILE: FileType = FileType::RegularFile;
    const FOLDER: FileType = FileType::Directory;

    /// Decides the action for a file or folder with an existing destination.
    fn action(source: FileType, facts: &DestinationFacts, options: &CopyOptions) -> Action {
        decide(&stat(source), facts, options, Role::Operand)
    }

    #[test]
    fn files_go_over_files_and_folders_over_folders() {
        let plain = CopyOptions::default();
        for (source, dest, expected) in [
            (FILE, FILE, Action::Write),
            (FOLDER, FOLDER, Action::Write),
            (FILE, FOLDER, Action::Refuse(ProblemKind::OverDirectory)),
            (FOLDER, FILE, Action::Refuse(ProblemKind::OverNonDirectory)),
        ] {
            assert_eq!(action(source, &facts(dest), &plain), expected);
        }
    }

    #[test]
    fn what_is_there_makes_way_as_the_options_say() {
        let plain = CopyOptions::default;
        let backup = || Backup::Simple("~".into());
        for (options, expected, atomic) in [
            (plain(), Action::Write, Action::Write),
            (
                CopyOptions {
                    remove_existing: RemoveExisting::Always,
                    ..plain()
                },
                Action::Remove,
                Action::Replace,
            ),
            (
                CopyOptions {
                    backup: backup(),
                    ..plain()
                },
                Action::BackUp,
                Action::BackUpAndReplace,
            ),
            (
                CopyOptions {
                    overwrite: OverwritePolicy::Keep,
                    ..plain()
                },
                Action::Keep,
                Action::Keep,
            ),
        ] {
            let facts = facts(FILE);
            assert_eq!(action(FILE, &facts, &options), expected);
            let options = CopyOptions {
                atomic: true,
                ..options
            };
            assert_eq!(action(FILE, &facts, &options), atomic);
        }
    }

    #[test]
    fn complete_copies_of_what_can_be_renamed_replace_what_is_there() {
        let (link, fifo) = (FileType::Symlink, FileType::Fifo);
        for (source, backup, expected) in [
            (FILE, Backup::None, Action::Replace),
            (FILE, Backup::Simple("~".into()), Action::BackUpAndReplace),
            (link, Backup::None, Action::Replace),
            (link, Backup::Simple("~".into()), Action::BackUp),
            (fifo, Backup::None, Action::Remove),
        ] {
            let options = CopyOptions {
                atomic: true,
                recursive: true,
                remove_existing: RemoveExisting::Always,
                backup,
                ..CopyOptions::default()
            };
            let got = action(source, &facts(FILE), &options);
            assert_eq!(got, expected, "{source:?} {:?}", options.backup);
        }
    }

    #[test]
    fn nothing_is_overwritten_that_would_be_lost() {
        let just_created = DestinationFacts {
            is_just_created: true,
            ..facts(FILE)
        };
        let got = action(FILE, &just_created, &CopyOptions::default());
        assert_eq!(got, Action::Refuse(ProblemKind::JustCreated));
        let source_is_backup = DestinationFacts {
            backup_is_source: true,
            ..facts(FILE)
        };
        let options = CopyOptions {
            backup: Backup::Simple("~".into()),
            ..CopyOptions::default()
        };
        let got = action(FILE, &source_is_backup, &options);
        assert_eq!(got, Action::Refuse(ProblemKind::BackupWouldDestroy));
    }

    #[test]
    fn the_user_is_asked_before_a_destination_is_overwritten() {
        let options = CopyOptions {
            overwrite: OverwritePolicy::Ask(AskWhen::Always),
            ..CopyOptions::default()
        };
        let expected = Action::Ask(Box::new(Action::Write));
        assert_eq!(action(FILE, &facts(FILE), &options), expected);
    }

    #[test]
    fn a_cut_time_is_not_older_where_times_go_along() {
        let (mut source, mut dest) = (stat(FILE), stat(FILE));
        (source.st_mtime, source.st_mtime_nsec) = (100, 123_456_789);
        (dest.st_mtime, dest.st_mtime_nsec) = (100, 123_456_000);
        assert_eq!(
            newer(&dest, &source, PreserveLevel::Required),
            Ordering::Equal
        );
        assert_eq!(newer(&dest, &source, PreserveLevel::Unset), Ordering::Less);
        dest.st_mtime = 99;
        assert_eq!(
            newer(&dest, &source, PreserveLevel::Required),
            Ordering::Less
        );
    }

    #[test]
    fn options_decide_about_old_files() {
        use OverwritePolicy::{Ask, Fail, Keep, Overwrite, UpdateOlder};
        let ask = || Action::Ask(Box::new(Action::Write));
        let fail = Action::Refuse(ProblemKind::NotReplacing);
        for (overwrite, older, not_older) in [
            (Overwrite, Action::Write, Action::Write),
            (Keep, Action::Keep, Action::Keep),
            (Fail, fail.clone(), fail),
            (UpdateOlder, Action::Write, Action::KeepLinked),
            (Ask(AskWhen::Always), ask(), ask()),
            (Ask(AskWhen::Older), ask(), Action::KeepLinked),
        ] {
            let options = CopyOptions {
                overwrite,
                ..CopyOptions::default()
            };
            let mut facts = facts(FILE);
            assert_eq!(action(FILE, &facts, &options), not_older, "{overwrite:?}");
            facts.dest.stat.st_mtime -= 1;
            assert_eq!(action(FILE, &facts, &options), older, "{overwrite:?}");
        }
    }

    #[test]
    fn a_source_is_refused_without_recursion_or_as_a_repeated_file() {
        let refused = |kind, is_repeated, recursive| {
            let options = CopyOptions {
                recursive,
                ..CopyOptions::default()
            };
            refuse_source(&stat(kind), is_repeated, &options)
        };
        for is_repeated in [false, true] {
            let omitted = Some(ProblemKind::OmittedDirectory);
            assert_eq!(refused(FOLDER, is_repeated, false), omitted);
            assert_eq!(refused(FOLDER, is_repeated, true), None);
        }
        for recursive in [false, true] {
            let twice = Some(ProblemKind::FileTwice);
            assert_eq!(refused(FILE, true, recursive), twice);
            assert_eq!(refused(FILE, false, recursive), None);
        }
    }

    #[test]
    fn folders_are_entered_whatever_becomes_of_files() {
        for overwrite in [OverwritePolicy::Keep, OverwritePolicy::Fail] {
            let options = CopyOptions {
                overwrite,
                ..CopyOptions::default()
            };
            assert_eq!(action(FOLDER, &facts(FOLDER), &options), Action::Write);
        }
    }

    #[test]
    fn links_of_sources_are_followed_by_role_and_option() {
        use Dereference::{Always, CommandLine, Default, Never};
        let follows = |dereference, recursive, copy_mode| {
            let options = CopyOptions {
                dereference,
                recursive,
                copy_mode,
                ..CopyOptions::default()
            };
            [Role::Operand, Role::Inside].map(|role| options.follows(role))
        };
        for (dereference, recursive, copy_mode, expected) in [
            (Never, false, CopyMode::Copy, [false, false]),
            (CommandLine, true, CopyMode::Copy, [true, false]),
            (Always, true, CopyMode::Copy, [true, true]),
            (Default, false, CopyMode::Copy, [true, true]),
            (Default, true, CopyMode::Copy, [false, false]),
            (Default, true, CopyMode::SymbolicLink, [false, false]),
            (Default, true, CopyMode::HardLink, [true, true]),
            (Default, false, CopyMode::HardLink, [true, true]),
        ] {
            let followed = follows(dereference, recursive, copy_mode);
            assert_eq!(followed, expected, "{dereference:?} {copy_mode:?}");
        }
    }

    #[test]
    fn special_files_are_read_without_recursion_or_on_request() {
        for (recursive, copy_contents, expected) in [
            (false, false, true),
            (false, true, true),
            (true, false, false),
            (true, true, true),
        ] {
            let options = CopyOptions {
                recursive,
                copy_contents,
                ..CopyOptions::default()
            };
            assert_eq!(options.reads_specials(), expected);
            let follows = options.follows_destination(&stat(FileType::Fifo), Role::Operand);
            assert_eq!(follows, expected);
            assert!(options.follows_destination(&stat(FILE), Role::Operand));
        }
    }

    #[test]
    fn a_link_in_the_place_of_a_written_file_is_followed() {
        let plain = CopyOptions::default;
        let follows =
            |kind, role, options: &CopyOptions| options.follows_destination(&stat(kind), role);
        assert!(follows(FILE, Role::Operand, &plain()));
        assert!(!follows(FileType::Symlink, Role::Operand, &plain()));
        for keep_directory_symlink in [false, true] {
            let options = CopyOptions {
                keep_directory_symlink,
                ..plain()
            };
            let followed = follows(FOLDER, Role::Operand, &options);
            assert_eq!(followed, keep_directory_symlink);
        }
        for copy_mode in [CopyMode::HardLink, CopyMode::SymbolicLink] {
            let options = CopyOptions {
                copy_mode,
                ..plain()
            };
            assert!(!follows(FILE, Role::Operand, &options));
        }
        let backup = CopyOptions {
            backup: Backup::Simple("~".into()),
            ..plain()
        };
        assert!(!follows(FILE, Role::Operand, &backup));
        assert!(follows(FILE, Role::OwnBackup, &backup));
        let removes = CopyOptions {
            remove_existing: RemoveExisting::Always,
            ..plain()
        };
        assert!(!follows(FILE, Role::Operand, &removes));
    }

    #[test]
    fn what_is_no_file_of_one_name_makes_way() {
        let plain = CopyOptions {
            recursive: true,
            ..CopyOptions::default()
        };
        let attributes_only = CopyOptions {
            copy_mode: CopyMode::AttributesOnly,
            ..plain.clone()
        };
        let mut linked = plain.clone();
        linked.preserve.links = PreserveLevel::Required;
        let mut linked_attributes = attributes_only.clone();
        linked_attributes.preserve.links = PreserveLevel::Required;
        let link = FileType::Symlink;
        for (source, names, options, expected) in [
            (FILE, 2, &plain, Action::Write),
            (FILE, 1, &linked, Action::Write),
            (FILE, 2, &linked, Action::Remove),
            (FILE, 2, &linked_attributes, Action::Write),
            (link, 1, &plain, Action::Remove),
            (link, 1, &attributes_only, Action::Write),
            (FileType::Fifo, 1, &plain, Action::Remove),
        ] {
            let mut facts = facts(FILE);
            facts.dest.stat.st_nlink = names;
            let got = action(source, &facts, options);
            assert_eq!(got, expected, "{source:?} over {names} names");
        }
        let follows = CopyOptions {
            dereference: Dereference::Always,
            ..plain
        };
        let got = action(FileType::Fifo, &facts(FILE), &follows);
        assert_eq!(got, Action::Write);
    }
}
