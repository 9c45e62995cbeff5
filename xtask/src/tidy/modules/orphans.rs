//! Every Rust file of a package is a module of one of its targets; the compiler ignores others.

use std::collections::BTreeSet;

use crate::tidy::code::Tree;
use crate::tidy::complaint::Complaint;

pub(in crate::tidy) fn check(tree: &Tree) -> Vec<Complaint> {
    let packages = tree.metadata.ours();
    let complaints = packages.flat_map(|package| {
        let mut pending: Vec<_> = package
            .targets
            .iter()
            .map(|target| (tree.relative(&target.src_path), FolderOf::Siblings))
            .collect();
        let mut compiled = BTreeSet::new();
        while let Some((file, folder)) = pending.pop() {
            if let Some(text) = tree.text(&file)
                && compiled.insert(file.clone())
            {
                let modules = modules(text).flat_map(|module| module.candidates(&file, folder));
                pending.extend(modules.map(|file| (file, FolderOf::Name)));
            }
        }
        let folder = tree.manifest(package).replace("Cargo.toml", "");
        let all = ["src/", "tests/", "examples/", "benches/"].map(|within| folder.clone() + within);
        let manifests = Vec::from_iter(tree.texts().filter_map(|(path, _)| {
            let nested = path.strip_suffix("Cargo.toml")?;
            (nested.len() > folder.len()).then_some(nested)
        }));
        let is_orphan = |path: &&str| {
            all.iter().any(|start| path.starts_with(start.as_str()))
                && !manifests.iter().any(|nested| path.starts_with(nested))
                && !compiled.contains(*path)
        };
        let files = tree.rust().map(|(path, ..)| path);
        let orphans = files.filter(is_orphan);
        let text = "belongs to no module; add `mod NAME;` or delete it";
        Vec::from_iter(orphans.map(|path| Complaint::new(path, text)))
    });
    complaints.collect()
}

/// The folder with the modules of a file: its own folder for the root of a target.
#[derive(Clone, Copy, PartialEq)]
enum FolderOf {
    Siblings,
    Name,
}

/// A line `mod name;`, with the preceding attribute `path`.
#[derive(Debug, PartialEq)]
struct ModuleLine<'a> {
    name: &'a str,
    path: Option<&'a str>,
}

fn modules(text: &str) -> impl Iterator<Item = ModuleLine<'_>> {
    let mut path = None;
    text.lines().filter_map(move |line| {
        let line = line.trim();
        if let Some(rest) = line.strip_prefix("#[path = \"") {
            path = rest.strip_suffix("\"]");
            return None;
        }
        let (before, name) = line.strip_suffix(';')?.rsplit_once("mod ")?;
        let is_module = before.is_empty() || before.starts_with("pub");
        is_module.then(|| ModuleLine {
            name,
            path: path.take(),
        })
    })
}

impl ModuleLine<'_> {
    /// Returns the possible paths of the module, if `file` declares it.
    fn candidates(&self, file: &str, folder: FolderOf) -> Vec<String> {
        let siblings = file.rsplit_once('/').map_or("", |(folder, _)| folder);
        if let Some(path) = self.path {
            return vec![joined(siblings, path)];
        }
        let stem = file.trim_end_matches(".rs");
        let is_parent = folder == FolderOf::Siblings || stem.ends_with("/mod");
        let folder = if is_parent { siblings } else { stem };
        let name = self.name;
        vec![
            format!("{folder}/{name}.rs"),
            format!("{folder}/{name}/mod.rs"),
        ]
    }
}

/// Joins a folder and a path that may start with `../`.
fn joined(folder: &str, path: &str) -> String {
    match path.strip_prefix("../") {
        Some(rest) => joined(folder.rsplit_once('/').map_or("", |(above, _)| above), rest),
        None => format!("{folder}/{path}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::fake::ours;

    #[test]
    fn a_file_that_nobody_declares_is_found() {
        let files = [
            ("a/src/lib.rs", "mod b;\n#[cfg(test)]\nmod tests;\n"),
            ("a/src/b.rs", "pub(crate) mod c;\n"),
            ("a/src/b/c.rs", ""),
            ("a/src/b/d.rs", "mod c;"),
            ("a/src/tests/mod.rs", "#[path = \"../e.rs\"]\nmod e;\n"),
            ("a/src/e.rs", ""),
            ("a/tests/f.rs", "// mod g;\nmod support;"),
            ("a/tests/g.rs", ""),
            ("a/tests/support/mod.rs", ""),
            ("a/tests/other/Cargo.toml", ""),
            ("a/tests/other/h.rs", ""),
        ];
        let package =
            ours("a")
                .with_target("lib", "a", "src/lib.rs")
                .with_target("test", "f", "tests/f.rs");
        let complaints = check(&Tree::of(&files).with(package));
        let places: Vec<_> = complaints.iter().map(|it| it.place.as_str()).collect();
        assert_eq!(places, ["a/src/b/d.rs", "a/tests/g.rs"]);
    }
}
