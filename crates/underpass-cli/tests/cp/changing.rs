//! Files that change while they are copied.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;

use crate::copying::{CopyReport, MIB, cp, file, len, start_cp};
use underpass_testkit::{content, disk_folder};

/// Slow enough for the copy to be interrupted in the middle.
const SLOW: [&str; 2] = ["--reflink=never", "--bwlimit=8M"];

#[test]
fn a_file_that_was_changed_behind_the_copy_is_found_by_verify() {
    let folder = disk_folder();
    let path = |name| folder.path().join(name);
    let source = file(&path("source"), 1, 4 * MIB);
    let dest = path("dest");
    let options = [SLOW[0], SLOW[1], "--verify"];
    let mut copying = start_cp(&options, &[&source, &dest]);
    copying.until(|| len(&dest) >= 2 * MIB);
    let writer = File::options().write(true).open(&source).expect("ours");
    writer.write_all_at(&[0], MIB + 77).expect("room");
    let place = format!("differs from its source at byte {}", MIB + 77);
    copying.end().failed_with(&["dest", &place]);
}

#[test]
fn a_name_that_leads_elsewhere_by_then_is_found_by_verify() {
    let folder = disk_folder();
    let path = |name| folder.path().join(name);
    let options = [SLOW[0], SLOW[1], "--verify"];
    let dest = path("dest");
    let changes: [(&dyn Fn(), &str); 3] = [
        (
            &|| fs::remove_file(&dest).expect("ours"),
            "cannot stat 'dest': No such file or directory",
        ),
        (
            &|| fs::rename(path("other"), &dest).expect("ours"),
            "'dest', as it was replaced",
        ),
        (
            &|| fs::rename(path("other"), path("source")).expect("ours"),
            "'source', as it was replaced",
        ),
    ];
    for (change, said) in changes {
        let source = file(&path("source"), 1, 4 * MIB);
        file(&path("other"), 2, 4 * MIB);
        let _ = fs::remove_file(&dest);
        let mut copying = start_cp(&options, &[&source, &dest]);
        copying.until(|| len(&dest) >= MIB);
        change();
        let (before, after) = said.split_once('\'').expect("a name");
        let (name, after) = after.split_once('\'').expect("a name");
        let said = format!("{before}'{}'{after}", path(name).display());
        copying.end().failed_with(&[&said]);
    }
}

#[test]
fn equal_files_are_verified_and_hashed() {
    let folder = disk_folder();
    let path = |name| folder.path().join(name);
    let source = file(&path("source"), 1, 3 * MIB + 1);
    let options = ["--verify", "--json"];
    let ran = cp(&options, &[&source, &path("dest")]).succeeded();
    let (name, summary) = ran.one_name();
    assert_eq!(summary["verified"], 1);
    let hash = name["blake3"].as_str().expect("a hash");
    assert!(hash.len() == 64 && hash.bytes().all(|digit| digit.is_ascii_hexdigit()));
    let ran = cp(&options, &[&path("dest"), &path("again")]).succeeded();
    assert_eq!(ran.one_name().0["blake3"], hash, "of the content alone");
    file(&path("other"), 2, 3 * MIB + 1);
    let ran = cp(&options, &[&path("other"), &path("again")]).succeeded();
    assert_ne!(ran.one_name().0["blake3"], hash);
}

#[test]
fn a_file_that_grows_is_copied_as_it_was_or_longer() {
    let folder = disk_folder();
    let path = |name| folder.path().join(name);
    let source = file(&path("source"), 1, 3 * MIB);
    let dest = path("dest");
    let mut copying = start_cp(&SLOW, &[&source, &dest]);
    let mut writer = File::options().append(true).open(&source).expect("ours");
    let mut seed = 2;
    copying.until(|| {
        writer.write_all(&content(seed, 4096)).expect("room");
        seed += 1;
        len(&dest) >= 2 * MIB
    });
    let ran = copying.end();
    assert_eq!((ran.code, ran.errors.as_str()), (Some(0), ""));
    let (got, all) = (
        fs::read(&dest).expect("reads"),
        fs::read(&source).expect("reads"),
    );
    assert!(got.len() as u64 >= 3 * MIB, "{}", got.len());
    assert!(all.starts_with(&got), "what was there, and nothing else");
}

#[test]
fn a_file_that_shrinks_is_an_error() {
    let folder = disk_folder();
    let path = |name| folder.path().join(name);
    let source = file(&path("source"), 1, 8 * MIB);
    let dest = path("dest");
    let mut copying = start_cp(&SLOW, &[&source, &dest]);
    copying.until(|| len(&dest) >= MIB);
    let writer = File::options().write(true).open(&source).expect("ours");
    writer.set_len(3 * MIB).expect("shorter");
    copying
        .end()
        .failed_with(&["source' became shorter while it was copied"]);
    let got = fs::read(&dest).expect("what was copied");
    assert!(content(1, 3 * MIB).starts_with(&got), "and nothing else");
}
