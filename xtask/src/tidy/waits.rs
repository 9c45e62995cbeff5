//! A test waits for an event, never by sleeping: how long is long enough depends on the machine.

use std::collections::BTreeSet;

use super::code::Tree;
use super::complaint::{Complaint, Exceptions, excused};

/// Test files that may sleep, and why.
pub(super) const EXCEPTIONS: Exceptions = &[
    (
        "crates/underpass-serve/tests/endings.rs",
        "a slow client is slow",
    ),
    (
        "crates/underpass-serve/tests/limits.rs",
        "a slow client is slow",
    ),
    (
        "crates/underpass-testkit/src/wait.rs",
        "the pause of the wait that everybody uses, between two looks",
    ),
    (
        "xtask/tests/contract/mod.rs",
        "the pause between two looks, until a deadline",
    ),
    ("xtask/tests/soak/acts.rs", "a slow client is slow"),
    (
        "xtask/tests/soak/main.rs",
        "a run takes the time that was asked for",
    ),
    ("xtask/tests/soak/site.rs", "the pace at which files change"),
];

pub(super) fn check(tree: &Tree, exceptions: Exceptions) -> Vec<Complaint> {
    let files = tree.rust().filter(|(path, _, rust)| {
        let is_kit = path.starts_with("crates/underpass-testkit/");
        rust.words.windows(2).any(|pair| {
            let is_for_tests = is_kit || rust.is_for_tests(pair[0].line);
            is_for_tests && pair[0].text == "sleep" && pair[1].text == "("
        })
    });
    let files: BTreeSet<_> = files.map(|(path, ..)| path).collect();
    let text = "a test that sleeps: wait for an event, with `underpass_testkit::wait_until`";
    let sleeping = files.into_iter().map(|path| Complaint::new(path, text));
    excused(sleeping.collect(), exceptions)
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
            assert_eq!(check(&tree, &[]).len(), number, "{path}");
            let excepted = [(path, "it has to")];
            assert_eq!(check(&tree, &excepted).len(), 1 - number, "{path}");
        }
    }
}
