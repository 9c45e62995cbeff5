//! Builds everything the tests need, once, and learns where the binaries are.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::Stdio;

use serde::Deserialize;

use crate::workspace::{Fallible, Workspace};

/// What was built that can be run.
#[derive(Debug, PartialEq)]
pub(super) struct Binary {
    /// The manifest of its package.
    pub(super) manifest: PathBuf,
    pub(super) target: String,
    pub(super) kind: Kind,
    pub(super) executable: PathBuf,
}

#[derive(Debug, PartialEq)]
pub(super) enum Kind {
    Program,
    IntegrationTest,
    Other,
}

/// Builds libraries, binaries, examples and tests. `None` where something does not compile; the
/// compiler has said what.
pub(super) fn all(workspace: &Workspace) -> Fallible<Option<Vec<Binary>>> {
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

/// The program of a name, in the messages of a build.
pub(crate) fn program_built(messages: &str, name: &str) -> Option<PathBuf> {
    let mut binaries = messages.lines().filter_map(binary);
    let found = binaries.find(|found| found.kind == Kind::Program && found.target == name);
    found.map(|found| found.executable)
}

#[derive(Deserialize)]
struct Message {
    manifest_path: PathBuf,
    target: MessageTarget,
    profile: Profile,
    executable: PathBuf,
}

#[derive(Deserialize)]
struct MessageTarget {
    name: String,
    kind: Vec<String>,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

/// What a message of cargo says about a binary; most are about something else.
fn binary(line: &str) -> Option<Binary> {
    let message: Message = serde_json::from_str(line).ok()?;
    let is = |kind: &str| message.target.kind.iter().any(|found| found == kind);
    let kind = match message.profile.test {
        true if is("test") => Kind::IntegrationTest,
        false if is("bin") => Kind::Program,
        _ => Kind::Other,
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
            kind: Kind::IntegrationTest,
            executable: "/t/kernel-1".into(),
        };
        assert_eq!(binary(line), Some(expected));
        let program = line
            .replace("\"test\":true", "\"test\":false")
            .replace("[\"test\"]", "[\"bin\"]");
        assert_eq!(
            binary(&program).map(|found| found.kind),
            Some(Kind::Program)
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
