//! Installation and compilation of kits.

use std::collections::BTreeSet;
use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::table::{KitSource, PeerKit};
use crate::needs::search_path;
use crate::packages;
use crate::release::{self, PROFILE};
use crate::workspace::{Fallible, Workspace};

/// The folder for everything this module makes, relative to the root of the workspace.
pub(super) const FOLDER: &str = "target/peers";

/// The search path for kits: first `target/peers`, then the machine's.
pub(super) struct Installation<'w> {
    pub(super) workspace: &'w Workspace,
    path: OsString,
}

impl<'w> Installation<'w> {
    pub(super) fn open(workspace: &'w Workspace) -> Fallible<Self> {
        let own = workspace.root.join(FOLDER).join("bin");
        fs::create_dir_all(&own)?;
        let path = env::join_paths(
            [own, build_directory()?]
                .into_iter()
                .chain(env::split_paths(&search_path())),
        )?;
        Ok(Self { workspace, path })
    }

    /// Returns a command that finds the kits, in the root of the workspace.
    pub(super) fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(&self.workspace.root)
            .env("PATH", &self.path)
            .stdin(Stdio::null());
        command
    }

    /// Returns the version that a kit prints, or why it is missing.
    pub(super) fn version(&self, kit: &PeerKit) -> Result<String, String> {
        let output = self.command(kit.program()).arg(&kit.version).output();
        let said = output.map_err(|_| kit.cure())?;
        if matches!(kit.from, KitSource::Tests) && !said.status.success() {
            return Err(kit.cure());
        }
        let said = String::from_utf8_lossy(&[said.stdout, said.stderr].concat()).into_owned();
        let first = said.lines().find(|line| !line.trim().is_empty());
        let words = first.unwrap_or("version unknown").split_whitespace();
        Ok(words.collect::<Vec<_>>().join(" "))
    }

    /// Compiles the kit's programs in `peers/`, if any.
    pub(super) fn build(&self, kit: &PeerKit) -> Result<(), String> {
        for step in &kit.build {
            let mut words = step.split(' ');
            let program = words.next().unwrap_or_default();
            let status = self.command(program).args(words).status();
            let status = status.map_err(|error| format!("{program}: {error}"))?;
            if !status.success() {
                return Err(format!("`{step}`: {status}"));
            }
        }
        Ok(())
    }

    /// Installs missing kits where possible, and compiles the others.
    pub(super) fn install(&self, kits: Vec<&PeerKit>) -> Fallible<()> {
        let missing = kits.iter().filter(|kit| self.version(kit).is_err());
        let (mut packages, mut crates) = (BTreeSet::new(), Vec::new());
        for kit in missing {
            match &kit.from {
                KitSource::Workspace => build_underpass(self.workspace)?,
                KitSource::Debian(package) => drop(packages.insert(package.as_str())),
                KitSource::CratesIo(name) => crates.push(name),
                KitSource::Tests => println!("{}: {}", kit.name, kit.cure()),
            }
        }
        packages::install(&packages)?;
        for name in crates {
            let mut cargo = self.workspace.cargo("install");
            cargo.args(["--root", FOLDER, "--locked", name]);
            let status = cargo.status()?;
            if !status.success() {
                println!("{name}: `cargo install --locked {name}` failed: {status}");
            }
        }
        for kit in kits.into_iter().filter(|kit| self.version(kit).is_ok()) {
            if let Err(error) = self.build(kit) {
                println!("{}: {error}", kit.name);
            }
        }
        Ok(())
    }
}

impl PeerKit {
    fn cure(&self) -> String {
        let (step, from) = match &self.from {
            KitSource::Workspace => ("peers", "the build of `cargo xtask release`".to_owned()),
            KitSource::Debian(package) => ("peers", format!("Debian's package {package}")),
            KitSource::CratesIo(name) => ("peers", format!("crates.io's package {name}")),
            KitSource::Tests => ("test", "Maven Central".to_owned()),
        };
        format!("not there: `cargo xtask {step} --install` makes it, from {from}")
    }
}

/// Makes the release build, which is the one that is measured.
pub(super) fn build_underpass(workspace: &Workspace) -> Fallible<()> {
    release::build(workspace, &release::target_of_machine()?, PROFILE).map(drop)
}

/// Returns the output directory of [`build_underpass`], derived from the path of this program.
fn build_directory() -> Fallible<PathBuf> {
    let program = env::current_exe()?;
    let target = program.ancestors().nth(2);
    let target = target.ok_or("this program is in no target directory")?;
    Ok(target.join(release::target_of_machine()?).join(PROFILE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_fit_a_screen() {
        let mut pending = vec![Workspace::here().root.join("peers")];
        let mut programs = 0;
        while let Some(directory) = pending.pop() {
            for entry in fs::read_dir(directory).expect("a directory") {
                let path = entry.expect("an entry").path();
                let extension = path.extension().unwrap_or_default().to_string_lossy();
                if path.is_dir() {
                    pending.push(path);
                } else if ["c", "h", "go", "java", "py"].contains(&&*extension) {
                    let lines = fs::read_to_string(&path).expect("a text").lines().count();
                    // Servers and networks need more lines than other programs.
                    let is_more = path.ends_with("floor.c") || path.ends_with("path.c");
                    let most = if is_more { 180 } else { 80 };
                    assert!(lines < most, "{} has {lines} lines", path.display());
                    programs += 1;
                }
            }
        }
        assert!(programs > 10);
    }

    #[test]
    fn what_is_missing_says_where_it_comes_from() {
        let workspace = Workspace::here();
        let installation = Installation::open(&workspace).expect("an installation");
        let kit = toml::from_str(
            "name = 'underpass-no-such-program'\nfrom = { crates_io = 'none' }\nbuild = ['false']",
        );
        let kit: PeerKit = kit.expect("a kit");
        let lack = installation.version(&kit).expect_err("nothing");
        assert!(lack.ends_with("from crates.io's package none"), "{lack}");
        assert_eq!(
            installation.build(&kit),
            Err("`false`: exit status: 1".into())
        );
    }
}
