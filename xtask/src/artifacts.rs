//! Calls of cargo that build, and where the binaries are that they make.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde::Deserialize;

use crate::workspace::{Fallible, Workspace, output};

/// What was built that can be run.
#[derive(Debug, PartialEq)]
pub(crate) struct Binary {
    /// The manifest of its package.
    pub(crate) manifest: PathBuf,
    pub(crate) target: String,
    pub(crate) kind: BinaryKind,
    pub(crate) executable: PathBuf,
}

#[derive(Debug, PartialEq)]
pub(crate) enum BinaryKind {
    Program,
    IntegrationTest,
    Other,
}

/// Builds libraries, binaries, examples and tests. `None` where something does not compile; the
/// compiler has said what.
pub(crate) fn all(workspace: &Workspace) -> Fallible<Option<Vec<Binary>>> {
    let mut cargo = workspace.cargo_over_everything("test");
    cargo.args(["--no-run", "--message-format=json-render-diagnostics"]);
    let mut child = cargo.stdout(Stdio::piped()).spawn()?;
    let mut binaries = Vec::new();
    if let Some(output) = child.stdout.take() {
        for line in BufReader::new(output).lines() {
            binaries.extend(binary(&line?));
        }
    }
    Ok(child.wait()?.success().then_some(binaries))
}

/// A build of the tool with the packages and features of the tests, so that it shares their
/// dependencies.
pub(crate) fn debug_build(workspace: &Workspace) -> Command {
    let mut cargo = workspace.cargo_over_everything("build");
    cargo.args(["--quiet", "--bin", "underpass"]);
    cargo
}

/// Runs a build of the tool, and returns where the binary is.
pub(crate) fn tool(build: &mut Command) -> Fallible<PathBuf> {
    build.arg("--message-format=json-render-diagnostics");
    let messages = output(build)?;
    let mut binaries = messages.lines().filter_map(binary);
    let is_tool = |found: &Binary| found.kind == BinaryKind::Program && found.target == "underpass";
    let found = binaries.find(is_tool).ok_or("cargo names no binary")?;
    Ok(found.executable)
}

#[derive(Deserialize)]
struct BuildMessage {
    manifest_path: PathBuf,
    target: BuiltTarget,
    profile: BuiltProfile,
    executable: PathBuf,
}

#[derive(Deserialize)]
struct BuiltTarget {
    name: String,
    kind: Vec<String>,
}

#[derive(Deserialize)]
struct BuiltProfile {
    test: bool,
}

/// What a message of cargo says about a binary; most are about something else.
fn binary(line: &str) -> Option<Binary> {
    let message: BuildMessage = serde_json::from_str(line).ok()?;
    let is = |kind: &str| message.target.kind.iter().any(|found| found == kind);
    let kind = match message.profile.test {
        true if is("test") => BinaryKind::IntegrationTest,
        false if is("bin") => BinaryKind::Program,
        _ => BinaryKind::Other,
    };
    Some(Binary {
        manifest: message.manifest_path,
        target: message.target.name,
        kind,
        executable: message.executable,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_about_binaries_are_understood() {
        let line = r#"{"reason":"compiler-artifact","manifest_path":"/w/a/Cargo.toml",
            "target":{"kind":["test"],"crate_types":["bin"],"name":"kernel","src_path":"/w/a/t.rs"},
            "profile":{"opt_level":"0","test":true},"features":[],"filenames":["/t/kernel-1"],
            "executable":"/t/kernel-1","fresh":true}"#;
        let expected = Binary {
            manifest: "/w/a/Cargo.toml".into(),
            target: "kernel".into(),
            kind: BinaryKind::IntegrationTest,
            executable: "/t/kernel-1".into(),
        };
        assert_eq!(binary(line), Some(expected));
        let program = line
            .replace("\"test\":true", "\"test\":false")
            .replace("[\"test\"]", "[\"bin\"]");
        assert_eq!(
            binary(&program).map(|found| found.kind),
            Some(BinaryKind::Program)
        );
    }

    #[test]
    fn messages_about_anything_else_are_passed_over() {
        let line = r#"{"reason":"compiler-artifact","manifest_path":"/w/a/Cargo.toml",
            "target":{"kind":["lib"],"name":"a"},"profile":{"test":false},"executable":null}"#;
        assert_eq!(binary(line), None);
        assert_eq!(
            binary(r#"{"reason":"build-finished","success":true}"#),
            None
        );
        assert_eq!(binary("not JSON"), None);
    }
}
