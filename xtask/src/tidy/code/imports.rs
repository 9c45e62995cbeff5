//! The module tree of a crate outside of tests, and the imports between its files.
//!
//! An import is a `use` or a path of more than one segment. It leads to the file that defines the
//! named item: re-exports are followed. Not counted are `mod x;`, a re-export whose name the file
//! itself doesn't use, and a `use` of a module (paths that begin with its name count instead).

use std::collections::{BTreeMap, BTreeSet};

use super::modules::{ItemPath, RustModule};
use super::tree::Tree;
use crate::workspace::Package;

/// The maximum depth of re-exports; deeper ones are cyclic.
const REEXPORTS_MAX: usize = 16;

/// The files of a crate that are compiled outside of tests.
pub(crate) struct CrateModules<'a> {
    modules: Vec<ModuleNode<'a>>,
}

struct ModuleNode<'a> {
    file: &'a str,
    parent: Option<usize>,
    children: BTreeMap<&'a str, usize>,
    module: &'a RustModule,
}

/// The names a file imports from another, with their lines.
pub(crate) type Imports<'a> = BTreeMap<(&'a str, &'a str), BTreeSet<(usize, String)>>;

/// The target of a path.
#[derive(Clone, Copy, Debug, PartialEq)]
enum PathTarget {
    Module(usize),
    ItemOf(usize),
}

impl<'a> CrateModules<'a> {
    /// Follows `mod` from the roots of the package's library and programs.
    pub(crate) fn of(tree: &'a Tree, package: &Package) -> Self {
        let mut modules = Self {
            modules: Vec::new(),
        };
        let targets = package.targets.iter().filter(|target| target.is_shipped());
        for target in targets {
            let root = tree.relative(&target.src_path);
            if let Some((path, _, rust)) = tree.rust().find(|(path, ..)| *path == root) {
                let folder = parent(path).to_owned();
                modules.add(tree, path, folder, None, &rust.module);
            }
        }
        modules
    }

    /// Returns the paths of the files, without those for tests only.
    pub(crate) fn files(&self) -> BTreeSet<&'a str> {
        self.modules.iter().map(|node| node.file).collect()
    }

    /// Returns the types that are defined: name, file and line.
    pub(crate) fn types(&self) -> impl Iterator<Item = (&'a str, &'a str, usize)> {
        self.modules.iter().flat_map(|node| {
            let types = node.module.types.iter();
            types.map(|(name, line)| (name.as_str(), node.file, *line))
        })
    }

    /// Returns every import of one file from another.
    pub(crate) fn imports(&self) -> Imports<'a> {
        let mut imports = Imports::new();
        for (from, node) in self.modules.iter().enumerate() {
            let used = node.module.imports.iter().filter(|import| {
                !import.reexported || node.module.words.contains_key(&import.name)
            });
            let used = used.map(|import| (&import.path, import.name == "*"));
            let paths = node.module.paths.iter().map(|path| (path, false));
            for (path, is_glob) in used.chain(paths) {
                let to = match self.resolved(from, &path.segments, 0) {
                    Some(PathTarget::ItemOf(to)) => to,
                    Some(PathTarget::Module(to)) if is_glob => to,
                    Some(PathTarget::Module(_)) | None => continue,
                };
                let to = self.modules[to].file;
                if to != node.file {
                    let names = imports.entry((node.file, to)).or_default();
                    names.insert((path.line, name(path, is_glob)));
                }
            }
        }
        imports
    }

    fn add(
        &mut self,
        tree: &'a Tree,
        file: &'a str,
        folder: String,
        parent: Option<usize>,
        module: &'a RustModule,
    ) -> usize {
        let this = self.modules.len();
        self.modules.push(ModuleNode {
            file,
            parent,
            children: BTreeMap::new(),
            module,
        });
        for (name, inline) in &module.inline {
            let child = self.add(tree, file, format!("{folder}/{name}"), Some(this), inline);
            self.modules[this].children.insert(name, child);
        }
        for name in &module.files {
            let candidates = [
                format!("{folder}/{name}.rs"),
                format!("{folder}/{name}/mod.rs"),
            ];
            let mut files = tree.rust();
            let found = files.find(|(path, ..)| candidates.iter().any(|it| it == path));
            if let Some((file, _, rust)) = found {
                let folder = format!("{folder}/{name}");
                let child = self.add(tree, file, folder, Some(this), &rust.module);
                self.modules[this].children.insert(name, child);
            }
        }
        this
    }

    /// Follows a path written in the module `from`. Returns `None` if it leads out of the crate.
    fn resolved(&self, from: usize, path: &[String], depth: usize) -> Option<PathTarget> {
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            "crate" => self.within(self.root(from), rest, depth),
            "self" => self.within(from, rest, depth),
            "super" => self.within(self.modules[from].parent?, rest, depth),
            name => self
                .knows(from, name)
                .then(|| self.within(from, path, depth))?,
        }
    }

    /// Follows the rest of a path from the module reached so far.
    fn within(&self, at: usize, path: &[String], depth: usize) -> Option<PathTarget> {
        let Some((first, rest)) = path.split_first() else {
            return Some(PathTarget::Module(at));
        };
        if first == "super" {
            return self.within(self.modules[at].parent?, rest, depth);
        }
        let node = &self.modules[at];
        let child = node.children.get(first.as_str());
        let is_item = node.module.items.contains(first);
        match child {
            Some(child) if !(rest.is_empty() && is_item) => self.within(*child, rest, depth),
            _ if is_item => Some(PathTarget::ItemOf(at)),
            _ => self
                .imported(at, path, depth + 1)
                // A macro, or an item of another crate that this file re-exports.
                .or(Some(PathTarget::ItemOf(at))),
        }
    }

    /// Follows the import of the module `at` that provides the path's first segment.
    fn imported(&self, at: usize, path: &[String], depth: usize) -> Option<PathTarget> {
        let (first, rest) = path.split_first()?;
        if depth > REEXPORTS_MAX {
            return None;
        }
        let imports = &self.modules[at].module.imports;
        let mut named = imports.iter().filter(|import| import.name == *first);
        if let Some(import) = named.next() {
            let whole = [import.path.segments.as_slice(), rest].concat();
            return self.resolved(at, &whole, depth);
        }
        let mut globs = imports.iter().filter(|import| import.name == "*");
        globs.find_map(
            |glob| match self.resolved(at, &glob.path.segments, depth)? {
                PathTarget::Module(to) if self.knows(to, first) => self.within(to, path, depth),
                PathTarget::Module(_) | PathTarget::ItemOf(_) => None,
            },
        )
    }

    fn knows(&self, at: usize, name: &str) -> bool {
        let node = &self.modules[at];
        let mut imports = node.module.imports.iter();
        node.children.contains_key(name)
            || node.module.items.contains(name)
            || imports.any(|import| import.name == name)
    }

    fn root(&self, mut at: usize) -> usize {
        while let Some(parent) = self.modules[at].parent {
            at = parent;
        }
        at
    }
}

fn name(path: &ItemPath, is_glob: bool) -> String {
    let last = path.segments.last().map_or("", String::as_str);
    if is_glob {
        format!("{last}::*")
    } else {
        last.to_owned()
    }
}

fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}
