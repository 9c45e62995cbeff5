//! Changes of GNU cp since 9.1, the version that ours is compared with, according to NEWS of
//! coreutils: a table of command lines and their outcomes. No other cp is needed.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::process::Command;

use underpass_testkit::{ExitReport, disk_folder, run_with_input};

/// `a` is newer than `old` and older than `new`; `folder` has a file `f`; `dst/folder` is a
/// symbolic link to the empty folder `real`; `holes` is a hole of 1 MiB.
#[derive(Debug)]
struct Row {
    /// The release and the announced change.
    news: &'static str,
    arguments: &'static [&'static str],
    answers: &'static str,
    code: i32,
    stdout: &'static str,
    stderr: &'static str,
    /// A name, and its content afterwards; `None` if it must not exist.
    left: (&'static str, Option<&'static str>),
}

const fn row(
    news: &'static str,
    arguments: &'static [&'static str],
    code: i32,
    left: (&'static str, Option<&'static str>),
) -> Row {
    Row {
        news,
        arguments,
        answers: "",
        code,
        stdout: "",
        stderr: "",
        left,
    }
}

impl Row {
    const fn says(mut self, stderr: &'static str) -> Self {
        self.stderr = stderr;
        self
    }

    const fn prints(mut self, stdout: &'static str) -> Self {
        self.stdout = stdout;
        self
    }

    const fn answered(mut self, answers: &'static str) -> Self {
        self.answers = answers;
        self
    }
}

const DECLINED: &str = "9.2: -i exits with 1 if the user declines";
const CLONE_GONE: &str = "9.2: --reflink=always leaves no new file behind when it can't clone";
const UPDATE: &str = "9.3: --update takes all, none or older";
const NONE_FAIL: &str = "9.5: --update=none-fail fails for what it leaves alone";
const NO_CLOBBER: &str = "9.5: -n is no failure again";
const KEEP_LINK: &str = "9.5: --keep-directory-symlink";
const KIND: &str = "9.10: a folder replaces a file with --backup only, and both are named";
const DEBUG: &str = "9.2: --debug tells how a file was copied, and implies -v";

const ROWS: [Row; 25] = [
    row(DECLINED, &["-i", "a", "old"], 1, ("old", Some("old")))
        .answered("n\n")
        .says("cp: overwrite 'old'? "),
    row(DECLINED, &["-i", "a", "old"], 1, ("old", Some("old"))).says("cp: overwrite 'old'? "),
    row(DECLINED, &["-i", "a", "old"], 0, ("old", Some("a")))
        .answered("y\n")
        .says("cp: overwrite 'old'? "),
    row(NO_CLOBBER, &["-n", "a", "old"], 0, ("old", Some("old"))),
    row(NO_CLOBBER, &["-nv", "a", "old"], 0, ("old", Some("old"))),
    row(
        NO_CLOBBER,
        &["-n", "--debug", "a", "old"],
        0,
        ("old", Some("old")),
    )
    .prints("skipped 'old'\n"),
    row(UPDATE, &["--update", "a", "old"], 0, ("old", Some("a"))),
    row(UPDATE, &["--update", "a", "new"], 0, ("new", Some("new"))),
    row(
        UPDATE,
        &["--update=older", "a", "old"],
        0,
        ("old", Some("a")),
    ),
    row(
        UPDATE,
        &["--update=older", "a", "new"],
        0,
        ("new", Some("new")),
    ),
    row(UPDATE, &["--update=all", "a", "new"], 0, ("new", Some("a"))),
    row(
        UPDATE,
        &["--update=none", "a", "old"],
        0,
        ("old", Some("old")),
    ),
    row(
        UPDATE,
        &["--update=none", "a", "fresh"],
        0,
        ("fresh", Some("a")),
    ),
    row(
        NONE_FAIL,
        &["--update=none-fail", "a", "old"],
        1,
        ("old", Some("old")),
    )
    .says("cp: not replacing 'old'\n"),
    row(
        NONE_FAIL,
        &["--update=none-fail", "a", "fresh"],
        0,
        ("fresh", Some("a")),
    ),
    row(
        NONE_FAIL,
        &["-b", "--update=none-fail", "a", "old"],
        1,
        ("old", Some("old")),
    )
    .says(
        "cp: --backup is mutually exclusive with -n or --update=none-fail\n\
         Try 'cp --help' for more information.\n",
    ),
    row(KEEP_LINK, &["-r", "folder", "dst"], 1, ("real/f", None))
        .says("cp: cannot overwrite non-directory 'dst/folder' with directory 'folder'\n"),
    row(
        KEEP_LINK,
        &["-r", "--keep-directory-symlink", "folder", "dst"],
        0,
        ("real/f", Some("f")),
    ),
    row(
        DEBUG,
        &["--debug", "--sparse=never", "--reflink=never", "a", "old"],
        0,
        ("old", Some("a")),
    )
    .prints("'a' -> 'old'\ncopy offload: avoided, reflink: no, sparse detection: no\n"),
    row(
        "9.4: --sparse=never avoids what could keep holes",
        &["--debug", "--sparse=never", "a", "fresh"],
        0,
        ("fresh", Some("a")),
    )
    .prints("'a' -> 'fresh'\ncopy offload: avoided, reflink: no, sparse detection: no\n"),
    row(KIND, &["-T", "a", "folder"], 1, ("folder/f", Some("f")))
        .says("cp: cannot overwrite directory 'folder' with non-directory 'a'\n"),
    row(KIND, &["-rTb", "folder", "old"], 0, ("old~", Some("old"))),
    row(
        KIND,
        &["-rTv", "--backup=numbered", "folder", "old"],
        0,
        ("old/f", Some("f")),
    )
    .prints("'folder' -> 'old'\n'folder/f' -> 'old/f'\n"),
    row(UPDATE, &["-iu", "a", "new"], 0, ("new", Some("new"))),
    row(
        NO_CLOBBER,
        &["-n", "--update=all", "a", "old"],
        0,
        ("old", Some("old")),
    ),
];

#[test]
fn newer_options_and_outcomes_are_those_of_the_newest_release() {
    let mut wrong = Vec::new();
    for row in &ROWS {
        let ground = ground();
        let output = cp(ground.path(), row.arguments, row.answers);
        let (name, content) = row.left;
        let left = fs::read_to_string(ground.path().join(name)).ok();
        let reported = (output.output, output.errors);
        let is_right = output.code == Some(row.code)
            && reported == (row.stdout.to_owned(), row.stderr.to_owned())
            && left.as_deref() == content;
        if !is_right {
            let news = row.news;
            let code = output.code;
            wrong.push(format!(
                "{news}: {row:?}\n  came to {code:?} {reported:?}, {name}: {left:?}"
            ));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// If blocks can be shared, the copy is complete; otherwise no copy is made.
#[test]
fn a_clone_that_was_demanded_and_failed_leaves_nothing() {
    let ground = ground();
    let output = cp(ground.path(), &["--reflink=always", "a", "fresh"], "");
    let left = fs::read_to_string(ground.path().join("fresh")).ok();
    match output.code {
        Some(0) => assert_eq!(left.as_deref(), Some("a"), "{CLONE_GONE}"),
        code => assert_eq!((code, left), (Some(1), None), "{CLONE_GONE}"),
    }
}

/// NEWS of 9.4: the destination has no holes.
#[test]
fn never_sparse_is_allocated_in_full() {
    let ground = ground();
    let output = cp(ground.path(), &["--sparse=never", "holes", "fresh"], "");
    output.assert_success();
    let fresh = fs::metadata(ground.path().join("fresh")).expect("a copy");
    assert_eq!(fresh.len(), 1 << 20);
    assert!(fresh.blocks() * 512 >= 1 << 20, "{} blocks", fresh.blocks());
}

fn ground() -> tempfile::TempDir {
    let folder = disk_folder();
    let at = |name: &str| folder.path().join(name);
    for (name, second) in [("old", 1), ("a", 2), ("new", 3)] {
        fs::write(at(name), name).expect("room");
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(second * 1_000_000);
        let file = fs::File::options()
            .append(true)
            .open(at(name))
            .expect("it is there");
        file.set_modified(time).expect("its own");
    }
    for name in ["folder", "dst", "real"] {
        fs::create_dir(at(name)).expect("room");
    }
    fs::write(at("folder/f"), "f").expect("room");
    symlink("../real", at("dst/folder")).expect("room");
    let holes = fs::File::create(at("holes")).expect("room");
    holes.set_len(1 << 20).expect("room");
    symlink(env!("CARGO_BIN_EXE_underpass"), at("cp")).expect("room");
    folder
}

/// Runs it under the name `cp`, found in `PATH`, as users do.
fn cp(folder: &Path, arguments: &[&str], answers: &str) -> ExitReport {
    let mut cp = Command::new("cp");
    cp.args(arguments).current_dir(folder);
    cp.env("PATH", folder).env("LC_ALL", "C");
    run_with_input(&mut cp, answers.as_bytes())
}
