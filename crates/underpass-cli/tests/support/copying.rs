//! `underpass cp` as a process, and helpers to check its results.

#![allow(dead_code, reason = "every test target uses its own part")]

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use underpass_testkit::{ChildProcess, ExitReport, content, run, sha256_file};

pub(crate) const MIB: u64 = 1 << 20;

pub(crate) fn underpass() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_underpass"));
    command.arg("cp").env("LC_ALL", "C.UTF-8");
    command
}

/// Expectations on the end of a copy.
pub(crate) trait CopyReport: Sized {
    /// Expects success without output.
    fn succeeded(self) -> Self;
    /// Expects exit code 1, and each of `words` on standard error.
    fn failed_with(self, words: &[&str]) -> Self;
    /// Returns the objects of `--json`, the summary last.
    fn objects(&self) -> Vec<Value>;
    /// Returns the only name that `--json` reports, and the summary.
    fn one_name(&self) -> (Value, Value);
}

impl CopyReport for ExitReport {
    #[track_caller]
    fn succeeded(self) -> Self {
        self.assert_clean();
        self
    }

    #[track_caller]
    fn failed_with(self, words: &[&str]) -> Self {
        self.assert_failed(1, words);
        self
    }

    #[track_caller]
    fn objects(&self) -> Vec<Value> {
        let object = |line: &str| serde_json::from_str(line).expect("an object per line");
        let objects: Vec<Value> = self.output.lines().map(object).collect();
        assert!(objects.iter().all(Value::is_object), "{self:?}");
        let last = objects.last().expect("a summary");
        assert_eq!(last["type"], "summary");
        objects
    }

    #[track_caller]
    fn one_name(&self) -> (Value, Value) {
        let [name, summary] = self.objects().try_into().expect("a name and a summary");
        assert_eq!(name["type"], "name");
        (name, summary)
    }
}

/// Runs `underpass cp` with options and operands.
#[track_caller]
pub(crate) fn cp<A: AsRef<OsStr>>(options: &[&str], operands: &[A]) -> ExitReport {
    run(underpass().args(options).args(operands))
}

/// Starts a copy without waiting for its end.
#[track_caller]
pub(crate) fn start_cp<A: AsRef<OsStr>>(options: &[&str], operands: &[A]) -> ChildProcess {
    ChildProcess::spawn(underpass().args(options).args(operands))
}

/// Returns the current length of the nameless file that a process has open, as `--atomic` does.
pub(crate) fn nameless_len(process: u32) -> u64 {
    let open = fs::read_dir(format!("/proc/{process}/fd"));
    let open = open.into_iter().flatten().flatten();
    let lens = open.filter_map(|fd| {
        let name = fs::read_link(fd.path()).ok()?;
        let is_nameless = name.to_string_lossy().ends_with(" (deleted)");
        let len = fs::metadata(fd.path()).ok()?.len();
        is_nameless.then_some(len)
    });
    lens.max().unwrap_or(0)
}

/// Writes a new file with content derived from the seed.
pub(crate) fn file(path: &Path, seed: u64, len: u64) -> PathBuf {
    fs::write(path, content(seed, len)).expect("room");
    path.to_owned()
}

pub(crate) fn len(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |metadata| metadata.len())
}

/// Returns the names in a folder, sorted.
pub(crate) fn names(folder: &Path) -> Vec<OsString> {
    let entries = fs::read_dir(folder).expect("a folder");
    let mut names: Vec<_> = entries
        .map(|entry| entry.expect("a name").file_name())
        .collect();
    names.sort();
    names
}

/// Returns mode and content, or link target, of every name in a tree.
pub(crate) fn tree(root: &Path) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
    let mut tree = BTreeMap::new();
    let mut left = vec![PathBuf::new()];
    while let Some(below) = left.pop() {
        let path = root.join(&below);
        let metadata = fs::symlink_metadata(&path).expect("a name");
        let kind = metadata.file_type();
        let content = if kind.is_dir() {
            left.extend(names(&path).iter().map(|name| below.join(name)));
            Vec::new()
        } else if kind.is_symlink() {
            let leads = fs::read_link(&path).expect("a link");
            leads.into_os_string().into_encoded_bytes()
        } else if kind.is_file() {
            sha256_file(&path).1.into_bytes()
        } else {
            Vec::new()
        };
        tree.insert(below, (metadata.mode(), content));
    }
    tree
}

pub(crate) fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("ours");
}

/// Returns the number of bytes in a report of `--json`.
#[track_caller]
pub(crate) fn moved(reported: &Value) -> u64 {
    reported["account"]["bytes"].as_u64().expect("a number")
}
