//! In what our cp differs from GNU cp 9.1, on purpose or to no harm. `docs/cp.md` lists the same.

use super::cases::Case;
use super::compare::Difference;
use super::trees::HERE;

/// A known difference.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) name: &'static str,
    /// Why it is so.
    pub(crate) reason: &'static str,
    /// Whether it is what a case differs in.
    pub(crate) explains: fn(&Case, &Difference, &[Difference]) -> bool,
}

/// Every one is seen in at least one case.
pub(crate) const DIFFERENCES: &[Known] = &[
    Known {
        name: "-b with -n has the message of 9.5",
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
        reason: "9.1 looked for them relative to the source's folder, and put them there",
        explains: |case, difference, all| {
            let is_asked = ["-b", "--backup", "-S"]
                .iter()
                .any(|name| case.drawn.has(name));
            is_asked && misplaced_backups(all).any(|backup| follows_from(difference, backup))
        },
    },
    Known {
        name: "-i that is answered by no is an exit code of 1",
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
        reason: "GNU's goes on until the disk is full, where the target was there already",
        explains: |_, difference, _| {
            difference.what == "depth" && difference.gnu.contains("bottomless")
        },
    },
    Known {
        name: "--parents leaves the target itself, and what is above it, as it is",
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
        name: "the message about an attribute that cannot be set names its file",
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
        reason: "GNU gives up a file's other attributes with the first",
        explains: |case, difference, _| {
            let more = |line: &str| !line.contains("preserving permissions for");
            let lines = |text: &str| {
                let lines = text.lines().filter(|line| more(line));
                lines.map(str::to_owned).collect::<Vec<_>>()
            };
            let reported = difference.what == "stderr"
                && difference.ours.lines().count() > difference.gnu.lines().count()
                && lines(&difference.gnu) == lines(&difference.ours);
            let linked = case.drawn.has("-l") && difference.what.starts_with("xattr");
            reported || (linked && difference.gnu.is_empty())
        },
    },
];

/// The simple backups that only one of the two has.
fn misplaced_backups(all: &[Difference]) -> impl Iterator<Item = &[u8]> {
    let one_sided = all
        .iter()
        .filter(|one| ["extra", "missing"].contains(&one.what.as_str()));
    let paths = one_sided.filter_map(|one| one.path.as_deref());
    paths.filter(|path| SUFFIXES.iter().any(|suffix| path.ends_with(suffix)))
}

const SUFFIXES: [&[u8]; 6] = [b"~", b".bak", b".old", b"x", b".suffix", b".env"];

/// Whether a backup at another place makes this difference: of itself, of a file of its name,
/// of the times of folders that were searched for it, of the messages that name it.
fn follows_from(difference: &Difference, backup: &[u8]) -> bool {
    let folder = backup.iter().rposition(|byte| *byte == b'/');
    let folder = &backup[..folder.unwrap_or(0)];
    let without_backup = |text: &str| {
        let lines = text.lines().filter(|line| !line.contains("un-backup"));
        let copied = lines.map(|line| line.split(" (backup: ").next().unwrap_or(line).to_owned());
        copied.collect::<Vec<_>>()
    };
    match difference.path.as_deref() {
        Some(path) => {
            let name = |path: &[u8]| path.rsplit(|byte| *byte == b'/').next().map(<[u8]>::to_vec);
            let mut originals = SUFFIXES
                .iter()
                .filter_map(|suffix| backup.strip_suffix(*suffix));
            let is_original = originals.any(|original| name(original) == name(path));
            let is_searched = difference.what == "atime" && difference.gnu == "now";
            let is_folder = path == folder && is_touched(difference);
            path == backup || is_original || is_searched || is_folder
        }
        None => without_backup(&difference.gnu) == without_backup(&difference.ours),
    }
}

/// A folder in which a file was made and removed again, or never made.
fn is_touched(difference: &Difference) -> bool {
    difference.what == "mtime" && [&difference.gnu, &difference.ours].contains(&&"now".to_owned())
}

/// Those of a case's differences that nothing explains; `seen` counts by place in the table.
pub(crate) fn unexplained(
    case: &Case,
    differences: Vec<Difference>,
    seen: &mut [usize],
) -> Vec<Difference> {
    let all = differences.clone();
    let mut left = differences;
    left.retain(|difference| {
        let known = DIFFERENCES
            .iter()
            .position(|known| (known.explains)(case, difference, &all));
        known.inspect(|place| seen[*place] += 1).is_none()
    });
    left
}
