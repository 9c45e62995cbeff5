//! `--resume`: bytes that are present and correct stay; nothing else is trusted.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::process::Signal;

use crate::copying::{CopyReport, MIB, cp, file, len, moved, nameless_len, names, start_cp, tree};
use underpass_testkit::{assert_same_files, content, disk_folder, sha256_file};

/// Resumes the copy to `dest`. Returns the bytes that stayed and the bytes that were copied.
#[track_caller]
fn go_on(options: &[&str], source: &Path, dest: &Path) -> (u64, u64) {
    let options = [&["--resume", "--json"], options].concat();
    let (name, summary) = cp(&options, &[source, dest]).succeeded().one_name();
    assert_same_files(source, dest);
    let resumed = name["resumed"].as_u64().unwrap_or(0);
    assert_eq!(summary["resumed_bytes"], resumed);
    (resumed, moved(&name))
}

#[test]
fn a_copy_that_was_killed_is_gone_on_with() {
    let folder = disk_folder();
    let path = |name| folder.path().join(name);
    let len_all = 24 * MIB + 12_345;
    let source = file(&path("source"), 1, len_all);
    let dest = path("dest");
    // The first part comes immediately, the others after a tenth of a second each.
    for share in [1, 5, 9, 14, 20] {
        let options = ["--resume", "--reflink=never", "--bwlimit=40M"];
        let mut copying = start_cp(&options, &[&source, &dest]);
        copying.until(|| len(&dest) >= share * MIB);
        copying.kill();
        let there = fs::read(&dest).expect("a part");
        assert!(content(1, len_all).starts_with(&there), "a true beginning");
    }
    let there = len(&dest);
    assert!((20 * MIB..len_all).contains(&there), "{there}");
    let (resumed, copied) = go_on(&["--reflink=never"], &source, &dest);
    assert_eq!((resumed, copied), (there, len_all - there));
}

#[test]
fn only_a_beginning_that_is_right_stays() {
    let folder = disk_folder();
    let path = |name| folder.path().join(name);
    let all = 3 * MIB;
    let source = file(&path("source"), 1, all);
    let right = content(1, all);
    let mut wrong = right.clone();
    wrong[MIB as usize + 5] ^= 1;
    let longer = [right.clone(), content(7, MIB)].concat();
    let (part, half) = (&right[..2 * MIB as usize], &wrong[..2 * MIB as usize]);
    for (name, there, stays) in [
        ("a part", part, 2 * MIB),
        ("a part that differs", half, MIB + 5),
        ("equal size", wrong.as_slice(), MIB + 5),
        ("equal", right.as_slice(), all),
        ("longer", longer.as_slice(), all),
        ("another file", &content(9, MIB), 0),
        ("empty", &[], 0),
    ] {
        let dest = path(name);
        fs::write(&dest, there).expect("room");
        let (resumed, copied) = go_on(&["--reflink=never", "--verify"], &source, &dest);
        assert_eq!((resumed, copied), (stays, all - stays), "{name}");
    }
}

#[test]
fn an_atomic_copy_is_gone_on_with_beside_the_old_file() {
    let folder = disk_folder();
    let path = |name| folder.path().join(name);
    let source = file(&path("source"), 1, 16 * MIB);
    let dest = file(&path("dest"), 2, 1000);
    let old = sha256_file(&dest);
    let options = ["--atomic", "--resume", "--reflink=never", "--bwlimit=20M"];
    let mut copying = start_cp(&options, &[&source, &dest]);
    let part = || {
        let is_part =
            |name: &std::ffi::OsString| name.to_string_lossy().starts_with(".underpass-part-");
        names(folder.path())
            .into_iter()
            .find(is_part)
            .map(|name| folder.path().join(name))
    };
    copying.until(|| part().is_some_and(|part| len(&part) >= 4 * MIB));
    assert_eq!(
        nameless_len(copying.id()),
        0,
        "what has no name can't be found again"
    );
    copying.kill();
    assert!(sha256_file(&dest) == old, "the old file is whole");
    let there = len(&part().expect("what is gone on with"));
    let (resumed, copied) = go_on(&["--atomic", "--reflink=never"], &source, &dest);
    assert_eq!((resumed, copied), (there, 16 * MIB - there));
    assert_eq!(names(folder.path()), ["dest", "source"]);
}

#[test]
fn what_was_there_before_counts_in_what_is_there() {
    let folder = disk_folder();
    let path = |name| folder.path().join(name);
    let source = file(&path("source"), 1, 32 * MIB);
    let dest = path("dest");
    fs::write(&dest, content(1, 8 * MIB)).expect("room");
    let options = ["--resume", "--reflink=never", "--bwlimit=8M"];
    let mut copying = start_cp(&options, &[&source, &dest]);
    copying.until(|| len(&dest) >= 10 * MIB);
    copying.signal(Signal::INT);
    let ran = copying.end();
    let reported = format!("' after {} bytes (to '", len(&dest));
    assert!(ran.errors.contains(&reported), "{reported} in {ran:?}");
}

#[test]
fn a_tree_is_gone_on_with_file_by_file() {
    let folder = disk_folder();
    let path = |name: &str| folder.path().join(name);
    fs::create_dir_all(path("source/below")).expect("folders");
    for number in 0..20 {
        file(&path(&format!("source/below/{number}")), number, 100_000);
    }
    let operands = [path("source"), path("dest")];
    cp(&["-rT"], &operands).succeeded();
    fs::remove_file(path("dest/below/3")).expect("there");
    file(&path("dest/below/5"), 99, 100_000);
    let ran = cp(&["-rT", "--resume", "--json"], &operands).succeeded();
    assert_same_files(&path("source/below/3"), &path("dest/below/3"));
    assert_same_files(&path("source/below/5"), &path("dest/below/5"));
    let summary = ran.objects().pop().expect("a summary");
    assert_eq!(moved(&summary), 200_000);
    assert_eq!(summary["resumed_bytes"], 1_800_000);
}

#[test]
fn names_of_one_file_stay_with_their_content_and_no_other_file_gets_it() {
    for jobs in ["-j1", "-j4"] {
        let folder = disk_folder();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir(path("source")).expect("a folder");
        for (one, other) in [("a", "c"), ("b", "d"), ("e", "f")] {
            file(&path("source").join(one), u64::from(one == "e"), MIB);
            fs::hard_link(path("source").join(one), path("source").join(other)).expect("a name");
        }
        let operands = [path("source"), path("dest")];
        let resume = || {
            let ran = cp(&["-aT", "--resume", "--json", jobs], &operands).succeeded();
            assert!(tree(&path("source")) == tree(&path("dest")), "{jobs}");
            let inode = |name: &str| fs::metadata(path("dest").join(name)).expect("there").ino();
            let [a, b, c, d, e, f] = ["a", "b", "c", "d", "e", "f"].map(inode);
            assert!(a == c && b == d && e == f && a != b, "{jobs}");
            let summary = ran.objects().pop().expect("a summary");
            let resumed = summary["resumed_bytes"].as_u64().expect("a number");
            (moved(&summary) / MIB, resumed / MIB, a)
        };
        assert_eq!(resume().0, 3, "all is new");
        let (copied, resumed, inode) = resume();
        assert_eq!((copied, resumed), (0, 3), "all is there");
        assert_eq!(resume().2, inode, "and stays");
        let ran = cp(&["-aTv", "--resume", jobs], &operands).succeeded();
        assert!(!ran.output.contains("removed"), "{ran:?}");
        // Equal content, and another file.
        for (one, other) in [("a", "b"), ("c", "d")] {
            fs::remove_file(path("dest").join(other)).expect("a copy");
            fs::hard_link(path("dest").join(one), path("dest").join(other)).expect("a name");
        }
        fs::remove_file(path("dest/c")).expect("a copy");
        fs::remove_file(path("dest/d")).expect("a copy");
        // Where a name that is missing comes first, that is the copy.
        assert!((1..=2).contains(&resume().0), "{jobs}");
        // What has a name elsewhere keeps its content there.
        fs::write(path("dest/e"), "other content").expect("room");
        fs::remove_file(path("dest/f")).expect("a copy");
        fs::hard_link(path("dest/e"), path("elsewhere")).expect("a name");
        assert_eq!(resume().0, 1);
        assert_eq!(
            fs::read(path("elsewhere")).expect("there"),
            b"other content"
        );
    }
}
