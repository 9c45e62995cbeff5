//! What ARCHITECTURE.md must say: a reason for each dependency, and a glossary that is short.

use std::collections::BTreeMap;

use super::{Complaint, Tree};

const PAGE: &str = "ARCHITECTURE.md";
const GLOSSARY: &str = "## Glossary";
const TERMS_MAX: usize = 40;

/// A dependency is explained by a row of a Markdown table with its name in backticks. What only
/// tests need is not asked for.
pub(super) fn check_dependencies(tree: &Tree) -> Vec<Complaint> {
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

/// The glossary is the tables under its heading, up to the next one: a row explains the terms of
/// its first cell, which commas separate.
pub(super) fn check_glossary(tree: &Tree) -> Vec<Complaint> {
    let page = tree.text(PAGE).unwrap_or_default();
    let mut lines = page.lines().skip_while(|line| *line != GLOSSARY);
    if lines.next().is_none() {
        return vec![Complaint::new(PAGE, format!("has no heading `{GLOSSARY}`"))];
    }
    let section = lines.take_while(|line| !line.starts_with("## "));
    let rows: Vec<_> = section.filter_map(|line| line.strip_prefix('|')).collect();
    let is_rule = |row: &str| row.starts_with("---");
    // The row above a rule is the head of its table.
    let heads = rows.iter().filter(|row| is_rule(row)).count();
    let rows = rows.iter().filter(|row| !is_rule(row));
    let cells = rows.filter_map(|row| row.split('|').next());
    let terms = cells.map(|cell| cell.split(',').count()).sum::<usize>() - heads;
    let text = format!("{terms} terms in the glossary, of at most {TERMS_MAX}");
    Vec::from_iter((terms > TERMS_MAX).then(|| Complaint::new(PAGE, text)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Dependency;
    use crate::workspace::fake::ours;

    fn complaints(page: &str, dependency: Dependency) -> usize {
        check_dependencies(&Tree::of(&[(PAGE, page)]).with(ours("a").needing(dependency))).len()
    }

    #[test]
    fn a_missing_page_is_an_error() {
        assert_eq!(check_dependencies(&Tree::of(&[])).len(), 1);
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

    #[test]
    fn the_glossary_has_forty_terms() {
        let page = |rows: usize| {
            let rows = "| **A, B** | one |\n|**C**| two |\n".repeat(rows);
            let page =
                format!("{GLOSSARY}\n\n| term | meaning |\n|---|---|\n{rows}\n## Next\n| D |");
            check_glossary(&Tree::of(&[(PAGE, &page)])).len()
        };
        assert_eq!((page(13), page(14)), (0, 1));
    }

    #[test]
    fn a_missing_glossary_is_an_error() {
        assert_eq!(check_glossary(&Tree::of(&[(PAGE, "## Words\n")])).len(), 1);
    }
}
