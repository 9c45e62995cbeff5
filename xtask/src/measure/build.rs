//! Release builds: of the server, and of the client, which would else be the limit itself.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::workspace::Workspace;

use super::error::{Doing, Error, Result};

/// Builds `packages` in release mode and says in which directory the programs are.
pub(crate) fn build_release(workspace: &Workspace, packages: &[&str]) -> Result<PathBuf> {
    let mut command = workspace.cargo("build");
    command.args(["--release", "--quiet"]);
    for package in packages {
        command.args(["--package", package]);
    }
    let status = command.status().doing(|| "running cargo build".into())?;
    if !status.success() {
        return Err(Error::Setting("cargo build failed".into()));
    }
    release_directory()
}

/// Becomes the release build of this program, with the same arguments. Returns only on failure.
pub(crate) fn become_release(workspace: &Workspace) -> Result<()> {
    let program = build_release(workspace, &["xtask"])?.join("xtask");
    let error = Command::new(&program)
        .args(std::env::args_os().skip(1))
        .exec();
    Err(error).doing(|| format!("becoming {}", program.display()))
}

/// `release` beside the directory that this program is in.
fn release_directory() -> Result<PathBuf> {
    let program = std::env::current_exe().doing(|| "finding this program".into())?;
    let target = program.parent().and_then(Path::parent);
    let target = target.ok_or_else(|| Error::Setting("this program is in no target".into()))?;
    Ok(target.join("release"))
}
