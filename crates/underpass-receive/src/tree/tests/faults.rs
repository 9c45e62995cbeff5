//! Full disks, exhausted descriptors, and folders that cannot be written.

use std::process::{Command, Stdio};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use underpass_testkit::{assert_private_mounts, mount, strace, traced_calls};

use super::*;
use crate::forks::{alone, spawn};

/// Selects the part that a child process plays: limits affect a whole process.
const PART: &str = "UNDERPASS_TREE_PART";

fn part() -> Option<String> {
    std::env::var(PART).ok()
}

/// Arguments that run one of these tests again.
fn again(test: &str) -> [String; 3] {
    let (_, module) = module_path!().split_once("::").unwrap();
    let test = format!("{module}::{test}");
    ["--include-ignored".to_owned(), "--exact".to_owned(), test]
}

#[test]
#[ignore = "needs root and mounts; run by cargo xtask test"]
fn a_disk_that_is_full_is_reported_and_the_tree_continued_when_it_is_not() {
    assert_private_mounts();
    let folder = tempfile::tempdir().unwrap();
    alone(|| mount(&["-t", "tmpfs", "-o", "size=4m", "none"], folder.path()));
    let area = open(folder.path());
    let members = vec![
        file("before", &content(300_000)),
        file("cut", &content(900_000)),
        file("large", &content(3 << 20)),
    ];
    let mut tree = area.create_tree(hour(), FEW, settings()).unwrap();
    let id = tree.id().clone();
    let whole = stream(&members);
    tree.push(&whole[..500_000]).unwrap();
    // Somebody else fills the disk.
    let filler = folder.path().join("filler");
    let filled = fs::write(&filler, vec![1; 4 << 20]).unwrap_err();
    assert_eq!(filled.raw_os_error(), Some(Errno::NOSPC.raw_os_error()));
    let error = tree.push(&whole[500_000..]).unwrap_err();
    assert_eq!(error.fault, TreeFault::Failed(Error::NoSpace));
    assert_eq!(error.path, b"cut");
    // The record may need space, too: the former one holds then.
    let _ = tree.keep(Duration::from_secs(60));
    drop(tree);
    fs::remove_file(&filler).unwrap();
    let mut tree = resumed(&area, &id).unwrap();
    let left = rest(&members, tree.record().unwrap().tree().unwrap());
    let error = tree.push(&left).unwrap_err();
    let is_full = matches!(error.fault, TreeFault::Failed(Error::TooFull { .. }));
    assert!(is_full, "{error:?}");
    assert_eq!(error.path, b"large", "found before its first byte");
    tree.keep(Duration::from_secs(60)).unwrap();
    assert_eq!(tree.record().unwrap().tree().unwrap().members, 2);
    drop(tree);
    alone(|| mount(&["-o", "remount,size=16m"], folder.path()));
    let mut tree = resumed(&area, &id).unwrap();
    let left = rest(&members, tree.record().unwrap().tree().unwrap());
    tree.push(&left).unwrap();
    tree.commit(&path("t"), TreeMerge::Refused).unwrap();
    assert_is(&folder.path().join("t"), &members);
}

#[test]
#[ignore = "needs root and mounts; run by cargo xtask test"]
fn empty_files_leave_a_twentieth_of_the_inodes() {
    assert_private_mounts();
    let folder = tempfile::tempdir().unwrap();
    let few = ["-t", "tmpfs", "-o", "nr_inodes=400", "none"];
    alone(|| mount(&few, folder.path()));
    let area = open(folder.path());
    let members: Vec<_> = (0..500)
        .map(|index| file(&format!("f{index}"), b""))
        .collect();
    let mut tree = area.begin_tree(settings()).unwrap();
    let error = tree.push(&stream(&members)).unwrap_err();
    assert_eq!(error.fault, TreeFault::Failed(Error::NoInodes));
    let left = rustix::fs::statvfs(folder.path()).unwrap().f_ffree;
    assert_eq!(left, 400 / 20);
}

#[test]
#[ignore = "needs root and mounts; run by cargo xtask test"]
fn a_folder_that_cannot_be_written_is_refused_at_the_start() {
    assert_private_mounts();
    let folder = tempfile::tempdir().unwrap();
    alone(|| mount(&["-t", "tmpfs", "-o", "ro", "none"], folder.path()));
    let area = open(folder.path());
    let begun = area.begin_tree(settings());
    assert_eq!(begun.map(drop), Err(Error::Denied));
    let begun = area.create_tree(hour(), FEW, settings());
    assert_eq!(begun.map(drop), Err(Error::Denied));
}

#[test]
#[ignore = "needs root and mounts; run by cargo xtask test"]
fn a_name_on_another_file_system_is_refused_and_the_tree_kept() {
    assert_private_mounts();
    let (folder, area) = area();
    let other = folder.path().join("other");
    fs::create_dir(&other).unwrap();
    alone(|| mount(&["-t", "tmpfs", "none"], &other));
    let mut tree = area.create_tree(hour(), FEW, settings()).unwrap();
    let id = tree.id().clone();
    tree.push(&stream(&everything())).unwrap();
    let error = tree
        .commit(&path("other/t"), TreeMerge::Refused)
        .unwrap_err();
    assert!(matches!(
        error.fault,
        TreeFault::Failed(Error::Io {
            errno: Errno::XDEV,
            ..
        })
    ));
    assert_eq!(fs::read_dir(&other).unwrap().count(), 0);
    let mut tree = resumed(&area, &id).unwrap();
    tree.push(&END).unwrap();
    tree.commit(&path("t"), TreeMerge::Refused).unwrap();
    assert_is(&folder.path().join("t"), &everything());
}

#[test]
fn exhausted_descriptors_end_the_transfer_and_it_is_continued() {
    if part().is_none() {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(again(
                "exhausted_descriptors_end_the_transfer_and_it_is_continued",
            ))
            .env(PART, "child")
            .stderr(Stdio::piped())
            .stdout(Stdio::null());
        let child = spawn(&mut command).wait_with_output().unwrap();
        let message = String::from_utf8_lossy(&child.stderr);
        assert!(child.status.success(), "{message}");
        return;
    }
    let (folder, area) = area();
    let members = everything();
    let mut tree = area.create_tree(hour(), FEW, settings()).unwrap();
    let id = tree.id().clone();
    tree.push(&stream(&members)[..3000]).unwrap();
    let usual = getrlimit(Resource::Nofile);
    let none = Rlimit {
        current: Some(0),
        ..usual
    };
    setrlimit(Resource::Nofile, none).unwrap();
    let error = tree.push(&stream(&members)[3000..]).unwrap_err();
    let kept = tree.keep(Duration::from_secs(60));
    setrlimit(Resource::Nofile, usual).unwrap();
    let is_exhausted = |error: &Error| {
        matches!(
            error,
            Error::Io {
                errno: Errno::MFILE,
                ..
            }
        )
    };
    assert!(
        matches!(&error.fault, TreeFault::Failed(error) if is_exhausted(error)),
        "{error}"
    );
    assert!(kept.is_err_and(|error| is_exhausted(&error)));
    drop(tree);
    let mut tree = resumed(&area, &id).unwrap();
    let left = rest(&members, tree.record().unwrap().tree().unwrap());
    tree.push(&left).unwrap();
    tree.commit(&path("t"), TreeMerge::Refused).unwrap();
    assert_is(&folder.path().join("t"), &members);
}

#[test]
fn a_folder_of_partial_files_that_is_removed_meanwhile_is_reported() {
    let (folder, area) = area();
    let mut tree = area.create_tree(hour(), FEW, settings()).unwrap();
    let whole = stream(&everything());
    tree.push(&whole[..3000]).unwrap();
    fs::remove_dir_all(folder.path().join(UPLOADS_FOLDER)).unwrap();
    let pushed = tree.push(&whole[3000..]);
    let committed = pushed.and_then(|()| tree.commit(&path("t"), TreeMerge::Refused).map(drop));
    let error = committed.unwrap_err();
    assert_eq!(error.fault, TreeFault::Failed(Error::NotFound));
    assert!(!folder.path().join("t").exists());
}

/// Makes trees of small files, with times and modes, in one folder of each.
fn receive_small_files(count: usize) {
    let (_folder, area) = area();
    let mut members = vec![folder("d", 0o755)];
    let content = content(4096);
    members.extend((0..count).map(|number| file(&format!("d/{number}"), &content)));
    let mut tree = area.begin_tree(settings()).unwrap();
    tree.push(&stream(&members)).unwrap();
    assert_eq!(tree.progress().0, count as u64 + 1);
    // Its removal has calls of its own.
    std::process::exit(0);
}

#[test]
#[ignore = "needs strace; run by cargo xtask test"]
fn a_small_file_takes_four_calls() {
    const NAME: &str = "a_small_file_takes_four_calls";
    if let Some(count) = part() {
        receive_small_files(count.parse().unwrap());
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let calls = |count: usize| {
        let log = folder.path().join("log");
        let names = "trace=%desc,%file,read,write";
        let mut command = strace(&log, &[names]);
        command
            .arg(std::env::current_exe().unwrap())
            .args(again(NAME))
            .env(PART, count.to_string())
            .stderr(Stdio::piped())
            .stdout(Stdio::null());
        let child = spawn(&mut command).wait_with_output().unwrap();
        let message = String::from_utf8_lossy(&child.stderr);
        assert!(child.status.success(), "{message}");
        let mut calls = BTreeMap::<String, usize>::new();
        for call in traced_calls(&log) {
            *calls.entry(call.name).or_default() += 1;
        }
        calls
    };
    let (few, many) = (calls(100), calls(300));
    let more = many.iter().map(|(name, &many)| {
        let few = few.get(name).copied().unwrap_or_default();
        (name.as_str(), many.saturating_sub(few))
    });
    // Checkpoints depend on the time, and a build for tests examines descriptors before it closes
    // them.
    let more = more.filter(|(name, more)| *more >= 100 && *name != "fcntl");
    let more: BTreeMap<_, _> = more.collect();
    let each = ["close", "openat", "pwrite64", "utimensat"];
    assert_eq!(more.keys().copied().collect::<Vec<_>>(), each, "{more:?}");
    assert!(more.values().all(|more| *more < 220), "{more:?}");
}
