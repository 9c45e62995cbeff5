//! Selection of files, dry runs, and rate limits.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::copying::{CopyReport, MIB, cp, file, len, names, start_cp, tree, underpass};
use underpass_testkit::{ChildProcess, disk_folder};

fn sample(root: &Path) {
    fs::create_dir_all(root.join("src/deep")).expect("folders");
    fs::create_dir_all(root.join("target/debug")).expect("folders");
    for (seed, name) in (1..).zip([
        "a.o",
        "b.c",
        "keep.o",
        "src/c.o",
        "src/deep/keep.o",
        "src/deep/d.c",
        "target/debug/e.c",
    ]) {
        file(&root.join(name), seed, 100);
    }
    symlink("b.c", root.join("link")).expect("a link");
}

/// Returns every name below a folder, with all the metadata that a copy could change.
fn state(root: &Path) -> Vec<(String, i64, i64, u64)> {
    let stamp = |below: &Path| {
        let now = fs::symlink_metadata(root.join(below)).expect("there");
        let name = below.to_string_lossy().into_owned();
        (name, now.mtime(), now.mtime_nsec(), now.ino())
    };
    tree(root).keys().map(|below| stamp(below)).collect()
}

#[test]
fn a_dry_run_reports_what_would_be_done_and_does_nothing() {
    let folder = disk_folder();
    let path = |name| folder.path().join(name);
    sample(&path("source"));
    fs::create_dir_all(path("dest/src")).expect("folders");
    for (seed, name) in [(8, "dest/b.c"), (9, "dest/src/c.o"), (10, "dest/other")] {
        file(&path(name), seed, 50);
    }
    let operands = [path("source"), path("dest")];
    for options in [
        &["-rT"][..],
        &["-aT", "--backup=numbered"],
        &["-rT", "--remove-destination"],
        &["-rT", "-n"],
        &["-rT", "--atomic", "--exclude=*.c"],
    ] {
        let (before, content) = (state(folder.path()), tree(folder.path()));
        let dry = cp(&[options, &["--dry-run"]].concat(), &operands).succeeded();
        assert_eq!(state(folder.path()), before, "{options:?}");
        assert!(tree(folder.path()) == content, "{options:?}");
        let aside = path("aside");
        let mut save = std::process::Command::new("cp");
        save.arg("-a").args([&operands[1], &aside]);
        assert!(save.status().expect("starts").success());
        let real = cp(&[options, &["-v"]].concat(), &operands).succeeded();
        let lines = |reported: &str| {
            let names = reported.lines().filter(|line| line.contains(" -> "));
            // Numbers of backups are only known once they are made.
            let names = names.map(|line| line.split(" (backup").next().unwrap_or("").to_owned());
            names.collect::<Vec<_>>()
        };
        assert_eq!(lines(&dry.output), lines(&real.output), "{options:?}");
        fs::remove_dir_all(&operands[1]).expect("ours");
        fs::rename(&aside, &operands[1]).expect("ours");
    }
}

#[test]
fn a_dry_run_fails_where_the_run_does() {
    let folder = disk_folder();
    let path = |name| folder.path().join(name);
    sample(&path("source"));
    fs::create_dir(path("dest")).expect("room");
    for link in ["dangling", "dest/b.c"] {
        symlink("nowhere", path(link)).expect("a link");
    }
    for (options, source, dest) in [
        (&[][..], "source/b.c", "missing/copy"),
        (&[], "source/b.c", "missing/"),
        (&[], "source/b.c", "dangling"),
        (&["--atomic"], "source/b.c", "missing/copy"),
        (&["-rT", "-j1"], "source", "dest"),
        (&["-rT", "-j4"], "source", "dest"),
        (&[], "missing", "copy"),
    ] {
        let operands = [path(source), path(dest)];
        let dry = cp(&[options, &["--dry-run"]].concat(), &operands);
        let real = cp(options, &operands);
        assert_eq!(
            (dry.code, real.code),
            (Some(1), Some(1)),
            "{options:?} {dest}"
        );
        let first = |errors: &str| errors.lines().next().map(str::to_owned);
        assert_eq!(
            first(&dry.errors),
            first(&real.errors),
            "{options:?} {dest}"
        );
    }
}

#[test]
fn a_dry_run_reports_every_name_once() {
    let folder = disk_folder();
    let path = |name: &str| folder.path().join(name);
    sample(&path("source"));
    fs::create_dir(path("there")).expect("a folder");
    for dest in ["nowhere", "there"] {
        let operands = [path("source"), path(dest)];
        let reported = |options: &[&str]| {
            let ran = cp(&[&["-aT", "--dry-run"], options].concat(), &operands).succeeded();
            let names = ran.output.lines().filter(|line| line.contains(" -> "));
            names.map(str::to_owned).collect::<Vec<_>>()
        };
        let plain = reported(&[]);
        assert!(plain.len() >= 10, "{plain:?}");
        for options in [&["--explain"][..], &["--debug"], &["--explain", "-v"]] {
            assert_eq!(reported(options), plain, "{dest} {options:?}");
        }
    }
}

#[test]
fn a_dry_run_finds_a_folder_that_would_be_copied_into_itself() {
    for (options, dest, is_found) in [
        (&["-r"][..], "source/src", true),
        (&["-rT"], "source/new", true),
        (&["-rT", "-j4"], "source/src/deep/new", true),
        (&["-rT"], "source/src", true),
        (&["-rT", "--exclude=new"], "source/src/new", false),
        (&["-rT", "--exclude=src"], "source/src/new", false),
        (&["-rT"], "beside", false),
    ] {
        let folder = disk_folder();
        sample(&folder.path().join("source"));
        let run = |more: &[&str]| {
            let mut command = underpass();
            command.args(options).args(more).args(["source", dest]);
            command.current_dir(folder.path());
            ChildProcess::spawn(&mut command).end()
        };
        let before = tree(folder.path());
        let dry = run(&["--dry-run"]);
        assert!(tree(folder.path()) == before, "{options:?} {dest}");
        let real = run(&[]);
        let found = |said: &str| said.matches("into itself").count();
        let expected = (Some(i32::from(is_found)), usize::from(is_found));
        for ran in [&dry, &real] {
            let got = (ran.code, found(&ran.errors));
            assert_eq!(got, expected, "{options:?} {dest}: {ran:?}");
        }
        let first = |said: &str| said.lines().next().unwrap_or_default().to_owned();
        assert_eq!(
            first(&dry.errors),
            first(&real.errors),
            "{options:?} {dest}"
        );
    }
}

#[test]
fn patterns_choose_and_the_last_one_that_matches_decides() {
    let folder = disk_folder();
    let path = |name: &str| folder.path().join(name);
    sample(&path("source"));
    for (number, (options, absent)) in [
        (
            &["--exclude=*.o"][..],
            &["a.o", "keep.o", "src/c.o", "src/deep/keep.o"][..],
        ),
        (&["--exclude=*.o", "--include=keep.o"], &["a.o", "src/c.o"]),
        (
            &["--include=keep.o", "--exclude=*.o"],
            &["a.o", "keep.o", "src/c.o", "src/deep/keep.o"],
        ),
        (&["--exclude=/keep.o"], &["keep.o"]),
        (
            &["--exclude=target/"],
            &["target", "target/debug", "target/debug/e.c"],
        ),
        (&["--exclude=src/**/*.c"], &["src/deep/d.c"]),
        (&["--exclude=link"], &["link"]),
    ]
    .into_iter()
    .enumerate()
    {
        let dest = path(&format!("dest{number}"));
        let operands = [path("source"), dest.clone()];
        cp(&[&["-rT"], options].concat(), &operands).succeeded();
        let mut expected = tree(&path("source"));
        expected.retain(|below, _| !absent.iter().any(|name| below == Path::new(name)));
        let copied: Vec<_> = tree(&dest).into_keys().collect();
        assert_eq!(
            copied,
            expected.into_keys().collect::<Vec<_>>(),
            "{options:?}"
        );
    }
    cp(&["-r", "--exclude=[z-a]"], &[path("source"), path("bad")]).failed_with(&["[z-a]"]);
    assert!(!path("bad").exists());
}

#[test]
fn a_limit_holds_for_all_files_together() {
    let folder = disk_folder();
    let path = |name: &str| folder.path().join(name);
    fs::create_dir(path("source")).expect("a folder");
    for number in 0..8 {
        file(&path(&format!("source/{number}")), number, MIB / 2);
    }
    let options = ["-rT", "-j4", "--reflink=never", "--bwlimit=4M"];
    let begin = Instant::now();
    cp(&options, &[path("source"), path("dest")]).succeeded();
    let took = begin.elapsed();
    assert!(tree(&path("source")) == tree(&path("dest")));
    assert_eq!(names(&path("dest")).len(), 8);
    // 4 MiB at 4 MiB a second.
    assert!(took >= Duration::from_millis(800), "{took:?}");
}

#[test]
fn a_limit_is_kept_from_the_first_second_on() {
    let folder = disk_folder();
    let path = |name: &str| folder.path().join(name);
    let source = file(&path("source"), 1, 64 * MIB);
    let dest = path("dest");
    let options = ["--reflink=never", "--bwlimit=4M"];
    let begin = Instant::now();
    let mut copying = start_cp(&options, &[&source, &dest]);
    copying.until(|| len(&dest) >= 4 * MIB);
    let (came, took) = (len(&dest), begin.elapsed());
    copying.kill();
    let allowed = 4.0 * 1.2 * took.as_secs_f64() + 1.0;
    assert!(
        (came / MIB) as f64 <= allowed,
        "{came} bytes after {took:?}"
    );
}
