//! Every fuzz target is declared, has a dictionary and a row in its README, and nothing else is
//! named there.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The names of a folder's files, without this ending.
fn files(folder: &Path, ending: &str) -> BTreeSet<String> {
    let names = fs::read_dir(folder).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let names = names.map(|name| name.strip_suffix(ending).expect(&name).to_owned());
    names.collect()
}

#[test]
fn targets_declarations_dictionaries_and_rows_are_the_same() {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    let targets = files(&fuzz.join("fuzz_targets"), ".rs");
    assert!(targets.contains("head"), "{targets:?}");
    assert_eq!(files(&fuzz.join("words"), ".dict"), targets);
    let manifest = fs::read_to_string(fuzz.join("Cargo.toml")).unwrap();
    let (_, declared) = manifest.split_once("[[bin]]").unwrap();
    let names = declared
        .lines()
        .filter_map(|line| line.strip_prefix("name = \""));
    let declared: BTreeSet<_> = names
        .map(|name| name.trim_matches('"').to_owned())
        .collect();
    assert_eq!(declared, targets);
    let readme = fs::read_to_string(fuzz.join("README.md")).unwrap();
    let rows = readme.lines().filter_map(|line| line.strip_prefix("| `"));
    let rows: BTreeSet<_> = rows
        .map(|row| row.split('`').next().unwrap().to_owned())
        .collect();
    assert_eq!(rows, targets);
}
