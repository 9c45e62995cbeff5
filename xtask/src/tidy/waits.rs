//! A test waits for an event, never by sleeping, and reads no clock: how long something takes
//! depends on the machine.

use std::collections::BTreeSet;

use super::code::Tree;
use super::complaint::{Complaint, Exceptions, excused};

const SLOW: &str = "a slow client is slow";
const RATE: &str = "a rate is bounded from above, which a pause of the machine only lowers";

/// Test files that may sleep, with reasons.
pub(super) const SLEEPING: Exceptions = &[
    (
        "crates/underpass-serve/tests/operation/connections/endings.rs",
        SLOW,
    ),
    (
        "crates/underpass-serve/tests/operation/connections/limits.rs",
        SLOW,
    ),
    (
        "crates/underpass-testkit/src/wait.rs",
        "the pause of the wait that everybody uses, between two looks",
    ),
    ("xtask/tests/soak/acts.rs", SLOW),
    (
        "xtask/tests/soak/main.rs",
        "a run takes the time that was asked for",
    ),
    ("xtask/tests/soak/site.rs", "the pace at which files change"),
];

/// Test files that may measure time, with reasons. A direct comparison with `WAIT_MAX` needs no
/// exception.
pub(super) const TIMED: Exceptions = &[
    (
        "crates/underpass-cli/tests/broker/clients/mod.rs",
        "a session ends no sooner than it may",
    ),
    (
        "crates/underpass-cli/tests/broker/clients/records.rs",
        "records have the time of day",
    ),
    ("crates/underpass-cli/tests/cp/choosing.rs", RATE),
    (
        "crates/underpass-cli/tests/serve/access/flood.rs",
        "the pace of a flood, and times that are printed",
    ),
    ("crates/underpass-cli/tests/serve/hostile/siege.rs", RATE),
    (
        "crates/underpass-serve/tests/access/timing.rs",
        "whether times differ is the question",
    ),
    (
        "crates/underpass-serve/tests/operation/connections/crowded.rs",
        "a grace has to be over",
    ),
    (
        "crates/underpass-serve/tests/operation/connections/endings.rs",
        SLOW,
    ),
    (
        "crates/underpass-serve/tests/operation/connections/limits.rs",
        RATE,
    ),
    (
        "xtask/tests/soak/main.rs",
        "a run takes the time that was asked for",
    ),
];

pub(super) fn check(tree: &Tree, sleeping: Exceptions, timed: Exceptions) -> Vec<Complaint> {
    let sleeps = "a test that sleeps: wait for an event, with `underpass_testkit::wait_until`";
    let times = "a test that uses the time something took: wait for an event, or compare with \
                 `underpass_testkit::WAIT_MAX`";
    let mut found = excused(complaints(tree, sleeps, is_sleep), sleeping);
    found.extend(excused(complaints(tree, times, is_timed), timed));
    found
}

/// Returns a complaint about each file in which some words of a test are a fault.
fn complaints(tree: &Tree, text: &str, is_fault: fn(&[&str]) -> bool) -> Vec<Complaint> {
    let files = tree.rust().filter(|(path, _, rust)| {
        let is_kit = path.starts_with("crates/underpass-testkit/");
        let of_tests = rust.words.iter();
        let of_tests = of_tests.filter(|word| is_kit || rust.is_for_tests(word.line));
        let words: Vec<_> = of_tests.map(|word| word.text.as_str()).collect();
        (0..words.len()).any(|at| is_fault(&words[at..]))
    });
    let files: BTreeSet<_> = files.map(|(path, ..)| path).collect();
    files
        .into_iter()
        .map(|path| Complaint::new(path, text))
        .collect()
}

fn is_sleep(words: &[&str]) -> bool {
    words.starts_with(&["sleep", "("])
}

/// Returns whether a measured time is not directly compared with the bound of all waits.
fn is_timed(words: &[&str]) -> bool {
    matches!(words, ["elapsed", "(", behind @ ..]
        if !matches!(behind, ["<" | ">", "WAIT_MAX", ..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_that_sleeps_is_found() {
        let sleeps = "fn f() { thread::sleep(PAUSE); }";
        let in_tests = format!("#[cfg(test)]\nmod tests {{ {sleeps} }}");
        for (path, text, number) in [
            ("crates/a/tests/b.rs", sleeps, 1),
            ("crates/underpass-testkit/src/b.rs", sleeps, 1),
            ("crates/a/src/b.rs", in_tests.as_str(), 1),
            ("crates/a/src/b.rs", sleeps, 0),
            ("crates/a/tests/b.rs", "use std::thread::sleep;", 0),
        ] {
            let tree = Tree::of(&[(path, text)]);
            assert_eq!(check(&tree, &[], &[]).len(), number, "{path}");
            let excepted = [(path, "it has to")];
            assert_eq!(check(&tree, &excepted, &[]).len(), 1 - number, "{path}");
        }
    }

    #[test]
    fn a_test_that_the_clock_decides_is_found() {
        let took = "fn f() { let took = start.elapsed(); assert!(took < SECOND); }";
        let in_tests = format!("#[cfg(test)]\nmod tests {{ {took} }}");
        let path = "crates/a/tests/b.rs";
        for (path, text, number) in [
            (path, took, 1),
            (path, "fn f() { assert!(start.elapsed() < SECOND); }", 1),
            (
                path,
                "fn f() { n as f64 / start.elapsed().as_secs_f64() }",
                1,
            ),
            ("crates/a/src/b.rs", in_tests.as_str(), 1),
            (path, "fn f() { assert!(start.elapsed() < WAIT_MAX); }", 0),
            (
                path,
                "fn f() { assert!(start.elapsed() < WAIT_MAX / 2); }",
                0,
            ),
            ("crates/a/src/b.rs", took, 0),
        ] {
            let tree = Tree::of(&[(path, text)]);
            assert_eq!(check(&tree, &[], &[]).len(), number, "{text}");
            let excepted = [(path, "it has to")];
            assert_eq!(check(&tree, &[], &excepted).len(), 1 - number, "{text}");
        }
    }
}
