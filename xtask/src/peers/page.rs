//! docs/measurements.md: what was written by hand, what came of it in short, every table.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Stdio;

use super::Arguments;
use super::kit::Shop;
use super::run::SHAPES;
use super::short::Document;
use crate::workspace::Fallible;

const PAGE: &str = "docs/measurements.md";
const HEAD: &str = include_str!("head.md");

/// Writes the page from all results that are there. A quick run has nothing to say in `docs`.
pub(super) fn write(shop: &Shop<'_>, arguments: &Arguments) -> Fallible<()> {
    let root = &shop.workspace.root;
    let mut short = String::new();
    let mut tables = String::new();
    for shape in SHAPES {
        let json = shape.json(arguments);
        if !root.join(&json).exists() {
            continue;
        }
        let document: Document = serde_json::from_str(&fs::read_to_string(root.join(&json))?)?;
        short.push_str(&document.in_short());
        let markdown = rendered(shop, &json)?;
        let _ = writeln!(
            tables,
            "\n## {}\n\n{}",
            shape.title,
            lowered(&markdown).trim()
        );
    }
    let page = if arguments.quick {
        arguments.results().join("measurements.md")
    } else {
        PAGE.into()
    };
    fs::write(root.join(&page), format!("{HEAD}{short}{tables}"))?;
    println!("\n{}", page.display());
    Ok(())
}

/// The tables of a result, as the bench writes them.
fn rendered(shop: &Shop<'_>, json: &Path) -> Fallible<String> {
    let markdown = json.with_extension("md");
    let mut render = shop.command("underpass");
    render.args(["bench", "render"]).arg(json);
    render.arg("--markdown").arg(&markdown);
    match render.stdout(Stdio::null()).status()? {
        status if status.success() => {}
        status => return Err(format!("underpass bench render: {status}").into()),
    }
    Ok(fs::read_to_string(shop.workspace.root.join(markdown))?)
}

/// Headings one level down: the page has a title already.
fn lowered(markdown: &str) -> String {
    let mut is_code = false;
    let line = |line: &str| {
        is_code ^= line.starts_with("```");
        let heading = if line.starts_with('#') && !is_code {
            "#"
        } else {
            ""
        };
        format!("{heading}{line}\n")
    };
    markdown.lines().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings_go_down_and_code_stays() {
        let text = "# a\n\n```text\n# b\n```\n## c\n";
        assert_eq!(lowered(text), "## a\n\n```text\n# b\n```\n### c\n");
    }
}
