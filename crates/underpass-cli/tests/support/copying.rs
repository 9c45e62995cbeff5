//! `underpass cp` as a process, and what is needed to judge what it has done.

#![allow(dead_code, reason = "every test target uses its own part")]

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use sha2::{Digest, Sha256};

/// How long anything may take before the test has failed.
const HANG: Duration = Duration::from_secs(60);

pub(crate) const MIB: u64 = 1 << 20;

/// A folder that vanishes, on the disk that the build is on.
pub(crate) fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder")
}

pub(crate) fn underpass() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_underpass"));
    command.arg("cp").env("LC_ALL", "C.UTF-8");
    command
}

/// How a copy ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) said: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            said: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl Ran {
    /// All done, and nothing said.
    #[track_caller]
    pub(crate) fn succeeded(self) -> Self {
        assert_eq!((self.code, self.said.as_str()), (Some(0), ""), "{self:?}");
        self
    }

    /// Exit code 1, and every one of `words` on standard error.
    #[track_caller]
    pub(crate) fn failed_with(self, words: &[&str]) -> Self {
        assert_eq!(self.code, Some(1), "{self:?}");
        for word in words {
            assert!(self.said.contains(word), "{word} in {self:?}");
        }
        self
    }

    /// The objects of `--json`, the summary last.
    #[track_caller]
    pub(crate) fn objects(&self) -> Vec<Value> {
        let object = |line: &str| serde_json::from_str(line).expect("an object per line");
        let objects: Vec<Value> = self.out.lines().map(object).collect();
        assert!(objects.iter().all(Value::is_object), "{self:?}");
        let last = objects.last().expect("a summary");
        assert_eq!(last["type"], "summary");
        objects
    }

    /// The only name that `--json` tells of, and the summary.
    #[track_caller]
    pub(crate) fn one_name(&self) -> (Value, Value) {
        let [name, summary] = self.objects().try_into().expect("a name and a summary");
        assert_eq!(name["type"], "name");
        (name, summary)
    }
}

/// Runs `underpass cp` with options and operands.
pub(crate) fn cp<A: AsRef<OsStr>>(options: &[&str], operands: &[A]) -> Ran {
    let mut command = Command::new("timeout");
    let limit = HANG.as_secs().to_string();
    command.args([
        "--signal=KILL",
        &limit,
        env!("CARGO_BIN_EXE_underpass"),
        "cp",
    ]);
    let command = command
        .env("LC_ALL", "C.UTF-8")
        .args(options)
        .args(operands);
    command.output().expect("timeout starts").into()
}

/// A copy that goes on.
pub(crate) struct Copying(Child);

impl Copying {
    pub(crate) fn start<A: AsRef<OsStr>>(options: &[&str], operands: &[A]) -> Self {
        let mut command = underpass();
        command.args(options).args(operands);
        Self::of(command)
    }

    pub(crate) fn of(mut command: Command) -> Self {
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Self(child.spawn().expect("the tool starts"))
    }

    pub(crate) fn is_over(&mut self) -> bool {
        self.0.try_wait().expect("a child").is_some()
    }

    /// Waits for something that the copy does.
    #[track_caller]
    pub(crate) fn until(&mut self, mut happened: impl FnMut() -> bool) {
        wait(|| {
            let happened = happened();
            assert!(happened || !self.is_over(), "it ended before that");
            happened
        });
    }

    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.0.id().try_into().expect("a process id"));
        kill_process(pid.expect("a process"), signal).expect("it is there");
    }

    /// `kill -9`.
    pub(crate) fn kill(mut self) {
        self.0.kill().expect("it is there");
        let status = self.0.wait().expect("a child");
        assert_eq!(status.code(), None, "it was killed, and not at its end");
    }

    pub(crate) fn end(self) -> Ran {
        self.0.wait_with_output().expect("a child").into()
    }
}

/// What a process has open without a name, as `--atomic` has: how long that is by now.
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

/// Looks again and again; nobody tells of what is waited for here.
#[track_caller]
pub(crate) fn wait(mut happened: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !happened() {
        assert!(begin.elapsed() < HANG, "it did not happen");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// No byte of it is 0, and no 8 are like the others.
pub(crate) fn content(seed: u64, len: u64) -> Vec<u8> {
    let len = usize::try_from(len).expect("fits into memory");
    let mut state = seed;
    let mut content = Vec::with_capacity(len + 8);
    while content.len() < len {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        content.extend_from_slice(&(state | 0x0101_0101_0101_0101).to_le_bytes());
    }
    content.truncate(len);
    content
}

/// A new file with such content.
pub(crate) fn file(path: &Path, seed: u64, len: u64) -> PathBuf {
    fs::write(path, content(seed, len)).expect("room");
    path.to_owned()
}

pub(crate) fn len(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |metadata| metadata.len())
}

/// Length and hash of what can be read.
pub(crate) fn hash(path: &Path) -> (u64, Vec<u8>) {
    let mut file = File::open(path).expect("a file to read");
    let (mut hash, mut len, mut buffer) = (Sha256::new(), 0, vec![0; 1 << 20]);
    loop {
        match file.read(&mut buffer).expect("reads") {
            0 => return (len, hash.finalize().to_vec()),
            read => {
                hash.update(&buffer[..read]);
                len += read as u64;
            }
        }
    }
}

/// Two files are equal; told without their bytes.
#[track_caller]
pub(crate) fn assert_equal(one: &Path, other: &Path) {
    assert!(hash(one) == hash(other), "{one:?} and {other:?} differ");
}

/// Names in a folder, sorted.
pub(crate) fn names(folder: &Path) -> Vec<OsString> {
    let entries = fs::read_dir(folder).expect("a folder");
    let mut names: Vec<_> = entries
        .map(|entry| entry.expect("a name").file_name())
        .collect();
    names.sort();
    names
}

/// What a tree is: of every name its kind and mode, and its content or where it leads to.
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
            hash(&path).1
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

/// The bytes that an account of `--json` names.
#[track_caller]
pub(crate) fn moved(told: &Value) -> u64 {
    told["account"]["bytes"].as_u64().expect("a number")
}
