//! A receiving process that is killed at any moment, and the next one that continues.

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};

use super::*;
use crate::forks::spawn;

const FOLDER: &str = "UNDERPASS_TREE_FOLDER";
const ID: &str = "UNDERPASS_TREE_ID";
const KILLS: usize = 60;

/// Starts this test binary again: it receives a tree from its standard input, and commits it.
fn receive_apart(folder: &Path, id: &str) -> Child {
    let name = concat!(module_path!(), "::until_it_is_killed");
    let (_, name) = name.split_once("::").unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", name, "--nocapture"])
        .env(FOLDER, folder)
        .env(ID, id)
        .stdin(Stdio::piped())
        .stdout(Stdio::null());
    spawn(&mut command)
}

/// The process that is killed. It writes a checkpoint after each piece: kills meet each step.
#[test]
fn until_it_is_killed() {
    let Some(folder) = std::env::var_os(FOLDER) else {
        return;
    };
    let id = std::env::var(ID).unwrap();
    let id = UploadId::parse(id.as_bytes()).unwrap();
    let area = open(Path::new(&folder));
    let mut tree = resumed(&area, &id).unwrap();
    let (mut input, mut bytes) = (std::io::stdin(), vec![0; 3000]);
    loop {
        match input.read(&mut bytes).unwrap() {
            0 => break,
            length => tree.push(&bytes[..length]).unwrap(),
        }
        tree.note(None).unwrap();
    }
    tree.commit(&path("t"), TreeMerge::Refused).unwrap();
}

/// Returns the checkpoint of a tree that a process has released; none if it has its name.
fn checkpoint(area: &Area, folder: &Path, id: &UploadId) -> Option<TreeCheckpoint> {
    match resumed(area, id) {
        Ok(tree) => Some(tree.record().unwrap().tree().unwrap().clone()),
        Err(Error::Gone) => {
            assert!(folder.join("t").exists(), "the tree is lost");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_process_that_is_killed_at_any_moment_loses_nothing_that_was_reported() {
    let mut rng = fastrand::Rng::with_seed(11);
    let (mut kills, mut reported, mut continued) = (0, (0, 0), 0);
    while kills < KILLS {
        let (folder, area) = area();
        let members = everything();
        let tree = area.create_tree(hour(), FEW, settings()).unwrap();
        let id = tree.id().clone();
        drop(tree);
        reported = (0, 0);
        while let Some(checkpoint) = checkpoint(&area, folder.path(), &id) {
            let so_far = (checkpoint.members, checkpoint.bytes);
            assert!(so_far >= reported, "{so_far:?} after {reported:?}");
            reported = so_far;
            continued += u32::from(checkpoint.members > 0);
            let left = rest(&members, &checkpoint);
            let mut child = receive_apart(folder.path(), id.as_str());
            let mut input = child.stdin.take().unwrap();
            // Some are killed after the end of the stream, while the tree gets its name.
            let end = rng.usize(..left.len() * 5 / 4 + 1);
            let is_whole = end >= left.len();
            input.write_all(&left[..end.min(left.len())]).unwrap();
            if is_whole && rng.bool() {
                drop(input);
                assert!(child.wait().unwrap().success());
                continue;
            }
            if is_whole {
                drop(input);
            }
            child.kill().unwrap();
            child.wait().unwrap();
            kills += 1;
        }
        assert_is(&folder.path().join("t"), &members);
        area.sweep(SystemTime::now()).unwrap();
        assert_eq!(partial_files(folder.path()), 0);
    }
    assert!(continued > 5 && reported.0 > 0, "{continued}");
}
