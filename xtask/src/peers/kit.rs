//! Whether a kit is there, and how it comes to be.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::table::{Kit, Source};
use crate::test::{install_packages, search_path};
use crate::workspace::{Fallible, Workspace, output};

/// Below the root of the workspace: everything that this module makes.
pub(super) const SHOP: &str = "target/peers";

/// Where kits are found: what is below `target/peers` first, the machine's behind it.
pub(super) struct Shop<'w> {
    pub(super) workspace: &'w Workspace,
    path: OsString,
}

impl<'w> Shop<'w> {
    pub(super) fn open(workspace: &'w Workspace) -> Fallible<Self> {
        let own = workspace.root.join(SHOP).join("bin");
        fs::create_dir_all(&own)?;
        let path = env::join_paths(
            [own, build_directory()?]
                .into_iter()
                .chain(env::split_paths(&search_path())),
        )?;
        Ok(Self { workspace, path })
    }

    /// A command that finds the kits, in the root of the workspace.
    pub(super) fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(&self.workspace.root)
            .env("PATH", &self.path)
            .stdin(Stdio::null());
        command
    }

    /// What the kit says of itself, or why it is not there.
    pub(super) fn version(&self, kit: &Kit) -> Result<String, String> {
        let output = self.command(kit.program).args(kit.version).output();
        let said = output.map_err(|_| kit.cure())?;
        let said = String::from_utf8_lossy(&[said.stdout, said.stderr].concat()).into_owned();
        let first = said.lines().find(|line| !line.trim().is_empty());
        let words = first.unwrap_or("version unknown").split_whitespace();
        Ok(words.collect::<Vec<_>>().join(" "))
    }

    /// Compiles what the kit has in `peers/`, if anything.
    pub(super) fn build(&self, kit: &Kit) -> Result<(), String> {
        for step in kit.build {
            let [program, arguments @ ..] = step else {
                continue;
            };
            let status = self.command(program).args(arguments).status();
            let status = status.map_err(|error| format!("{program}: {error}"))?;
            if !status.success() {
                return Err(format!("`{}`: {status}", step.join(" ")));
            }
        }
        Ok(())
    }

    /// Installs the kits that are missing, as far as that is possible, and compiles the others.
    pub(super) fn install(&self, kits: &[&Kit]) -> Fallible<()> {
        let missing = kits.iter().filter(|kit| self.version(kit).is_err());
        let (mut packages, mut crates) = (Vec::new(), Vec::new());
        for kit in missing {
            match kit.source {
                Source::Workspace => build_underpass(self.workspace)?,
                Source::Debian(package) => packages.push(package),
                Source::CratesIo(name) => crates.push(name),
            }
        }
        install_packages(&packages)?;
        for name in crates {
            let mut cargo = self.workspace.cargo("install");
            cargo.args(["--root", SHOP, "--locked", name]);
            let status = cargo.status()?;
            if !status.success() {
                println!("{name}: `cargo install --locked {name}` failed: {status}");
            }
        }
        for kit in kits.iter().filter(|kit| self.version(kit).is_ok()) {
            if let Err(error) = self.build(kit) {
                println!("{}: {error}", kit.name);
            }
        }
        Ok(())
    }
}

impl Kit {
    fn cure(&self) -> String {
        let from = match self.source {
            Source::Workspace => "a build with the profile dist".to_owned(),
            Source::Debian(package) => format!("Debian's package {package}"),
            Source::CratesIo(name) => format!("crates.io's package {name}"),
        };
        format!("not there: `cargo xtask peers --install` makes it, from {from}")
    }
}

/// Makes the build that is measured, as it is shipped.
pub(super) fn build_underpass(workspace: &Workspace) -> Fallible<()> {
    let mut cargo = workspace.cargo("build");
    cargo.args(["--profile", "dist", "--quiet", "--package", "underpass-cli"]);
    output(&mut cargo).map(drop)
}

/// `dist` beside the directory that this program is in.
fn build_directory() -> Fallible<PathBuf> {
    let program = env::current_exe()?;
    let target = program.ancestors().nth(2);
    let target = target.ok_or("this program is in no target directory")?;
    Ok(target.join("dist"))
}

#[cfg(test)]
mod tests {
    use super::super::table::{Experiment, KITS, PEERS, Part};
    use super::*;

    #[test]
    fn names_are_unique_where_they_meet() {
        for (index, peer) in PEERS.iter().enumerate() {
            let is_same = |other: &&super::super::table::Peer| {
                (other.experiment, other.name) == (peer.experiment, peer.name)
            };
            assert!(
                !PEERS[..index].iter().any(|other| is_same(&other)),
                "{}",
                peer.name
            );
            assert!(!peer.name.contains('='), "{}", peer.name);
            let fits = match peer.experiment {
                Experiment::Copy => peer.part != Part::Server,
                Experiment::Socket => peer.part == Part::Porter,
                Experiment::Tree => peer.part == Part::Program,
                _ => peer.part == Part::Server,
            };
            assert!(fits, "{}", peer.name);
            assert!(
                KITS.iter().any(|kit| kit.name == peer.kit.name),
                "{}",
                peer.name
            );
        }
    }

    #[test]
    fn files_that_commands_name_exist() {
        let root = Workspace::here().root;
        let commands = PEERS.iter().flat_map(|peer| peer.command.split(' '));
        let steps = KITS.iter().flat_map(|kit| kit.build.concat());
        for word in commands.chain(steps) {
            let file = word
                .strip_prefix("{file:")
                .map_or(word, |file| &file[..file.len() - 1]);
            if file.starts_with("peers/") {
                assert!(root.join(file).exists(), "{file}");
            }
        }
    }

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
                    assert!(lines < 80, "{} has {lines} lines", path.display());
                    programs += 1;
                }
            }
        }
        assert!(programs > 10);
    }

    #[test]
    fn what_is_missing_says_where_it_comes_from() {
        let workspace = Workspace::here();
        let shop = Shop::open(&workspace).expect("a shop");
        let kit = Kit {
            name: "none",
            program: "underpass-no-such-program",
            source: Source::CratesIo("none"),
            version: &[],
            build: &[&["false"]],
        };
        let lack = shop.version(&kit).expect_err("nothing");
        assert!(lack.ends_with("from crates.io's package none"), "{lack}");
        assert_eq!(shop.build(&kit), Err("`false`: exit status: 1".into()));
    }
}
