//! Intended or harmless differences between our cp and GNU cp 9.1. `docs/cp.md` lists the same.

use super::cases::Case;
use super::compare::Difference;
use super::look::shown;
use super::trees::HERE;

/// A known difference.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) name: &'static str,
    /// The reason for the difference.
    pub(crate) reason: &'static str,
    /// Which versions of GNU's differ.
    pub(crate) versions: Versions,
    /// Whether it is what a case differs in.
    pub(crate) explains: fn(&Case, &Difference, &[Difference]) -> bool,
}

/// Versions of GNU's, major and minor number.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Versions {
    All,
    Before(u32, u32),
    Since(u32, u32),
}

impl Versions {
    pub(crate) fn contain(self, version: (u32, u32)) -> bool {
        match self {
            Self::All => true,
            Self::Before(major, minor) => version < (major, minor),
            Self::Since(major, minor) => version >= (major, minor),
        }
    }
}

/// Every one is seen in at least one case, for the versions that differ.
pub(crate) const DIFFERENCES: &[Known] = &[
    Known {
        name: "-b with -n has the message of 9.5",
        versions: Versions::Before(9, 5),
        reason: "--update=none-fail is new there, and excluded by the same check",
        explains: |_, difference, _| {
            difference.what == "stderr"
                && difference
                    .gnu
                    .contains("--backup and --no-clobber are mutually exclusive")
                && difference
                    .ours
                    .contains("--backup is mutually exclusive with -n")
        },
    },
    Known {
        name: "--reflink=always that fails leaves no new file",
        versions: Versions::Before(9, 2),
        reason: "9.1 left an empty one; since 9.2 it is removed",
        explains: |case, difference, _| {
            let clones = [b"--reflink".as_slice(), b"--reflink=always"];
            let is_asked = case
                .arguments
                .iter()
                .any(|one| clones.contains(&one.as_slice()));
            let is_empty = difference.what == "missing" && difference.gnu.contains(" size=0");
            is_asked && (is_empty || is_touched(difference))
        },
    },
    Known {
        name: "simple backups stay beside what they are of",
        versions: Versions::Before(9, 3),
        reason: "9.1 looked for them relative to the source's folder, and put them there",
        explains: |case, difference, all| {
            let backups = misplaced_backups(all);
            makes_backups(case)
                && backups
                    .iter()
                    .any(|backup| follows_from(difference, backup))
        },
    },
    Known {
        name: "-i that is answered by no is an exit code of 1",
        versions: Versions::Before(9, 2),
        reason: "since 9.2",
        explains: |case, difference, _| {
            let asks = ["-i", "--interactive"]
                .iter()
                .any(|name| case.drawn.has(name));
            asks && difference.what == "exit" && difference.ours.contains('1')
        },
    },
    Known {
        name: "a folder that is copied into itself comes to an end",
        versions: Versions::All,
        reason: "GNU's goes on until the disk is full, where the target was there already",
        explains: |_, difference, _| {
            difference.what == "depth" && difference.gnu.contains("bottomless")
        },
    },
    Known {
        name: "--parents leaves the target itself, and what is above it, as it is",
        versions: Versions::All,
        reason: "`.`, `..` and `/` in a source are no folders of the target; 9.1 gives the target \
                 their attributes, and fails for those that begin at the root",
        explains: |case, difference, _| {
            let dots = |argument: &Vec<u8>| {
                argument.starts_with(HERE)
                    || argument
                        .split(|byte| *byte == b'/')
                        .any(|name| matches!(name, b"." | b".."))
            };
            let parents = |argument: &Vec<u8>| argument.starts_with(b"--par");
            case.arguments.iter().any(parents)
                && case.arguments.iter().any(dots)
                && ["mode", "owner", "mtime", "atime", "xattr", "exit", "stderr"]
                    .iter()
                    .any(|what| difference.what.starts_with(what))
        },
    },
    Known {
        name: "special bits of an existing file or folder go where the source has none",
        versions: Versions::Before(9, 10),
        reason: "--preserve=mode means the mode of the source; 9.1 leaves them where the file \
                 system has access control lists",
        explains: |case, difference, _| {
            let mode = |text: &str| u32::from_str_radix(text, 8).unwrap_or(0);
            let (gnu, ours) = (mode(&difference.gnu), mode(&difference.ours));
            let preserves = |argument: &Vec<u8>| {
                let word = String::from_utf8_lossy(argument);
                let bundled = word.starts_with('-') && !word.starts_with("--");
                word.starts_with("--pre")
                    || word.starts_with("--ar")
                    || (bundled && word.contains(['a', 'p']))
            };
            case.arguments.iter().any(preserves)
                && difference.what == "mode"
                && gnu & 0o777 == ours & 0o777
                && ours & !gnu == 0
        },
    },
    Known {
        name: "the message about a folder that is in the way of a file names both",
        versions: Versions::Before(9, 10),
        reason: "as in 9.10",
        explains: |_, difference, _| {
            let lines = |text: &str| text.lines().map(without_source).collect::<String>();
            difference.what == "stderr" && lines(&difference.gnu) == lines(&difference.ours)
        },
    },
    Known {
        name: "names with quotes and with what does not print can be pasted into a shell",
        versions: Versions::Before(9, 6),
        reason: "9.1 begins those that end in an escape with needless quotes, or without a dollar",
        explains: |_, difference, _| {
            let bare = |text: &str| {
                let mut lines: Vec<_> = text
                    .lines()
                    .map(|line| line.replace(['\'', '$'], ""))
                    .collect();
                lines.sort_unstable();
                lines
            };
            difference.what.starts_with("std") && bare(&difference.gnu) == bare(&difference.ours)
        },
    },
    Known {
        name: "with backups a folder replaces a file",
        versions: Versions::Before(9, 10),
        reason: "as in 9.10",
        explains: |case, _, all| {
            let is_refused = |one: &Difference| {
                one.what == "stderr" && one.gnu.contains("cannot overwrite non-directory")
            };
            makes_backups(case) && all.iter().any(is_refused)
        },
    },
    Known {
        name: "backups are made with --parents, too",
        versions: Versions::Since(9, 10),
        reason: "9.10 looks for the second one in the folder of the first, and then fails",
        explains: |case, _, all| {
            let is_there =
                |one: &Difference| one.what == "stderr" && one.gnu.contains(": File exists");
            makes_backups(case) && all.iter().any(is_there)
        },
    },
    Known {
        name: "an empty name is no folder",
        versions: Versions::Since(9, 10),
        reason: "9.10 takes it for the working folder, or does nothing",
        explains: |case, difference, _| {
            case.arguments.last().is_some_and(Vec::is_empty)
                && ["exit", "stdout", "stderr"].contains(&&*difference.what)
        },
    },
    Known {
        name: "an access control list that a folder gives goes where the source has none",
        versions: Versions::Since(9, 10),
        reason: "-p means the permissions of the source, and the list may name users who have none \
                 there; 9.10 sets the mode and leaves the list",
        explains: |_, difference, _| {
            difference.what.starts_with("xattr system.posix_acl_") && difference.ours.is_empty()
        },
    },
    Known {
        name: "with backups, too, a folder in the way of a file is named as such",
        versions: Versions::Since(9, 10),
        reason: "9.10 backs up no folder, and tries to open it as a file",
        explains: |case, difference, _| {
            let ours = difference.ours.contains("cannot overwrite directory");
            let words = [": Is a directory", ": File exists"];
            let is_named = ours && words.iter().any(|words| difference.gnu.contains(words));
            let is_said =
                difference.what == "stdout" && difference.ours.len() < difference.gnu.len();
            makes_backups(case) && (is_named || is_said)
        },
    },
    Known {
        name: "the message about an attribute that cannot be set names its file",
        versions: Versions::All,
        reason: "GNU names the attribute twice",
        explains: |_, difference, _| {
            let strip = |text: &str| {
                let lines = text
                    .lines()
                    .map(|line| match line.split_once("setting attribute ") {
                        Some((_, rest)) => {
                            let attribute = rest.split_once(" for ").map_or(rest, |(name, _)| name);
                            let errno = rest.rsplit_once(": ").map_or("", |(_, errno)| errno);
                            format!("{attribute} {errno}")
                        }
                        None => line.to_owned(),
                    });
                lines.collect::<Vec<_>>()
            };
            difference.what == "stderr"
                && difference.gnu.contains("setting attribute")
                && strip(&difference.gnu) == strip(&difference.ours)
        },
    },
    Known {
        name: "what can still be preserved is, after something could not be",
        versions: Versions::All,
        reason: "GNU gives up a file's other attributes with the first",
        explains: |case, difference, _| {
            let more = |line: &str| !line.contains("preserving permissions for");
            let lines = |text: &str| {
                let lines = text.lines().filter(|line| more(line));
                lines.map(without_source).collect::<Vec<_>>()
            };
            let reported = difference.what == "stderr"
                && difference.ours.lines().count() > difference.gnu.lines().count()
                && lines(&difference.gnu) == lines(&difference.ours);
            let linked = case.drawn.has("-l") && difference.what.starts_with("xattr");
            reported || (linked && difference.gnu.is_empty())
        },
    },
];

/// A message that 9.1 ends before the name of the source.
fn without_source(line: &str) -> String {
    match line.split_once(" with non-directory") {
        Some((before, _)) => before.to_owned(),
        None => line.to_owned(),
    }
}

fn makes_backups(case: &Case) -> bool {
    let names = ["-b", "--backup", "-S"];
    names.iter().any(|name| case.drawn.has(name))
}

/// The file that one of them backed up, or both: where GNU's has it, and where ours has.
struct MisplacedBackup<'a> {
    gnu: &'a [u8],
    ours: &'a [u8],
}

const SUFFIXES: [&[u8]; 6] = [b"~", b".bak", b".old", b"x", b".suffix", b".env"];

/// Returns the backups that are at different paths. One without a counterpart on the other side was
/// lost, or is superfluous.
fn misplaced_backups(all: &[Difference]) -> Vec<MisplacedBackup<'_>> {
    let of_gnu = paths(all, "missing").filter(|(gnu, _)| original(gnu).is_some());
    let elsewhere = of_gnu.flat_map(|(gnu, theirs)| {
        // Ours has it in another folder, or put it back because nothing replaced it.
        let partners = paths(all, "extra").filter(move |(ours, own)| {
            let is_named = name(ours) == name(gnu) || Some(name(ours)) == original(gnu).map(name);
            is_named && without_place(&own.ours) == without_place(&theirs.gnu)
        });
        partners.map(move |(ours, _)| MisplacedBackup { gnu, ours })
    });
    // GNU's found nothing to back up, and left the file in place.
    let left = paths(all, "extra").filter_map(|(ours, own)| {
        let gnu = original(ours)?;
        let identity = shown(gnu);
        let mut there = paths(all, "inode").filter(|(path, _)| *path == gnu);
        let is_left = there.any(|(_, there)| there.gnu == identity && there.ours != identity);
        let is_of_it = own.ours.contains(&format!("inode={identity} kind="));
        (is_left && is_of_it).then_some(MisplacedBackup { gnu, ours })
    });
    elsewhere.chain(left).collect()
}

/// Returns the paths with a difference of this kind.
fn paths<'a>(
    all: &'a [Difference],
    what: &'static str,
) -> impl Iterator<Item = (&'a [u8], &'a Difference)> {
    let named = all.iter().filter(move |one| one.what == what);
    named.filter_map(|one| Some((one.path.as_deref()?, one)))
}

/// Returns the name of the file that a simple backup was made of.
fn original(backup: &[u8]) -> Option<&[u8]> {
    SUFFIXES
        .iter()
        .find_map(|suffix| backup.strip_suffix(*suffix))
}

/// Strips location and link count from a description by `of_one`.
fn without_place(state: &str) -> (&str, &str) {
    let from = ["content=", "inode="]
        .iter()
        .find_map(|word| state.find(word));
    let state = &state[from.unwrap_or(0)..];
    let (before, links) = state.split_once(" links=").unwrap_or((state, ""));
    (
        before,
        links.split_once(" mode=").map_or("", |(_, rest)| rest),
    )
}

fn name(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or(path)
}

/// Returns whether a misplaced backup causes this difference: in the backup itself, in its
/// original, in the times of the folders it is in and of those searched for it, or in messages that
/// name it.
fn follows_from(difference: &Difference, backup: &MisplacedBackup<'_>) -> bool {
    let without_backup = |text: &str| {
        let lines = text.lines().filter(|line| !line.contains("un-backup"));
        let copied = lines.map(|line| line.split(" (backup: ").next().unwrap_or(line).to_owned());
        copied.collect::<Vec<_>>()
    };
    let Some(path) = difference.path.as_deref() else {
        return without_backup(&difference.gnu) == without_backup(&difference.ours);
    };
    [backup.gnu, backup.ours].into_iter().any(|backup| {
        let original = original(backup);
        let is_original = original == Some(path);
        // A hard link that could not be made is missing from the link count of its source.
        let is_source = difference.what == "links" && original.map(name) == Some(name(path));
        let is_searched = difference.what == "atime" && difference.gnu == "now";
        let folder = backup.len().saturating_sub(name(backup).len() + 1);
        let is_folder = path == &backup[..folder] && is_touched(difference);
        path == backup || is_original || is_source || is_searched || is_folder
    })
}

/// Returns whether a folder had a file created and removed again on one side only.
fn is_touched(difference: &Difference) -> bool {
    difference.what == "mtime" && [&difference.gnu, &difference.ours].contains(&&"now".to_owned())
}

/// Returns the differences of a case that nothing explains; `seen` counts by index in the table.
pub(crate) fn unexplained(
    case: &Case,
    differences: Vec<Difference>,
    version: (u32, u32),
    seen: &mut [usize],
) -> Vec<Difference> {
    let all = differences.clone();
    let mut left = differences;
    left.retain(|difference| {
        let known = DIFFERENCES.iter().position(|known| {
            known.versions.contain(version) && (known.explains)(case, difference, &all)
        });
        known.inspect(|place| seen[*place] += 1).is_none()
    });
    left
}
