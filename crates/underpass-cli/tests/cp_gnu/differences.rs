//! In what our cp differs from GNU cp 9.1, on purpose or to no harm. `docs/cp.md` lists the same.

use super::cases::Case;
use super::compare::Difference;

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
        name: "-b with -n is told in the words of 9.5",
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
        explains: |case, _, all| {
            let is_backup = |one: &Difference| {
                let suffixes = [b"~".as_slice(), b".bak", b".old", b"x", b".suffix", b".env"];
                let path = one.path.as_deref().unwrap_or_default();
                one.what == "extra" && suffixes.iter().any(|suffix| path.ends_with(suffix))
            };
            ["-b", "--backup", "-S"]
                .iter()
                .any(|name| case.drawn.has(name))
                && all.iter().any(is_backup)
        },
    },
];

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
