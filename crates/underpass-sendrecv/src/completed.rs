//! The items of a transfer that are complete, kept between starts: a transfer that is started again
//! does not send them again, and does not find its own files in the way.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use underpass_http::path::{SitePath, encode_path};

const FILE: &str = "complete";

/// The file that exists when all items are complete.
const ALL_FILE: &str = "all";

/// The items that are complete.
#[derive(Debug)]
pub(crate) struct CompletedItems {
    file: PathBuf,
    /// The source of a file, or the end of a tree, by name; that of a tree ends with a slash.
    items: RefCell<HashMap<String, String>>,
}

impl CompletedItems {
    /// Reads the items in a folder, which need not exist.
    pub(crate) fn open(folder: &Path) -> CompletedItems {
        let file = folder.join(FILE);
        // What cannot be read is received again.
        let kept = fs::read_to_string(&file).unwrap_or_default();
        let items = kept.lines().filter_map(parse).collect();
        CompletedItems {
            file,
            items: RefCell::new(items),
        }
    }

    /// Returns what is known of a complete item.
    pub(crate) fn get(&self, name: &str) -> Option<String> {
        self.items.borrow().get(name).cloned()
    }

    /// Records that an item is complete.
    pub(crate) fn add(&self, name: String, what: String) {
        let mut line = Vec::new();
        encode_path(name.as_bytes(), &mut line);
        line.extend_from_slice(format!(" {what}\n").as_bytes());
        let folder = self.file.parent().unwrap_or(Path::new("."));
        let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        let mut options = OpenOptions::new();
        let opened = options
            .append(true)
            .create(true)
            .mode(0o600)
            .open(&self.file);
        let written = made.and(opened).and_then(|mut file| file.write_all(&line));
        if let Err(error) = written {
            tracing::warn!("a transfer that is started again will not know of {name}: {error}");
        }
        self.items.borrow_mut().insert(name, what);
    }

    /// Records that all items are complete.
    pub(crate) fn mark_all(&self) {
        // Without it a later start reports that the other side is gone.
        let _ = fs::write(self.file.with_file_name(ALL_FILE), "");
    }

    /// Returns whether all items are complete.
    pub(crate) fn are_all(&self) -> bool {
        self.file.with_file_name(ALL_FILE).exists()
    }

    /// Forgets all, when the transfer is complete.
    pub(crate) fn forget(self) {
        // What stays is of a ticket that is not used again.
        let _ = fs::remove_file(&self.file);
        let _ = fs::remove_file(self.file.with_file_name(ALL_FILE));
        if let Some(folder) = self.file.parent() {
            let _ = fs::remove_dir(folder);
        }
    }
}

fn parse(line: &str) -> Option<(String, String)> {
    let (name, what) = line.split_once(' ')?;
    let path = SitePath::parse(format!("/{name}").as_bytes()).ok()?;
    let slash = if name.ends_with('/') { "/" } else { "" };
    let name = str::from_utf8(path.bytes()).ok()?;
    Some((format!("{name}{slash}"), what.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_known_after_a_start_until_they_are_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("state");
        let items = CompletedItems::open(&state);
        for name in ["a ü%\n", "tree/", "-"] {
            items.add(name.to_owned(), format!("12 {}", name.len()));
        }
        let again = CompletedItems::open(&state);
        assert_eq!(again.get("a ü%\n").as_deref(), Some("12 6"));
        assert_eq!(again.get("tree/").as_deref(), Some("12 5"));
        assert_eq!(again.get("tree"), None);
        assert!(!again.are_all());
        again.mark_all();
        assert!(CompletedItems::open(&state).are_all());
        again.forget();
        assert!(!state.exists());
    }
}
