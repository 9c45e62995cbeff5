//! Cargo builds, and the paths of the binaries they make.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde::Deserialize;

use crate::workspace::{BuildTarget, Fallible, Workspace, output};

/// An executable that was built, as reported by cargo.
#[derive(Debug, Deserialize, PartialEq)]
pub(crate) struct Binary {
    pub(crate) manifest_path: PathBuf,
    pub(crate) target: BuildTarget,
    profile: BuiltProfile,
    pub(crate) executable: PathBuf,
}

#[derive(Debug, Deserialize, PartialEq)]
struct BuiltProfile {
    test: bool,
}

impl Binary {
    /// Parses a message of cargo; most are about something else.
    fn of_message(line: &str) -> Option<Self> {
        serde_json::from_str(line).ok()
    }

    pub(crate) fn is_program(&self) -> bool {
        self.target.is("bin") && !self.profile.test
    }

    pub(crate) fn is_test(&self) -> bool {
        self.profile.test
    }
}

/// Builds libraries, binaries, examples and tests. Returns `None` if something does not compile;
/// the compiler has printed the errors.
pub(crate) fn all(workspace: &Workspace) -> Fallible<Option<Vec<Binary>>> {
    tests(&mut workspace.cargo_over_everything("test"))
}

/// Builds everything that this `cargo test` would run. Returns `None` like [`all`].
pub(crate) fn tests(cargo: &mut Command) -> Fallible<Option<Vec<Binary>>> {
    cargo.args(["--no-run", "--message-format=json-render-diagnostics"]);
    let mut child = cargo.stdout(Stdio::piped()).spawn()?;
    let mut binaries = Vec::new();
    if let Some(output) = child.stdout.take() {
        for line in BufReader::new(output).lines() {
            binaries.extend(Binary::of_message(&line?));
        }
    }
    Ok(child.wait()?.success().then_some(binaries))
}

/// Returns a build of the tool with the packages and features of the tests, so that they share
/// dependencies.
pub(crate) fn debug_build(workspace: &Workspace) -> Command {
    let mut cargo = workspace.cargo_over_everything("build");
    cargo.args(["--quiet", "--bin", "underpass"]);
    cargo
}

/// Runs a build of the tool, and returns the path of the binary.
pub(crate) fn tool(build: &mut Command) -> Fallible<PathBuf> {
    build.arg("--message-format=json-render-diagnostics");
    let messages = output(build)?;
    let mut binaries = messages.lines().filter_map(Binary::of_message);
    let is_tool = |found: &Binary| found.is_program() && found.target.name == "underpass";
    let found = binaries.find(is_tool).ok_or("cargo names no binary")?;
    Ok(found.executable)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn messages_about_binaries_are_understood() {
        let line = r#"{"reason":"compiler-artifact","manifest_path":"/w/a/Cargo.toml",
            "target":{"kind":["test"],"crate_types":["bin"],"name":"kernel","src_path":"/w/a/t.rs"},
            "profile":{"opt_level":"0","test":true},"features":[],"filenames":["/t/kernel-1"],
            "executable":"/t/kernel-1","fresh":true}"#;
        let test = Binary::of_message(line).expect("a binary");
        assert_eq!(test.manifest_path, Path::new("/w/a/Cargo.toml"));
        assert_eq!(test.executable, Path::new("/t/kernel-1"));
        assert_eq!(test.target.name, "kernel");
        assert!(test.is_test() && !test.is_program());
        let program = line
            .replace("\"test\":true", "\"test\":false")
            .replace("[\"test\"]", "[\"bin\"]");
        let program = Binary::of_message(&program).expect("a binary");
        assert!(program.is_program() && !program.is_test());
    }

    #[test]
    fn messages_about_anything_else_are_passed_over() {
        let line = r#"{"reason":"compiler-artifact","manifest_path":"/w/a/Cargo.toml",
            "target":{"kind":["lib"],"name":"a"},"profile":{"test":false},"executable":null}"#;
        assert_eq!(Binary::of_message(line), None);
        assert_eq!(
            Binary::of_message(r#"{"reason":"build-finished","success":true}"#),
            None
        );
        assert_eq!(Binary::of_message("not JSON"), None);
    }
}
