//! Reports: they are the same for any number of workers, and their numbers add up.

use std::fs;
use std::path::Path;

use crate::copying::{CopyReport, MIB, cp, file, moved, tree, underpass};
use underpass_testkit::{ChildProcess, content, disk_folder};

/// 300 files and 30 folders, some of them empty.
fn sample(root: &Path) {
    for number in 0..30 {
        let below = root.join(format!("{number}/below"));
        fs::create_dir_all(&below).expect("folders");
        for file_number in 0..(number % 3) * 15 {
            let len = (file_number * 997) % 20_000;
            fs::write(below.join(format!("f{file_number}")), content(number, len)).expect("room");
        }
    }
}

#[test]
fn any_number_of_workers_makes_the_same_tree_and_the_same_report() {
    let folder = disk_folder();
    let path = |name: &str| folder.path().join(name);
    sample(&path("source"));
    // Names relative to the working directory make the reports comparable.
    let reported: Vec<_> = ["-j1", "-j2", "-j8"]
        .iter()
        .map(|jobs| {
            let at = path(jobs);
            fs::create_dir(&at).expect("a folder");
            let mut command = underpass();
            command
                .args(["-av", jobs, "../source", "dest"])
                .current_dir(&at);
            let ran = ChildProcess::spawn(&mut command).end().succeeded();
            assert!(tree(&path("source")) == tree(&at.join("dest")), "{jobs}");
            ran.output
        })
        .collect();
    assert_eq!(reported[0].lines().count(), tree(&path("source")).len());
    assert!(reported.iter().all(|other| *other == reported[0]));
}

#[test]
fn json_is_an_object_per_line_and_adds_up() {
    let folder = disk_folder();
    let path = |name: &str| folder.path().join(name);
    sample(&path("source"));
    fs::hard_link(path("source/1/below/f1"), path("source/1/other")).expect("a name");
    fs::create_dir_all(path("dest/2/below/f2")).expect("in the way");
    for jobs in ["-j1", "-j4"] {
        let ran = cp(&["-aT", "--json", jobs], &[path("source"), path("dest")]);
        assert_eq!(ran.code, Some(1));
        let mut objects = ran.objects();
        let summary = objects.pop().expect("a summary");
        let count = |key: &str, value: &str| {
            let matching = objects.iter().filter(|object| object[key] == value);
            matching.count() as u64
        };
        let of = |kind: &str, outcome: &str| {
            let matching = objects
                .iter()
                .filter(|object| object["kind"] == kind && object["outcome"] == outcome);
            matching.count() as u64
        };
        assert_eq!(summary["files"], of("file", "copied"));
        assert_eq!(summary["directories"], of("directory", "copied"));
        assert_eq!(summary["hard_links"], of("file", "linked"));
        assert_eq!(summary["hard_links"], 1);
        assert_eq!(summary["errors"], count("severity", "error"));
        assert_eq!(summary["errors"], 1);
        assert_eq!(count("outcome", "failed"), 1);
        let bytes = objects
            .iter()
            .filter(|object| !object["account"].is_null())
            .map(moved);
        assert_eq!(moved(&summary), bytes.sum::<u64>());
        let files = tree(&path("source"));
        let files = files
            .keys()
            .filter(|below| path("source").join(below).is_file())
            .count();
        let reported = ["copied", "linked", "failed"].map(|outcome| of("file", outcome));
        assert_eq!(reported.iter().sum::<u64>(), files as u64);
    }
}

#[test]
fn explain_names_the_mechanism_that_was_used() {
    let folder = disk_folder();
    let path = |name: &str| folder.path().join(name);
    let source = file(&path("source"), 1, 3 * MIB);
    for only in ["copy_range", "sendfile", "splice", "read_write"] {
        let ran = cp(&["--explain", "--only", only], &[&source, &path(only)]).succeeded();
        let account = format!("account: {} bytes by {only}", 3 * MIB);
        assert!(ran.output.contains(&account), "{ran:?}");
        let json = cp(&["--json", "--only", only], &[&source, &path(only)]).succeeded();
        let (name, _) = json.one_name();
        assert_eq!(name["account"][only]["bytes"], 3 * MIB);
    }
    let ran = cp(&["--explain"], &[&source, &path("free")]).succeeded();
    assert!(ran.output.contains("plan: "), "{ran:?}");
    assert!(ran.output.contains("summary: 1 file copied"), "{ran:?}");
}

#[test]
fn explain_sums_up_a_tree_in_a_few_lines() {
    let folder = disk_folder();
    let path = |name: &str| folder.path().join(name);
    sample(&path("source"));
    let options = ["-rT", "--explain=summary", "--only=sendfile", "-j1"];
    let ran = cp(&options, &[path("source"), path("dest")]).succeeded();
    let lines: Vec<_> = ran.output.lines().collect();
    let [moved, clone, range, splice, pipe, summary] = lines[..] else {
        panic!("{ran:?}");
    };
    // The first one in each folder is empty.
    assert!(moved.starts_with("sendfile: 430 files, "), "{moved}");
    for (line, name) in [(clone, "clone"), (range, "copy_range"), (splice, "splice")] {
        let reason = format!("not {name}: another mechanism was requested: 430 files: '");
        assert!(line.starts_with(&reason), "{line}");
        assert_eq!(line.matches("/below/f").count(), 3, "{line}");
        assert!(line.ends_with(", …"), "{line}");
    }
    assert!(pipe.starts_with("not read_write: "), "{pipe}");
    assert!(
        summary.starts_with("summary: 450 files, 61 folders copied; "),
        "{summary}"
    );
    let ran = cp(
        &["-v", "--explain=summary"],
        &[&path("source/1/below/f1"), &path("one")],
    );
    assert!(
        ran.output.starts_with('\''),
        "names are printed, too: {ran:?}"
    );
}

#[test]
fn problems_are_reported_by_json_and_on_standard_error() {
    let folder = disk_folder();
    let path = |name: &str| folder.path().join(name);
    let source = file(&path("source"), 1, 10);
    fs::create_dir(path("into")).expect("a folder");
    let ran = cp(&["--json"], &[&path("missing"), &source, &path("into")]);
    let objects = ran.objects();
    let problem = objects.iter().find(|object| object["type"] == "problem");
    let problem = problem.expect("a problem");
    assert_eq!(problem["errno"], "ENOENT");
    assert_eq!(problem["severity"], "error");
    assert!(
        problem["path"]
            .as_str()
            .expect("a path")
            .ends_with("missing")
    );
    assert_eq!(
        objects.last().expect("a summary")["files"],
        1,
        "the other one is copied"
    );
    ran.failed_with(&["missing': No such file or directory"]);
}
