//! The library compiles without features and with each one alone.

mod cargo;

use std::fs;

#[test]
#[ignore = "needs a minute; run by cargo xtask test"]
fn the_library_compiles_with_each_feature_alone() {
    let manifest = cargo::root().join("crates/underpass/Cargo.toml");
    let manifest = fs::read_to_string(manifest).expect("a manifest");
    let manifest: toml::Table = manifest.parse().expect("TOML");
    let features = manifest["features"].as_table().expect("features");
    assert!(features.len() > 1, "{features:?}");
    for name in features.keys() {
        let feature = if name == "default" { "" } else { name };
        println!("   --no-default-features --features '{feature}'");
        let check = ["cargo", "check", "--quiet", "--package", "underpass"];
        let alone = ["--no-default-features", "--features", feature];
        cargo::run(&[check.as_slice(), &alone].concat());
    }
}
