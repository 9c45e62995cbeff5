//! Decides whether source and destination are the same file in a harmful way: pure, with the rules
//! of GNU `cp`.

use rustix::fs::Stat;

use crate::fs::folder::{identity, is_link};
use crate::options::{Backup, CopyMode, CopyOptions};
use crate::tree::level::Role;

/// A source and an existing destination, queried in several ways.
#[derive(Clone, Debug)]
pub(crate) struct FilePair {
    /// The source, followed as the copy follows it.
    pub(crate) source: Stat,
    /// The destination, followed where it would be written through.
    pub(crate) dest: Stat,
    /// Both, not followed; `None` if one cannot be queried.
    pub(crate) names: Option<(Stat, Stat)>,
    /// The final targets of both; `None` if one leads nowhere.
    pub(crate) referents: Option<(Stat, Stat)>,
    /// Whether both are one entry of one folder.
    pub(crate) is_same_entry: bool,
}

/// Whether a destination may be overwritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sameness {
    /// They are different files, or replacing one by the other does no harm.
    Proceed,
    /// They are the same already, as requested.
    NothingToDo,
    /// The copy would destroy its source.
    SameFile,
}

pub(crate) fn sameness(pair: &FilePair, options: &CopyOptions, role: Role) -> Sameness {
    let follows = options.follows(role);
    let same = identity(&pair.source) == identity(&pair.dest);
    if same && options.copy_mode == CopyMode::HardLink {
        return Sameness::NothingToDo;
    }
    let names = match follows {
        false => Some((pair.source, pair.dest)),
        true if !same => None,
        true => pair.names,
    };
    let Some((source, dest)) = names else {
        return Sameness::Proceed;
    };
    let same_link = identity(&source) == identity(&dest);
    let makes_backup = *options.backup_of(role) != Backup::None;
    let links = (is_link(&source), is_link(&dest));
    if links == (true, true) {
        if !follows {
            return match makes_backup {
                _ if pair.is_same_entry => Sameness::SameFile,
                false if same_link => Sameness::NothingToDo,
                _ => Sameness::Proceed,
            };
        }
        if options.removes_first() {
            return Sameness::Proceed;
        }
    }
    if makes_backup {
        // The old destination is renamed first, which helps unless it is the source.
        let source_dangles = follows && links == (true, false);
        return match same_link {
            false if source_dangles => Sameness::SameFile,
            true if pair.is_same_entry => Sameness::SameFile,
            _ => Sameness::Proceed,
        };
    }
    if options.removes_first() {
        let is_other_name = same_link && dest.st_nlink > 1 && !pair.is_same_entry;
        if is_link(&dest) || is_other_name {
            return Sameness::Proceed;
        }
    }
    if links == (false, false) && !same_link {
        return Sameness::Proceed;
    }
    if options.copy_mode == CopyMode::SymbolicLink && is_link(&dest) {
        return Sameness::Proceed;
    }
    if follows {
        return Sameness::SameFile;
    }
    match pair.referents {
        None => Sameness::Proceed,
        Some((one, other)) if identity(&one) != identity(&other) => Sameness::Proceed,
        Some(_) if options.copy_mode != CopyMode::HardLink => Sameness::SameFile,
        Some(_) if is_link(&dest) => Sameness::Proceed,
        Some(_) => Sameness::NothingToDo,
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::FileType;

    use super::*;
    use crate::options::{Dereference, RemoveExisting};

    const FILE: FileType = FileType::RegularFile;
    const LINK: FileType = FileType::Symlink;

    /// Returns a file with this inode number.
    fn stat(inode: u64, kind: FileType) -> Stat {
        let mut stat = rustix::fs::stat("/").expect("the root");
        stat.st_ino = inode;
        stat.st_nlink = 2;
        stat.st_mode = kind.as_raw_mode() | 0o644;
        stat
    }

    fn following() -> CopyOptions {
        CopyOptions {
            dereference: Dereference::Always,
            ..CopyOptions::default()
        }
    }

    fn keeping_links() -> CopyOptions {
        CopyOptions {
            dereference: Dereference::Never,
            ..CopyOptions::default()
        }
    }

    /// Decides for source and destination as names, and the targets of both.
    fn met(
        names: [Stat; 2],
        referents: [Stat; 2],
        is_same_entry: bool,
        options: &CopyOptions,
    ) -> Sameness {
        let [source, dest] = match options.follows(Role::Inside) {
            false => names,
            true => referents,
        };
        let pair = FilePair {
            source,
            dest,
            names: Some(names.into()),
            referents: Some(referents.into()),
            is_same_entry,
        };
        sameness(&pair, options, Role::Inside)
    }

    #[test]
    fn one_file_with_two_names_is_distinguished_from_two_files() {
        let (one, two) = (stat(1, FILE), stat(2, FILE));
        for (dest, terms, expected) in [
            (two, following(), Sameness::Proceed),
            (two, keeping_links(), Sameness::Proceed),
            (one, following(), Sameness::SameFile),
            (one, keeping_links(), Sameness::SameFile),
        ] {
            let got = met([one, dest], [one, dest], false, &terms);
            assert_eq!(got, expected, "{} {terms:?}", dest.st_ino);
        }
    }

    #[test]
    fn another_name_may_be_replaced_but_not_the_only_one() {
        let one = stat(1, FILE);
        let removing = CopyOptions {
            remove_existing: RemoveExisting::Always,
            ..following()
        };
        let backing_up = CopyOptions {
            backup: Backup::Numbered,
            ..following()
        };
        for terms in [removing, backing_up] {
            let got = |entry| met([one, one], [one, one], entry, &terms);
            assert_eq!(got(false), Sameness::Proceed, "{terms:?}");
            assert_eq!(got(true), Sameness::SameFile, "{terms:?}");
        }
    }

    #[test]
    fn a_link_to_the_source_is_in_the_way_and_a_wanted_one_is_there() {
        let (file, link) = (stat(1, FILE), stat(2, LINK));
        let through = |terms: &CopyOptions| met([file, link], [file, file], false, terms);
        assert_eq!(through(&following()), Sameness::SameFile);
        let symbolic = CopyOptions {
            copy_mode: CopyMode::SymbolicLink,
            ..following()
        };
        assert_eq!(through(&symbolic), Sameness::Proceed);
        let hard = CopyOptions {
            copy_mode: CopyMode::HardLink,
            ..following()
        };
        let again = met([file, file], [file, file], false, &hard);
        assert_eq!(again, Sameness::NothingToDo);
    }

    #[test]
    fn one_link_under_two_names_is_no_work_and_on_itself_an_error() {
        let link = stat(3, LINK);
        let kept = keeping_links();
        let got = |entry| met([link, link], [link, link], entry, &kept);
        assert_eq!(got(false), Sameness::NothingToDo);
        assert_eq!(got(true), Sameness::SameFile);
    }
}
