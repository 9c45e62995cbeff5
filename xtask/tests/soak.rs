//! A minute of `cargo xtask soak`.

use std::env;
use std::process::Command;

#[test]
#[ignore = "needs a minute; run by cargo xtask test"]
fn a_minute_of_everything_leaves_nothing_behind_and_sends_no_wrong_byte() {
    let program = env::var_os("CARGO_BIN_EXE_underpass").expect("cargo xtask test says where");
    let status = Command::new(env!("CARGO_BIN_EXE_xtask"))
        .args(["soak", "--minutes", "1", "--program"])
        .arg(program)
        .status()
        .expect("xtask starts");
    assert!(status.success(), "see above");
}
