//! `cp` under valgrind, as GNU's own tests run it.

use std::process::Command;

use underpass_testkit::run;

/// The kernel's auxiliary vector names a vDSO that valgrind has unmapped, and the C library's does
/// not: a program that uses the kernel's reads unmapped memory.
#[test]
#[ignore = "needs valgrind; run by cargo xtask test"]
fn valgrind_finds_nothing_in_a_copy() {
    let directory = tempfile::tempdir().expect("a directory");
    let [from, to] = ["from", "to"].map(|name| directory.path().join(name));
    std::fs::write(&from, [7; 100_000]).expect("a source");
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--quiet", "--error-exitcode=99"]);
    valgrind.arg(env!("CARGO_BIN_EXE_underpass"));
    let report = run(valgrind.args(["cp", "-a"]).args([&from, &to]));
    assert_eq!(report.code, Some(0), "{:?}", report.errors);
    assert_eq!(std::fs::read(&to).expect("a copy"), [7; 100_000]);
}
