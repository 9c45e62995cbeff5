//! A quirk of the kernel is in three places that name each other: the comment at the workaround,
//! `// QUIRK(name): …`; a test for it, with the name in its own (`-` as `_`); and the entry `##
//! name` in docs/kernel-notes.md.

use std::collections::BTreeMap;

use super::code::Tree;
use super::complaint::Complaint;

const PAGE: &str = "docs/kernel-notes.md";
const MARK: &str = "QUIRK(";

pub(super) fn check(tree: &Tree) -> Vec<Complaint> {
    let quirks = quirks(tree);
    let notes = notes(tree.text(PAGE).unwrap_or_default());
    let tests: Vec<_> = tree
        .rust()
        .flat_map(|(_, _, rust)| &rust.tests)
        .map(|test| test.name.as_str())
        .collect();
    let mut complaints = Vec::new();
    for (name, place) in &quirks {
        let spelt = name.replace('-', "_");
        if !is_name(name) {
            complaints.push(Complaint::new(
                place,
                format!("`{name}` is no `kebab-case` name"),
            ));
        }
        if !tests.iter().any(|test| test.contains(&spelt)) {
            let text = format!("no test has `{spelt}` in its name");
            complaints.push(Complaint::new(place, text));
        }
        if !notes.contains_key(name.as_str()) {
            complaints.push(Complaint::new(
                place,
                format!("no entry `## {name}` in {PAGE}"),
            ));
        }
    }
    let orphans = notes
        .iter()
        .filter(|(name, _)| !quirks.contains_key(**name));
    complaints.extend(orphans.map(|(name, line)| {
        Complaint::at(
            PAGE,
            *line,
            format!("no comment in crates/ says QUIRK({name})"),
        )
    }));
    complaints
}

/// Returns the names marked in comments below crates/, each with the first place.
fn quirks(tree: &Tree) -> BTreeMap<String, String> {
    let mut quirks = BTreeMap::new();
    for (path, text, _) in tree.rust().filter(|(path, ..)| path.starts_with("crates/")) {
        for (number, line) in (1..).zip(text.lines()) {
            let comment = line.split_once("//").map_or("", |(_, comment)| comment);
            let name = comment
                .split_once(MARK)
                .and_then(|(_, rest)| rest.split_once(')'));
            if let Some((name, _)) = name {
                quirks
                    .entry(name.to_owned())
                    .or_insert(format!("{path}:{number}"));
            }
        }
    }
    quirks
}

/// Returns the entries of the page with their lines. A heading that isn't a name is prose.
fn notes(page: &str) -> BTreeMap<&str, usize> {
    let headings = (1..).zip(page.lines()).filter_map(|(number, line)| {
        let name = line.strip_prefix("## ")?;
        is_name(name).then_some((name, number))
    });
    headings.collect()
}

fn is_name(name: &str) -> bool {
    let is_part = |character: char| character.is_ascii_lowercase() || character.is_ascii_digit();
    !name.is_empty()
        && name
            .split('-')
            .all(|word| !word.is_empty() && word.chars().all(is_part))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: &str = "// QUIRK(short-splice): since 5.10\nfn a() {}\n";
    const TEST: &str = "#[test]\nfn short_splice_is_seen() {}\n";

    fn complaints(code: &str, page: &str) -> Vec<String> {
        let tree = Tree::of(&[("crates/a/src/lib.rs", code), (PAGE, page)]);
        check(&tree)
            .into_iter()
            .map(|complaint| complaint.to_string())
            .collect()
    }

    #[test]
    fn a_quirk_in_all_three_places_passes() {
        let page = "# Notes\n\n## How to read this\n\n## short-splice\n";
        assert!(complaints(&format!("{CODE}{TEST}"), page).is_empty());
    }

    #[test]
    fn a_quirk_without_test_or_entry_is_found() {
        assert_eq!(
            complaints(CODE, ""),
            [
                "crates/a/src/lib.rs:1: no test has `short_splice` in its name",
                "crates/a/src/lib.rs:1: no entry `## short-splice` in docs/kernel-notes.md"
            ]
        );
    }

    #[test]
    fn an_entry_without_code_is_found() {
        assert_eq!(
            complaints("", "## short-splice\n"),
            ["docs/kernel-notes.md:1: no comment in crates/ says QUIRK(short-splice)"]
        );
    }

    #[test]
    fn a_name_is_kebab_case() {
        let found = complaints("// QUIRK(Short splice): x\n", "");
        assert!(
            found[0].ends_with("`Short splice` is no `kebab-case` name"),
            "{found:?}"
        );
    }
}
