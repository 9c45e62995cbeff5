//! A program outside the workspace builds with the library as its only way to move bytes, with and
//! without Tokio.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use underpass_testkit::within;

/// Copies the program's sources, with this workspace's lock file, so that it needs no other crates
/// than are here.
fn consumer() -> PathBuf {
    let ours = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (from, to) = (ours.join("tests/consumer"), scratch().join("program"));
    std::fs::create_dir_all(to.join("src")).expect("a folder");
    let manifest = std::fs::read_to_string(from.join("Cargo.toml")).expect("a manifest");
    let path = format!("path = {:?}", ours.to_str().expect("a path in UTF-8"));
    let manifest = manifest.replace("path = \"../..\"", &path);
    std::fs::write(to.join("Cargo.toml"), manifest).expect("writes");
    std::fs::copy(ours.join("../../Cargo.lock"), to.join("Cargo.lock")).expect("copies");
    for source in std::fs::read_dir(from.join("src")).expect("sources") {
        let source = source.expect("a source");
        std::fs::copy(source.path(), to.join("src").join(source.file_name())).expect("copies");
    }
    to
}

fn scratch() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("consumer")
}

/// Returns Cargo's output. The time of a build is not limited.
fn cargo(verb: &str, program: &Path, arguments: &[&str]) -> String {
    let mut cargo = Command::new(env!("CARGO"));
    cargo
        .args([verb, "--offline", "--quiet", "--manifest-path"])
        .arg(program.join("Cargo.toml"))
        .args(arguments)
        .env("CARGO_TARGET_DIR", scratch().join("target"));
    let output = cargo.stdin(Stdio::null()).output().expect("cargo starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!errors.contains("warning"), "{errors}");
    said(&output)
}

#[track_caller]
fn said(output: &Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    String::from_utf8(output.stdout.clone()).expect("text")
}

/// Builds the program with these arguments for Cargo, and runs it in an empty folder.
fn run(program: &Path, arguments: &[&str]) -> String {
    cargo("build", program, arguments);
    let binary = scratch().join("target/debug/underpass-consumer");
    within(move || {
        let folder = tempfile::tempdir().expect("a folder");
        let mut program = Command::new(binary);
        said(&program.arg(folder.path()).output().expect("it starts"))
    })
}

#[test]
#[ignore = "needs a minute; run by cargo xtask test"]
fn a_stranger_copies_sends_receives_and_drives() {
    let program = consumer();
    assert_eq!(
        run(&program, &[]),
        "copied 5000000 bytes, 100 %\n\
         sealed 5000000 bytes, whole\n\
         sent 5000000 bytes, received 5000000\n\
         copy: equal\n\
         received: equal\n"
    );
    assert_eq!(
        run(&program, &["--no-default-features"]),
        "copied 5000000 bytes, 100 %\n\
         sealed 5000000 bytes, whole\n\
         copy: equal\n\
         received: none\n"
    );
    let arguments = ["--no-default-features", "--edges", "normal"];
    let tree = cargo("tree", &program, &arguments);
    assert!(tree.contains("rustix") && !tree.contains("tokio"), "{tree}");
}
