//! One version of each dependency.

use std::collections::{BTreeMap, BTreeSet};

use super::{Complaint, Tree};

/// What comes in more than one version, and why nothing can be done about it: name and reason.
/// deny.toml lists the same (a test holds it to that).
pub(super) const EXCEPTIONS: &[(&str, &str)] = &[(
    "syn",
    "enumflags2_derive, which landlock builds with, is not on version 3 yet",
)];

pub(super) fn check(tree: &Tree, exceptions: &[(&str, &str)]) -> Vec<Complaint> {
    let mut versions = BTreeMap::<&str, BTreeSet<&str>>::new();
    for package in tree.metadata.theirs() {
        versions
            .entry(&package.name)
            .or_default()
            .insert(&package.version);
    }
    versions.retain(|_, versions| versions.len() > 1);
    let is_excepted = |name: &str| exceptions.iter().any(|(excepted, _)| *excepted == name);
    let duplicates = versions
        .iter()
        .filter(|(name, _)| !is_excepted(name))
        .map(|(name, found)| {
            let found = Vec::from_iter(found.iter().copied()).join(" and ");
            Complaint::new(
                "Cargo.lock",
                format!("{name} in versions {found}; see `cargo tree -d`"),
            )
        });
    let stale = exceptions
        .iter()
        .filter(|(name, _)| !versions.contains_key(name))
        .map(|(name, _)| {
            Complaint::new(
                "Cargo.lock",
                format!("{name} is excepted as a duplicate, but is none"),
            )
        });
    duplicates.chain(stale).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::fake::theirs;

    fn two_versions() -> Tree {
        Tree::of(&[])
            .with(theirs("a", "1.0.0"))
            .with(theirs("a", "2.0.0"))
    }

    #[test]
    fn two_versions_are_found() {
        let complaints = check(&two_versions(), &[]);
        assert_eq!(
            complaints,
            [Complaint::new(
                "Cargo.lock",
                "a in versions 1.0.0 and 2.0.0; see `cargo tree -d`"
            )]
        );
    }

    #[test]
    fn an_exception_silences_and_grows_stale() {
        assert!(check(&two_versions(), &[("a", "b needs the old one")]).is_empty());
        assert_eq!(
            check(&Tree::of(&[]), &[("a", "b needs the old one")]).len(),
            1
        );
    }

    #[test]
    fn deny_toml_excepts_the_same() {
        let listed = EXCEPTIONS.iter().map(|(name, reason)| {
            format!("    {{ crate = \"{name}\", reason = \"{reason}\" }},\n")
        });
        let listed = match listed.collect::<String>() {
            none if none.is_empty() => "skip = []\n".to_owned(),
            some => format!("skip = [\n{some}]\n"),
        };
        assert!(
            include_str!("../../../deny.toml").contains(&listed),
            "deny.toml lacks\n{listed}"
        );
    }
}
