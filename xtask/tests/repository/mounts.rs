//! Private mount namespaces, which `cargo xtask test` guarantees to tests that mount.

use std::fs;
use std::os::unix::process::parent_id;
use std::process::{Command, id};

/// The parent is xtask, which stands for any other process of the machine.
#[test]
#[ignore = "needs root and mounts; run by cargo xtask test"]
fn a_mount_is_seen_by_nobody_else() {
    let directory = std::env::temp_dir().join(format!("underpass-mounts-{}", id()));
    fs::create_dir(&directory).expect("a directory");
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "none"])
        .arg(&directory)
        .status()
        .expect("mount starts");
    let is_in_mounts_of = |process: u32| {
        let mounts = fs::read_to_string(format!("/proc/{process}/mountinfo")).expect("mounts");
        mounts.contains(&*directory.to_string_lossy())
    };
    let (here, there) = (is_in_mounts_of(id()), is_in_mounts_of(parent_id()));
    let unmounted = Command::new("umount")
        .arg(&directory)
        .status()
        .expect("umount starts");
    fs::remove_dir(&directory).expect("an empty directory");
    assert!(mounted.success() && unmounted.success());
    assert!(here, "the mount is there");
    assert!(!there, "and private");
}
