//! Trees deeper than descriptors and paths allow, and folders larger than memory.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Command;

use nix::sys::resource::{UsageWho, getrusage};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat, mkdirat, openat, statat};

use underpass_testkit::{content, rerun};

use crate::copying::{CopyReport, cp};
use crate::ground::spot;

const LEVELS: usize = 100_000;
/// Number of names in a folder, and four times as many.
const FILES: [usize; 2] = [50_000, 200_000];
/// Additional memory allowed for four times as many names: 28 bytes for each additional name.
const MORE_KIB: u64 = 4 << 10;

const PART: &str = "UNDERPASS_TEST_WIDE_FOLDER";

const FOLDER: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

fn down(from: impl std::os::fd::AsFd, name: &str) -> OwnedFd {
    openat(from, name, FOLDER, Mode::empty()).expect("a folder")
}

fn new_file(folder: &OwnedFd, name: &str) -> File {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(0o640);
    File::from(openat(folder, name, flags, mode).expect("a new file"))
}

/// Counts the names in a folder, without `.` and `..`.
fn count(folder: &OwnedFd) -> usize {
    let names = rustix::fs::Dir::read_from(folder).expect("a folder to read");
    let names = names.map(|name| name.expect("a name"));
    let dots = |name: &std::ffi::CStr| name == c"." || name == c"..";
    names.filter(|name| !dots(name.file_name())).count()
}

#[test]
#[ignore = "needs root, mounts, loop devices, ext4, XFS and Btrfs; run by cargo xtask test"]
fn a_hundred_thousand_levels_with_few_descriptors() {
    let root = spot();
    let mut at = down(CWD, root.to_str().expect("letters"));
    mkdirat(&at, "source", Mode::from_raw_mode(0o755)).expect("a folder");
    at = down(&at, "source");
    for level in 0..LEVELS {
        mkdirat(&at, "d", Mode::from_raw_mode(0o755)).expect("a folder");
        if level % 10_000 == 77 {
            new_file(&at, "here")
                .write_all(&content(level as u64, 100))
                .expect("room");
        }
        at = down(&at, "d");
    }
    new_file(&at, "bottom").write_all(b"reached").expect("room");
    linkat(&at, "bottom", &at, "again", AtFlags::empty()).expect("a name");
    let limited = Command::new("sh")
        .args([
            "-c",
            "ulimit -n 256; exec \"$0\" cp -a \"$1/source\" \"$1/dest\"",
        ])
        .arg(env!("CARGO_BIN_EXE_underpass"))
        .arg(&root)
        .output()
        .expect("a shell");
    assert!(
        limited.status.success(),
        "{}",
        String::from_utf8_lossy(&limited.stderr)
    );
    let mut at = down(CWD, root.join("dest").to_str().expect("letters"));
    for level in 0..LEVELS {
        if level % 10_000 == 77 {
            assert_eq!(count(&at), 2, "{level}");
            let here = openat(&at, "here", OFlags::RDONLY, Mode::empty()).expect("there");
            let mut there = Vec::new();
            File::from(here).read_to_end(&mut there).expect("reads");
            assert!(there == content(level as u64, 100), "{level}");
        }
        at = down(&at, "d");
    }
    let named = |name| statat(&at, name, AtFlags::SYMLINK_NOFOLLOW).expect("there");
    let (bottom, again) = (named("bottom"), named("again"));
    assert_eq!((bottom.st_ino, bottom.st_nlink), (again.st_ino, 2));
    assert_eq!(count(&at), 2);
}

/// Memory for copying a folder is bounded, and does not grow with the number of names.
#[test]
#[ignore = "needs root, mounts, loop devices, ext4, XFS and Btrfs; run by cargo xtask test"]
fn a_wide_folder_takes_little_memory() {
    // The memory of children is counted per process, so the copy runs in a separate one.
    if let Some(root) = std::env::var_os(PART) {
        return copy_wide(Path::new(&root));
    }
    let root = spot();
    let source = down(CWD, root.to_str().expect("letters"));
    mkdirat(&source, "source", Mode::from_raw_mode(0o755)).expect("a folder");
    let folder = down(&source, "source");
    let mut there = 0..0;
    let used = FILES.map(|files| {
        there = there.end..files;
        for number in there.clone() {
            drop(new_file(&folder, &number.to_string()));
        }
        copied_by_itself(&root)
    });
    let [few, many] = used;
    assert!(many < 64 << 10, "{many} KiB");
    assert!(many < few + MORE_KIB, "{few} KiB, then {many} KiB");
}

/// Runs this test in a separate process that copies the folder, and returns its peak memory in KiB.
fn copied_by_itself(root: &Path) -> u64 {
    let output = rerun(module_path!(), "a_wide_folder_takes_little_memory")
        .env(PART, root)
        .output()
        .expect("this test starts");
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{errors}");
    let used = fs::read_to_string(root.join("used")).expect("the memory used");
    used.parse().expect("a number")
}

fn copy_wide(root: &Path) {
    let (source, dest) = (root.join("source"), root.join("dest"));
    cp(&["-rT", "-j8"], &[&source, &dest]).succeeded();
    let [copied, there] =
        [&dest, &source].map(|path| count(&down(CWD, path.to_str().expect("letters"))));
    assert_eq!(copied, there);
    let used = getrusage(UsageWho::RUSAGE_CHILDREN).expect("counted");
    // In KiB.
    fs::write(root.join("used"), used.max_rss().to_string()).expect("room");
    fs::remove_dir_all(dest).expect("ours");
}

#[test]
#[ignore = "needs root, mounts, loop devices, ext4, XFS and Btrfs; run by cargo xtask test"]
fn many_folders_that_cannot_be_made_stop_no_other_copy() {
    let root = spot();
    let at = down(CWD, root.to_str().expect("letters"));
    for name in ["source", "dest"] {
        mkdirat(&at, name, Mode::from_raw_mode(0o755)).expect("a folder");
    }
    let (source, dest) = (down(&at, "source"), down(&at, "dest"));
    // More entries than the ordered reporter holds follow the first file, in any order.
    let folders: usize = (1 << 16) + 24_000;
    for number in 0..folders {
        let name = number.to_string();
        mkdirat(&source, &name, Mode::from_raw_mode(0o755)).expect("a folder");
        drop(new_file(&dest, &name));
        if number % 3000 == 0 {
            drop(new_file(&source, &format!("file {number}")));
        }
    }
    let files = folders.div_ceil(3000);
    let ran = cp(&["-rT", "-j2"], &[root.join("source"), root.join("dest")]);
    assert_eq!(ran.code, Some(1), "it ends by itself");
    let reported = ran.errors.matches("cannot overwrite non-directory").count();
    assert_eq!(reported, folders);
    assert_eq!(count(&dest), folders + files);
}
