//! Somebody who may write where trees are received, and renames folders and plants links meanwhile.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use super::*;
use crate::overwrite::Overwrite;

const TRIES: u64 = 1000;

/// A place outside, with a file and a folder whose content and metadata nobody may change.
fn outside() -> (tempfile::TempDir, BTreeMap<String, String>) {
    let outside = tempfile::tempdir().unwrap();
    fs::create_dir(outside.path().join("c")).unwrap();
    fs::write(outside.path().join("f"), "untouched").unwrap();
    let before = listing(outside.path());
    (outside, before)
}

/// Swaps folders by links that lead outside, until told to stop. Returns the number of swaps.
fn swap(top: &Path, outside: &Path, is_over: &AtomicBool, swaps: &AtomicU64) {
    let aside = top.with_extension("aside");
    let mut rng = fastrand::Rng::with_seed(7);
    while !is_over.load(Ordering::Relaxed) {
        let name = ["a", "a/c", "a/c/d", "b"][rng.usize(..4)];
        let folder = top.join(name);
        if fs::rename(&folder, &aside).is_err() {
            thread::yield_now();
            continue;
        }
        swaps.fetch_add(1, Ordering::Relaxed);
        let _ = std::os::unix::fs::symlink(outside, &folder);
        thread::yield_now();
        let _ = fs::remove_file(&folder);
        if fs::rename(&aside, &folder).is_err() {
            let _ = fs::remove_dir_all(&aside);
        }
    }
}

fn members() -> Members {
    vec![
        folder("a", 0o755),
        file("a/f", b"a"),
        folder("a/c", 0o700),
        file("a/c/f", b"c"),
        file("a/c/d/f", b"d"),
        folder("b", 0o750),
        file("b/f", b"b"),
        hard_link("b/h", "a/f"),
        symlink("b/l", "f"),
        file("a/c/g", b"again"),
        hard_link("a/h", "b/f"),
    ]
}

/// Receives trees while folders beneath `top` are swapped, and checks that nothing was changed
/// outside, and that the attack met its target.
fn attacked(top: &Path, mut receive: impl FnMut() -> Result<(), TreeError>) {
    let (outside, before) = outside();
    let (is_over, swaps) = (AtomicBool::new(false), AtomicU64::new(0));
    let failed = thread::scope(|scope| {
        scope.spawn(|| swap(top, outside.path(), &is_over, &swaps));
        // Also where an assertion fails.
        let _end = EndOfAttack(&is_over);
        let failed = (0..TRIES).filter(|number| {
            let received = receive();
            if number % 50 == 0 {
                assert_eq!(listing(outside.path()), before, "after {number} tries");
            }
            received.is_err()
        });
        failed.count()
    });
    assert_eq!(listing(outside.path()), before);
    let swaps = swaps.load(Ordering::Relaxed);
    assert!(swaps > 0 && failed > 0, "{swaps} swaps, {failed} noticed");
}

struct EndOfAttack<'a>(&'a AtomicBool);

impl Drop for EndOfAttack<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn folders_of_a_tree_that_are_swapped_by_links_lead_nowhere() {
    let (folder, area) = area();
    let stream = stream(&members());
    let top = folder.path().join("top");
    fs::create_dir(&top).unwrap();
    attacked(&top, || {
        let tree = area.begin_tree(settings()).unwrap();
        // The attacker cannot know the name.
        let mut tree = known_as(&area, tree, &top);
        let pushed = stream.chunks(512).try_for_each(|piece| tree.push(piece));
        drop(tree);
        pushed
    });
}

/// Puts a tree at a place that is known.
fn known_as(area: &Area, tree: PartialTree, top: &Path) -> PartialTree {
    let uploads = area.folder.uploads().unwrap();
    let id = tree.id().as_str();
    // The attacker may put something back into the former one.
    let placed = (0..TRIES).any(|_| {
        let _ = fs::remove_dir_all(top);
        rustix::fs::renameat(&uploads, id, rustix::fs::CWD, top).is_ok()
    });
    assert!(placed);
    tree
}

#[test]
fn folders_that_are_merged_with_and_swapped_by_links_lead_nowhere() {
    let (folder, area) = area();
    let stream = stream(&members());
    for name in ["t/a/c/d", "t/b"] {
        fs::create_dir_all(folder.path().join(name)).unwrap();
    }
    attacked(&folder.path().join("t"), || {
        let mut tree = area.begin_tree(settings()).unwrap();
        tree.push(&stream).unwrap();
        let merging = TreeMerge::Folders(Overwrite::Allowed);
        tree.commit(&path("t"), merging).map(drop)
    });
}
