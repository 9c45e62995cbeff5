//! Differences between two runs of a case.

use std::collections::{BTreeSet, HashMap};

use super::cases::Case;
use super::look::{Entry, shown};
use super::run::Outcome;
use super::trees::Node;

/// Allowed difference in blocks (of 512 bytes), which a file system may use for other than data.
const BLOCKS_APART: u64 = 32;

/// A single difference.
#[derive(Clone, Debug)]
pub(crate) struct Difference {
    /// The path below the world; `None` for output.
    pub(crate) path: Option<Vec<u8>>,
    /// `exit`, `stdout`, `stderr`, `missing`, `extra`, or an attribute of a name.
    pub(crate) what: String,
    pub(crate) gnu: String,
    pub(crate) ours: String,
}

/// Returns all differences between our cp's outcome and GNU's.
pub(crate) fn compare(case: &Case, gnu: &Outcome, ours: &Outcome) -> Vec<Difference> {
    let mut differences = Vec::new();
    let mut said = |what: &str, gnu: String, ours: String| {
        if gnu != ours {
            differences.push(Difference {
                path: None,
                what: what.to_owned(),
                gnu,
                ours,
            });
        }
    };
    // The outcome of a copy that was stopped is not known.
    if gnu.end == "it hung" {
        return differences;
    }
    said("exit", gnu.end.clone(), ours.end.clone());
    // The order in which a folder meets its own copy is not defined either.
    if is_unsettled(gnu) && is_unsettled(ours) {
        said("depth", depth(gnu).to_owned(), depth(ours).to_owned());
        return differences;
    }
    let reported = |output: &[u8]| match case.is_ordered() {
        true => String::from_utf8_lossy(output).into_owned(),
        false => sorted(output),
    };
    said("stdout", reported(&gnu.stdout), reported(&ours.stdout));
    said("stderr", sorted(&gnu.stderr), sorted(&ours.stderr));
    let paths: BTreeSet<_> = gnu.entries.keys().chain(ours.entries.keys()).collect();
    for path in paths {
        match (gnu.entries.get(path), ours.entries.get(path)) {
            (Some(gnu), Some(ours)) => differences.extend(
                of_entry(path, gnu, ours)
                    .into_iter()
                    .filter(|one| one.what != "atime" || !reads_twice(case)),
            ),
            (gnu, ours) => differences.push(Difference {
                path: Some(path.clone()),
                what: if ours.is_none() { "missing" } else { "extra" }.to_owned(),
                gnu: gnu.map(of_one).unwrap_or_default(),
                ours: ours.map(of_one).unwrap_or_default(),
            }),
        }
    }
    differences
}

/// Returns whether a folder was copied into itself, or would have been: the files copied before
/// that depend on the order in which the file system lists it.
fn is_unsettled(outcome: &Outcome) -> bool {
    let said = String::from_utf8_lossy(&outcome.stderr);
    let words = [
        "into itself",
        "cyclic symbolic link",
        "will not create hard link",
    ];
    words.iter().any(|words| said.contains(words))
        || outcome.entries.keys().any(|path| is_nested(path))
}

/// Returns whether a file may be read under several names: their order then determines which copy
/// gets the time of the first reading.
fn reads_twice(case: &Case) -> bool {
    let is_second = |node: &Node| node.path.ends_with(b"/second");
    let follows = case.drawn.has("-L") || case.drawn.has("-H");
    case.drawn.is_recursive() && (follows || case.world.nodes.iter().any(is_second))
}

/// Reports whether a folder was copied into itself until no path could be longer.
fn depth(outcome: &Outcome) -> &'static str {
    match outcome.entries.keys().any(|path| path.len() > 2_500) {
        true => "bottomless",
        false => "bounded",
    }
}

/// Returns whether a path repeats a name more often than any world does.
fn is_nested(path: &[u8]) -> bool {
    let mut times: HashMap<&[u8], usize> = HashMap::new();
    for name in path
        .split(|byte| *byte == b'/')
        .filter(|name| *name != b"deep")
    {
        *times.entry(name).or_default() += 1;
    }
    times.values().any(|times| *times > 4)
}

fn of_entry(path: &[u8], gnu: &Entry, ours: &Entry) -> Vec<Difference> {
    let words: BTreeSet<_> = gnu.keys().chain(ours.keys()).collect();
    let state = |entry: &Entry, word: &String| entry.get(word).cloned().unwrap_or_default();
    words
        .into_iter()
        .map(|word| (word, state(gnu, word), state(ours, word)))
        .filter(|(word, gnu, ours)| gnu != ours && !(*word == "blocks" && are_near(gnu, ours)))
        .map(|(word, gnu, ours)| Difference {
            path: Some(path.to_vec()),
            what: word.clone(),
            gnu,
            ours,
        })
        .collect()
}

fn are_near(one: &str, other: &str) -> bool {
    match (one.parse::<u64>(), other.parse::<u64>()) {
        (Ok(one), Ok(other)) => one.abs_diff(other) <= BLOCKS_APART,
        _ => false,
    }
}

/// Returns the lines, sorted. A question ends a line too, since the text that follows it depends on
/// the order of the file system.
fn sorted(output: &[u8]) -> String {
    let text = String::from_utf8_lossy(output);
    let mut lines: Vec<&str> = text
        .lines()
        .flat_map(|line| line.split_inclusive("? "))
        .collect();
    lines.sort_unstable();
    lines.join("\n")
}

/// Returns an entry on one line.
pub(crate) fn of_one(entry: &Entry) -> String {
    let states: Vec<_> = entry
        .iter()
        .map(|(word, state)| format!("{word}={state}"))
        .collect();
    states.join(" ")
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            path,
            what,
            gnu,
            ours,
        } = self;
        if let Some(path) = path {
            write!(f, "{}: ", shown(path))?;
        }
        match gnu.contains('\n') || ours.contains('\n') || gnu.len() + ours.len() > 70 {
            true => write!(
                f,
                "{what}\n  GNU:  {}\n  ours: {}",
                indented(gnu),
                indented(ours)
            ),
            false => write!(f, "{what}: GNU {gnu:?}, ours {ours:?}"),
        }
    }
}

fn indented(text: &str) -> String {
    text.trim_end().replace('\n', "\n        ")
}
