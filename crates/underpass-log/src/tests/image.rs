//! A model of a disk: the possible effects of a crash on recorded operations.
//!
//! ```text
//!  recorded calls ─► files: content as synced, and after each change since
//!                    folders: names as synced, and each change since
//!                         └─► image: for each page and each name, any of them
//! ```

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::files::trace::Operation;

const PAGE_BYTES: usize = 4096;

/// Pseudorandom numbers from a seed (SplitMix64).
#[derive(Clone, Debug)]
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `end`.
    pub(super) fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    /// Returns true once in `times` calls, on average.
    pub(super) fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }
}

type Content = Rc<Vec<u8>>;

/// Files and folders as a start finds them.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Tree {
    File(Content),
    Folder(BTreeMap<String, Tree>),
}

impl Tree {
    pub(super) fn empty() -> Tree {
        Tree::Folder(BTreeMap::new())
    }

    /// Creates the files and folders. The root folder may exist.
    pub(super) fn write_to(&self, path: &Path) {
        match self {
            Tree::File(content) => fs::write(path, &**content).unwrap(),
            Tree::Folder(entries) => {
                fs::create_dir_all(path).unwrap();
                for (name, entry) in entries {
                    entry.write_to(&path.join(name));
                }
            }
        }
    }

    /// Returns the file or folder at a path.
    pub(super) fn find(&self, path: &str) -> Option<&Tree> {
        path.split('/').try_fold(self, |tree, name| match tree {
            Tree::Folder(entries) => entries.get(name),
            Tree::File(_) => None,
        })
    }
}

/// A disk together with the page cache.
#[derive(Clone, Debug)]
pub(super) struct Disk(Vec<Node>);

const ROOT: usize = 0;

#[derive(Clone, Debug)]
enum Node {
    /// The synced content, and the content after each later change.
    File(Vec<Content>),
    Folder(Folder),
}

#[derive(Clone, Debug, Default)]
struct Folder {
    synced: BTreeMap<String, usize>,
    /// The changes since the last sync.
    changes: Vec<NameChange>,
    current: BTreeMap<String, usize>,
}

/// An atomic change of names.
#[derive(Clone, Debug)]
enum NameChange {
    Add(String, usize),
    Remove(String, usize),
    Rename(String, String, usize),
}

impl NameChange {
    fn apply(&self, names: &mut BTreeMap<String, usize>) {
        let mut remove = |name: &String, node| {
            if names.get(name) == Some(node) {
                names.remove(name);
            }
        };
        match self {
            NameChange::Remove(name, node) => remove(name, node),
            NameChange::Rename(from, to, node) => {
                remove(from, node);
                names.insert(to.clone(), *node);
            }
            NameChange::Add(name, node) => {
                names.insert(name.clone(), *node);
            }
        }
    }
}

impl Folder {
    fn change(&mut self, change: NameChange) {
        change.apply(&mut self.current);
        self.changes.push(change);
    }
}

impl Disk {
    /// Makes a disk on which everything is synced.
    pub(super) fn of(tree: &Tree) -> Disk {
        let mut disk = Disk(Vec::new());
        disk.add(tree);
        disk
    }

    fn add(&mut self, tree: &Tree) -> usize {
        let number = self.0.len();
        match tree {
            Tree::File(content) => self.0.push(Node::File(vec![Rc::clone(content)])),
            Tree::Folder(entries) => {
                self.0.push(Node::Folder(Folder::default()));
                let names = entries
                    .iter()
                    .map(|(name, entry)| (name.clone(), self.add(entry)));
                let names: BTreeMap<_, _> = names.collect();
                self.0[number] = Node::Folder(Folder {
                    synced: names.clone(),
                    changes: Vec::new(),
                    current: names,
                });
            }
        }
        number
    }

    pub(super) fn apply_all(&mut self, operations: &[Operation]) {
        for operation in operations {
            self.apply(operation);
        }
    }

    /// Applies an operation. Operations that failed and those on unlinked files have no effect.
    fn apply(&mut self, operation: &Operation) {
        match operation {
            Operation::Open(path) => self.make(path, Node::File(vec![Rc::default()])),
            Operation::CreateFolder(path) => {
                for folder in path.ancestors().collect::<Vec<_>>().into_iter().rev() {
                    self.make(folder, Node::Folder(Folder::default()));
                }
            }
            Operation::Write(path, offset, bytes) => self.change_file(path, |content| {
                let (from, to) = (*offset as usize, *offset as usize + bytes.len());
                content.resize(content.len().max(to), 0);
                content[from..to].copy_from_slice(bytes);
            }),
            Operation::Truncate(path, size) => {
                self.change_file(path, |content| content.resize(*size as usize, 0));
            }
            Operation::Sync(path) => {
                if let Some(Node::File(versions)) = self.at(path) {
                    versions.drain(..versions.len() - 1);
                }
            }
            Operation::SyncFolder(path) => {
                if let Some(Node::Folder(folder)) = self.at(path) {
                    folder.synced = folder.current.clone();
                    folder.changes.clear();
                }
            }
            Operation::Rename(from, to) => self.rename(from, to),
            Operation::Remove(path) | Operation::RemoveFolder(path) => {
                if let Some((folder, name)) = self.parent(path)
                    && let Some(node) = folder.current.get(&name).copied()
                {
                    folder.change(NameChange::Remove(name, node));
                }
            }
        }
    }

    fn rename(&mut self, from: &Path, to: &Path) {
        assert_eq!(from.parent(), to.parent());
        let to = name_of(to);
        if let Some((folder, from)) = self.parent(from)
            && let Some(node) = folder.current.get(&from).copied()
        {
            folder.change(NameChange::Rename(from, to, node));
        }
    }

    /// Adds a file or a folder unless one exists.
    fn make(&mut self, path: &Path, node: Node) {
        let number = self.0.len();
        if let Some((folder, name)) = self.parent(path)
            && !folder.current.contains_key(&name)
        {
            folder.change(NameChange::Add(name, number));
            self.0.push(node);
        }
    }

    fn change_file(&mut self, path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
        if let Some(Node::File(versions)) = self.at(path) {
            let mut content = Vec::clone(&versions[versions.len() - 1]);
            change(&mut content);
            versions.push(Rc::new(content));
        }
    }

    fn parent(&mut self, path: &Path) -> Option<(&mut Folder, String)> {
        match self.at(path.parent()?)? {
            Node::Folder(folder) => Some((folder, name_of(path))),
            Node::File(_) => None,
        }
    }

    fn at(&mut self, path: &Path) -> Option<&mut Node> {
        let mut number = ROOT;
        for name in path {
            number = match &self.0[number] {
                Node::Folder(folder) => *folder.current.get(name.to_str()?)?,
                Node::File(_) => return None,
            };
        }
        self.0.get_mut(number)
    }

    /// Returns the state after the process is killed now: everything.
    pub(super) fn after_kill(&self) -> Tree {
        self.tree(
            ROOT,
            &mut |versions| Rc::clone(&versions[versions.len() - 1]),
            &mut |folder| folder.current.clone(),
        )
    }

    /// Returns a possible state after the machine stops now.
    pub(super) fn after_crash(&self, random: &mut Random) -> Tree {
        let (mut contents, mut names) = (random.clone(), Random(random.next()));
        // Some crashes leave very little, others nearly everything.
        let (pages, changes) = (random.below(5), random.below(5));
        self.tree(
            ROOT,
            &mut |versions| crashed_file(versions, &mut contents, pages),
            &mut |folder| {
                let mut left = folder.synced.clone();
                for change in &folder.changes {
                    if names.below(4) < changes {
                        change.apply(&mut left);
                    }
                }
                left
            },
        )
    }

    fn tree(
        &self,
        number: usize,
        content: &mut dyn FnMut(&[Content]) -> Content,
        names: &mut dyn FnMut(&Folder) -> BTreeMap<String, usize>,
    ) -> Tree {
        match &self.0[number] {
            Node::File(versions) => Tree::File(content(versions)),
            Node::Folder(folder) => {
                let entries = names(folder).into_iter();
                let entries = entries.map(|(name, node)| (name, self.tree(node, content, names)));
                Tree::Folder(entries.collect())
            }
        }
    }
}

fn name_of(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_str().unwrap().to_owned()
}

/// Returns a possible file after a crash: each page as at some moment since the sync, and a size
/// that the file had or that such a page needs. In `pages` of 4 pages, changes may be left.
fn crashed_file(versions: &[Content], random: &mut Random, pages: usize) -> Content {
    if let [synced] = versions {
        return Rc::clone(synced);
    }
    let longest = versions
        .iter()
        .map(|content| content.len())
        .max()
        .unwrap_or(0);
    let shrinks = versions.windows(2).any(|two| two[1].len() < two[0].len());
    let mut left = vec![0; longest];
    let mut size = versions[random.below(versions.len())].len();
    if random.once_in(3) {
        size = versions[0].len();
    }
    for (number, page) in left.chunks_mut(PAGE_BYTES).enumerate() {
        let chosen = match random.below(4) < pages {
            true if random.once_in(2) => versions.len() - 1,
            true => random.below(versions.len()),
            false => 0,
        };
        let from = number * PAGE_BYTES;
        let content = &versions[chosen];
        let to = content.len().min(from + page.len());
        if from < to {
            page[..to - from].copy_from_slice(&content[from..to]);
            // A page that reached the disk is within the file, unless it was cut off.
            if chosen > 0 && !shrinks {
                size = size.max(to);
            }
        }
    }
    left.truncate(size);
    if random.once_in(8) && longest > versions[0].len() {
        left.resize(size + random.below(2 * PAGE_BYTES), 0);
    }
    Rc::new(left)
}

/// Makes a folder for images, in memory if possible.
pub(super) fn temporary_folder() -> tempfile::TempDir {
    let memory = PathBuf::from("/dev/shm");
    let folder = match memory.is_dir() {
        true => tempfile::tempdir_in(memory),
        false => tempfile::tempdir(),
    };
    folder.unwrap()
}

#[test]
fn what_is_synced_survives_and_what_is_not_may_be_lost() {
    let path = |name: &str| PathBuf::from(name);
    let mut disk = Disk::of(&Tree::empty());
    disk.apply(&Operation::CreateFolder(path("d")));
    disk.apply(&Operation::SyncFolder(path("")));
    for name in ["d/a", "d/b"] {
        disk.apply(&Operation::Open(path(name)));
        disk.apply(&Operation::Write(path(name), 0, vec![1; 5000]));
    }
    disk.apply(&Operation::Sync(path("d/a")));
    disk.apply(&Operation::SyncFolder(path("d")));
    disk.apply(&Operation::Rename(path("d/b"), path("d/c")));
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..300 {
        let left = disk.after_crash(&mut Random(seed));
        let Some(Tree::File(synced)) = left.find("d/a") else {
            panic!("a name that was synced is missing");
        };
        assert_eq!(**synced, vec![1; 5000]);
        let (old, new) = (left.find("d/b"), left.find("d/c"));
        let Some(Tree::File(other)) = old.or(new) else {
            panic!("a renamed file has neither name");
        };
        assert!(old.is_none() || new.is_none());
        let byte = |at: usize| other.get(at).copied();
        seen.insert((old.is_some(), byte(0), byte(4999), other.len() > 5000));
    }
    // Both names, with either page, both or none, and with zeros after the end.
    for (is_old, first, last, is_longer) in [
        (true, None, None, false),
        (false, None, None, false),
        (true, Some(1), None, false),
        (true, Some(0), Some(1), false),
        (true, Some(1), Some(0), false),
        (false, Some(1), Some(1), true),
    ] {
        assert!(
            seen.contains(&(is_old, first, last, is_longer)),
            "{first:?} {last:?}"
        );
    }
}
