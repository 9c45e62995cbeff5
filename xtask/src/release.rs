//! `cargo xtask release`: the static binaries `underpass` and `underpass-bench` for this machine's
//! architecture, and a container image with the first one, made without Docker.
//!
//! ```text
//! cargo build, static ─► is it? ─► binaries ┐
//! licences of all that is in it ───────────┴─► image: layer, config, manifest ─► one tar file
//! ```
//!
//! The same binary gives the same image, byte by byte: no clock, no names of this machine.

mod image;
mod licences;

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use object::Endianness;
use object::elf::{DT_NEEDED, FileHeader64};
use object::read::elf::{Dyn, FileHeader, ProgramHeader};

use crate::artifacts;
use crate::needs::has_program;
use crate::workspace::{Fallible, Workspace, output};

use self::image::Image;

/// The default build profile.
pub(crate) const PROFILE: &str = "dist";

/// The packages that are shipped.
const PACKAGES: [&str; 2] = ["underpass-cli", "underpass-bench"];

const BENCH: &str = "underpass-bench";

/// The version of all packages.
const VERSION: &str = env!("CARGO_PKG_VERSION");

#[derive(clap::Args)]
pub(crate) struct ReleaseArguments {
    /// Directory for the binaries and the image
    #[arg(long, value_name = "DIR", default_value = "target/package")]
    output: PathBuf,
    /// The platform it is for [default: musl of this machine where it is installed, else gnu]
    #[arg(long, value_name = "TRIPLE")]
    target: Option<String>,
    /// How it is built; `dev` takes a fraction of the time and is for trying this out
    #[arg(long, value_name = "PROFILE", default_value = PROFILE)]
    profile: String,
    /// Take this binary and `underpass-bench` in its folder, and build none
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
    let bytes = read_static(&program)?;
    let bench = read_static(&program.with_file_name(BENCH))?;
    let architecture = target.split('-').next().unwrap_or_default();
    let architecture = image_architecture(architecture)?;
    let licences = licences::all(workspace, &target, &PACKAGES)?;
    let image = Image {
        architecture,
        version: VERSION,
        program: &bytes,
        licences: &licences,
    };
    let (archive, digest) = image.archive()?;

    let folder = workspace.root.join(&arguments.output);
    fs::create_dir_all(&folder)?;
    let (binary, packed) = (folder.join("underpass"), folder.join("underpass.oci.tar"));
    write(&binary, &bytes, 0o755)?;
    write(&folder.join(BENCH), &bench, 0o755)?;
    write(&packed, &archive, 0o644)?;
    for (name, text) in &licences {
        write(&folder.join(name), text, 0o644)?;
    }
    let (binary, packed) = (binary.display(), packed.display());
    let length = bytes.len();
    println!("{binary}: {VERSION}, {length} bytes, static, for {target}");
    println!("{binary}-bench: {} bytes, static", bench.len());
    println!("{packed}: an image for {architecture}, sha256:{digest}");
    Ok(ExitCode::SUCCESS)
}

/// Reads a binary. Returns an error if it is not static.
fn read_static(program: &Path) -> Fallible<Vec<u8>> {
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", program.display());
    let bytes = fs::read(program).map_err(|error| failed(&error))?;
    match needed(&bytes).map_err(|error| failed(&error))? {
        Some(what) => Err(failed(&format!("it needs {what}: it is not static")).into()),
        None => Ok(bytes),
    }
}

/// Writes a new file and renames it, so that a running server doesn't block the replacement.
fn write(path: &Path, bytes: &[u8], mode: u32) -> Fallible<()> {
    let fresh = path.with_extension("new");
    fs::write(&fresh, bytes)?;
    fs::set_permissions(&fresh, fs::Permissions::from_mode(mode))?;
    fs::rename(&fresh, path)?;
    Ok(())
}

/// Returns musl, which is made for static binaries, if its part of the toolchain and a C compiler
/// for it are installed. Otherwise returns glibc, which can be linked statically everywhere.
pub(crate) fn target_of_machine() -> Fallible<String> {
    let architecture = env::consts::ARCH;
    let musl = format!("{architecture}-unknown-linux-musl");
    let sysroot = output(Command::new("rustc").args(["--print", "sysroot"]))?;
    let sysroot = Path::new(sysroot.trim());
    let is_there = sysroot.join("lib/rustlib").join(&musl).join("lib").is_dir();
    Ok(match is_there && has_program("musl-gcc") {
        true => musl,
        false => format!("{architecture}-unknown-linux-gnu"),
    })
}

/// Builds both programs and returns the path of `underpass`; `underpass-bench` is in the same
/// folder. The target is named, so that the flag applies to the programs only and not to code that
/// runs during the build (macros cannot be static).
pub(crate) fn build(workspace: &Workspace, target: &str, profile: &str) -> Fallible<PathBuf> {
    let mut cargo = workspace.cargo("build");
    cargo.args(["--locked", "--bins", "--target", target]);
    cargo.args(PACKAGES.iter().flat_map(|package| ["--package", package]));
    cargo.args(["--profile", profile, "--config"]);
    cargo.arg(format!("profile.{profile}.strip='debuginfo'"));
    let mut flags = env::var("RUSTFLAGS").unwrap_or_default();
    flags.push_str(" -C target-feature=+crt-static");
    if applies_packed_relocations(target) {
        flags.push_str(" -C link-arg=-Wl,-z,pack-relative-relocs");
    }
    cargo.env("RUSTFLAGS", flags);
    cargo.env_remove("CARGO_ENCODED_RUSTFLAGS");
    artifacts::tool(&mut cargo)
}

/// Returns whether the linked C library supports packed relative relocations (DT_RELR), with which
/// it reads 8 KB of them before `main` instead of 750 KB. Without support a static binary crashes
/// at the start.
fn applies_packed_relocations(target: &str) -> bool {
    let native = format!("{}-unknown-linux-gnu", env::consts::ARCH);
    let version = output(Command::new("getconf").arg("GNU_LIBC_VERSION"));
    target == native && version.is_ok_and(|version| is_glibc_2_36(&version))
}

/// Returns whether `getconf GNU_LIBC_VERSION` printed 2.36 or later.
fn is_glibc_2_36(printed: &str) -> bool {
    let minor = printed.trim().strip_prefix("glibc 2.");
    let minor = minor.and_then(|minor| minor.split('.').next()?.parse::<u32>().ok());
    minor.is_some_and(|minor| minor >= 36)
}

/// Returns Go's name of an architecture, as used by images.
fn image_architecture(architecture: &str) -> Fallible<&'static str> {
    match architecture {
        "x86_64" => Ok("amd64"),
        "aarch64" => Ok("arm64"),
        other => Err(format!("there are no images for {other}").into()),
    }
}

/// Returns what the binary needs besides the kernel to run: a loader or a library (elf(5)).
fn needed(bytes: &[u8]) -> object::Result<Option<&'static str>> {
    let header = FileHeader64::<Endianness>::parse(bytes)?;
    let endian = header.endian()?;
    for segment in header.program_headers(endian, bytes)? {
        if segment.interpreter(endian, bytes)?.is_some() {
            return Ok(Some("a loader (PT_INTERP)"));
        }
        // A position-independent static binary has a dynamic section, too.
        let entries = segment.dynamic(endian, bytes)?.unwrap_or_default();
        if entries.iter().any(|entry| entry.d_tag(endian) == DT_NEEDED) {
            return Ok(Some("a library (DT_NEEDED)"));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use object::elf::{PT_DYNAMIC, PT_INTERP, PT_LOAD};

    use super::*;

    /// Makes an ELF file with one segment of a type, which contains an entry of a dynamic section.
    fn elf(segment: u32, entry: u64) -> Vec<u8> {
        let mut bytes = vec![0; 192];
        bytes[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        let mut put = |at: usize, value: u64, width: usize| {
            bytes[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
        };
        put(32, 64, 8);
        put(54, 56, 2);
        put(56, 1, 2);
        put(64, segment.into(), 4);
        put(72, 128, 8);
        put(96, 32, 8);
        put(128, entry, 8);
        bytes
    }

    #[test]
    fn relocations_are_packed_for_a_c_library_that_knows_them() {
        for (printed, expected) in [
            ("glibc 2.36\n", true),
            ("glibc 2.39.9000", true),
            ("glibc 2.35", false),
            ("glibc 2.", false),
            ("musl 2.40", false),
            ("", false),
        ] {
            assert_eq!(is_glibc_2_36(printed), expected, "{printed}");
        }
        assert!(!applies_packed_relocations("sparc64-unknown-linux-gnu"));
    }

    #[test]
    fn loaders_and_libraries_are_found() {
        assert_eq!(needed(&elf(PT_LOAD, 0)), Ok(None));
        assert_eq!(needed(&elf(PT_DYNAMIC, 5)), Ok(None));
        for (segment, entry, what) in [(PT_INTERP, 0, "loader"), (PT_DYNAMIC, 1, "library")] {
            let found = needed(&elf(segment, entry)).expect("an ELF");
            assert!(found.is_some_and(|found| found.contains(what)), "{found:?}");
        }
    }

    #[test]
    fn this_very_test_is_not_static_and_anything_else_is_no_elf() {
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        if !cfg!(target_feature = "crt-static") {
            assert_eq!(needed(&own), Ok(Some("a loader (PT_INTERP)")));
        }
        for length in [0, 6, 63, 64, 70, 127, 140] {
            assert!(needed(&elf(PT_DYNAMIC, 1)[..length]).is_err(), "{length}");
        }
        assert!(needed(b"#!/bin/sh\n").is_err());
    }
}
