//! Dependencies: a reason for each in CONTRIBUTING.md, one version of each, and licences under
//! which we can pass them on.

use std::collections::{BTreeMap, BTreeSet};

use spdx::{Expression, Licensee, ParseMode};

use super::code::Tree;
use super::complaint::{Complaint, Exceptions, excused};
use crate::workspace::Package;

const PAGE: &str = "CONTRIBUTING.md";
const SECTION: &str = "## Dependencies";

/// Dependencies with more than one version, and the reason why this can't be changed. deny.toml has
/// the same list, which a test checks.
pub(super) const EXCEPTIONS: Exceptions = &[
    (
        "base64",
        "pem, which rcgen writes certificates with, is ahead",
    ),
    (
        "getrandom",
        "of ring, which rustls could use and we do not: in the lock file only",
    ),
    (
        "syn",
        "enumflags2_derive, which landlock builds with, is not on version 3 yet",
    ),
    (
        "untrusted",
        "of aws-lc-rs, which could imitate ring: in the lock file only",
    ),
];

/// deny.toml has the same list, which a test checks.
const ALLOWED: &[&str] = &[
    "MIT",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "Zlib",
    "Unicode-3.0",
    "Unlicense",
    "CC0-1.0",
    "0BSD",
];

/// A dependency is explained by a row of the table in its section, with its name in backticks.
/// Dependencies of tests need no row.
pub(super) fn check_reasons(tree: &Tree) -> Vec<Complaint> {
    let page = tree.text(PAGE).unwrap_or_default();
    let mut lines = page.lines().skip_while(|line| *line != SECTION);
    if lines.next().is_none() {
        return vec![Complaint::new(PAGE, format!("has no heading `{SECTION}`"))];
    }
    let section = lines.take_while(|line| !line.starts_with("## "));
    let rows: Vec<_> = section
        .filter(|line| line.trim_start().starts_with('|'))
        .collect();
    let is_explained = |name: &str| {
        let name = format!("`{name}`");
        rows.iter().any(|row| row.contains(&name))
    };
    shipped_dependencies(tree)
        .into_iter()
        .filter(|(name, _)| !is_explained(name))
        .map(|(name, user)| {
            Complaint::new(
                PAGE,
                format!("no row of `{SECTION}` says why {user} needs `{name}`"),
            )
        })
        .collect()
}

/// Returns the dependencies our crates ship or build with, each with one crate that uses it.
fn shipped_dependencies(tree: &Tree) -> BTreeMap<&str, &str> {
    let all = tree.metadata.ours().flat_map(|package| {
        package
            .dependencies
            .iter()
            .map(move |dependency| (dependency, package.name.as_str()))
    });
    all.filter(|(dependency, _)| dependency.path.is_none())
        .filter(|(dependency, _)| dependency.kind.as_deref() != Some("dev"))
        .map(|(dependency, user)| (dependency.name.as_str(), user))
        .collect()
}

pub(super) fn check_versions(tree: &Tree, exceptions: Exceptions) -> Vec<Complaint> {
    let mut versions = BTreeMap::<_, BTreeSet<_>>::new();
    for package in tree.metadata.theirs() {
        let versions = versions.entry(&*package.name).or_default();
        versions.insert(&*package.version);
    }
    versions.retain(|_, versions| versions.len() > 1);
    let duplicates = versions.into_iter().map(|(name, found)| {
        let found = Vec::from_iter(found).join(" and ");
        Complaint::new(name, format!("in versions {found}; see `cargo tree -d`"))
    });
    excused(duplicates.collect(), exceptions)
}

pub(super) fn check_licences(tree: &Tree) -> Vec<Complaint> {
    let allowed: Vec<_> = ALLOWED
        .iter()
        .filter_map(|name| Licensee::parse(name).ok())
        .collect();
    let complain = |package: &Package| {
        let place = format!("{} {}", package.name, package.version);
        fault(package.license.as_deref(), &allowed).map(|fault| Complaint::new(place, fault))
    };
    tree.metadata.packages.iter().filter_map(complain).collect()
}

fn fault(license: Option<&str>, allowed: &[Licensee]) -> Option<String> {
    let Some(license) = license else {
        return Some("names no licence".into());
    };
    // Lax, since packages from before 2020 say `MIT/Apache-2.0`.
    match Expression::parse_mode(license, ParseMode::LAX) {
        Err(error) => Some(format!(
            "`{license}` is no licence expression: {}",
            error.reason
        )),
        Ok(expression) => {
            let is_allowed = expression
                .evaluate(|asked| allowed.iter().any(|licensee| licensee.satisfies(asked)));
            (!is_allowed).then(|| format!("`{license}` is not among the licences allowed"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Dependency;
    use crate::workspace::fake::{ours, theirs};

    fn complaints(section: &str, dependency: Dependency) -> usize {
        let page = format!("| `other` | why |\n{SECTION}\n{section}\n## Next\n| `next` | why |\n");
        check_reasons(&Tree::of(&[(PAGE, &page)]).with(ours("a").needing(dependency))).len()
    }

    #[test]
    fn a_missing_page_or_section_is_an_error() {
        assert_eq!(check_reasons(&Tree::of(&[])).len(), 1);
        assert_eq!(check_reasons(&Tree::of(&[(PAGE, "# Words\n")])).len(), 1);
    }

    #[test]
    fn a_row_of_another_section_does_not_count() {
        for name in ["other", "next"] {
            assert_eq!(complaints("", Dependency::on_theirs(name)), 1, "{name}");
        }
    }

    #[test]
    fn a_dependency_needs_a_row() {
        assert_eq!(
            complaints("`rustix` is good\n", Dependency::on_theirs("rustix")),
            1
        );
        assert_eq!(
            complaints("| rustix | good |\n", Dependency::on_theirs("rustix")),
            1
        );
        assert_eq!(
            complaints("| `rustix` | good |\n", Dependency::on_theirs("rustix")),
            0
        );
    }

    #[test]
    fn our_own_crates_and_what_tests_need_have_no_row() {
        assert_eq!(complaints("", Dependency::on_ours("b")), 0);
        assert_eq!(
            complaints("", Dependency::on_theirs("tempfile").kind("dev")),
            0
        );
        assert_eq!(complaints("", Dependency::on_theirs("cc").kind("build")), 1);
    }

    fn two_versions() -> Tree {
        Tree::of(&[])
            .with(theirs("a", "1.0.0"))
            .with(theirs("a", "2.0.0"))
    }

    #[test]
    fn two_versions_are_found() {
        let complaints = check_versions(&two_versions(), &[]);
        assert_eq!(
            complaints,
            [Complaint::new(
                "a",
                "in versions 1.0.0 and 2.0.0; see `cargo tree -d`"
            )]
        );
    }

    #[test]
    fn an_exception_silences_and_grows_stale() {
        assert!(check_versions(&two_versions(), &[("a", "b needs the old one")]).is_empty());
        assert_eq!(
            check_versions(&Tree::of(&[]), &[("a", "b needs the old one")]).len(),
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

    fn refused(license: &str) -> usize {
        check_licences(&Tree::of(&[]).with(theirs("a", "1.0.0").licensed(license))).len()
    }

    #[test]
    fn every_allowed_licence_is_understood() {
        for license in ALLOWED {
            assert_eq!(refused(license), 0, "{license}");
        }
    }

    #[test]
    fn expressions_are_evaluated() {
        assert_eq!(refused("MIT OR GPL-3.0-only"), 0);
        assert_eq!(refused("MIT AND GPL-3.0-only"), 1);
        assert_eq!(refused("(MIT OR GPL-3.0-only) AND Unicode-3.0"), 0);
        assert_eq!(refused("MIT/Apache-2.0"), 0);
        assert_eq!(refused("GPL-2.0-only WITH Classpath-exception-2.0"), 1);
    }

    #[test]
    fn no_licence_is_no_permission() {
        assert_eq!(
            check_licences(&Tree::of(&[]).with(theirs("a", "1.0.0"))).len(),
            1
        );
        assert_eq!(refused("All Mine"), 1);
    }

    #[test]
    fn deny_toml_allows_the_same() {
        let lines: String = ALLOWED
            .iter()
            .map(|name| format!("    \"{name}\",\n"))
            .collect();
        let allow = format!("allow = [\n{lines}]\n");
        assert!(
            include_str!("../../../deny.toml").contains(&allow),
            "deny.toml lacks\n{allow}"
        );
    }
}
