//! What is to be done about a destination that is there already: pure, from what was seen of both.

use std::cmp::Ordering;

use rustix::fs::{FileType, Stat};

use crate::options::{Existing, MakingWay, Manner, Update, Wish};
use crate::tree::level::identity;

/// How symbolic links of the source are taken, once it is known what is recursive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deref {
    Never,
    CommandLine,
    Always,
}

pub(crate) fn file_type(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// What a source and an existing destination have to do with each other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Meeting<'a> {
    /// The source, followed as the copy follows it.
    pub(crate) source: &'a Stat,
    /// The destination, followed where it would be written through.
    pub(crate) dest: &'a Stat,
    /// Both, not followed; nothing where that can't be had.
    pub(crate) names: Option<(&'a Stat, &'a Stat)>,
    /// What both lead to, followed all the way; nothing where one leads nowhere.
    pub(crate) referents: Option<(&'a Stat, &'a Stat)>,
    /// Whether source and destination are one entry of one folder.
    pub(crate) entry: SameEntry,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SameEntry {
    Yes,
    No,
}

/// What of the options decides about a meeting.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) deref: Deref,
    pub(crate) manner: Manner,
    pub(crate) making_way: MakingWay,
    pub(crate) backup: WithBackup,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WithBackup {
    Yes,
    No,
}

/// Whether a destination may be dealt with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sameness {
    /// They are different things, or replacing one by the other does no harm.
    Proceed,
    /// They are the same already, as it is wanted.
    NothingToDo,
    /// The copy would destroy its source.
    SameFile,
}

/// Whether source and destination are the same file in a way that does harm.
pub(crate) fn sameness(meeting: &Meeting<'_>, terms: &Terms) -> Sameness {
    let same = identity(meeting.source) == identity(meeting.dest);
    if same && terms.manner == Manner::HardLink {
        return Sameness::NothingToDo;
    }
    let Some((source, dest)) = names_that_matter(meeting, terms, same) else {
        return Sameness::Proceed;
    };
    let same_link = identity(source) == identity(dest);
    let links = (is_link(source), is_link(dest));
    match (terms.deref, links) {
        (Deref::Never, (true, true)) => return two_links(meeting.entry, same_link, terms.backup),
        (_, (true, true)) if removes_first(terms) => return Sameness::Proceed,
        _ => (),
    }
    if terms.backup == WithBackup::Yes {
        return with_backup(meeting.entry, same_link, links, terms.deref);
    }
    if removes_first(terms) {
        let other_name = same_link && dest.st_nlink > 1 && meeting.entry == SameEntry::No;
        if is_link(dest) || other_name {
            return Sameness::Proceed;
        }
    }
    if links == (false, false) && !same_link {
        return Sameness::Proceed;
    }
    if terms.manner == Manner::SymbolicLink && is_link(dest) {
        return Sameness::Proceed;
    }
    match (terms.deref, meeting.referents) {
        (Deref::Never, None) => Sameness::Proceed,
        (Deref::Never, Some((one, other))) if identity(one) != identity(other) => Sameness::Proceed,
        (Deref::Never, _) if terms.manner == Manner::HardLink => match is_link(dest) {
            true => Sameness::Proceed,
            false => Sameness::NothingToDo,
        },
        _ => Sameness::SameFile,
    }
}

/// The names themselves, where it isn't plain that all is well.
fn names_that_matter<'a>(
    meeting: &Meeting<'a>,
    terms: &Terms,
    same: bool,
) -> Option<(&'a Stat, &'a Stat)> {
    match terms.deref {
        Deref::Never => Some((meeting.source, meeting.dest)),
        _ if !same => None,
        _ => meeting.names,
    }
}

fn two_links(entry: SameEntry, same_link: bool, backup: WithBackup) -> Sameness {
    match (entry, backup) {
        (SameEntry::Yes, _) => Sameness::SameFile,
        (SameEntry::No, WithBackup::No) if same_link => Sameness::NothingToDo,
        (SameEntry::No, _) => Sameness::Proceed,
    }
}

/// The old destination goes elsewhere first, which helps unless it is the source.
fn with_backup(entry: SameEntry, same_link: bool, links: (bool, bool), deref: Deref) -> Sameness {
    let source_dangles = deref != Deref::Never && links == (true, false);
    match (same_link, entry) {
        (false, _) if source_dangles => Sameness::SameFile,
        (false, _) | (true, SameEntry::No) => Sameness::Proceed,
        (true, SameEntry::Yes) => Sameness::SameFile,
    }
}

fn removes_first(terms: &Terms) -> bool {
    terms.making_way == MakingWay::Everything
}

fn is_link(stat: &Stat) -> bool {
    file_type(stat) == FileType::Symlink
}

/// What the user's wish about existing destinations comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is overwritten.
    Overwrite,
    /// Somebody has to be asked.
    Ask,
    /// It stays.
    Keep,
    /// It stays since it is not older.
    KeepNewer,
    /// It stays, which is an error.
    KeepAsError,
}

/// What becomes of an existing destination that a file would replace. `newer` compares the
/// destination's time of change with the source's.
pub(crate) fn fate(existing: Existing, newer: Ordering) -> Fate {
    match existing {
        Existing::Overwritten => Fate::Overwrite,
        Existing::Kept => Fate::Keep,
        Existing::KeptAsError => Fate::KeepAsError,
        Existing::KeptUnlessOlder | Existing::Asked(Update::Older) if newer.is_ge() => {
            Fate::KeepNewer
        }
        Existing::KeptUnlessOlder => Fate::Overwrite,
        Existing::Asked(_) => Fate::Ask,
    }
}

/// Compares the destination's time of change with the source's. Where times go along, a
/// destination whose time was cut by its file system when it was copied is not older for that.
pub(crate) fn newer(dest: &Stat, source: &Stat, timestamps: Wish) -> Ordering {
    let step = if timestamps.is_wanted() {
        granularity(dest)
    } else {
        1
    };
    let (theirs, ours) = (nanoseconds(source), nanoseconds(dest));
    let seconds = dest.st_mtime.cmp(&source.st_mtime);
    seconds.then(ours.cmp(&(theirs - theirs % step)))
}

/// How finely the destination's time seems to be kept, in nanoseconds: the largest power of ten
/// that divides it, as a file system that keeps microseconds has no other times.
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

    const FILE: FileType = FileType::RegularFile;
    const LINK: FileType = FileType::Symlink;

    /// A file with this inode number.
    fn stat(inode: u64, kind: FileType) -> Stat {
        let mut stat = rustix::fs::stat("/").expect("the root");
        stat.st_ino = inode;
        stat.st_nlink = 2;
        stat.st_mode = kind.as_raw_mode() | 0o644;
        stat
    }

    const PLAIN: Terms = Terms {
        deref: Deref::Always,
        manner: Manner::Copy,
        making_way: MakingWay::Nothing,
        backup: WithBackup::No,
    };

    /// Source and destination as names, and what both lead to.
    fn met(names: [Stat; 2], referents: [Stat; 2], entry: SameEntry, terms: &Terms) -> Sameness {
        let [source, dest] = match terms.deref {
            Deref::Never => names,
            _ => referents,
        };
        let meeting = Meeting {
            source: &source,
            dest: &dest,
            names: Some((&names[0], &names[1])),
            referents: Some((&referents[0], &referents[1])),
            entry,
        };
        sameness(&meeting, terms)
    }

    #[test]
    fn two_files_that_are_one_are_told_apart_from_those_that_are_not() {
        let (one, two) = (stat(1, FILE), stat(2, FILE));
        let kept = Terms {
            deref: Deref::Never,
            ..PLAIN
        };
        for (dest, terms, expected) in [
            (two, PLAIN, Sameness::Proceed),
            (two, kept, Sameness::Proceed),
            (one, PLAIN, Sameness::SameFile),
            (one, kept, Sameness::SameFile),
        ] {
            let got = met([one, dest], [one, dest], SameEntry::No, &terms);
            assert_eq!(got, expected, "{} {terms:?}", dest.st_ino);
        }
    }

    #[test]
    fn another_name_may_be_replaced_but_not_the_only_one() {
        let one = stat(1, FILE);
        let removing = Terms {
            making_way: MakingWay::Everything,
            ..PLAIN
        };
        let backing_up = Terms {
            backup: WithBackup::Yes,
            ..PLAIN
        };
        for terms in [removing, backing_up] {
            let got = |entry| met([one, one], [one, one], entry, &terms);
            assert_eq!(got(SameEntry::No), Sameness::Proceed, "{terms:?}");
            assert_eq!(got(SameEntry::Yes), Sameness::SameFile, "{terms:?}");
        }
    }

    #[test]
    fn a_link_to_the_source_is_in_the_way_and_a_wanted_one_is_there() {
        let (file, link) = (stat(1, FILE), stat(2, LINK));
        let through = |terms: &Terms| met([file, link], [file, file], SameEntry::No, terms);
        assert_eq!(through(&PLAIN), Sameness::SameFile);
        let symbolic = Terms {
            manner: Manner::SymbolicLink,
            ..PLAIN
        };
        assert_eq!(through(&symbolic), Sameness::Proceed);
        let hard = Terms {
            manner: Manner::HardLink,
            ..PLAIN
        };
        let again = met([file, file], [file, file], SameEntry::No, &hard);
        assert_eq!(again, Sameness::NothingToDo);
    }

    #[test]
    fn one_link_under_two_names_is_no_work_and_on_itself_an_error() {
        let link = stat(3, LINK);
        let kept = Terms {
            deref: Deref::Never,
            ..PLAIN
        };
        let got = |entry| met([link, link], [link, link], entry, &kept);
        assert_eq!(got(SameEntry::No), Sameness::NothingToDo);
        assert_eq!(got(SameEntry::Yes), Sameness::SameFile);
    }

    #[test]
    fn a_cut_time_is_not_older_where_times_go_along() {
        let (mut source, mut dest) = (stat(1, FILE), stat(2, FILE));
        (source.st_mtime, source.st_mtime_nsec) = (100, 123_456_789);
        (dest.st_mtime, dest.st_mtime_nsec) = (100, 123_456_000);
        assert_eq!(newer(&dest, &source, Wish::Required), Ordering::Equal);
        assert_eq!(newer(&dest, &source, Wish::Unsaid), Ordering::Less);
        dest.st_mtime = 99;
        assert_eq!(newer(&dest, &source, Wish::Required), Ordering::Less);
    }

    #[test]
    fn wishes_about_old_files() {
        use Existing::{Asked, Kept, KeptAsError, KeptUnlessOlder, Overwritten};
        for (existing, older, newer) in [
            (Overwritten, Fate::Overwrite, Fate::Overwrite),
            (Kept, Fate::Keep, Fate::Keep),
            (KeptAsError, Fate::KeepAsError, Fate::KeepAsError),
            (KeptUnlessOlder, Fate::Overwrite, Fate::KeepNewer),
            (Asked(Update::All), Fate::Ask, Fate::Ask),
            (Asked(Update::Older), Fate::Ask, Fate::KeepNewer),
        ] {
            assert_eq!(fate(existing, Ordering::Less), older, "{existing:?}");
            assert_eq!(fate(existing, Ordering::Equal), newer, "{existing:?}");
        }
    }
}
