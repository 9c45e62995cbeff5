//! Our cp compared with the machine's GNU cp: random worlds, random options, and a comparison of
//! every visible result, to the nanosecond and the attribute.
//!
//! A case is repeated with `UNDERPASS_CP_SEED` (default 1) and `UNDERPASS_CP_CASE`, its number;
//! `UNDERPASS_CP_CASES` sets the number of cases to run.

mod cases;
mod compare;
mod differences;
pub(crate) mod look;
mod options;
mod play;
mod run;
pub(crate) mod trees;
mod worlds;
mod xattrs;

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use cases::Case;
use compare::Difference;
use options::CHOICES;
use play::Ground;
use run::Program;
use underpass_testkit::Cases;

/// The number of cases of a run, unless the environment sets another.
const CASES: u64 = 2_400;

#[test]
#[ignore = "needs root and GNU cp; run by cargo xtask test"]
fn our_cp_does_what_gnu_cp_does() {
    let ground = Ground::new();
    let cases = Cases::from_env("UNDERPASS_CP", CASES);
    let is_whole = cases.numbers == (0..CASES);
    let played = ground.play(&cases, [&Ground::gnu(), &ground.ours()]);
    println!("{}", played.report());
    assert!(
        played.failures.is_empty(),
        "{} cases differ",
        played.failures.len()
    );
    if is_whole {
        assert!(
            played.succeeded * 3 > played.cases,
            "a third of the cases copy something"
        );
        for (known, seen) in played.known() {
            assert!(
                seen > 0,
                "no case differs in: {} ({})",
                known.name,
                known.reason
            );
        }
    }
}

/// A harness that reports differences between equal programs is useless.
#[test]
#[ignore = "needs root and GNU cp; run by cargo xtask test"]
fn gnu_cp_does_what_it_does() {
    let gnu = Ground::gnu();
    let played = Ground::new().play(&Cases::from_env("UNDERPASS_CP", 200), [&gnu, &gnu]);
    println!("{}", played.report());
    assert!(
        played.failures.is_empty(),
        "{} cases differ",
        played.failures.len()
    );
}

/// So is one that misses differences: each option changes the behaviour of cp.
#[test]
#[ignore = "needs root and GNU cp; run by cargo xtask test"]
fn another_cp_is_found_out() {
    let gnu = Ground::gnu();
    let expected = [
        ("-v", "stdout"),
        ("-p", "mtime"),
        ("--preserve=ownership", "owner"),
        ("--preserve=xattr", "xattr user.colour"),
        ("--preserve=mode", "xattr system.posix_acl_access"),
        ("--sparse=always", "blocks"),
        ("-r", "extra"),
        ("-L", "kind"),
        ("--remove-destination", "inode"),
        ("-d", "links"),
        ("--attributes-only", "content"),
        ("-b", "extra"),
    ];
    for (option, what) in expected {
        let mut other = gnu.clone();
        other.first.push(option.to_owned());
        let is_found = is_found_out(&Ground::new(), [&gnu, &other], |one| one.what == what);
        assert!(is_found, "{option}: {what} was not seen to differ");
    }
}

/// A missing backup is not a misplaced one.
#[test]
#[ignore = "needs root and GNU cp; run by cargo xtask test"]
fn a_cp_that_loses_its_backups_is_found_out() {
    let ground = Ground::new();
    // Excludes the names with `~` that worlds contain anyway.
    let is_lost = |one: &Difference| {
        let original = one.path.as_ref().and_then(|path| path.strip_suffix(b"~"));
        let is_of = |original| {
            one.gnu
                .contains(&format!("inode={} ", look::shown(original)))
        };
        one.what == "missing" && original.is_some_and(is_of)
    };
    let programs = [&Ground::gnu(), &ground.without_backups()];
    assert!(is_found_out(&ground, programs, is_lost));
}

/// Returns whether an unexplained difference of this kind is in one of the first cases.
fn is_found_out(
    ground: &Ground,
    programs: [&Program; 2],
    is_it: impl Fn(&Difference) -> bool,
) -> bool {
    (0..400).step_by(20).any(|start| {
        let mut cases = Cases::from_env("UNDERPASS_CP", CASES);
        cases.numbers = start..start + 20;
        let played = ground.play(&cases, programs);
        let mut failures = played.failures.iter();
        failures.any(|failure| failure.differences.iter().any(&is_it))
    })
}

/// The random cases cover every option, and nearly every pair of options.
#[test]
fn options_are_drawn_together() {
    let mut pairs: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    let seed = Cases::from_env("UNDERPASS_CP", CASES).seed;
    for number in 0..CASES {
        let case = Case::of(seed, number);
        let names: BTreeSet<&str> = case.drawn.names.iter().copied().collect();
        for one in &names {
            for other in &names {
                *pairs.entry((one, other)).or_default() += 1;
            }
        }
    }
    let names: Vec<_> = CHOICES
        .iter()
        .map(|choice| choice.name)
        .chain(["-t", "-T", "-x"])
        .collect();
    let is_drawn = |one: &str, other: &str| pairs.contains_key(&(one, other));
    let absent: Vec<_> = names.iter().filter(|name| !is_drawn(name, name)).collect();
    assert!(absent.is_empty(), "never drawn: {absent:?}");
    let all = names
        .iter()
        .flat_map(|one| names.iter().map(move |other| (*one, *other)));
    let absent: Vec<_> = all
        .filter(|(one, other)| one < other && !is_drawn(one, other))
        .collect();
    let most = names.len() * (names.len() - 1) / 2 / 20;
    assert!(absent.len() <= most, "never drawn together: {absent:?}");
}

/// The version of GNU's cp: major and minor number. Without `UNDERPASS_GNU_CP` it must be 9.1.
fn gnu_version() -> (u32, u32) {
    let version = Command::new(Ground::gnu().folder.join("cp"))
        .arg("--version")
        .output()
        .expect("cp starts");
    let said = String::from_utf8_lossy(&version.stdout).into_owned();
    let words = said
        .lines()
        .next()
        .and_then(|line| line.strip_prefix("cp (GNU coreutils) "));
    let numbers = words.and_then(|version| version.split_once('.'));
    let number = |digits: &str| {
        digits
            .split('.')
            .next()
            .and_then(|digits| digits.parse().ok())
    };
    let version = numbers.and_then(|(major, minor)| Some((number(major)?, number(minor)?)));
    let version = version.unwrap_or_else(|| panic!("not GNU's cp: {said}"));
    let is_chosen = std::env::var_os("UNDERPASS_GNU_CP").is_some();
    assert!(is_chosen || version == (9, 1), "another cp: {said}");
    version
}
