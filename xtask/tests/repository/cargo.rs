//! Calls of cargo in the workspace by a test.

use std::env;
use std::path::Path;
use std::process::{Command, Stdio};

pub(crate) fn root() -> &'static Path {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().expect("xtask is in the workspace")
}

/// Runs a command of several words in the root of the workspace, without the variables that this
/// process got from cargo about its own package: build scripts would rebuild everything.
#[track_caller]
pub(crate) fn run(command: &[&str]) {
    let (program, arguments) = command.split_first().expect("a program");
    let mut run = Command::new(program);
    run.args(arguments).current_dir(root()).stdin(Stdio::null());
    let inherited = env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    for name in inherited.filter(|name| name.starts_with("CARGO_") || name == "CARGO") {
        if !["CARGO_HOME", "CARGO_TARGET_DIR"].contains(&name.as_str()) {
            run.env_remove(name);
        }
    }
    let status = run.env_remove("RUSTC").status();
    let status = status.unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(status.success(), "{command:?}: {status}");
}
