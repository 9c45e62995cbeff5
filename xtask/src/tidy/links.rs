//! Links from one Markdown file into the repository lead somewhere: to a file, to a directory, to
//! a heading.

use std::collections::HashSet;

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

use super::code::Tree;
use super::complaint::Complaint;

pub(super) fn check(tree: &Tree) -> Vec<Complaint> {
    let pages = tree.texts().filter(|(path, _)| path.ends_with(".md"));
    pages
        .flat_map(|(path, text)| {
            let links = LinkedPage::read(text).links.into_iter();
            links.filter_map(move |(at, link)| {
                let line = 1 + text[..at].matches('\n').count();
                let fault = fault(tree, path, &link)?;
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
            let is_there = LinkedPage::read(page).anchors.contains(anchor);
            (!is_there).then_some("leads to no heading")
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

#[derive(Default)]
struct LinkedPage {
    /// The targets of links, images, reference definitions and HTML's `href` and `src`, with
    /// their offsets.
    links: Vec<(usize, String)>,
    /// What the headings are called in links, the way GitHub does it.
    anchors: HashSet<String>,
}

impl LinkedPage {
    fn read(text: &str) -> Self {
        let mut page = Self::default();
        let parser = Parser::new_ext(text, Options::ENABLE_TABLES);
        for (_, definition) in parser.reference_definitions().iter() {
            let target = definition.dest.to_string();
            page.links.push((definition.span.start, target));
        }
        let mut heading = String::new();
        for (event, place) in parser.into_offset_iter() {
            match event {
                Event::Start(Tag::Heading { .. }) => heading.clear(),
                Event::End(TagEnd::Heading(_)) => page.add_anchor(&heading),
                Event::Text(text) | Event::Code(text) => heading.push_str(&text),
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                    page.links.push((place.start, dest_url.into_string()));
                }
                Event::Html(html) | Event::InlineHtml(html) => {
                    let values = ["href=\"", "src=\""].map(|name| html.split(name).skip(1));
                    let values = values.into_iter().flatten();
                    let targets = values.filter_map(|value| value.split('"').next());
                    let links = targets.map(|target| (place.start, target.to_owned()));
                    page.links.extend(links);
                }
                _ => {}
            }
        }
        page
    }

    fn add_anchor(&mut self, heading: &str) {
        let lower = heading.to_lowercase();
        let kept = |character: &char| character.is_alphanumeric() || " -_".contains(*character);
        let slug = lower.chars().filter(kept).collect::<String>();
        let slug = slug.replace(' ', "-");
        let repeated = (1..).map(|number| format!("{slug}-{number}"));
        let mut names = [slug.clone()].into_iter().chain(repeated);
        let unused = names.find(|name| !self.anchors.contains(name));
        self.anchors.extend(unused);
    }
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
