//! `underpass doctor` between private mounts: two file systems, one that is read-only, one that
//! is full.

use std::fs;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use super::support::{json, pair, paths};

/// A tmpfs on a directory, unmounted when this is dropped.
struct Mounted(TempDir);

impl Mounted {
    fn tmpfs(options: &str) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let mut mount = Command::new("mount");
        mount
            .args(["-t", "tmpfs", "-o", options, "underpass-test"])
            .arg(directory.path());
        assert!(mount.status().expect("mount starts").success());
        Self(directory)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(self.0.path()).status();
        assert!(unmounted.expect("umount starts").success() || std::thread::panicking());
    }
}

#[test]
#[ignore = "needs root and mounts; run by cargo xtask test"]
fn between_two_file_systems_clones_are_refused_and_copies_go_on() {
    let (one, other) = (
        Mounted::tmpfs("size=16m,noatime"),
        Mounted::tmpfs("size=16m"),
    );
    let (report, code) = json(&[one.path(), other.path()]);
    assert_eq!(code, 0);
    let within = &pair(&report, "A → A")["mechanisms"]["clone"];
    assert_eq!(within["errno"], "EOPNOTSUPP");
    assert!(within["meaning"].as_str().unwrap().contains("reflinks"));
    let between = pair(&report, "A → B");
    assert_eq!(between["mechanisms"]["clone"]["errno"], "EXDEV");
    assert!(
        between["mechanisms"]["clone"]["meaning"]
            .as_str()
            .unwrap()
            .contains("two file")
    );
    assert_eq!(between["auto"]["uses"], serde_json::json!(["splice"]));
    let mount = &paths(&report)[0]["file_system"]["mount"];
    assert_eq!(
        (&mount["file_system"], &mount["device"]),
        (&"tmpfs".into(), &"underpass-test".into())
    );
    assert!(mount["options"].as_str().unwrap().contains("noatime"));
    let advice = report["advice"].as_array().unwrap();
    let clones = advice.iter().filter(|advice| advice["about"] == "no-clone");
    assert_eq!(clones.count(), 1, "one line for both: {advice:#?}");
}

#[test]
#[ignore = "needs root and mounts; run by cargo xtask test"]
fn a_read_only_file_system_is_a_source_if_it_has_a_file() {
    let mounted = Mounted::tmpfs("size=16m");
    fs::write(mounted.path().join("file"), vec![7; 3_000_000]).unwrap();
    remount_read_only(mounted.path());
    let (report, code) = json(&[mounted.path()]);
    assert_eq!(code, 0);
    let place = &paths(&report)[0];
    assert_eq!(place["usable"], "source_only");
    assert!(
        place["notes"][0].as_str().unwrap().contains("EROFS"),
        "{place:#}"
    );
    assert!(
        place["notes"][1]
            .as_str()
            .unwrap()
            .contains("1048576 bytes of file"),
        "{place:#}"
    );
    assert_eq!(pair(&report, "A → TCP")["auto"]["bytes"], 1 << 20);
    assert!(
        super::support::pairs(&report)
            .iter()
            .all(|row| row["sink"] != "A")
    );
}

#[test]
#[ignore = "needs root and mounts; run by cargo xtask test"]
fn an_empty_read_only_file_system_is_reported() {
    let mounted = Mounted::tmpfs("size=16m,ro");
    let (report, code) = json(&[mounted.path()]);
    assert_eq!(code, 1);
    assert_eq!(paths(&report)[0]["usable"], "nothing");
    assert_eq!(report["advice"][0]["about"], "path");
}

#[test]
#[ignore = "needs root and mounts; run by cargo xtask test"]
fn a_full_file_system_is_reported_and_left_as_it_was() {
    let mounted = Mounted::tmpfs("size=64k");
    let (report, code) = json(&[mounted.path()]);
    assert_eq!(code, 1);
    let note = paths(&report)[0]["notes"][0].as_str().unwrap();
    assert!(note.contains("ENOSPC"), "{note}");
    assert_eq!(fs::read_dir(mounted.path()).unwrap().count(), 0);
}

#[test]
#[ignore = "needs root and mounts; run by cargo xtask test"]
fn room_for_one_file_only_fails_the_copies_and_not_the_report() {
    let mounted = Mounted::tmpfs("size=1536k");
    let (report, code) = json(&[mounted.path()]);
    assert_eq!(code, 0);
    let copied = &pair(&report, "A → A")["mechanisms"]["read_write"];
    assert_eq!(copied["result"], "failed", "{copied:#}");
    assert!(
        copied["error"].as_str().unwrap().contains("ENOSPC"),
        "{copied:#}"
    );
    assert_eq!(pair(&report, "A → TCP")["auto"]["result"], "works");
}

fn remount_read_only(path: &Path) {
    let mut mount = Command::new("mount");
    mount.args(["-o", "remount,ro"]).arg(path);
    assert!(mount.status().expect("mount starts").success());
}
