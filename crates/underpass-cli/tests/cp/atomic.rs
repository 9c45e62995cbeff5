//! `--atomic`: the whole old file or the whole new one, and no other file left.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use rustix::fs::{CWD, Mode, mkfifoat};

use crate::copying::{CopyReport, MIB, cp, file, nameless_len, names, set_mode, start_cp};
use underpass_testkit::{assert_same_files, content, disk_folder, run};

#[test]
fn readers_see_the_old_file_or_the_new_one() {
    let folder = disk_folder();
    let path = |name| folder.path().join(name);
    let sources = [file(&path("a"), 1, 8 * MIB), file(&path("b"), 2, 7 * MIB)];
    let whole = sources
        .each_ref()
        .map(|source| fs::read(source).expect("reads"));
    let dest = path("dest");
    cp(&["--atomic"], &[&sources[0], &dest]).succeeded();
    let over = AtomicBool::new(false);
    let seen = [AtomicU64::new(0), AtomicU64::new(0)];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Relaxed) {
                let there = fs::read(&dest).expect("it is never missing");
                let which = whole.iter().position(|whole| *whole == there);
                let which = which.unwrap_or_else(|| panic!("part of one: {}", there.len()));
                seen[which].fetch_add(1, Relaxed);
            }
        });
        for turn in 1..=20 {
            cp(&["--atomic"], &[&sources[turn % 2], &dest]).succeeded();
        }
        over.store(true, Relaxed);
    });
    assert!(seen.iter().all(|seen| seen.load(Relaxed) > 0), "{seen:?}");
}

#[test]
fn killed_in_the_middle_it_leaves_the_old_file_and_nothing_beside() {
    let folder = disk_folder();
    let path = |name| folder.path().join(name);
    let source = file(&path("source"), 1, 32 * MIB);
    for (name, old) in [("over", Some(content(3, 1000))), ("new", None)] {
        let dest = path(name);
        if let Some(old) = &old {
            fs::write(&dest, old).expect("room");
        }
        let before = names(folder.path());
        let options = ["--atomic", "--reflink=never", "--bwlimit=8M"];
        let mut copying = start_cp(&options, &[&source, &dest]);
        let process = copying.id();
        copying.until(|| nameless_len(process) >= MIB);
        copying.kill();
        assert_eq!(names(folder.path()), before);
        assert_eq!(fs::read(&dest).ok(), old);
    }
}

#[test]
fn what_replaces_a_file_has_its_mode() {
    let folder = disk_folder();
    let path = |name| folder.path().join(name);
    let source = file(&path("source"), 1, 1000);
    let dest = file(&path("dest"), 2, 2000);
    set_mode(&source, 0o755);
    set_mode(&dest, 0o640);
    let before = fs::metadata(&dest).expect("there").ino();
    cp(&["--atomic"], &[&source, &dest]).succeeded();
    let after = fs::metadata(&dest).expect("there");
    assert_same_files(&source, &dest);
    assert_eq!(after.mode() & 0o7777, 0o640);
    assert_ne!(after.ino(), before, "it was replaced");
    cp(&["--atomic", "-p"], &[&source, &dest]).succeeded();
    let after = fs::metadata(&dest).expect("there");
    assert_eq!(after.mode() & 0o7777, 0o755, "where the mode goes along");
}

#[test]
fn the_file_behind_a_symbolic_link_is_replaced_and_not_the_link() {
    let folder = disk_folder();
    let path = |name| folder.path().join(name);
    let source = file(&path("source"), 1, 1000);
    fs::create_dir(path("below")).expect("room");
    let target = file(&path("below/target"), 2, 2000);
    set_mode(&target, 0o604);
    symlink("below/second", path("link")).expect("a link");
    symlink("target", path("below/second")).expect("a link");
    symlink("nowhere", path("dangling")).expect("a link");
    for options in [&["--atomic"][..], &["--atomic", "--resume"]] {
        // The inode number of a deleted file may be reused by a later one.
        let before = fs::metadata(&target).expect("there").ino();
        cp(options, &[&source, &path("link")]).succeeded();
        for link in ["link", "below/second"] {
            let link = fs::symlink_metadata(path(link)).expect("there");
            assert!(link.is_symlink());
        }
        assert_same_files(&source, &target);
        let after = fs::metadata(&target).expect("there");
        assert_eq!(after.mode() & 0o7777, 0o604);
        assert_ne!(after.ino(), before, "it was renamed there");
    }
    let over_dangling = cp(&["--atomic"], &[&source, &path("dangling")]);
    over_dangling.failed_with(&["dangling"]);
    assert!(!path("nowhere").exists());
    let beside = ["below", "dangling", "link", "source"];
    assert_eq!(names(folder.path()), beside);
    assert_eq!(names(&path("below")), ["second", "target"]);
    cp(
        &["--atomic", "--remove-destination"],
        &[&source, &path("link")],
    )
    .succeeded();
    assert!(fs::symlink_metadata(path("link")).expect("there").is_file());
}

/// The target of `/dev/stdout` has no name that could be given to another file.
#[test]
fn an_open_descriptor_is_written_to() {
    let folder = disk_folder();
    let path = |name| folder.path().join(name);
    let source = file(&path("source"), 1, 100_000);
    symlink("/proc/self/fd/1", path("stdout")).expect("a link");
    let mut shell = Command::new("sh");
    let script = "exec \"$0\" cp --atomic source stdout > out";
    let shell = shell.args(["-c", script, env!("CARGO_BIN_EXE_underpass")]);
    run(shell.current_dir(folder.path())).assert_success();
    assert_same_files(&source, &path("out"));
    let link = fs::symlink_metadata(path("stdout")).expect("there");
    assert!(link.is_symlink(), "{link:?}");
    assert_eq!(names(folder.path()), ["out", "source", "stdout"]);
}

#[test]
fn a_folder_that_is_missing_is_reported_before_anything_is_copied() {
    let folder = disk_folder();
    let path = |name| folder.path().join(name);
    file(&path("source"), 1, 4 * MIB);
    for options in ["--atomic", "--atomic --resume", "--atomic --bwlimit=1K"] {
        for (dest, why) in [
            ("missing/", "Not a directory (openat: ENOTDIR"),
            ("missing/copy", "No such file or directory (openat: ENOENT"),
            ("source/copy", "Not a directory"),
        ] {
            let mut shell = Command::new("sh");
            let script = format!("exec \"$0\" cp {options} source {dest}");
            let shell = shell.args(["-c", &script, env!("CARGO_BIN_EXE_underpass")]);
            let report = run(shell.current_dir(folder.path()));
            report.failed_with(&[why]);
            assert_eq!(names(folder.path()), ["source"], "{options} {dest}");
        }
    }
}

/// `/dev/stdout` and `/dev/disk/by-id/…` are links, too: an operand stands for its target.
#[test]
fn a_link_that_leads_to_a_device_or_a_fifo_is_written_through() {
    let folder = disk_folder();
    let path = |name| folder.path().join(name);
    let source = file(&path("source"), 1, 100_000);
    mkfifoat(CWD, path("fifo"), Mode::from_raw_mode(0o600)).expect("a FIFO");
    for (link, leads_to) in [("to device", "/dev/null"), ("to fifo", "fifo")] {
        symlink(leads_to, path(link)).expect("a link");
    }
    cp(&["--atomic"], &[&source, &path("to device")]).succeeded();
    let copying = start_cp(&["--atomic"], &[&source, &path("to fifo")]);
    let got = fs::read(path("fifo")).expect("reads");
    copying.end().succeeded();
    assert!(got == content(1, 100_000));
    for link in ["to device", "to fifo"] {
        let link = fs::symlink_metadata(path(link)).expect("there");
        assert!(link.is_symlink(), "{link:?}");
    }
    let beside = ["fifo", "source", "to device", "to fifo"];
    assert_eq!(names(folder.path()), beside);
}

#[test]
fn a_copy_that_fails_leaves_nothing() {
    let folder = disk_folder();
    let path = |name| folder.path().join(name);
    let source = file(&path("source"), 1, 8 * MIB);
    let options = ["--atomic", "--reflink=never", "--bwlimit=8M"];
    let dest = path("dest");
    let mut copying = start_cp(&options, &[&source, &dest]);
    let process = copying.id();
    copying.until(|| nameless_len(process) >= MIB);
    let shorter = fs::File::options().write(true).open(&source).expect("ours");
    shorter.set_len(2 * MIB).expect("shorter");
    let words = ["source", "shorter", " bytes had moved)"];
    let ran = copying.end().failed_with(&words);
    let reported = format!("; to '{}'; ", dest.display());
    assert!(ran.errors.contains(&reported), "{reported} in {ran:?}");
    assert_eq!(names(folder.path()), ["source"]);
}
