//! The output of `underpass cp`: for people, for programs, and when it is stopped.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::Signal;
use serde_json::Value;
use underpass_testkit::{ChildProcess, ExitReport, disk_folder, run, run_with_input};

fn scratch() -> tempfile::TempDir {
    let folder = disk_folder();
    let path = |name: &str| folder.path().join(name);
    std::fs::create_dir(path("s")).expect("room");
    std::fs::write(path("s/big"), vec![7; 300_000]).expect("room");
    std::fs::write(path("s").join(OsStr::from_bytes(b"odd\xff")), "odd").expect("room");
    folder
}

/// `underpass cp`.
fn tool(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_underpass"));
    command.arg("cp").current_dir(folder);
    command.env("LC_ALL", "C.UTF-8").stdin(Stdio::null());
    command
}

/// The same under the name `cp`.
fn as_cp(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_underpass"));
    command.arg0("cp").current_dir(folder);
    command.env("LC_ALL", "C.UTF-8").stdin(Stdio::null());
    command
}

#[test]
fn explain_prints_plan_and_account() {
    let folder = scratch();
    let done = run(tool(folder.path()).args(["--explain", "s/big", "b"]));
    let lines: Vec<_> = done.output.lines().collect();
    assert_eq!(done.code, Some(0));
    assert_eq!(lines[0], "'s/big' -> 'b'");
    assert!(lines[1].starts_with("plan: "), "{lines:?}");
    assert!(lines[2].starts_with("account: "), "{lines:?}");
    assert!(lines[3].starts_with("summary: 1 file copied"), "{lines:?}");
}

#[test]
fn every_line_of_json_is_an_object() {
    let folder = scratch();
    let mut command = tool(folder.path());
    let done = run(command.args(["--json", "--verify", "-r", "s", "nox", "s/big", "d"]));
    assert_eq!(done.code, Some(1), "d is no folder");
    std::fs::create_dir(folder.path().join("d")).expect("room");
    let done = run(command.stdin(Stdio::null()));
    let lines: Vec<Value> = done
        .output
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert!(lines.iter().all(|line| line["version"] == 1));
    let named = |source: &str| {
        let found = lines.iter().find(|line| line["source"] == source);
        found.unwrap_or_else(|| panic!("{source} in {lines:?}"))
    };
    let big = named("s/big");
    assert_eq!(big["outcome"], "copied");
    assert_eq!(big["size"], 300_000);
    assert_eq!(big["account"]["bytes"], 300_000);
    assert_eq!(big["blake3"].as_str().map(str::len), Some(64));
    let odd = named("s/odd\u{fffd}");
    assert_eq!(odd["source_hex"], "732f6f6464ff");
    let problem = lines.iter().find(|line| line["type"] == "problem");
    let problem = problem.expect("nox");
    assert_eq!(problem["errno"], "ENOENT");
    assert_eq!(
        problem["message"],
        "cannot stat 'nox': No such file or directory"
    );
    let summary = lines.last().expect("lines");
    assert_eq!(summary["type"], "summary");
    assert_eq!(summary["errors"], 1);
    assert_eq!(summary["files"], 3);
}

#[test]
fn a_pattern_that_makes_no_sense_is_an_invalid_argument() {
    let folder = scratch();
    for options in [&[][..], &["--json"]] {
        let mut command = tool(folder.path());
        let done = run(command
            .args(options)
            .args(["-r", "--exclude", "{a", "s", "d"]));
        assert_eq!((done.code, &*done.output), (Some(1), ""));
        let begin = "underpass cp: the pattern '{a': unclosed alternate group";
        assert!(done.errors.starts_with(begin), "{done:?}");
        assert!(
            done.errors.contains("Try 'underpass cp --help'"),
            "{done:?}"
        );
        assert!(!folder.path().join("d").exists());
    }
    let alternatives = ["-rv", "--exclude", "{big,odd*}", "s", "d"];
    let done = run(tool(folder.path()).args(alternatives));
    assert_eq!((done.code, &*done.output), (Some(0), "'s' -> 'd'\n"));
}

#[test]
fn one_byte_is_not_several() {
    let folder = scratch();
    std::fs::write(folder.path().join("one"), "1").expect("room");
    let done = run(tool(folder.path()).args(["--explain", "one", "d"]));
    assert!(!done.output.contains("1 bytes"), "{}", done.output);
    assert!(done.output.contains("1 byte by "), "{}", done.output);
}

/// abuse.sh of GNU's tests: a link made by the same run is not written through.
#[test]
fn nothing_is_copied_through_a_link_that_was_just_created() {
    for exists in [false, true] {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        for name in ["a", "b", "c"] {
            std::fs::create_dir(path(name)).expect("room");
        }
        if exists {
            std::fs::write(path("t"), "old").expect("room");
        }
        symlink("../t", path("a/1")).expect("a link");
        std::fs::write(path("b/1"), "payload").expect("room");
        let done = run(as_cp(folder.path()).args(["-dR", "a/1", "b/1", "c"]));
        let expected = "cp: will not copy 'b/1' through just-created symlink 'c/1'\n";
        assert_eq!((done.code, &*done.errors), (Some(1), expected));
        let kept = std::fs::read_to_string(path("t")).ok();
        assert_eq!(kept.as_deref(), exists.then_some("old"));
    }
}

/// into-self.sh of GNU's tests: one message, even with another operand.
#[test]
fn a_folder_that_is_copied_into_itself_has_one_message() {
    for options in [&["-rl"][..], &["-r"], &["-r", "--dry-run"]] {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        for name in ["a", "dir"] {
            std::fs::create_dir(path(name)).expect("room");
            std::fs::write(path(name).join("file"), name).expect("room");
        }
        let mut command = as_cp(folder.path());
        let done = run(command.args(options).args(["a", "dir", "dir"]));
        let expected = "cp: cannot copy a directory, 'dir', into itself, 'dir/dir'\n";
        assert_eq!(
            (done.code, &*done.errors),
            (Some(1), expected),
            "{options:?}"
        );
        if options.len() == 1 {
            assert!(path("dir/a/file").exists() && path("dir/dir/file").exists());
            assert!(!path("dir/dir/dir").exists() && !path("dir/dir/a").exists());
        }
    }
}

#[test]
fn a_dry_run_reports_and_does_nothing() {
    let folder = scratch();
    let done = run(tool(folder.path()).args(["--dry-run", "-r", "s", "d"]));
    assert_eq!(done.code, Some(0));
    let reported = &done.output;
    assert!(reported.contains("'s/big' -> 'd/big'\n"), "{reported}");
    assert!(
        reported.contains(r"'s/odd'$'\377' -> 'd/odd'$'\377'"),
        "{reported}"
    );
    assert!(!folder.path().join("d").exists());
}

#[test]
fn calls_and_errnos_are_named_to_people_only() {
    let folder = scratch();
    let ours = run(tool(folder.path()).args(["nox", "d"]));
    let expected = "underpass cp: cannot stat 'nox': No such file or directory (fstatat: ENOENT)\n";
    assert_eq!(ours.errors, expected);
    let gnus = run(as_cp(folder.path()).args(["nox", "d"]));
    let expected = "cp: cannot stat 'nox': No such file or directory\n";
    assert_eq!(gnus.errors, expected);
    let tree = run(tool(folder.path()).args(["-r", "nox", "s", "."]));
    let reported = &tree.errors;
    let last = reported.lines().last().expect("lines");
    assert!(
        last.starts_with("underpass cp: not all could be copied: "),
        "{reported}"
    );
}

#[test]
fn a_copy_that_broke_off_names_both_files_and_how_far_it_came_to_people_only() {
    let folder = scratch();
    let words = "error writing '/dev/full': No space left on device";
    let gnus = run(as_cp(folder.path()).args(["s/big", "/dev/full"]));
    assert_eq!(gnus.errors, format!("cp: {words}\n"));
    let ours = run(tool(folder.path()).args(["s/big", "/dev/full"]));
    let reported = &ours.errors;
    let begin = format!("underpass cp: {words} (");
    assert!(reported.starts_with(&begin), "{reported}");
    let end = ": ENOSPC; from 's/big'; 0 bytes had moved)\n";
    assert!(reported.ends_with(end), "{reported}");
    let json = run(tool(folder.path()).args(["--json", "s/big", "/dev/full"]));
    let problem = json.output.lines().next().expect("lines");
    let problem: Value = serde_json::from_str(problem).expect("JSON");
    assert_eq!(problem["path"], "/dev/full");
    assert_eq!(problem["other"], "s/big");
    assert_eq!(problem["moved"], 0);
    assert_eq!(problem["message"], words);
}

#[test]
fn who_is_asked_decides() {
    let folder = scratch();
    std::fs::write(folder.path().join("b"), "old").expect("room");
    for (answer, size) in [("n\n", 3), ("", 3), ("yes\n", 300_000)] {
        let mut cp = as_cp(folder.path());
        let done = run_with_input(cp.args(["-i", "s/big", "b"]), answer.as_bytes());
        assert_eq!(done.errors, "cp: overwrite 'b'? ");
        let found = std::fs::metadata(folder.path().join("b")).expect("b");
        assert_eq!(found.len(), size, "{answer:?}");
    }
}

/// Waits until a file is partly written, so that the signal comes in the middle of it.
fn stopped(mut child: ChildProcess, begun: &Path, signal: Signal) -> ExitReport {
    child.until(|| std::fs::metadata(begun).is_ok_and(|file| file.len() > 0));
    child.signal(signal);
    child.end()
}

#[test]
fn a_signal_ends_it_and_what_was_done_is_reported() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let folder = scratch();
        let mut cp = tool(folder.path());
        let child = ChildProcess::spawn(cp.args(["--bwlimit=64", "s/big", "d"]));
        let done = stopped(child, &folder.path().join("d"), signal);
        assert_eq!(done.code, Some(code), "{done:?}");
        let reported = &done.errors;
        assert!(
            reported.contains("underpass cp: stopped copying 's/big' after"),
            "{reported}"
        );
        let last = reported.lines().last().expect("lines");
        let copied = std::fs::metadata(folder.path().join("d")).expect("a part");
        let bytes = copied.len();
        let account =
            format!("underpass cp: stopped: nothing copied, 1 file incomplete, {bytes} bytes");
        assert_eq!(
            last,
            account + "; --resume continues it",
            "{reported} {bytes}"
        );
    }
}

#[test]
fn a_background_copy_of_a_script_survives_ctrl_c() {
    let folder = scratch();
    let mut shell = Command::new("sh");
    let script = format!(
        "trap '' INT; exec {} cp --bwlimit=400 s/big d",
        env!("CARGO_BIN_EXE_underpass")
    );
    shell.args(["-c", &script]).current_dir(folder.path());
    let child = ChildProcess::spawn(shell.stdin(Stdio::null()));
    let done = stopped(child, &folder.path().join("d"), Signal::INT);
    assert_eq!((done.code, &*done.errors), (Some(0), ""));
    let copied = std::fs::metadata(folder.path().join("d")).expect("d");
    assert_eq!(copied.len(), 300_000);
}

#[test]
fn as_cp_a_signal_kills() {
    let folder = scratch();
    let fifo = folder.path().join("fifo");
    run(Command::new("mkfifo").arg(&fifo)).assert_success();
    let child = ChildProcess::spawn(as_cp(folder.path()).args(["fifo", "b"]));
    // Opened for reading, too, so that it opens before there is a reader.
    let mut writer = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(&fifo)
        .expect("a FIFO");
    writer.write_all(b"begun").expect("writes");
    let done = stopped(child, &folder.path().join("b"), Signal::INT);
    assert_eq!(done.signal, Some(2));
}

#[test]
fn a_closed_output_ends_the_program() {
    let folder = scratch();
    for number in 0..3000 {
        std::fs::write(folder.path().join(format!("s/{number}")), "").expect("room");
    }
    let left = |mut command: Command| {
        let mut child = command
            .args(["-rv", "s", "d"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("starts");
        let mut first = String::new();
        let mut stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        stdout.read_line(&mut first).expect("a line");
        assert_eq!(first, "'s' -> 'd'\n");
        drop(stdout);
        let done = child.wait_with_output().expect("ends");
        let copied = std::fs::read_dir(folder.path().join("d"))
            .expect("d")
            .count();
        std::fs::remove_dir_all(folder.path().join("d")).expect("goes");
        let errors = String::from_utf8(done.stderr).expect("text");
        (done.status, copied, errors)
    };
    let (status, copied, errors) = left(tool(folder.path()));
    assert_eq!((status.code(), copied), (Some(1), 3002), "the copy goes on");
    assert_eq!(errors, "underpass cp: write error: Broken pipe\n");
    let (status, _, errors) = left(as_cp(folder.path()));
    assert_eq!(status.signal(), Some(13), "as every program");
    assert_eq!(errors, "");
}

#[test]
fn shells_and_man_learn_of_every_command() {
    let run = |words: &[&str]| {
        let done = run(Command::new(env!("CARGO_BIN_EXE_underpass")).args(words));
        done.assert_success();
        done.output
    };
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let completions = run(&["completions", shell]);
        assert!(completions.contains("bwlimit"), "{shell}");
        assert!(completions.contains("doctor"), "{shell}");
    }
    assert!(run(&["man", "cp"]).contains("sparse"));
    assert!(run(&["man", "serve"]).contains("listen"));
    assert!(run(&["--help"]).contains("cp "));
    let folder = scratch();
    let path = folder.path().to_str().expect("text");
    run(&["man", path]);
    assert!(folder.path().join("underpass-cp.1").exists());
}
