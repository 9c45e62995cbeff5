//! Everything compiles with the oldest Rust that the manifests promise.

use std::fs;

use crate::cargo;

const VERSION: &str = "1.88";

#[test]
#[ignore = "needs Rust 1.88; run by cargo xtask test"]
fn everything_compiles_with_the_oldest_rust() {
    let manifest = fs::read_to_string(cargo::root().join("Cargo.toml")).expect("a manifest");
    let manifest: toml::Table = manifest.parse().expect("TOML");
    let promised = &manifest["workspace"]["package"]["rust-version"];
    assert_eq!(
        promised.as_str(),
        Some(VERSION),
        "and the need of this test"
    );
    let check = ["rustup", "run", VERSION, "cargo", "check", "--quiet"];
    let all = ["--workspace", "--all-features", "--all-targets"];
    cargo::run(&[check.as_slice(), &all].concat());
}
