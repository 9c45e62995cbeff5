//! A type's name has one meaning in the workspace.

use std::collections::{BTreeMap, BTreeSet};

use crate::tidy::code::{CrateModules, Tree};
use crate::tidy::complaint::{Complaint, Exceptions, excused};

/// Names that may be used more than once, with reasons.
pub(in crate::tidy) const EXCEPTIONS: Exceptions = &[("Error", "each crate has one error type")];

/// Crates whose types are not used together with those of other crates.
const CRATES_FOR_TESTS: &[&str] = &["underpass-testkit"];

pub(in crate::tidy) fn check(tree: &Tree, exceptions: Exceptions) -> Vec<Complaint> {
    let mut places = BTreeMap::<_, BTreeSet<_>>::new();
    let packages = tree.metadata.ours();
    for package in packages.filter(|package| !CRATES_FOR_TESTS.contains(&package.name.as_str())) {
        for (name, file, line) in CrateModules::of(tree, package).types() {
            places
                .entry(name.to_owned())
                .or_default()
                .insert((file.to_owned(), line));
        }
    }
    let doubles = places.into_iter().filter(|(_, places)| places.len() > 1);
    let doubles = doubles.map(|(name, places)| {
        let places = places.iter().map(|(file, line)| format!("{file}:{line}"));
        let places = Vec::from_iter(places).join(", ");
        Complaint::new(name, format!("is defined in {places}"))
    });
    excused(doubles.collect(), exceptions)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::fake::ours;

    fn complaints(b: &str, exceptions: &[(&str, &str)]) -> Vec<String> {
        let package = |name: &str| ours(name).with_target("lib", name, "src/lib.rs");
        let files = [("a/src/lib.rs", "\npub enum A {}"), ("b/src/lib.rs", b)];
        let tree = Tree::of(&files).with(package("a")).with(package("b"));
        let complaints = check(&tree, exceptions);
        complaints.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_name_with_two_meanings_is_found() {
        for b in [
            "struct A;",
            "mod c { pub trait A {} }",
            "type A<T> = Vec<T>;",
        ] {
            let found = complaints(b, &[]);
            assert_eq!(found, ["A: is defined in a/src/lib.rs:2, b/src/lib.rs:1"]);
        }
        assert_eq!(
            complaints("struct B; mod c { struct B; }\nmod d { struct B; }", &[]).len(),
            1
        );
    }

    #[test]
    fn what_defines_no_second_meaning_passes() {
        for b in [
            "#[cfg(test)] mod tests { struct A; }",
            "impl Iterator for B { type A = u8; }",
            "pub use a::A; fn f<A>(A(b): A) {}",
        ] {
            assert!(complaints(b, &[]).is_empty(), "{b}");
        }
    }

    #[test]
    fn an_exception_silences_and_grows_stale() {
        let exceptions = [("A", "it is the alphabet's")];
        assert!(complaints("struct A;", &exceptions).is_empty());
        assert_eq!(complaints("struct B;", &exceptions).len(), 1);
    }
}
