//! Command lines and environments for `cp`, and the record of their results with GNU cp 9.1.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The path of the record, relative to the package.
pub(crate) const RECORD: &str = "tests/data/gnu-cp-9.1.json";

/// Longer output is recorded by its hash.
const RECORDED_BYTES_MAX: usize = 16 << 10;

/// Results by [`UsageCase::name`].
pub(crate) type UsageRecord = BTreeMap<String, Ended>;

/// A command line with its environment.
pub(crate) struct UsageCase {
    pub(crate) words: Vec<OsString>,
    pub(crate) environment: Vec<(&'static str, &'static str)>,
}

impl UsageCase {
    pub(crate) fn name(&self) -> String {
        let words = self.words.iter();
        let words = words.map(|word| word.as_bytes().escape_ascii().to_string());
        let words = Vec::from_iter(words).join(" ");
        let environment = &self.environment;
        match words.len() {
            ..=200 => format!("{environment:?} {words}"),
            length => format!("{environment:?} {:.200}… ({length} bytes)", words),
        }
    }

    pub(crate) fn run(&self, program: &Path) -> Ended {
        run(program, &self.words, &self.environment)
    }
}

/// Returns every command line that must have GNU's result.
pub(crate) fn cases() -> Vec<UsageCase> {
    let mut cases = Vec::new();
    let mut add = |lines: &[Vec<OsString>], environment: &[(&'static str, &'static str)]| {
        cases.extend(lines.iter().map(|words| UsageCase {
            words: words.clone(),
            environment: environment.to_vec(),
        }));
    };
    add(
        &Vec::from_iter(SAME.iter().map(|line| words(line))),
        &[("LC_ALL", "C.UTF-8")],
    );
    let odd = |line: &[&[u8]]| {
        let words = line.iter().map(|word| OsStr::from_bytes(word).to_owned());
        words.collect::<Vec<_>>()
    };
    let odd = Vec::from_iter(ODD.iter().map(|line| odd(line)));
    for locale in ["C.UTF-8", "C", "POSIX"] {
        add(&odd, &[("LC_ALL", locale)]);
    }
    for locale in ["C.UTF-8", "C"] {
        add(&[every_byte()], &[("LC_ALL", locale)]);
    }
    let backups = [
        "-b a b",
        "-bv a b",
        "--backup=simple -v a b",
        "-v -Sx a b",
        "a b",
    ];
    for (name, values) in [
        (
            "VERSION_CONTROL",
            &["", "t", "numbered", "none", "simple", "x", "n"][..],
        ),
        ("SIMPLE_BACKUP_SUFFIX", &["", ".bak", "a/b", "x\ny"]),
    ] {
        for value in values {
            let environment = [("LC_ALL", "C.UTF-8"), (name, *value)];
            add(&backups.map(words), &environment);
        }
    }
    let posix = ["a -v c", "-v a c", "a dangling", "a -- c", "-v -- a -v"];
    let environment = [("POSIXLY_CORRECT", "1"), ("LANG", "C.UTF-8")];
    add(&posix.map(words), &environment);
    for environment in [
        &[("LANG", "C.UTF-8")][..],
        &[("LANG", "C.UTF-8"), ("LC_CTYPE", "C")],
        &[("LANG", "C"), ("LC_ALL", "C.utf8")],
        &[("LC_CTYPE", "C.UTF-8"), ("LC_ALL", "")],
        &[],
    ] {
        add(&[words("--sparse=x a b")], environment);
    }
    cases
}

/// Names that don't exist, with every byte alone, between letters and next to a quote.
fn every_byte() -> Vec<OsString> {
    let mut line: Vec<_> = ["-t", "d", "--"].map(OsString::from).into();
    for byte in (1..=255).filter(|byte| *byte != b'/') {
        let names = [
            vec![byte, b'~', b'n'],
            vec![b'n', byte, b'o'],
            vec![b'\'', byte],
            vec![byte, b'\''],
            vec![b'n', b'\'', byte, b'o'],
            vec![b'n', byte, byte],
            vec![0xc3, byte],
        ];
        line.extend(names.map(OsString::from_vec));
    }
    line
}

impl Ended {
    /// Returns it in the form of the record.
    pub(crate) fn recorded(mut self) -> Self {
        if self.stderr.len() > RECORDED_BYTES_MAX {
            let hash = Sha256::digest(&self.stderr);
            let hash: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
            self.stderr = format!("sha256:{hash}");
        }
        self
    }
}

/// Words separated by blanks; `''` is an empty one. Both programs copy in the same folder, which
/// has files `a` and `b`, folders `d` (with `d/x`) and `e`, links `l` (to `a`) and `dangling`.
const SAME: &[&str] = &[
    // Operands
    "",
    "a",
    "-t d",
    "-T a",
    "-T a b d",
    "-T a b d e",
    "a b",
    "a c",
    "a d",
    "a b d",
    "a b nodir",
    "a b a",
    "'' ''",
    "a ''",
    "'' a",
    "-- a c",
    "--",
    "-- -a",
    "- c",
    "a -",
    "a/ c",
    "a d/",
    "a c/",
    "nox",
    "nox c",
    "nox d",
    "nox a d",
    "a nod/c",
    "a b/c",
    "a d/x/",
    "-t a b",
    "-t nox a",
    "-t '' a",
    "-t b/x a",
    "-td a b",
    "-td -te a",
    "-t d -T a",
    "-T -t d a b",
    "--target-directory",
    "--target-directory=d a",
    "--targ=d a b",
    "--target d a",
    "-t",
    "a b -t d",
    "a -v c",
    "-T a d",
    "-T d e",
    "-rT a d",
    "-rT d a",
    // Unknown options and abbreviations
    "--foo",
    "--foo=bar a b",
    "-y a c",
    "-ay a c",
    "-1",
    "-vvvq a c",
    "--x a",
    "--re a",
    "--rec d c",
    "--ref a",
    "--rem a b",
    "--s",
    "--sp",
    "--sp=auto a c",
    "--su",
    "--sy",
    "--sy a c",
    "--no",
    "--no a",
    "--no-c a b",
    "--no-d l c",
    "--no-p",
    "--no-t a d",
    "--o",
    "--p",
    "--pa",
    "--pa a c",
    "--path a d",
    "--par d/x e",
    "--pr a c",
    "--pre=",
    "--a a",
    "--ar d c",
    "--at a c",
    "--b a b",
    "--back=t a b",
    "--c a",
    "--cop a c",
    "--con a c",
    "--f a b",
    "--l a c",
    "--i",
    "--v",
    "--ver",
    "--verb a c",
    "--h=1",
    "--help=1",
    "--version=x",
    "--t",
    "--u a b",
    "---",
    "--S",
    "--R d c",
    "--Recursive d c",
    // Missing or superfluous arguments
    "-S",
    "--suffix",
    "--suffix= a b",
    "--sparse",
    "--sparse a",
    "--no-preserve",
    "--no-preserve a c",
    "--force=1 a c",
    "--archive= a c",
    "--archive=foo a b",
    "--s=foo a",
    "--st=foo a b",
    "--attributes-only=1",
    "--link=x",
    "--verbose=x a c",
    "--recursive=yes",
    "-r=1 d c",
    "--symbolic-link=1",
    "--one-file-system=1",
    "--parents=a",
    "--path=a",
    "--p=x",
    // Invalid words
    "--preserve= a c",
    "--preserve=foo a c",
    "--preserve=m a c",
    "--preserve=mode,,links a c",
    "--preserve=l,c a c",
    "--preserve=mode, a c",
    "--preserve=,mode a c",
    "--preserve=Mode a c",
    "--preserve=mode,foo,bar a c",
    "--preserve a c",
    "--preserve=all a c",
    "--preserve=context,all a c",
    "--no-preserve= a c",
    "--no-preserve=foo a c",
    "--no-preserve=mode a c",
    "--no-preserve=context a c",
    "--no-preserve=all a c",
    "--reflink=foo a c",
    "--reflink= a c",
    "--reflink=a a c",
    "--reflink=n a c",
    "--reflink=alwayss a c",
    "--sparse= a c",
    "--sparse=x a c",
    "--sparse=a a c",
    "--sparse=n a c",
    "--backup=x a c",
    "--backup= a b",
    "--backup=n a b",
    "--backup=no a b",
    "--backup=si a b",
    "--backup=ni a b",
    "--backup=t a b",
    "--backup=o a b",
    "--backup=nu a b",
    // Contradictions
    "-ls a c",
    "-sl a c",
    "--link --symbolic-link a",
    "-bni b a",
    "--reflink=always --sparse=never a c",
    "--reflink --sparse=always a c",
    "--sparse=always --reflink a c",
    "--reflink=auto --sparse=never a c",
    "--reflink=never --sparse=always a c",
    "--parents a c",
    "--parents a b",
    "--parents -T a d",
    "--parents a",
    "--parents a b c",
    "--parents",
    "--preserve=context a c",
    "-Z --preserve=context a c",
    "-Z a c",
    "--context a c",
    "--context= a c",
    "--context=foo a c",
    "--context=x --context=y a",
    "--context=x -Z",
    "--context=x --foo",
    "-a --preserve=context a c",
    "--preserve=context -ls a c",
    "-ls --preserve=context a c",
    "--backup=x -ls a c",
    "--backup=x --reflink --sparse=never a c",
    "--backup=x --preserve=context a c",
    "--backup=x --sparse=x a c",
    "--sparse=x --backup=x a c",
    // Successful
    "-v a c",
    "-v a d",
    "-v a b d",
    "-vr d c",
    "-vr d e",
    "-av d c",
    "-bv a b",
    "-v --backup=t a b",
    "-v -S .old a b",
    "-vb -S .old a b",
    "-v --suffix=x/y a b",
    "-vn a b",
    "-v --remove-destination a b",
    "-vs a c",
    "-vl a c",
    "-vf a b",
    "-vd l c",
    "-vL l c",
    "-vP l c",
    "-vH l c",
    "-vdr l c",
    "-v l c",
    "-vu a b",
    "-v --parents d/x e",
    "-vr --parents d e",
    "-v --attributes-only a c",
    "-vp a c",
    "-vp --no-preserve=mode a c",
    "-vx a c",
    "-vrx d c",
    "-v --copy-contents -r d c",
    "-vlf a b",
    "-vsf a c",
    "-vRL d c",
    "-vR d c",
    "-vr d/. c",
    // Rejected
    "a a",
    "a l",
    "l a",
    "-b a a",
    "-f a a",
    "-bf a a",
    "-r d d",
    "-r d d/x",
    "-r e e/c",
    "-r d a",
    "a dangling",
    "dangling c",
    "-r dangling c",
    "-rL dangling c",
    "d c",
    "d e",
    "-r a d/x",
    "a a d",
    "-r d d e",
    "a ./a d",
    "-s a d",
    "-l a b",
    "-s a b",
    "-l d c",
    "a d/x e",
    "a b dangling",
    "-i a b",
    "-iv a b",
    "-in a b",
    "-ni a b",
    "a . ",
    "-r / d/x",
    "--backup=simple a~ a",
    "-b a a~",
    "-u b a",
    "-r d -t nox",
    "d nox c",
];

/// Words with bytes other than letters.
const ODD: &[&[&[u8]]] = &[
    &["--fo\no".as_bytes(), b"a"],
    &[b"-\x01"],
    &["-é".as_bytes(), b"a", b"c"],
    &["--é".as_bytes()],
    &[b"--\xff\x80", b"a"],
    &[b"--preserve=x'y", b"a", b"c"],
    &["--preserve=‘a’".as_bytes(), b"a", b"c"],
    &[b"--sparse=\n\t\x7f\\", b"a", b"c"],
    &[b"--reflink=\xff", b"a", b"c"],
    &["--backup=é".as_bytes(), b"a", b"c"],
    &[b"it's"],
    &[b"-T", b"a", b"b", b"x\ny"],
    &[b"no such", b"c"],
    &[b"\x1b[31m", b"c"],
    &["né".as_bytes(), "c".as_bytes()],
    &[b"n\xe9", b"c"],
    &[b"-v", b"a", b"x\ny'z"],
    &[b"-v", b"a", b"it's"],
    &[b"-v", b"a", "ü'".as_bytes()],
    &[b"-vb", b"a", b"b", b"-S \x01"],
];

#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    left: BTreeMap<PathBuf, String>,
}

/// All files have the same modification time, as in the record, since `-u` compares it.
pub(crate) fn scratch() -> tempfile::TempDir {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let written = SystemTime::now();
    std::fs::create_dir(path("d")).expect("room");
    std::fs::create_dir(path("e")).expect("room");
    for (name, content) in [("a", "A"), ("b", "B"), ("d/x", "X")] {
        std::fs::write(path(name), content).expect("room");
        let file = File::options().write(true).open(path(name));
        let file = file.expect("a file just written");
        file.set_modified(written).expect("a time");
    }
    symlink("a", path("l")).expect("room");
    symlink("nowhere", path("dangling")).expect("room");
    folder
}

/// Collects the contents of a folder and its subfolders.
fn contents(folder: &Path, below: &Path, found: &mut BTreeMap<PathBuf, String>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let entry = entry.expect("an entry");
        let (path, name) = (entry.path(), below.join(entry.file_name()));
        let kind = entry.file_type().expect("a kind");
        let what = if kind.is_dir() {
            contents(&path, &name, found);
            "a folder".to_owned()
        } else if kind.is_symlink() {
            let leads_to = std::fs::read_link(&path).expect("a link");
            format!("leads to {}", leads_to.display())
        } else {
            std::fs::read_to_string(&path).unwrap_or_else(|error| error.to_string())
        };
        found.insert(name, what);
    }
}

pub(crate) fn run(program: &Path, words: &[OsString], environment: &[(&str, &str)]) -> Ended {
    let folder = scratch();
    let output = Command::new(program)
        .arg0("cp")
        .args(words)
        .current_dir(&folder)
        .env_clear()
        .envs(environment.iter().copied())
        .stdin(Stdio::null())
        .output()
        .expect("starts");
    let mut left = BTreeMap::new();
    contents(folder.path(), Path::new(""), &mut left);
    Ended {
        code: output.status.code(),
        stdout: output.stdout.escape_ascii().to_string(),
        stderr: output.stderr.escape_ascii().to_string(),
        left,
    }
}

pub(crate) fn words(line: &str) -> Vec<OsString> {
    let word = |word| match word {
        "''" => OsString::new(),
        word => OsString::from(word),
    };
    line.split_whitespace().map(word).collect()
}
