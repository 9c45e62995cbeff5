//! Command lines of the documentation do what is written beside them: every one is understood, and
//! those of docs/cp.md's table are run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use underpass_testkit::{disk_folder, run};

const BINARY: &str = env!("CARGO_BIN_EXE_underpass");

fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let docs = fs::read_dir(root.join("docs")).expect("docs");
    let docs = docs.map(|entry| entry.expect("an entry").path());
    let pages = docs.filter(|path| path.extension().is_some_and(|end| end == "md"));
    pages.chain([root.join("README.md")]).collect()
}

/// The words behind `underpass` in a line of a code block or in the first cell of a row. Nothing
/// where the line is a synopsis, or a shell does something with it.
fn command(line: &str) -> Option<Vec<String>> {
    let code = match line.strip_prefix("| `") {
        Some(row) => row.split('`').next()?,
        None => line.strip_prefix("    ")?,
    };
    let begins = code.starts_with("underpass ")
        || code.starts_with("$ underpass ")
        || code.starts_with("UNDERPASS_");
    let at = code.find("underpass ").filter(|_| begins)?;
    let words = code[at..].split("   ").next()?;
    let is_plain = !words.contains(['[', '|', '<', '>', '$', '…']) && !words.contains("...");
    let words = shlex::split(words).filter(|_| is_plain)?;
    let is_placeholder = |word: &String| word.chars().all(char::is_uppercase) && word.len() > 1;
    // What it prints: `underpass cp: stopped`, `underpass 0.1.0 on Linux`.
    let first = words.get(1)?;
    let is_message = first.ends_with(':') || first.starts_with(|first: char| first.is_numeric());
    (!is_message && !words.iter().any(is_placeholder)).then(|| words[1..].to_vec())
}

#[test]
fn every_documented_command_line_is_understood() {
    let mut understood = 0;
    for page in pages() {
        let text = fs::read_to_string(&page).expect("a page");
        for words in text.lines().filter_map(command) {
            // An option that does not exist is reported before the help behind it is shown.
            let done = run(Command::new(BINARY).args(&words).arg("--help"));
            assert_eq!(
                done.code,
                Some(0),
                "{}: {words:?}: {done:?}",
                page.display()
            );
            assert!(done.output.contains("Usage:"), "{words:?}");
            understood += 1;
        }
    }
    assert!(understood >= 40, "only {understood} command lines found");
}

/// The names of the table, with something in each; absolute ones below the folder.
fn world(folder: &Path) {
    let files = [
        "src/file",
        "project/target/out",
        "project/main.o",
        "project/main.c",
        "photos/one",
        "new.conf",
        "etc/app.conf",
        "disk.img",
        "dump.sql",
    ];
    for name in files {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("room");
        fs::write(path, name).expect("room");
    }
    for name in ["backup", "mnt/usb", "mnt/nas"] {
        fs::create_dir_all(folder.join(name)).expect("room");
    }
}

#[test]
fn the_ten_command_lines_of_cp_copy_what_they_say() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cp.md");
    let text = fs::read_to_string(page).expect("the page");
    let table = text.split("## Ten command lines").nth(1).expect("a table");
    let table = table.split("\n## ").next().expect("its end");
    let lines: Vec<_> = table.lines().filter_map(command).collect();
    assert_eq!(lines.len(), 10);
    let folder = disk_folder();
    world(folder.path());
    for words in &lines {
        let words = words.iter().map(|word| match word.strip_prefix('/') {
            Some(path) => folder.path().join(path).display().to_string(),
            None => word.clone(),
        });
        let words: Vec<_> = words.collect();
        let done = run(Command::new(BINARY).args(&words).current_dir(folder.path()));
        let may_be_refused = words.iter().any(|word| word == "--reflink=always");
        let is_refused = may_be_refused && done.errors.contains("failed to clone");
        assert!(done.code == Some(0) || is_refused, "{words:?}: {done:?}");
    }
    let there = |name: &str| folder.path().join(name).exists();
    assert!(there("dst/file") && !there("dst/src"), "-T");
    assert!(there("backup/project/main.c") && !there("backup/project/main.o"));
    assert!(!there("backup/project/target"));
    assert!(there("backup/photos/one") && there("mnt/usb/photos/one"));
    assert!(there("mnt/nas/dump.sql") && there("mnt/usb/disk.img"));
    let conf = fs::read_to_string(folder.path().join("etc/app.conf")).expect("a copy");
    assert_eq!(conf, "new.conf");
}
