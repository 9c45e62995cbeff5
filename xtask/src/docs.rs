//! `cargo xtask docs`: the generated pages are written by the tests that compare them, so that
//! a page can't be stale while the tests pass.

use std::process::ExitCode;

use crate::workspace::{Fallible, Workspace, exit_code};

/// The test target, and the tests of it, that write their page where `UPDATE_DOCS` is set, and fail
/// on a difference where it isn't.
const WRITERS: [&str; 4] = ["--test", "pure", "--", "decisions::"];

pub(crate) fn run(workspace: &Workspace) -> Fallible<ExitCode> {
    let mut cargo = workspace.cargo_over_everything("test");
    let status = cargo.args(WRITERS).env("UPDATE_DOCS", "1").status()?;
    Ok(exit_code(status.success()))
}
