//! The library compiles without features and with each one alone, and its page names them.

use std::fs;

use crate::cargo;

/// Returns the features declared in the manifest of the library.
fn declared() -> toml::Table {
    let manifest = cargo::root().join("crates/underpass/Cargo.toml");
    let manifest = fs::read_to_string(manifest).expect("a manifest");
    let manifest: toml::Table = manifest.parse().expect("TOML");
    manifest["features"].as_table().expect("features").clone()
}

#[test]
fn the_documentation_has_a_row_for_each_feature_and_no_other() {
    let root = cargo::root().join("crates/underpass/src/lib.rs");
    let page = fs::read_to_string(root).expect("a root");
    let (_, section) = page.split_once("\n//! # Features\n").expect("a section");
    let section = section.split("\n//! # ").next().expect("a section");
    let rows = section
        .lines()
        .filter_map(|line| line.strip_prefix("//! | `"));
    let documented: Vec<_> = rows.filter_map(|row| row.split('`').next()).collect();
    let features = declared();
    let names = features.keys().filter(|name| *name != "default");
    let (mut documented, mut names) = (documented, Vec::from_iter(names));
    documented.sort_unstable();
    names.sort_unstable();
    assert_eq!(documented, names);
    let is_off = features["default"].as_array().is_some_and(Vec::is_empty);
    assert!(is_off == section.contains("None is on by default."));
}

#[test]
#[ignore = "needs a minute; run by cargo xtask test"]
fn the_library_compiles_with_each_feature_alone() {
    let features = declared();
    assert!(features.len() > 1, "{features:?}");
    for name in features.keys() {
        let feature = if name == "default" { "" } else { name };
        println!("   --no-default-features --features '{feature}'");
        let check = ["cargo", "check", "--quiet", "--package", "underpass"];
        let alone = ["--no-default-features", "--features", feature];
        cargo::run(&[check.as_slice(), &alone].concat());
    }
}
