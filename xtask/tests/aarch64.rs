//! The tool is built for aarch64, and serves and copies there, under an emulated processor.

use std::fs;
use std::path::Path;
use std::process::Command;

use underpass_testkit::{ServerProcess, content, run};

const TARGET: &str = "aarch64-unknown-linux-gnu";

#[test]
#[ignore = "needs aarch64; run by cargo xtask test"]
fn the_tool_for_aarch64_serves_and_copies() {
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
    let server = ServerProcess::serve(emulated(&program), &[], site.path());
    assert!(server.get("/f").body == bytes);
    server.stop();
}
