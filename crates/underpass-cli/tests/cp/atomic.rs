//! `--atomic`: all of the old file or all of the new one, and nothing beside.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use rustix::fs::{CWD, Mode, mkfifoat};

use crate::copying::{CopyReport, MIB, cp, file, nameless_len, names, set_mode, start_cp};
use underpass_testkit::{assert_same_files, content, disk_folder, sha256_file};

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
fn a_symbolic_link_is_replaced_and_not_written_through() {
    let folder = disk_folder();
    let path = |name| folder.path().join(name);
    let source = file(&path("source"), 1, 1000);
    let target = file(&path("target"), 2, 2000);
    let before = sha256_file(&target);
    symlink("target", path("link")).expect("a link");
    symlink("nowhere", path("dangling")).expect("a link");
    cp(&["--atomic"], &[&source, &path("link")]).succeeded();
    let link = fs::symlink_metadata(path("link")).expect("there");
    assert!(link.is_file());
    assert_same_files(&source, &path("link"));
    assert!(
        sha256_file(&target) == before,
        "what it led to is as it was"
    );
    let over_dangling = cp(&["--atomic"], &[&source, &path("dangling")]);
    assert!(!path("nowhere").exists());
    if over_dangling.code == Some(0) {
        assert_same_files(&source, &path("dangling"));
    } else {
        over_dangling.failed_with(&["dangling"]);
    }
    let beside = ["dangling", "link", "source", "target"];
    assert_eq!(names(folder.path()), beside);
}

/// `/dev/stdout` and `/dev/disk/by-id/…` are links, too: who names one means what is behind it.
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
