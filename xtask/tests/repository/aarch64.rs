//! The tool is built for aarch64, and copies and runs its doctor there, on an emulated processor.
//! The emulator lacks openat2 (QEMU 7.2), without which `serve` refuses to start.

use std::fs;
use std::path::Path;
use std::process::Command;

use underpass_testkit::{content, run};

const TARGET: &str = "aarch64-unknown-linux-gnu";

#[test]
#[ignore = "needs aarch64; run by cargo xtask test"]
fn the_tool_for_aarch64_copies_and_examines() {
    let made = tempfile::tempdir().expect("a folder");
    let mut release = Command::new(env!("CARGO_BIN_EXE_xtask"));
    release.args(["release", "--profile", "dev", "--target", TARGET]);
    release.arg("--output").arg(made.path());
    let compiler = "aarch64-linux-gnu-gcc";
    release.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", compiler);
    release.env("CC_aarch64_unknown_linux_gnu", compiler);
    let status = release.status().expect("xtask starts");
    assert!(status.success(), "see above");

    let program = made.path().join("underpass");
    let emulated = |program: &Path| {
        let mut emulated = Command::new("qemu-aarch64-static");
        emulated.arg(program);
        emulated
    };
    let site = tempfile::tempdir().expect("a folder");
    let bytes = content(1, 3_000_001);
    fs::write(site.path().join("f"), &bytes).expect("room");
    let copy = site.path().join("copy");
    let mut cp = emulated(&program);
    run(cp
        .args(["cp", "-a", "--verify"])
        .arg(site.path().join("f"))
        .arg(&copy))
    .assert_success();
    assert!(fs::read(&copy).expect("a copy") == bytes);
    let mut doctor = emulated(&program);
    let report = run(doctor.args(["doctor", "--json"]).arg(site.path()));
    report.assert_success();
    assert!(report.output.starts_with('{'), "{}", report.output);
}
