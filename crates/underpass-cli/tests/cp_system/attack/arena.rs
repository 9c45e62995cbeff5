//! The setting of attacks: a source, a destination, and a forbidden folder next to them.
//!
//!     src/            the source, with folders and files that get swapped
//!     dst/            the destination; dst/src is the copy
//!     canary          copied first: once its copy exists, cp has started
//!     spare/          links to the forbidden folder, for the attacker to swap in
//!     forbidden/      has the same names as src, and is not an operand

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// The content of every file in the forbidden folder.
const MARKER: &str = "nobody may see this";
/// A name that exists in the forbidden folder only.
const TELLTALE: &str = "telltale";

pub(crate) const FOLDERS: [&str; 5] = ["d0", "d0/e0", "d0/e0/g0", "d1", "d2"];

pub(crate) const FILES: [&str; 12] = [
    "f0",
    "f1",
    "d0/f0",
    "d0/f1",
    "d0/e0/f0",
    "d0/e0/f1",
    "d0/e0/g0/f0",
    "d0/e0/g0/f1",
    "d1/f0",
    "d1/f1",
    "d2/f0",
    "d2/f1",
];

/// The state of the destination before cp runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Destination {
    New,
    Existing,
}

#[derive(Debug)]
pub(crate) struct Arena {
    folder: tempfile::TempDir,
    forbidden: BTreeMap<PathBuf, String>,
}

impl Arena {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
        let tree = folder.path().join("forbidden");
        plant(&tree, |path| format!("{MARKER}: {path}"));
        for name in FOLDERS {
            fs::write(tree.join(name).join(TELLTALE), MARKER).expect("room");
        }
        for name in FILES {
            let private = fs::Permissions::from_mode(0o600);
            fs::set_permissions(tree.join(name), private).expect("permissions");
        }
        fs::write(folder.path().join("canary"), "it sings").expect("room");
        let forbidden = state(&tree);
        Self { folder, forbidden }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Returns whether cp has started. A link made earlier would prove nothing: `cp` writes through
    /// existing links.
    pub(crate) fn has_begun(&self) -> bool {
        self.path("dst/canary").exists()
    }

    /// Recreates everything except the forbidden folder.
    pub(crate) fn reset(&self, destination: Destination) {
        for name in ["src", "dst", "spare"] {
            match fs::remove_dir_all(self.path(name)) {
                Err(error) if error.kind() != ErrorKind::NotFound => panic!("{name}: {error}"),
                _ => {}
            }
        }
        plant(&self.path("src"), |path| path.repeat(700));
        fs::create_dir(self.path("dst")).expect("room");
        if destination == Destination::Existing {
            plant(&self.path("dst/src"), |_| "old".to_owned());
        }
        fs::create_dir(self.path("spare")).expect("room");
        for (number, name) in FOLDERS.iter().chain(&FILES).chain(&["."]).enumerate() {
            for side in ["src", "dst"] {
                let target = self.path("forbidden").join(name);
                let link = self.path("spare").join(format!("{side}-{number}"));
                symlink(target, link).expect("room");
            }
        }
    }

    /// Returns a description of the first violation, if any.
    pub(crate) fn breach(&self) -> Option<String> {
        let now = state(&self.path("forbidden"));
        if now != self.forbidden {
            let changed = now
                .iter()
                .find(|(path, state)| self.forbidden.get(*path) != Some(state));
            return Some(format!("the forbidden place is another one: {changed:?}"));
        }
        // Entries that the attacker has moved away are searched as well.
        ["dst", "spare", "src"]
            .iter()
            .find_map(|name| leak(&self.path(name)))
    }
}

fn plant(tree: &Path, content: impl Fn(&str) -> String) {
    fs::create_dir_all(tree).expect("room");
    for name in FOLDERS {
        fs::create_dir(tree.join(name)).expect("room");
    }
    for name in FILES {
        fs::write(tree.join(name), content(name)).expect("room");
    }
}

/// Returns every name with its content and all metadata that a copy could set.
fn state(tree: &Path) -> BTreeMap<PathBuf, String> {
    let mut states = BTreeMap::new();
    let mut waiting = vec![tree.to_owned()];
    while let Some(path) = waiting.pop() {
        let metadata = fs::symlink_metadata(&path).expect("it is there");
        let content = match metadata.is_dir() {
            true => String::new(),
            false => fs::read_to_string(&path).unwrap_or_default(),
        };
        if metadata.is_dir() {
            let inside = fs::read_dir(&path).expect("a folder");
            waiting.extend(inside.map(|entry| entry.expect("an entry").path()));
        }
        let state = format!(
            "{:o} {}:{} {}.{} {content}",
            metadata.mode(),
            metadata.uid(),
            metadata.gid(),
            metadata.mtime(),
            metadata.mtime_nsec(),
        );
        states.insert(path, state);
    }
    states
}

/// Returns a file with content of the forbidden folder below a folder, if any.
fn leak(tree: &Path) -> Option<String> {
    let kind = fs::symlink_metadata(tree).ok()?.file_type();
    if kind.is_file() {
        let content = String::from_utf8_lossy(&fs::read(tree).ok()?).into_owned();
        return content
            .contains(MARKER)
            .then(|| format!("{} has a secret", tree.display()));
    }
    if !kind.is_dir() {
        return None;
    }
    let inside = fs::read_dir(tree).ok()?;
    inside
        .flatten()
        .find_map(|entry| match entry.file_name().to_str() {
            Some(TELLTALE) => Some(format!("{} was copied", entry.path().display())),
            _ => leak(&entry.path()),
        })
}
