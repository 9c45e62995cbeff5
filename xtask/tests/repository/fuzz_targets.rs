//! The fuzz targets compile, and each has a dictionary, a row and a promise.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::cargo;

/// Returns the names of the files in a folder of `fuzz/`, without their extension.
fn names(folder: &str, extension: &str) -> BTreeSet<String> {
    let entries = fs::read_dir(cargo::root().join("fuzz").join(folder)).expect("a folder");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let name = |path: &Path| {
        assert_eq!(path.extension(), Some(extension.as_ref()), "{path:?}");
        path.file_stem()
            .expect("a name")
            .to_string_lossy()
            .into_owned()
    };
    paths.map(|path| name(&path)).collect()
}

#[test]
fn every_fuzz_target_has_its_binary_its_dictionary_and_its_row() {
    let targets = names("fuzz_targets", "rs");
    assert!(!targets.is_empty());
    assert_eq!(targets, names("words", "dict"));
    let text = |file: &str| fs::read_to_string(cargo::root().join("fuzz").join(file));
    let manifest: toml::Table = text("Cargo.toml").expect("a file").parse().expect("TOML");
    let binaries = manifest["bin"].as_array().expect("binaries").iter();
    let binaries: BTreeSet<_> = binaries.filter_map(|it| it["name"].as_str()).collect();
    assert_eq!(binaries, targets.iter().map(String::as_str).collect());
    let page = text("README.md").expect("a file");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
    let rows: BTreeSet<_> = rows.filter_map(|row| row.split('`').next()).collect();
    assert_eq!(rows, targets.iter().map(String::as_str).collect());
}

/// Without the instrumentation of sanitizers and the fuzzer, since only compiling is tested.
#[test]
#[ignore = "needs nightly Rust; run by cargo xtask test"]
fn the_fuzz_targets_compile() {
    let check = ["rustup", "run", "nightly", "cargo", "check", "--quiet"];
    let fuzz = ["--manifest-path", "fuzz/Cargo.toml", "--bins"];
    let target = ["--target-dir", "target/fuzz"];
    cargo::run(&[check.as_slice(), &fuzz, &target].concat());
}
