//! A request and a copy pass few files, as `cargo xtask journey` counts, and ARCHITECTURE.md names
//! them.

use std::path::Path;
use std::process::Command;

#[test]
#[ignore = "needs llvm-tools; run by cargo xtask test"]
fn a_request_and_a_copy_pass_few_files() {
    let mut journey = Command::new(env!("CARGO_BIN_EXE_xtask"));
    let output = journey.arg("journey").output().expect("xtask starts");
    let journeys = String::from_utf8_lossy(&output.stdout);
    println!("{journeys}{}", String::from_utf8_lossy(&output.stderr));
    for operation in ["GET of a hot file: ", "cp -a of one file: "] {
        assert!(journeys.contains(operation), "{operation}");
    }
    assert!(output.status.success(), "{}", output.status);

    let architecture = include_str!("../../../ARCHITECTURE.md");
    let passed = journeys.split_whitespace();
    let unnamed: Vec<_> = passed
        .filter(|word| word.ends_with(".rs") && !architecture.contains(&name(word)))
        .collect();
    assert!(unnamed.is_empty(), "ARCHITECTURE.md lacks {unnamed:?}");
}

/// Returns the name of a file in prose: `wait.rs`, `connection/mod.rs`.
fn name(path: &str) -> String {
    let folders = if path.ends_with("/mod.rs") { 2 } else { 1 };
    let mut parts: Vec<_> = Path::new(path).iter().rev().take(folders).collect();
    parts.reverse();
    parts
        .iter()
        .collect::<std::path::PathBuf>()
        .display()
        .to_string()
}
