//! Calls that fail or return wrong counts, and counts of calls.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::copying::{CopyReport, cp, file, names};
use underpass_testkit::{ExitReport, assert_same_files, disk_folder, run, strace};

const MIB: u64 = 1 << 20;

/// Runs a copy under strace; returns its exit report and the log.
fn traced(trace: &[&str], options: &[&str], operands: &[PathBuf]) -> (ExitReport, String) {
    let log = tempfile::NamedTempFile::new().expect("a log");
    let mut strace = strace(log.path(), trace);
    let cp = strace.args([env!("CARGO_BIN_EXE_underpass"), "cp"]);
    let report = run(cp.args(options).args(operands));
    let log = fs::read_to_string(log.path()).expect("a log");
    (report, log)
}

#[test]
#[ignore = "needs root, strace, mounts, loop devices, ext4, XFS and Btrfs; run by cargo xtask test"]
fn a_kernel_that_only_claims_to_have_copied_is_found_by_verify() {
    let folder = disk_folder();
    let path = |name: &str| folder.path().join(name);
    let operands = [file(&path("source"), 1, 20 * MIB), path("dest")];
    // The first call probes, the third is the second one for the file.
    let lie = format!("inject=copy_file_range:retval={}:when=3", 8 * MIB);
    let trace = ["trace=copy_file_range", &lie];
    let options = ["--only=copy_range", "--atomic", "--verify"];
    let (ran, log) = traced(&trace, &options, &operands);
    assert!(log.contains("(INJECTED)"), "{log}");
    let place = format!("dest' differs from its source at byte {}", 8 * MIB);
    ran.failed_with(&[&place]);
    assert_eq!(names(folder.path()), ["source"], "it never gets its name");
    let (ran, _) = traced(&trace, &["--only=copy_range"], &operands);
    assert_eq!(ran.code, Some(0), "nobody else looks: {ran:?}");
    let resumed = cp(&["--resume", "--json"], &operands).succeeded();
    assert_eq!(resumed.one_name().0["resumed"], 8 * MIB);
    assert_same_files(&operands[0], &operands[1]);
}

/// An open file that has another inode number than its name is another one, unless it has another
/// number at each look, on whatever file system.
#[test]
#[ignore = "needs root, strace, mounts, loop devices, ext4, XFS and Btrfs; run by cargo xtask test"]
fn only_looks_at_an_open_file_prove_that_inode_numbers_change() {
    let folder = disk_folder();
    let path = |name: &str| folder.path().join(name);
    let source = file(&path("source"), 1, 10);
    let seen = fs::metadata(&source).expect("a file");
    let hex = |bytes: &[u8]| {
        bytes
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>()
    };
    // `st_dev` and `st_ino`; up to `stx_ino`.
    let fstat = [seen.dev().to_ne_bytes(), u64::MAX.to_ne_bytes()].concat();
    let statx = [&[0xff, 7, 0, 0][..], &[0; 28], &7_u64.to_ne_bytes()].concat();
    let fstat = format!("inject=fstat:poke_exit=@arg2={}", hex(&fstat));
    let statx = format!("inject=statx:poke_exit=@arg5={}", hex(&statx));
    let other = statx.clone() + ":when=1";
    for (numbers, is_copied) in [(&*statx, false), (&*other, true)] {
        let log = tempfile::NamedTempFile::new().expect("a log");
        let mut strace = strace(log.path(), &["trace=fstat,statx", &fstat, numbers]);
        strace.arg("-P").arg(&source);
        let cp = strace.args([env!("CARGO_BIN_EXE_underpass"), "cp"]);
        let ran = run(cp.args([&source, &path("dest")]));
        match is_copied {
            true => assert_same_files(&source, &path("dest")),
            false => ran.assert_failed(1, &["source', as it was replaced"]),
        }
    }
}

#[test]
#[ignore = "needs root, strace, mounts, loop devices, ext4, XFS and Btrfs; run by cargo xtask test"]
fn a_quota_that_is_used_up_is_reported_and_atomic_leaves_nothing() {
    let folder = disk_folder();
    let path = |name: &str| folder.path().join(name);
    let operands = [file(&path("source"), 1, 20 * MIB), path("dest")];
    for call in ["copy_file_range", "sendfile", "splice", "pwrite64"] {
        let only = match call {
            "copy_file_range" => "--only=copy_range",
            "sendfile" => "--only=sendfile",
            "splice" => "--only=splice",
            _ => "--only=read_write",
        };
        let fault = format!("inject={call}:error=EDQUOT:when=4");
        let trace = ["trace=copy_file_range,sendfile,splice,pwrite64", &fault];
        let (ran, log) = traced(&trace, &[only, "--atomic"], &operands);
        if !log.contains("(INJECTED)") {
            panic!("{call} was not called four times: {log}");
        }
        let ran = ran.failed_with(&["dest': Disk quota exceeded"]);
        assert_eq!(ran.errors.matches("quota").count(), 1, "{ran:?}");
        assert_eq!(names(folder.path()), ["source"], "{call}");
    }
}

/// Returns the number of syncs of files and of file systems.
fn syncs(options: &[&str], from: &Path, to: &Path) -> (usize, usize) {
    let operands = [from.to_owned(), to.to_owned()];
    let trace = ["trace=fsync,fdatasync,syncfs,sync"];
    let (ran, log) = traced(&trace, options, &operands);
    ran.succeeded();
    let count = |call: &str| log.lines().filter(|line| line.contains(call)).count();
    assert_eq!(count("fdatasync(") + count(" sync("), 0);
    (count(" fsync("), count(" syncfs("))
}

#[test]
#[ignore = "needs root, strace, mounts, loop devices, ext4, XFS and Btrfs; run by cargo xtask test"]
fn what_is_to_be_on_disk_is_synced_and_nothing_else() {
    let folder = disk_folder();
    let path = |name: &str| folder.path().join(name);
    fs::create_dir_all(path("tree/a/b")).expect("folders");
    fs::create_dir_all(path("empty/a")).expect("folders");
    for number in 0..5 {
        file(&path(&format!("tree/a/{number}")), number, 1000);
    }
    let one = path("tree/a/0");
    for (number, (option, of_file, of_tree, of_empty)) in [
        ("-f", (0, 0), (0, 0), (0, 0)),
        ("--fsync", (1, 0), (5, 0), (0, 0)),
        ("--fsync=file", (1, 0), (5, 0), (0, 0)),
        // Every folder, and the parent of the copy.
        ("--fsync=dir", (2, 0), (5 + 3 + 1, 0), (2 + 1, 0)),
        ("--fsync=end", (0, 1), (0, 1), (0, 1)),
    ]
    .into_iter()
    .enumerate()
    {
        let dest = |kind: &str| path(&format!("{kind}{number}"));
        assert_eq!(syncs(&[option], &one, &dest("one")), of_file, "{option}");
        let tree = syncs(&["-r", option], &path("tree"), &dest("tree"));
        assert_eq!(tree, of_tree, "{option}");
        let empty = syncs(&["-r", option], &path("empty"), &dest("empty"));
        assert_eq!(empty, of_empty, "{option}");
        let atomic = syncs(&[option, "--atomic"], &one, &dest("one"));
        assert_eq!(atomic, of_file, "{option} --atomic");
    }
}
