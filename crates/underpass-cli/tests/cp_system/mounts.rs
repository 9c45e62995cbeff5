//! Copies across file systems, on overlays, and up to the mount points of a file system.

use std::fs;
use std::os::unix::fs::{MetadataExt, chown, symlink};
use std::path::Path;
use std::process::Command;

use underpass_testkit::{assert_same_files, content, mount, run, sha256_file};

use crate::copying::{CopyReport, cp, file, len, names, set_mode, start_cp, tree};
use crate::ground::{FAMILIES, Family, mounted, spot};
use crate::sshfs::by_sshfs;
use crate::support::text;

fn sample(root: &Path) {
    fs::create_dir_all(root.join("a/b")).expect("folders");
    for (seed, name) in (1..).zip(["one", "a/two", "a/b/three"]) {
        file(&root.join(name), seed, 300_000 * seed);
        chown(root.join(name), Some(1234), Some(4321)).expect("root may");
    }
    symlink("one", root.join("link")).expect("a link");
    fs::hard_link(root.join("one"), root.join("a/other")).expect("a name");
    set_mode(&root.join("a/b"), 0o2751);
}

/// Like `tree`, with owners, times and link counts.
fn whole(root: &Path) -> Vec<(std::path::PathBuf, u32, u32, i64, i64, u64)> {
    let of = |below: &std::path::PathBuf| {
        let now = fs::symlink_metadata(root.join(below)).expect("there");
        let names = if now.is_dir() { 0 } else { now.nlink() };
        (
            below.clone(),
            now.uid(),
            now.gid(),
            now.mtime(),
            now.mtime_nsec(),
            names,
        )
    };
    tree(root).keys().map(of).collect()
}

fn overlay() -> [std::path::PathBuf; 2] {
    let base = mounted(Family::Xfs, 320);
    let [lower, upper, work] = ["lower", "upper", "work"].map(|name| base.join(name));
    for folder in [&lower, &upper, &work] {
        fs::create_dir(folder).expect("a folder");
    }
    sample(&lower);
    let at = spot();
    let (lower_name, upper, work) = (text(&lower), text(&upper), text(&work));
    let options = format!("lowerdir={lower_name},upperdir={upper},workdir={work}");
    mount(&["-t", "overlay", "-o", &options, "overlay"], &at);
    [lower, at]
}

#[test]
#[ignore = "needs root, mounts, sshfs and sftp-server; run by cargo xtask test"]
fn names_of_one_file_are_one_where_each_has_its_own_inode_number() {
    let [source, behind] = [spot(), spot()];
    sample(&source.join("s"));
    let at = spot();
    let _running = by_sshfs(&behind, &at);
    for round in 0..3 {
        if round == 2 {
            fs::write(source.join("s/one"), "new").expect("room");
        }
        let ran = cp(&["-a"], &[source.join("s"), at.clone()]);
        assert_eq!(ran.code, Some(0), "{round}: {}", ran.errors);
    }
    assert!(tree(&source.join("s")) == tree(&behind.join("s")));
    let names = fs::metadata(behind.join("s/one")).expect("a copy").nlink();
    assert_eq!(names, 2);
}

/// Behind sshfs no link shows that it is older than the run; one that stays is not followed.
#[test]
#[ignore = "needs root, mounts, sshfs and sftp-server; run by cargo xtask test"]
fn links_behind_sshfs_stay_where_nothing_is_overwritten() {
    let [source, behind, at] = [spot(), spot(), spot()];
    let _running = by_sshfs(&behind, &at);
    for folder in [source.join("s"), behind.join("s")] {
        fs::create_dir(folder).expect("room");
    }
    fs::write(source.join("s/name"), "new").expect("room");
    fs::write(behind.join("s/other"), "old").expect("room");
    symlink("other", behind.join("s/name")).expect("room");
    let copied = |option| cp(&["-r", option], &[source.join("s"), at.clone()]);
    copied("-n").succeeded();
    copied("--update=none").succeeded();
    copied("--update=none-fail").failed_with(&["not replacing"]);
    copied("-v").failed_with(&["not writing through"]);
    let content = fs::read_to_string(behind.join("s/other"));
    assert_eq!(content.expect("it is there"), "old");
    copied("--remove-destination").succeeded();
    let content = fs::read_to_string(behind.join("s/name"));
    assert_eq!(content.expect("a copy"), "new");
}

#[test]
#[ignore = "needs root, mounts, sshfs and sftp-server; run by cargo xtask test"]
fn a_file_that_takes_the_place_of_a_copy_is_noticed_behind_fuse_too() {
    let [source, behind, at] = [spot(), spot(), spot()];
    let _running = by_sshfs(&behind, &at);
    for (name, options) in [("dest", "--bwlimit=8M"), ("source", "--bwlimit=7M")] {
        file(&source.join("source"), 1, 4 << 20);
        file(&at.join("source"), 1, 4 << 20);
        file(&at.join("other"), 2, 4 << 20);
        let from = if name == "dest" { &source } else { &at };
        let operands = [from.join("source"), at.join("dest")];
        let mut copying = start_cp(&["--verify", options], &operands);
        copying.until(|| len(&behind.join("dest")) >= 1 << 20);
        fs::rename(at.join("other"), at.join(name)).expect("ours");
        let said = format!("{}', as it was replaced", at.join(name).display());
        copying.end().failed_with(&[&said]);
        fs::remove_file(at.join("dest")).expect("a copy");
    }
}

#[test]
#[ignore = "needs root, mounts, loop devices, ext4, XFS and Btrfs; run by cargo xtask test"]
fn a_tree_goes_from_file_system_to_file_system_and_comes_back_the_same() {
    let start = spot();
    sample(&start.join("tree"));
    let mut from = start.join("tree");
    for family in FAMILIES.into_iter().chain([Family::Tmpfs]) {
        let to = mounted(family, 320).join("tree");
        cp(&["-aT", "-j4", "--verify", "--atomic"], &[&from, &to]).succeeded();
        assert!(tree(&start.join("tree")) == tree(&to), "{family:?}");
        assert_eq!(whole(&start.join("tree")), whole(&to), "{family:?}");
        from = to;
    }
}

#[test]
#[ignore = "needs root, mounts, loop devices, ext4, XFS and Btrfs; run by cargo xtask test"]
fn overlays_are_copied_from_and_to_and_lower_files_stay() {
    let [lower, at] = overlay();
    let before = tree(&lower);
    let out = spot().join("out");
    cp(&["-aT", "--verify"], &[&at, &out]).succeeded();
    for (below, content) in &before {
        assert_eq!(tree(&out).get(below), Some(content), "{below:?}");
    }
    cp(&["-aT", "--verify"], &[&at.join("a"), &at.join("within")]).succeeded();
    assert!(tree(&at.join("a")) == tree(&at.join("within")));
    for (options, seed) in [
        (&["-f"][..], 7),
        (&["--atomic"], 8),
        (&["--resume", "--verify"], 9),
    ] {
        let new = file(&out.join("new"), seed, 100_000);
        cp(options, &[&new, &at.join("a/two")]).succeeded();
        assert_same_files(&new, &at.join("a/two"));
    }
    assert!(tree(&lower) == before, "what lies below is not touched");
}

#[test]
#[ignore = "needs root, mounts, loop devices, ext4, XFS and Btrfs; run by cargo xtask test"]
fn a_file_reached_by_another_mount_is_the_same_file() {
    for family in [Family::Tmpfs, Family::Ext4] {
        let base = mounted(family, 64);
        let (source, dest) = (base.join("source"), spot());
        fs::create_dir(&source).expect("a folder");
        sample(&source);
        mount(&["--bind", text(&source)], &dest);
        let before = tree(&source);
        for options in [
            &["-f"][..],
            &["--atomic"],
            &["--resume"],
            &["--remove-destination"],
        ] {
            let ran = cp(options, &[source.join("a/two"), dest.join("a/two")]);
            ran.failed_with(&["are the same file"]);
        }
        let ran = cp(&["-r", "-T", "-j2"], &[&source, &dest]);
        assert_eq!(ran.code, Some(1), "{ran:?}");
        assert!(tree(&source) == before, "{family:?}");
    }
}

#[test]
#[ignore = "needs root, mounts, loop devices, ext4, XFS and Btrfs; run by cargo xtask test"]
fn one_file_system_ends_at_mounts_which_become_empty_folders() {
    let source = spot().join("source");
    sample(&source);
    let border = source.join("a/border");
    fs::create_dir(&border).expect("a folder");
    mount(&["-t", "tmpfs", "-o", "mode=0715,uid=77", "none"], &border);
    fs::write(border.join("beyond"), b"the border").expect("room");
    let dest = spot().join("dest");
    cp(&["-ax"], &[&source, &dest]).succeeded();
    assert_eq!(names(&dest.join("a/border")), [""; 0]);
    let mut expected = tree(&source);
    expected.remove(Path::new("a/border/beyond"));
    assert_eq!(tree(&dest), expected);
    let (there, here) = (&dest.join("a/border"), &border);
    let of = |path: &Path| fs::metadata(path).map(|now| (now.uid(), now.mode(), now.mtime()));
    assert_eq!(
        of(there).expect("there"),
        of(here).expect("there"),
        "it keeps what -a keeps"
    );
    cp(&["-a"], &[&source, &spot().join("all")]).succeeded();
    // With `-x`, an operand that is itself a mount point is copied.
    let named = spot().join("named");
    cp(&["-ax"], &[&border, &named]).succeeded();
    assert_eq!(names(&named), ["beyond"]);
}

#[test]
#[ignore = "needs root, mounts, loop devices, ext4, XFS and Btrfs; run by cargo xtask test"]
fn a_read_only_destination_is_reported() {
    let base = mounted(Family::Ext4, 64);
    fs::create_dir(base.join("dest")).expect("a folder");
    let old = file(&base.join("dest/one"), 9, 1000);
    let before = sha256_file(&old);
    let source = spot();
    sample(&source);
    mount(&["-o", "remount,ro"], &base);
    let said = "Read-only file system";
    for options in [
        &["-f"][..],
        &["--atomic"],
        &["--resume"],
        &["--atomic", "--resume"],
    ] {
        for name in ["one", "new"] {
            let ran = cp(options, &[source.join("one"), base.join("dest").join(name)]);
            let ran = ran.failed_with(&[said]);
            assert_eq!(
                ran.errors.matches(said).count(),
                1,
                "{options:?} {name}: {ran:?}"
            );
        }
    }
    let ran = cp(&["-r"], &[&source, &base.join("dest")]);
    ran.failed_with(&["cannot create directory", said]);
    assert!(sha256_file(&old) == before);
    let out = spot().join("out");
    cp(&["-a"], &[&base, &out]).succeeded();
    assert_same_files(&old, &out.join("dest/one"));
}

#[test]
#[ignore = "needs root, mounts, loop devices, ext4, XFS and Btrfs; run by cargo xtask test"]
fn what_replaces_a_file_has_its_owner() {
    for family in FAMILIES {
        let base = mounted(family, 320);
        let source = file(&base.join("source"), 1, 1000);
        let dest = file(&base.join("dest"), 2, 500);
        chown(&dest, Some(1234), Some(4321)).expect("root may");
        set_mode(&dest, 0o640);
        cp(&["--atomic"], &[&source, &dest]).succeeded();
        let now = fs::metadata(&dest).expect("there");
        assert_eq!(
            (now.uid(), now.gid(), now.mode() & 0o7777),
            (1234, 4321, 0o640)
        );
        assert_eq!(
            fs::read(&dest).expect("reads"),
            content(1, 1000),
            "{family:?}"
        );
        assert!(
            names(&base)
                .iter()
                .all(|name| !name.to_string_lossy().starts_with('.'))
        );
    }
}

/// A chroot often lacks `/proc`, which is needed to give a nameless file its name.
#[test]
#[ignore = "needs root, mounts, loop devices, ext4, XFS and Btrfs; run by cargo xtask test"]
fn atomic_copies_need_no_proc() {
    let at = spot();
    let source = file(&at.join("source"), 1, 300_000);
    fs::write(at.join("old"), "old").expect("room");
    for dest in ["new", "old"] {
        let mut unshared = Command::new("unshare");
        let script = "mount -t tmpfs none /proc && exec \"$0\" cp --atomic source \"$1\"";
        let unshared = unshared
            .args([
                "-m",
                "sh",
                "-c",
                script,
                env!("CARGO_BIN_EXE_underpass"),
                dest,
            ])
            .current_dir(&at);
        run(unshared).assert_success();
        assert_same_files(&source, &at.join(dest));
    }
    assert_eq!(names(&at), ["new", "old", "source"]);
}
