//! No space: on the disk, or within the file size limit of a process.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{FallocateFlags, fallocate};

use crate::copying::{CopyReport, cp, file, names};
use crate::ground::{FAMILIES, Family, mounted, spot};
use underpass_testkit::{ExitReport, assert_same_files, content, run};

const MIB: u64 = 1 << 20;

/// Mounts a file system with a folder in it, and less than 16 MiB free.
fn nearly_full(family: Family) -> PathBuf {
    let mib = match family {
        Family::Tmpfs | Family::Ext4 => 24,
        Family::Btrfs => 128,
        Family::Xfs => 320,
    };
    let at = mounted(family, mib);
    fs::create_dir(at.join("dest")).expect("a folder");
    let ballast = File::create(at.join("ballast")).expect("a file");
    let mut len = 0;
    for step in [64 * MIB, 4 * MIB, MIB] {
        let takes = |len| fallocate(&ballast, FallocateFlags::empty(), len, step).is_ok();
        while takes(len) {
            len += step;
        }
    }
    ballast
        .set_len(len.saturating_sub(8 * MIB))
        .expect("shorter");
    rustix::fs::syncfs(&ballast).expect("what was freed is free");
    at.join("dest")
}

fn sources() -> Vec<PathBuf> {
    let folder = spot();
    [("a", 1000), ("big", 64 * MIB), ("z", 1000)]
        .into_iter()
        .zip(1..)
        .map(|((name, len), seed)| file(&folder.join(name), seed, len))
        .collect()
}

fn into(dest: &Path, options: &[&str], sources: &[PathBuf]) -> ExitReport {
    let mut operands = sources.to_vec();
    operands.push(dest.to_owned());
    cp(options, &operands)
}

#[test]
#[ignore = "needs root, mounts, loop devices, ext4, XFS and Btrfs; run by cargo xtask test"]
fn a_full_disk_is_reported_once_per_file_and_atomic_leaves_nothing_partial() {
    let sources = sources();
    for family in FAMILIES {
        let dest = nearly_full(family);
        let ran = into(&dest, &["-j1", "--atomic", "--reflink=never"], &sources);
        let said = "big': No space left on device";
        let ran = ran.failed_with(&["error writing '", said, "2 files copied, 1 error"]);
        assert_eq!(ran.errors.matches(said).count(), 1, "{family:?}: {ran:?}");
        let source = sources[1].display().to_string();
        assert_eq!(
            ran.errors.matches(&source).count(),
            1,
            "{family:?}: {ran:?}"
        );
        assert_eq!(names(&dest), ["a", "z"], "{family:?}");
        for small in ["a", "z"] {
            assert_same_files(&sources[0].with_file_name(small), &dest.join(small));
        }
        // Without `a`, whose copy could fail because of `big`.
        let json = into(&dest, &["-j2", "--atomic", "--json"], &sources[1..2]);
        let objects = json.objects();
        let problems = objects.iter().filter(|object| object["type"] == "problem");
        let problems: Vec<_> = problems.collect();
        assert_eq!(problems.len(), 1, "{family:?}: {problems:?}");
        assert_eq!(problems[0]["errno"], "ENOSPC");
        assert_eq!(names(&dest), ["a", "z"], "{family:?}");
    }
}

#[test]
#[ignore = "needs root, mounts, loop devices, ext4, XFS and Btrfs; run by cargo xtask test"]
fn a_full_disk_is_reported_once_however_many_files_it_has_no_room_for() {
    let sources = sources();
    let more = ["big2", "big3"].map(|name| {
        let copy = sources[1].with_file_name(name);
        fs::copy(&sources[1], &copy).expect("room");
        copy
    });
    let dest = nearly_full(Family::Ext4);
    let all = [&sources[1..2], &more].concat();
    let ran = into(&dest, &["-j1", "--atomic", "--reflink=never"], &all);
    let ran = ran.failed_with(&[
        "No space left on device",
        "no space left for 2 more",
        "3 errors",
    ]);
    assert_eq!(ran.errors.matches("No space left").count(), 1, "{ran:?}");
}

#[test]
#[ignore = "needs root, mounts, loop devices, ext4, XFS and Btrfs; run by cargo xtask test"]
fn every_file_that_a_full_disk_cuts_off_is_named_with_its_bytes() {
    let big = sources().swap_remove(1);
    let sources: Vec<_> = (0..24)
        .map(|number| {
            let copy = big.with_file_name(format!("big-{number}"));
            fs::copy(&big, &copy).expect("room");
            copy
        })
        .collect();
    let in_place = &["-j8", "--reflink=never"][..];
    let in_parts = &["-j8", "--reflink=never", "--atomic", "--resume"][..];
    for (family, options) in [
        (Family::Ext4, in_place),
        (Family::Tmpfs, in_place),
        (Family::Ext4, in_parts),
        (Family::Tmpfs, in_parts),
    ] {
        let dest = nearly_full(family);
        let ran = into(&dest, options, &sources);
        let ran = ran.failed_with(&["No space left on device", "24 errors"]);
        let left = names(&dest);
        assert!(!left.is_empty(), "{family:?}: {ran:?}");
        for name in &left {
            let len = fs::metadata(dest.join(name)).expect("a part").len();
            assert!(len > 0 || options == in_place, "{name:?}: {ran:?}");
            // An unfinished file has another name than the final one.
            let name = match options == in_place {
                true => name.to_string_lossy(),
                false => "".into(),
            };
            let said = format!("{name}': No space left on device");
            let moved = format!("; {len} bytes had moved)");
            let mut lines = ran.errors.lines();
            let is_named = lines.any(|line| line.contains(&said) && line.ends_with(&moved));
            assert!(is_named, "{family:?}: {name} has {len} bytes: {ran:?}");
        }
        // The first one is named, although nothing of it may be left.
        let named = ran.errors.matches("error writing").count();
        assert!(named <= left.len() + 1, "{family:?}: {left:?}: {ran:?}");
        let more = format!("no space left for {} more", 24 - named);
        assert!(ran.errors.contains(&more), "{family:?}: {left:?}: {ran:?}");
    }
}

#[test]
#[ignore = "needs root, mounts, loop devices, ext4, XFS and Btrfs; run by cargo xtask test"]
fn a_full_disk_keeps_what_was_written_in_place() {
    let sources = sources();
    for family in FAMILIES {
        let dest = nearly_full(family);
        let ran = into(&dest, &["-j1", "--reflink=never"], &sources[..2]);
        let ran = ran.failed_with(&["error writing '", "big': No space left on device"]);
        assert_eq!(
            ran.errors.matches("No space left").count(),
            1,
            "{family:?}: {ran:?}"
        );
        assert_same_files(&sources[0], &dest.join("a"));
        let part = fs::read(dest.join("big")).expect("a part");
        assert!(part.len() as u64 >= 4 * MIB, "{family:?}: {}", part.len());
        assert!(
            content(2, 64 * MIB).starts_with(&part),
            "{family:?}: {}",
            part.len()
        );
    }
}

#[test]
#[ignore = "needs root, mounts, loop devices, ext4, XFS and Btrfs; run by cargo xtask test"]
fn a_limit_to_the_size_of_files_is_reported_and_kills_no_process() {
    let folder = spot();
    let source = file(&folder.join("source"), 1, 4 * MIB);
    for (only, said) in [
        ("--reflink=auto", ": EFBIG"),
        ("--only=sendfile", "sendfile: EFBIG"),
        ("--only=splice", "splice: EFBIG"),
        ("--only=copy_range", "copy_range: EFBIG"),
        ("--only=read_write", "read_write: EFBIG"),
    ] {
        for placement in ["--atomic", "-f"] {
            let dest = folder.join("dest");
            let mut limited = Command::new("sh");
            limited
                .args(["-c", "ulimit -f 2048; exec \"$0\" cp $1 $2 $3 $4"])
                .args([env!("CARGO_BIN_EXE_underpass"), only, placement])
                .args([&source, &dest]);
            let ran = run(&mut limited);
            // "File too large" may mean that another mechanism works; if none does, it is the real
            // error.
            let wrote = format!("error writing '{}': File too large", dest.display());
            let from = format!("; from '{}'; ", source.display());
            let ran = ran.failed_with(&[said, &wrote, &from, " bytes had moved)"]);
            let left: &[_] = match placement {
                "-f" => &["dest", "source"],
                _ => &["source"],
            };
            assert_eq!(names(&folder), left, "{only} {placement}");
            if let Ok(part) = fs::read(&dest) {
                assert!(content(1, 4 * MIB).starts_with(&part), "{only}");
                let moved = format!("; {} bytes had moved)", part.len());
                assert!(ran.errors.contains(&moved), "{only}: {moved} in {ran:?}");
                fs::remove_file(&dest).expect("ours");
            }
        }
    }
}
