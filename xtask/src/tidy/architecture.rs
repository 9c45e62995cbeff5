//! Every dependency has a reason, written in ARCHITECTURE.md.

use std::collections::BTreeMap;

use super::{Complaint, Tree};

const PAGE: &str = "ARCHITECTURE.md";

/// A dependency is explained by a row of a Markdown table with its name in backticks. What only
/// tests need is not asked for.
pub(super) fn check(tree: &Tree) -> Vec<Complaint> {
    let Some(page) = tree.text(PAGE) else {
        return vec![Complaint::new(
            PAGE,
            "is missing: it says why each dependency is there",
        )];
    };
    let is_explained = |name: &str| {
        let name = format!("`{name}`");
        page.lines()
            .any(|line| line.trim_start().starts_with('|') && line.contains(&name))
    };
    shipped_dependencies(tree)
        .into_iter()
        .filter(|(name, _)| !is_explained(name))
        .map(|(name, user)| {
            Complaint::new(
                PAGE,
                format!("no row of a table says why {user} needs `{name}`"),
            )
        })
        .collect()
}

/// What our crates ship with or build with, each with one crate that uses it.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Dependency;
    use crate::workspace::fake::ours;

    fn complaints(page: &str, dependency: Dependency) -> usize {
        check(&Tree::of(&[(PAGE, page)]).with(ours("a").needing(dependency))).len()
    }

    #[test]
    fn a_missing_page_is_an_error() {
        assert_eq!(check(&Tree::of(&[])).len(), 1);
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
}
