//! docs/measurements.md: what was written by hand, what came of it in short, every table.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Stdio;

use super::arguments::PeersArguments;
use super::installation::Installation;
use super::short::BenchResult;
use super::table::PeerTable;
use crate::workspace::Fallible;

const PAGE: &str = "docs/measurements.md";
const HEAD: &str = include_str!("head.md");

/// Writes the page from all results that are there. A quick run has nothing to say in `docs`.
pub(super) fn write(
    installation: &Installation<'_>,
    table: &PeerTable,
    arguments: &PeersArguments,
) -> Fallible<()> {
    let root = &installation.workspace.root;
    let mut short = String::new();
    let mut tables = String::new();
    for document in &table.documents {
        let json = arguments.result(&format!("{}.json", document.name));
        if !root.join(&json).exists() {
            continue;
        }
        let result: BenchResult = serde_json::from_str(&fs::read_to_string(root.join(&json))?)?;
        short.push_str(&result.in_short(table));
        let markdown = rendered(installation, &json)?;
        let _ = writeln!(
            tables,
            "\n## {}\n\n{}",
            document.title,
            lowered(&markdown).trim()
        );
    }
    let page = if arguments.quick {
        arguments.result("measurements.md")
    } else {
        PAGE.into()
    };
    fs::write(root.join(&page), format!("{HEAD}{short}{tables}"))?;
    println!("\n{}", page.display());
    Ok(())
}

/// The tables of a result, as the bench writes them.
fn rendered(installation: &Installation<'_>, json: &Path) -> Fallible<String> {
    let markdown = json.with_extension("md");
    let mut render = installation.command("underpass");
    render.args(["bench", "render"]).arg(json);
    render.arg("--markdown").arg(&markdown);
    match render.stdout(Stdio::null()).status()? {
        status if status.success() => {}
        status => return Err(format!("underpass bench render: {status}").into()),
    }
    Ok(fs::read_to_string(
        installation.workspace.root.join(markdown),
    )?)
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
