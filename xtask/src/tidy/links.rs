//! Links from one Markdown file into the repository lead somewhere: to a file, to a directory, to
//! a heading.

use std::collections::HashSet;

use super::code::Tree;
use super::complaint::Complaint;

pub(super) fn check(tree: &Tree) -> Vec<Complaint> {
    let pages = tree.texts().filter(|(path, _)| path.ends_with(".md"));
    pages
        .flat_map(|(path, text)| {
            links(text).filter_map(move |(line, link)| {
                let fault = fault(tree, path, link)?;
                Some(Complaint::at(path, line, format!("`{link}` {fault}")))
            })
        })
        .collect()
}

fn fault(tree: &Tree, from: &str, link: &str) -> Option<&'static str> {
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    let (target, anchor) = link.split_once('#').unwrap_or((link, ""));
    let Some(target) = resolved(from, target) else {
        return Some("leaves the repository");
    };
    match tree.text(&target) {
        Some(page) if !anchor.is_empty() && target.ends_with(".md") => {
            (!anchors(page).contains(anchor)).then_some("leads to no heading")
        }
        _ => (!exists(tree, &target)).then_some("leads nowhere"),
    }
}

/// The path from the root of what a link in the file `from` means.
fn resolved(from: &str, target: &str) -> Option<String> {
    if target.is_empty() {
        return Some(from.to_owned());
    }
    let mut parts: Vec<_> = from.split('/').collect();
    parts.pop();
    for part in target.trim_end_matches('/').split('/') {
        match part {
            "." => {}
            ".." => drop(parts.pop()?),
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

fn exists(tree: &Tree, target: &str) -> bool {
    let directory = format!("{target}/");
    tree.files
        .iter()
        .any(|file| file.path == target || file.path.starts_with(&directory))
}

/// The targets of inline links, of reference definitions and of HTML's `href` and `src`, with
/// their lines; what stands in code is not a link.
fn links(text: &str) -> impl Iterator<Item = (usize, &str)> {
    prose(text).flat_map(|(number, line)| {
        let code = code_spans(line);
        let is_code = move |at: usize| code.iter().any(|(start, end)| (*start..*end).contains(&at));
        let opened = [("](", ')'), ("href=\"", '"'), ("src=\"", '"')].into_iter();
        let inline = opened.flat_map(move |(open, close)| {
            line.match_indices(open)
                .map(move |(at, _)| (at, at + open.len(), close))
        });
        let inline = inline.filter(move |(at, ..)| !is_code(*at));
        let inline = inline.filter_map(|(_, from, close)| line[from..].split(close).next());
        let definition = line
            .strip_prefix('[')
            .and_then(|rest| rest.split_once("]: "))
            .map(|(_, link)| link);
        let targets = inline.chain(definition);
        targets.filter_map(move |link| Some((number, link.split_whitespace().next()?)))
    })
}

/// The lines outside of code fences, numbered.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    (1..).zip(text.lines()).filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        fenced ^= is_fence;
        !fenced && !is_fence
    })
}

/// Where code begins and ends in a line.
fn code_spans(line: &str) -> Vec<(usize, usize)> {
    let ticks: Vec<_> = line.match_indices('`').map(|(at, _)| at).collect();
    ticks
        .chunks_exact(2)
        .map(|pair| (pair[0], pair[1]))
        .collect()
}

/// What the headings of a page are called in links, the way GitHub does it.
fn anchors(page: &str) -> HashSet<String> {
    let mut anchors = HashSet::new();
    for (_, line) in prose(page).filter(|(_, line)| line.starts_with('#')) {
        let slug: String = line
            .trim_start_matches('#')
            .trim()
            .to_lowercase()
            .chars()
            .filter(|character| character.is_alphanumeric() || " -_".contains(*character))
            .map(|character| if character == ' ' { '-' } else { character })
            .collect();
        let repeated = (1..).map(|number| format!("{slug}-{number}"));
        let unused = [slug.clone()]
            .into_iter()
            .chain(repeated)
            .find(|it| !anchors.contains(it));
        anchors.extend(unused);
    }
    anchors
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(page: &str) -> Vec<String> {
        let tree = Tree::of(&[
            ("docs/a.md", page),
            ("docs/b.md", "# One `and` more!\n\n## Again\n\n## Again\n"),
            ("README.md", "# Readme\n"),
            ("crates/x/src/lib.rs", ""),
        ]);
        check(&tree)
            .into_iter()
            .map(|complaint| complaint.to_string())
            .collect()
    }

    #[test]
    fn links_that_lead_somewhere_pass() {
        let page = "# Top\n[b](b.md) [r](../README.md#readme) [x](../crates/x/) [t](#top)\n\
                    [o](b.md#one-and-more) [g](b.md#again-1) [w](https://example.org/x.md)\n\
                    [d]: ./b.md\n";
        assert_eq!(complaints(page), [""; 0]);
    }

    #[test]
    fn links_that_lead_nowhere_are_found() {
        assert_eq!(
            complaints("\n[c](c.md)\n"),
            ["docs/a.md:2: `c.md` leads nowhere"]
        );
        assert_eq!(
            complaints("[c]: c.md\n"),
            ["docs/a.md:1: `c.md` leads nowhere"]
        );
        assert_eq!(
            complaints("<img src=\"c.svg\">"),
            ["docs/a.md:1: `c.svg` leads nowhere"]
        );
        assert_eq!(
            complaints("[b](b.md#two)"),
            ["docs/a.md:1: `b.md#two` leads to no heading"]
        );
        assert_eq!(
            complaints("[up](../../x)"),
            ["docs/a.md:1: `../../x` leaves the repository"]
        );
    }

    #[test]
    fn code_is_not_a_link() {
        assert_eq!(complaints("`[c](c.md)`\n```\n[c](c.md)\n```\n"), [""; 0]);
    }
}
