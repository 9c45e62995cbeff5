//! Neither files of a crate nor its folders import each other in a cycle: modules form layers.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::tidy::code::{CrateModules, Imports, Tree};
use crate::tidy::complaint::{Complaint, Exceptions, excused};

/// Imports between places, with a line of text for each pair of files.
type PlaceImports<'a> = BTreeMap<(&'a str, &'a str), Vec<String>>;

/// Known cycles of folders, with reasons: there are none.
pub(in crate::tidy) const EXCEPTIONS: Exceptions = &[];

pub(in crate::tidy) fn check(tree: &Tree, exceptions: Exceptions) -> Vec<Complaint> {
    excused(all(tree), exceptions)
}

fn all(tree: &Tree) -> Vec<Complaint> {
    let packages = tree.metadata.ours();
    let imports = packages.map(|package| CrateModules::of(tree, package).imports());
    imports
        .flat_map(|imports| {
            let files = circles(&between(&imports, Some), "files");
            // A cycle of files also makes a cycle of their folders.
            if !files.is_empty() {
                return files;
            }
            let folders = folders(&imports).into_iter();
            let folders = folders.map(|folder| between(&imports, |file| child(folder, file)));
            folders
                .flat_map(|imports| circles(&imports, "folders"))
                .collect()
        })
        .collect()
}

/// Returns every folder that has one of the files below it.
fn folders<'a>(imports: &Imports<'a>) -> BTreeSet<&'a str> {
    let mut folders = BTreeSet::new();
    for mut path in imports.keys().flat_map(|(from, to)| [*from, *to]) {
        while let Some((folder, _)) = path.rsplit_once('/') {
            folders.insert(folder);
            path = folder;
        }
    }
    folders
}

/// Returns the child of the folder that contains the file: a file or a folder. Returns `None` for
/// the folder's own file, which only declares and re-exports its modules.
fn child<'a>(folder: &str, file: &'a str) -> Option<&'a str> {
    let within = file.strip_prefix(folder)?.strip_prefix('/')?;
    let name = within.split('/').next()?;
    let name = name.strip_suffix(".rs").unwrap_or(name);
    let is_parent = ["lib", "main", "mod"].contains(&name);
    (!is_parent).then(|| &file[..folder.len() + 1 + name.len()])
}

/// Groups imports between files by the places of the files.
fn between<'a>(
    imports: &Imports<'a>,
    place: impl Fn(&'a str) -> Option<&'a str>,
) -> PlaceImports<'a> {
    let mut grouped = PlaceImports::new();
    for ((from, to), names) in imports {
        if let (Some(here), Some(there)) = (place(from), place(to))
            && here != there
        {
            let line = names.iter().next().map_or(0, |(line, _)| *line);
            let names: BTreeSet<_> = names.iter().map(|(_, name)| name.as_str()).collect();
            let names = Vec::from_iter(names).join(", ");
            let text = format!("{from}:{line} → {to}: {names}");
            grouped.entry((here, there)).or_default().push(text);
        }
    }
    grouped
}

/// Returns the named files from the top down: a crate before its dependencies, and a file before
/// the files it imports.
pub(crate) fn in_layers(tree: &Tree, files: &BTreeSet<&str>) -> Vec<String> {
    let mut packages: Vec<_> = tree.metadata.ours().collect();
    packages.sort_by_key(|package| Reverse(package.dependencies_on_ours().count()));
    let ordered = packages.iter().flat_map(|package| {
        let modules = CrateModules::of(tree, package);
        let named = modules.files().intersection(files).copied().collect();
        layered(&between(&modules.imports(), Some), &named)
    });
    ordered.map(str::to_owned).collect()
}

fn circles(imports: &PlaceImports, kind: &str) -> Vec<Complaint> {
    let reached: BTreeMap<_, _> = imports
        .keys()
        .map(|(from, _)| (*from, reached(imports, from)))
        .collect();
    let reaches = |from: &str, to: &str| reached.get(from).is_some_and(|to_| to_.contains(to));
    let mut left: BTreeSet<_> = reached.keys().copied().collect();
    let mut complaints = Vec::new();
    while let Some(file) = left.pop_first() {
        let circle: BTreeSet<_> = reached[file]
            .iter()
            .copied()
            .filter(|other| reaches(other, file))
            .collect();
        left.retain(|other| !circle.contains(other));
        if circle.len() > 1 {
            complaints.push(complaint(imports, &circle, kind));
        }
    }
    complaints
}

/// Returns the files that `from` imports, directly or indirectly.
fn reached<'a>(imports: &PlaceImports<'a>, from: &'a str) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut pending = vec![from];
    while let Some(file) = pending.pop() {
        let next = imports.keys().filter(|(importer, _)| *importer == file);
        pending.extend(next.map(|(_, to)| *to).filter(|to| reached.insert(*to)));
    }
    reached
}

fn complaint(imports: &PlaceImports, circle: &BTreeSet<&str>, kind: &str) -> Complaint {
    let order = layered(imports, circle);
    let layer = |place: &str| order.iter().position(|found| *found == place);
    let within = imports
        .iter()
        .filter(|((from, to), _)| circle.contains(from) && circle.contains(to));
    let closing = within.filter(|((from, to), _)| layer(from) > layer(to));
    let closing = closing.flat_map(|(_, texts)| texts);
    let closing: String = closing.map(|text| format!("\n    {text}")).collect();
    let text = format!(
        "a cycle of {} {kind}, open without these imports:",
        circle.len()
    );
    Complaint::new(order.join(", "), format!("{text}{closing}"))
}

/// Returns the places from the top down: each before the places it imports, unless a cycle prevents
/// it.
fn layered<'a>(imports: &PlaceImports<'a>, files: &BTreeSet<&'a str>) -> Vec<&'a str> {
    fn descend<'a>(
        file: &'a str,
        imports: &PlaceImports<'a>,
        left: &mut BTreeSet<&'a str>,
        bottom_up: &mut Vec<&'a str>,
    ) {
        if left.remove(file) {
            let imported = imports.keys().filter(|(from, _)| *from == file);
            imported.for_each(|(_, to)| descend(to, imports, left, bottom_up));
            bottom_up.push(file);
        }
    }
    let (mut left, mut bottom_up) = (files.clone(), Vec::new());
    for file in files {
        descend(file, imports, &mut left, &mut bottom_up);
    }
    bottom_up.reverse();
    bottom_up
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::fake::ours;

    fn complaints(files: &[(&str, &str)]) -> Vec<String> {
        let package = ours("a").with_target("lib", "a", "src/lib.rs");
        let complaints = check(&Tree::of(files).with(package), &[]);
        complaints.iter().map(ToString::to_string).collect()
    }

    /// Returns whether `b.rs` and `c.rs` form a cycle.
    fn is_circle(lib: &str, b: &str, c: &str) -> bool {
        let files = [("a/src/lib.rs", lib), ("a/src/b.rs", b), ("a/src/c.rs", c)];
        !complaints(&files).is_empty()
    }

    const LIB: &str = "mod b; mod c;";
    const B: &str = "use crate::c::C; pub struct B;";

    #[test]
    fn a_circle_is_named_with_the_imports_that_close_it() {
        let found = complaints(&[
            ("a/src/lib.rs", "mod b; mod c; mod d;"),
            (
                "a/src/b.rs",
                "use crate::c::{C, E};\nuse crate::d::D;\npub struct B;",
            ),
            (
                "a/src/c.rs",
                "use crate::d::D;\npub struct C; pub enum E {}",
            ),
            ("a/src/d.rs", "pub struct D;\nfn d() { super::b::B; }"),
        ]);
        assert_eq!(
            found,
            [
                "a/src/b.rs, a/src/c.rs, a/src/d.rs: a cycle of 3 files, open without these \
              imports:\n    a/src/d.rs:2 → a/src/b.rs: B"
            ]
        );
    }

    #[test]
    fn folders_that_import_each_other_are_a_circle_though_their_files_are_none() {
        let folders = |second: &str| {
            complaints(&[
                ("a/src/lib.rs", "mod b; mod c;"),
                ("a/src/b/mod.rs", "mod d; mod e; pub use d::D;"),
                ("a/src/b/d.rs", "pub struct D;"),
                ("a/src/b/e.rs", "use crate::c::C; pub struct E;"),
                ("a/src/c.rs", second),
            ])
        };
        assert_eq!(folders("pub struct C;"), [""; 0]);
        assert_eq!(
            folders("use crate::b::D; pub struct C;"),
            [
                "a/src/b, a/src/c: a cycle of 2 folders, open without these imports:\n    \
              a/src/c.rs:1 → a/src/b/d.rs: D"
            ]
        );
    }

    #[test]
    fn imports_are_uses_and_qualified_paths() {
        for c in [
            "use crate::b::B; pub struct C;",
            "use super::b::{self, B as D}; pub struct C;",
            "pub struct C(crate::b::B);",
            "use crate::b; pub struct C(b::B);",
            "use crate::b::*; pub struct C;",
            "pub struct C; mod inner { fn f() { super::super::b::f(); } }",
            "pub struct C; macro_rules! m { () => {} } fn f() { m!(crate::b::B) }",
        ] {
            assert!(is_circle(LIB, B, c), "{c}");
        }
    }

    #[test]
    fn what_is_no_import_makes_no_circle() {
        for c in [
            "pub struct C;",
            "use crate::b; pub struct C;",
            "use std::b::B; pub struct C;",
            "pub(in crate::b) struct C;",
            "pub struct C; #[cfg(test)] mod tests { use crate::b::B; }",
            "pub use crate::b::B; pub struct C;",
            "/// See [`crate::b::B`].\npub struct C;",
        ] {
            assert!(!is_circle(LIB, B, c), "{c}");
        }
    }

    #[test]
    fn a_re_export_that_its_file_uses_is_an_import() {
        assert!(is_circle(LIB, B, "pub use crate::b::B; pub struct C(B);"));
    }

    #[test]
    fn re_exports_are_followed_to_the_definition() {
        let lib = "mod b; mod c; pub use self::b::B;";
        assert!(is_circle(lib, B, "use crate::B; pub struct C;"));
        assert!(is_circle(
            "mod b; mod c; pub use b::*;",
            B,
            "pub struct C(crate::B);"
        ));
        // The root imports from its children, and they import from each other, not from the root.
        let lib = "mod b; mod c; pub use self::c::C; fn f(b: b::B) {}";
        assert!(!is_circle(
            lib,
            "use crate::C; pub struct B;",
            "pub struct C;"
        ));
    }

    #[test]
    fn a_parent_that_uses_its_children_is_a_circle_with_a_child_that_uses_it() {
        let parent = |parent| {
            let child = "use super::A;\npub fn f(_: A) {}";
            let files = [("a/src/lib.rs", parent), ("a/src/b/mod.rs", child)];
            complaints(&files).len()
        };
        assert_eq!(parent("mod b; pub struct A; fn f() { b::f(A) }"), 1);
        assert_eq!(parent("mod b; pub struct A; pub use b::f;"), 0);
    }
}
