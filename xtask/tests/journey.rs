//! A request and a copy pass few files, as `cargo xtask journey` counts.

use std::process::Command;

/// Whether a journey that is too long is no error yet.
const IS_PENDING: bool = true;

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
    assert!(IS_PENDING || output.status.success(), "{}", output.status);
}
