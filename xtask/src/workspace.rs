//! The workspace, calls of cargo in it, and the parsed output of `cargo metadata`.

use std::env;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use serde::Deserialize;

/// The result of a subcommand; its error is only printed.
pub(crate) type Fallible<T> = Result<T, Box<dyn Error>>;

/// The supported platforms. Dependencies for other platforms are neither downloaded nor checked.
const PLATFORMS: [&str; 2] = ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"];

/// Returns the exit code of a subcommand that has finished its work.
pub(crate) fn exit_code(is_good: bool) -> ExitCode {
    match is_good {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// Runs a command that must succeed, and returns its standard output.
pub(crate) fn output(command: &mut Command) -> Fallible<String> {
    let output = command.stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| format!("{command:?}: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8(output.stdout)?),
        false => Err(format!("{command:?}: {}", output.status).into()),
    }
}

pub(crate) struct Workspace {
    pub(crate) root: PathBuf,
}

impl Workspace {
    /// Returns the workspace this xtask was started in. It comes from `cargo run`: the compiled-in
    /// path may be that of another clone that shares the target directory.
    pub(crate) fn here() -> Self {
        let manifest =
            env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
        let root = Path::new(&manifest)
            .parent()
            .unwrap_or(Path::new("."))
            .to_owned();
        Self { root }
    }

    /// Returns a cargo without the variables that this process got from `cargo run` about xtask's
    /// own package: build scripts that watch such variables would rebuild everything.
    pub(crate) fn cargo(&self, subcommand: &str) -> Command {
        let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        for (name, _) in env::vars_os() {
            let of_xtask = name.to_str().is_some_and(|name| {
                name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
            });
            if of_xtask {
                cargo.env_remove(name);
            }
        }
        cargo
            .arg(subcommand)
            .current_dir(&self.root)
            .stdin(Stdio::null());
        cargo
    }

    /// Returns a cargo with the one selection of packages and features that every step uses. A
    /// second selection would build the dependencies again.
    pub(crate) fn cargo_over_everything(&self, subcommand: &str) -> Command {
        let mut cargo = self.cargo(subcommand);
        cargo.args(["--workspace", "--all-features"]);
        cargo
    }

    pub(crate) fn metadata(&self) -> Fallible<Metadata> {
        let mut cargo = self.cargo("metadata");
        cargo.args(["--format-version", "1", "--all-features"]);
        for platform in PLATFORMS {
            cargo.args(["--filter-platform", platform]);
        }
        Ok(serde_json::from_str(&output(&mut cargo)?)?)
    }
}

#[derive(Default, Deserialize)]
pub(crate) struct Metadata {
    pub(crate) packages: Vec<Package>,
}

#[derive(Clone, Default, Deserialize)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: String,
    /// `None` for a package of this workspace.
    pub(crate) source: Option<String>,
    pub(crate) license: Option<String>,
    pub(crate) manifest_path: PathBuf,
    pub(crate) dependencies: Vec<Dependency>,
    pub(crate) targets: Vec<BuildTarget>,
}

#[derive(Clone, Default, Deserialize)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    /// `None` for a normal dependency; otherwise `dev` or `build`.
    pub(crate) kind: Option<String>,
    /// `None` for a package of another workspace.
    pub(crate) path: Option<PathBuf>,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
pub(crate) struct BuildTarget {
    pub(crate) name: String,
    pub(crate) kind: Vec<String>,
    pub(crate) src_path: PathBuf,
}

impl Metadata {
    /// Returns the packages of this workspace.
    pub(crate) fn ours(&self) -> impl Iterator<Item = &Package> {
        self.packages
            .iter()
            .filter(|package| package.source.is_none())
    }

    /// Returns the third-party packages.
    pub(crate) fn theirs(&self) -> impl Iterator<Item = &Package> {
        self.packages
            .iter()
            .filter(|package| package.source.is_some())
    }
}

impl Package {
    /// Returns its dependencies in this workspace, except those for tests only.
    pub(crate) fn dependencies_on_ours(&self) -> impl Iterator<Item = &Dependency> {
        self.dependencies
            .iter()
            .filter(|dependency| dependency.path.is_some() && dependency.kind.is_none())
    }

    /// Returns the targets that have tests: integration tests, and the library or program itself.
    pub(crate) fn tests(&self) -> impl Iterator<Item = &BuildTarget> {
        let targets = self.targets.iter();
        targets.filter(|target| ["test", "lib", "bin"].iter().any(|kind| target.is(kind)))
    }
}

impl BuildTarget {
    /// Returns whether a file belongs to the target with this root: the root itself and, for
    /// `tests/NAME/main.rs` and the like, the files in its folder.
    pub(crate) fn has(root: &str, path: &str) -> bool {
        let folder = root.strip_suffix("main.rs").or(root.strip_suffix("lib.rs"));
        path == root || folder.is_some_and(|folder| path.starts_with(folder))
    }

    pub(crate) fn is(&self, kind: &str) -> bool {
        self.kind.iter().any(|found| found == kind)
    }

    /// Returns whether it is a library or program, or builds one, and not a test or example.
    pub(crate) fn is_shipped(&self) -> bool {
        let kinds = [
            "lib",
            "bin",
            "proc-macro",
            "custom-build",
            "rlib",
            "cdylib",
            "staticlib",
        ];
        kinds.iter().any(|kind| self.is(kind))
    }
}

#[cfg(test)]
pub(crate) mod fake {
    //! Packages for tests of the checks.

    use super::*;

    /// Returns a package of this workspace in `/w/NAME`.
    pub(crate) fn ours(name: &str) -> Package {
        let manifest_path = format!("/w/{name}/Cargo.toml").into();
        Package {
            name: name.into(),
            version: "0.1.0".into(),
            manifest_path,
            ..Package::default()
        }
    }

    pub(crate) fn theirs(name: &str, version: &str) -> Package {
        let source = Some("registry+https://github.com/rust-lang/crates.io-index".into());
        Package {
            version: version.into(),
            source,
            ..ours(name)
        }
    }

    impl Package {
        pub(crate) fn needing(mut self, dependency: Dependency) -> Self {
            self.dependencies.push(dependency);
            self
        }

        pub(crate) fn licensed(mut self, license: &str) -> Self {
            self.license = Some(license.into());
            self
        }

        pub(crate) fn with_target(mut self, kind: &str, name: &str, path: &str) -> Self {
            let src_path = self.manifest_path.with_file_name(path);
            self.targets.push(BuildTarget {
                name: name.into(),
                kind: vec![kind.into()],
                src_path,
            });
            self
        }
    }

    impl Dependency {
        pub(crate) fn on_ours(name: &str) -> Self {
            Self {
                path: Some(format!("/w/{name}").into()),
                ..Self::on_theirs(name)
            }
        }

        pub(crate) fn on_theirs(name: &str) -> Self {
            Self {
                name: name.into(),
                ..Self::default()
            }
        }

        pub(crate) fn kind(mut self, kind: &str) -> Self {
            self.kind = Some(kind.into());
            self
        }
    }
}
