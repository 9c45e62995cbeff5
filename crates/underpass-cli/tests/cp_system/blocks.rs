//! Blocks: shared, filled, left out.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;

use rustix::fs::{FallocateFlags, fallocate};

use crate::copying::{CopyReport, cp, file, names};
use crate::ground::{FAMILIES, mounted};
use underpass_testkit::{WAIT_MAX, assert_same_files, content, run};

const MIB: u64 = 1 << 20;

/// Returns whether any extent is shared, according to FIEMAP.
fn is_shared(path: &Path) -> bool {
    let report = run(Command::new("filefrag").args(["-v", "-s"]).arg(path));
    report.assert_success();
    report.output.contains("shared")
}

fn allocated(path: &Path) -> u64 {
    // Delayed allocation would make the number of blocks unreliable.
    File::open(path)
        .and_then(|file| file.sync_all())
        .expect("synced");
    fs::metadata(path).expect("there").blocks() * 512
}

#[test]
#[ignore = "needs root, mounts, loop devices, ext4, XFS and Btrfs; run by cargo xtask test"]
fn reflink_decides_what_is_shared() {
    for family in FAMILIES {
        let at = mounted(family, 320);
        let path = |name: &str| at.join(name);
        let source = file(&path("source"), 1, 8 * MIB);
        File::open(&source)
            .and_then(|file| file.sync_all())
            .expect("synced");
        if !family.clones() {
            let ran = cp(&["--reflink=always"], &[&source, &path("always")]);
            ran.failed_with(&["failed to clone '", "Operation not supported"]);
            cp(&[], &[&source, &path("auto")]).succeeded();
            assert_same_files(&source, &path("auto"));
            assert_eq!(
                names(&at).iter().filter(|name| *name == "always").count(),
                0
            );
            continue;
        }
        for never in ["never", "never and atomic"] {
            let atomic = if never == "never" { "-f" } else { "--atomic" };
            cp(&["--reflink=never", atomic], &[&source, &path(never)]).succeeded();
            allocated(&path(never));
            assert!(
                !is_shared(&path(never)) && !is_shared(&source),
                "{family:?} {never}"
            );
            assert_same_files(&source, &path(never));
        }
        for (name, options) in [
            ("always", &["--reflink=always"][..]),
            ("auto", &[]),
            ("verified", &["--atomic", "--verify"]),
        ] {
            cp(options, &[&source, &path(name)]).succeeded();
            assert!(is_shared(&path(name)), "{family:?} {name}");
            assert_same_files(&source, &path(name));
        }
        assert!(is_shared(&source), "{family:?}");
    }
}

#[test]
#[ignore = "needs root, mounts, loop devices, ext4, XFS and Btrfs; run by cargo xtask test"]
fn sparse_decides_what_is_allocated() {
    const DATA: u64 = MIB;
    for family in FAMILIES {
        let at = mounted(family, 320);
        let path = |name: &str| at.join(name);
        let all = 16 * MIB;
        let holes = File::create(path("holes")).expect("a file");
        holes.set_len(all).expect("room");
        holes
            .write_all_at(&content(1, DATA), 5 * MIB)
            .expect("room");
        // More blocks than the length needs, and none of them in the holes.
        let reserved = File::create(path("reserved")).expect("a file");
        reserved.set_len(all).expect("a hole");
        reserved
            .write_all_at(&content(1, DATA), 5 * MIB)
            .expect("room");
        fallocate(&reserved, FallocateFlags::KEEP_SIZE, all, all).expect("room");
        let mut zeros = vec![0; 16 << 20];
        zeros[5 << 20..6 << 20].copy_from_slice(&content(1, DATA));
        fs::write(path("zeros"), zeros).expect("room");
        for (source, sparse, few) in [
            ("holes", "auto", true),
            ("holes", "never", false),
            ("holes", "always", true),
            ("reserved", "auto", true),
            ("reserved", "never", false),
            ("zeros", "never", false),
            ("zeros", "always", true),
        ] {
            let dest = path(&format!("{source} {sparse}"));
            let option = format!("--sparse={sparse}");
            cp(&[&option, "--verify"], &[path(source), dest.clone()]).succeeded();
            assert_same_files(&path("zeros"), &dest);
            let bytes = allocated(&dest);
            match few {
                true => assert!(bytes <= 2 * DATA, "{family:?} {dest:?}: {bytes}"),
                false => assert!(bytes >= all, "{family:?} {dest:?}: {bytes}"),
            }
        }
    }
}

#[test]
#[ignore = "needs root, mounts, loop devices, ext4, XFS and Btrfs; run by cargo xtask test"]
fn shared_blocks_are_no_bytes_to_a_limit() {
    for family in FAMILIES.into_iter().filter(|family| family.clones()) {
        let at = mounted(family, 320);
        let path = |name: &str| at.join(name);
        let source = file(&path("source"), 1, 32 * MIB);
        // At that rate the bytes would take at least twice as long as a test waits.
        let options = ["--reflink=always", "--bwlimit=256K"];
        const { assert!(32 * MIB / (256 << 10) >= 2 * WAIT_MAX.as_secs()) };
        cp(&options, &[&source, &path("dest")]).succeeded();
        assert!(is_shared(&path("dest")), "{family:?}");
        assert_same_files(&source, &path("dest"));
    }
}
