//! The licences of the code in a binary, which must be distributed with it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::Path;

use crate::workspace::{Fallible, Workspace, output};

/// Prefixes of the names of licence files, in capitals.
const NAMES: [&str; 5] = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE"];

/// Returns names and contents of the files to distribute with the programs of these packages.
pub(super) fn all(
    workspace: &Workspace,
    target: &str,
    packages: &[&str],
) -> Fallible<Vec<(String, Vec<u8>)>> {
    let mut files = Vec::new();
    for name in ["LICENSE-APACHE", "LICENSE-MIT"] {
        files.push((name.to_owned(), fs::read(workspace.root.join(name))?));
    }
    let others = of_dependencies(workspace, target, packages)?;
    files.push(("LICENSES-DEPENDENCIES".to_owned(), others.into_bytes()));
    Ok(files)
}

/// Returns the linked dependencies with their licences, each text once.
fn of_dependencies(workspace: &Workspace, target: &str, packages: &[&str]) -> Fallible<String> {
    let used = used(workspace, target, packages)?;
    let mut page = String::from("Underpass contains these libraries:\n\n");
    let mut texts = BTreeMap::<String, BTreeSet<String>>::new();
    let metadata = workspace.metadata()?;
    for package in metadata.theirs() {
        let name = format!("{} v{}", package.name, package.version);
        if !used.contains(&name) {
            continue;
        }
        let licence = package.license.as_deref().unwrap_or("see below");
        writeln!(page, "{name}: {licence}")?;
        let folder = package.manifest_path.parent().unwrap_or(Path::new("."));
        for text in texts_in(folder)? {
            texts.entry(text).or_default().insert(name.clone());
        }
    }
    if target.ends_with("-gnu") {
        page.push_str(
            "\nand, linked statically, the GNU C Library (LGPL-2.1-or-later), whose source is at\n\
             https://www.gnu.org/software/libc/; with the source of Underpass it can be linked anew.\n",
        );
    }
    for (text, owners) in texts {
        let owners = Vec::from_iter(owners).join(", ");
        write!(page, "\n\n==== {owners}\n\n{}\n", text.trim_end())?;
    }
    Ok(page)
}

/// Returns the packages linked into the programs, as `name vVERSION`.
fn used(workspace: &Workspace, target: &str, packages: &[&str]) -> Fallible<BTreeSet<String>> {
    let mut cargo = workspace.cargo("tree");
    cargo.args(["--locked", "--target", target]);
    cargo.args(packages.iter().flat_map(|package| ["--package", package]));
    cargo.args(["--edges", "normal,no-proc-macro", "--prefix", "none"]);
    cargo.args(["--format", "{p}"]);
    let lines = output(&mut cargo)?;
    let words = lines.lines().map(|line| line.split(' ').take(2));
    Ok(words
        .map(|words| words.collect::<Vec<_>>().join(" "))
        .collect())
}

fn texts_in(folder: &Path) -> Fallible<Vec<String>> {
    let mut texts = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().to_uppercase();
        let is_text = NAMES.iter().any(|start| name.starts_with(start));
        if is_text && entry.file_type()?.is_file() {
            let text = fs::read(entry.path())?;
            texts.push(String::from_utf8_lossy(&text).replace('\r', ""));
        }
    }
    Ok(texts)
}
