//! The input of the rules: the tracked files, the Rust ones parsed, and `cargo metadata`.

use std::fs;
use std::path::{Path, PathBuf};

use ignore::WalkBuilder;

use super::rust::Rust;
use crate::workspace::{Fallible, Metadata, Package, Workspace};

pub(crate) struct Tree {
    pub(crate) root: PathBuf,
    pub(crate) files: Vec<TreeFile>,
    pub(crate) metadata: Metadata,
}

pub(crate) struct TreeFile {
    /// The path relative to the root, with `/`.
    pub(crate) path: String,
    pub(crate) bytes: u64,
    pub(crate) content: FileContent,
}

pub(crate) enum FileContent {
    /// Not UTF-8: only its name and size can be checked.
    Binary,
    Text(String),
    Rust(String, Box<Rust>),
}

impl Tree {
    pub(crate) fn read(workspace: &Workspace) -> Fallible<Self> {
        let metadata = workspace.metadata()?;
        let root = workspace.root.clone();
        let mut files = Vec::new();
        for path in tracked(&root)? {
            let full = root.join(&path);
            files.push(TreeFile::new(path, fs::read(full)?));
        }
        Ok(Self {
            root,
            files,
            metadata,
        })
    }

    /// Returns path and text of the text files, Rust included.
    pub(crate) fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files
            .iter()
            .filter_map(|file| Some((file.path.as_str(), file.text()?)))
    }

    /// Returns path, text and parsed form of the Rust files.
    pub(crate) fn rust(&self) -> impl Iterator<Item = (&str, &str, &Rust)> {
        self.files.iter().filter_map(|file| match &file.content {
            FileContent::Rust(text, rust) => {
                Some((file.path.as_str(), text.as_str(), rust.as_ref()))
            }
            FileContent::Text(_) | FileContent::Binary => None,
        })
    }

    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        self.files.iter().find(|file| file.path == path)?.text()
    }

    /// Returns the path relative to the root for a full path from `cargo metadata`.
    pub(crate) fn relative(&self, path: &Path) -> String {
        path.strip_prefix(&self.root)
            .unwrap_or(path)
            .to_string_lossy()
            .into_owned()
    }

    pub(crate) fn manifest(&self, package: &Package) -> String {
        self.relative(&package.manifest_path)
    }
}

impl TreeFile {
    fn new(path: String, bytes: Vec<u8>) -> Self {
        let length = bytes.len() as u64;
        let content = match String::from_utf8(bytes) {
            Ok(text) if path.ends_with(".rs") => {
                let rust = Rust::parse(&path, &text);
                FileContent::Rust(text, Box::new(rust))
            }
            Ok(text) => FileContent::Text(text),
            Err(_) => FileContent::Binary,
        };
        Self {
            path,
            bytes: length,
            content,
        }
    }

    fn text(&self) -> Option<&str> {
        match &self.content {
            FileContent::Text(text) | FileContent::Rust(text, _) => Some(text),
            FileContent::Binary => None,
        }
    }
}

/// Returns the files git tracks or would track: all that no `.gitignore` names.
fn tracked(root: &Path) -> Fallible<Vec<String>> {
    let mut walk = WalkBuilder::new(root);
    walk.hidden(false)
        .require_git(false)
        .parents(false)
        .git_global(false);
    walk.filter_entry(|entry| entry.file_name() != ".git");
    let mut paths = Vec::new();
    for entry in walk.build() {
        let entry = entry?;
        // Links are not followed.
        if entry.file_type().is_some_and(|kind| kind.is_file()) {
            let path = entry.path().strip_prefix(root)?;
            paths.push(path.to_string_lossy().into_owned());
        }
    }
    paths.sort();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Tree {
        /// Makes a tree in `/w` with these files.
        pub(crate) fn of(files: &[(&str, &str)]) -> Self {
            let files = files
                .iter()
                .map(|(path, text)| TreeFile::new((*path).into(), text.as_bytes().to_vec()))
                .collect();
            Self {
                root: "/w".into(),
                files,
                metadata: Metadata::default(),
            }
        }

        pub(crate) fn with(mut self, package: Package) -> Self {
            self.metadata.packages.push(package);
            self
        }
    }

    #[test]
    fn files_are_found_and_what_is_built_is_not() {
        let paths = tracked(&Workspace::here().root).expect("a list");
        for path in ["xtask/src/tidy/code/tree.rs", ".ci/run", "Cargo.lock"] {
            assert!(paths.contains(&path.to_owned()), "{path}");
        }
        let is_left_out = |path: &String| path.starts_with("target/") || path.starts_with(".git/");
        assert!(!paths.iter().any(is_left_out));
    }

    #[test]
    fn what_is_not_text_is_binary() {
        let file = TreeFile::new("logo.png".into(), vec![0xff, 0xfe]);
        assert!(matches!(file.content, FileContent::Binary));
        assert_eq!(file.bytes, 2);
    }
}
