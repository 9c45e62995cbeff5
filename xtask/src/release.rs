//! `cargo xtask release`: one static binary for this machine's architecture, and a container image
//! with nothing else in it, made without Docker.
//!
//! ```text
//! cargo build, static ─► elf: is it? ─► binary ─┐
//! licences of all that is in it ────────────────┴─► image: layer, config, manifest ─► one tar file
//! ```
//!
//! The same binary gives the same image, byte by byte: no clock, no names of this machine.

mod elf;
mod image;
mod licences;

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use crate::artifacts;
use crate::needs::search_path;
use crate::workspace::{Fallible, Workspace, output};

use self::image::Image;

/// The version that all packages have.
const VERSION: &str = env!("CARGO_PKG_VERSION");

#[derive(clap::Args)]
pub(crate) struct ReleaseArguments {
    /// Where binary and image are put
    #[arg(long, value_name = "DIR", default_value = "target/package")]
    output: PathBuf,
    /// The platform it is for [default: musl of this machine where it is installed, else gnu]
    #[arg(long, value_name = "TRIPLE")]
    target: Option<String>,
    /// How it is built; `dev` takes a fraction of the time and is for trying this out
    #[arg(long, value_name = "PROFILE", default_value = "dist")]
    profile: String,
    /// Take this binary, and build none
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
}

pub(crate) fn run(workspace: &Workspace, arguments: &ReleaseArguments) -> Fallible<ExitCode> {
    let target = match &arguments.target {
        Some(target) => target.clone(),
        None => target_of_machine()?,
    };
    let program = match &arguments.program {
        Some(program) => program.clone(),
        None => build(workspace, &target, &arguments.profile)?,
    };
    let bytes = fs::read(&program).map_err(|error| format!("{}: {error}", program.display()))?;
    elf::check_static(&bytes).map_err(|why| format!("{}: {why}", program.display()))?;
    let version = VERSION;
    let architecture = target.split('-').next().unwrap_or_default();
    let licences = licences::all(workspace, &target)?;
    let image = Image {
        architecture: image_architecture(architecture)?,
        version,
        program: &bytes,
        licences: &licences,
    };
    let archive = image.archive()?;

    let folder = workspace.root.join(&arguments.output);
    fs::create_dir_all(&folder)?;
    let (binary, packed) = (folder.join("underpass"), folder.join("underpass.oci.tar"));
    write(&binary, &bytes, 0o755)?;
    write(&packed, &archive, 0o644)?;
    for (name, text) in &licences {
        write(&folder.join(name), text, 0o644)?;
    }
    let (binary, packed) = (binary.display(), packed.display());
    println!(
        "{binary}: {version}, {} bytes, static, for {target}",
        bytes.len()
    );
    println!(
        "{packed}: an image for {}, sha256:{}",
        image.architecture,
        image.digest()?
    );
    Ok(ExitCode::SUCCESS)
}

/// Written beside and renamed, so that a server that runs from there is not in the way.
fn write(path: &Path, bytes: &[u8], mode: u32) -> Fallible<()> {
    let fresh = path.with_extension("new");
    fs::write(&fresh, bytes)?;
    fs::set_permissions(&fresh, fs::Permissions::from_mode(mode))?;
    fs::rename(&fresh, path)?;
    Ok(())
}

/// musl is made for static binaries; it needs its part of the toolchain and a C compiler for it.
/// Static glibc works everywhere.
fn target_of_machine() -> Fallible<String> {
    let architecture = env::consts::ARCH;
    let musl = format!("{architecture}-unknown-linux-musl");
    let sysroot = output(Command::new("rustc").args(["--print", "sysroot"]))?;
    let sysroot = Path::new(sysroot.trim());
    let is_there = sysroot.join("lib/rustlib").join(&musl).join("lib").is_dir();
    let compiler = env::split_paths(&search_path()).any(|path| path.join("musl-gcc").is_file());
    Ok(match is_there && compiler {
        true => musl,
        false => format!("{architecture}-unknown-linux-gnu"),
    })
}

/// Builds the tool. The target is named, so that the flag is for the tool alone and not for what
/// runs while it is built (macros cannot be static).
fn build(workspace: &Workspace, target: &str, profile: &str) -> Fallible<PathBuf> {
    let mut cargo = workspace.cargo("build");
    cargo.args(["--locked", "--package", "underpass-cli", "--target", target]);
    cargo.args(["--profile", profile, "--config"]);
    cargo.arg(format!("profile.{profile}.strip='debuginfo'"));
    let flags = env::var("RUSTFLAGS").unwrap_or_default();
    cargo.env(
        "RUSTFLAGS",
        format!("{flags} -C target-feature=+crt-static"),
    );
    cargo.env_remove("CARGO_ENCODED_RUSTFLAGS");
    artifacts::tool(&mut cargo)
}

/// The names that images have for architectures are Go's.
fn image_architecture(architecture: &str) -> Fallible<&'static str> {
    match architecture {
        "x86_64" => Ok("amd64"),
        "aarch64" => Ok("arm64"),
        other => Err(format!("there are no images for {other}").into()),
    }
}
