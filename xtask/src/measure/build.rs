//! Release builds: of the server, and of the client, which would else be the limit itself.

use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

use super::error::{Doing, Error, Result};

/// Builds `packages` in release mode and says in which directory the programs are.
pub(crate) fn build_release(packages: &[&str]) -> Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--release", "--quiet"]);
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
pub(crate) fn become_release() -> Result<()> {
    let program = build_release(&["xtask"])?.join("xtask");
    let error = Command::new(&program)
        .args(std::env::args_os().skip(1))
        .exec();
    Err(error).doing(|| format!("becoming {}", program.display()))
}

/// `release` beside the directory that this program is in.
pub(crate) fn release_directory() -> Result<PathBuf> {
    let program = std::env::current_exe().doing(|| "finding this program".into())?;
    let target = program.parent().and_then(std::path::Path::parent);
    let target = target.ok_or_else(|| Error::Setting("this program is in no target".into()))?;
    Ok(target.join("release"))
}
