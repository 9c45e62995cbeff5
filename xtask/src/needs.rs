//! What a test may need from the machine, and how to find out whether it is there: by trying.

use std::env;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, Ruleset, RulesetAttr, Scope,
};

use super::report::Lack;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Need {
    Root,
    /// To mount, in a mount namespace of one's own.
    Mounts,
    /// To attach an image file as a block device.
    LoopDevices,
    /// Landlock with all that its ABI 6 has.
    Landlock,
    /// GNU's cp, in the version whose words the tests know.
    GnuCp,
    Program(Program),
    /// A program that is too big to be installed for a test: used where it is there.
    Toolchain(Program),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Program {
    command: &'static str,
    /// The Debian package it comes in.
    pub(super) package: &'static str,
    /// Arguments with which it succeeds where the machine lets it work; none where being there is
    /// enough.
    trial: &'static [&'static str],
}

pub(crate) const ROOT: Need = Need::Root;
pub(crate) const MOUNTS: Need = Need::Mounts;
pub(crate) const LANDLOCK: Need = Need::Landlock;
pub(crate) const LOOP_DEVICES: Need = Need::LoopDevices;
pub(crate) const GNU_CP: Need = Need::GnuCp;
pub(crate) const STRACE: Need = Need::Program(Program {
    command: "strace",
    package: "strace",
    trial: &["-o", "/dev/null", "true"],
});
pub(crate) const BSDTAR: Need = program("bsdtar", "libarchive-tools");
pub(crate) const CHROMIUM: Need = toolchain("chromium", "chromium");
pub(crate) const CURL: Need = program("curl", "curl");
pub(crate) const GCC: Need = program("cc", "gcc");
pub(crate) const GO: Need = toolchain("go", "golang-go");
pub(crate) const GZIP: Need = program("gzip", "gzip");
pub(crate) const IP: Need = program("ip", "iproute2");
pub(crate) const JAVAC: Need = toolchain("javac", "default-jdk-headless");
pub(crate) const MKFS_BTRFS: Need = program("mkfs.btrfs", "btrfs-progs");
pub(crate) const MKFS_EXT4: Need = program("mkfs.ext4", "e2fsprogs");
pub(crate) const MKFS_XFS: Need = program("mkfs.xfs", "xfsprogs");
pub(crate) const MOUNT: Need = program("mount", "mount");
pub(crate) const NGINX: Need = program("nginx", "nginx-light");
pub(crate) const PYTHON: Need = program("python3", "python3");
pub(crate) const SKOPEO: Need = program("skopeo", "skopeo");
pub(crate) const SLOWHTTPTEST: Need = program("slowhttptest", "slowhttptest");
pub(crate) const TAR: Need = program("tar", "tar");
pub(crate) const UNSHARE: Need = program("unshare", "util-linux");
pub(crate) const ZSTD: Need = program("zstd", "zstd");

/// Every need there is, for `cargo xtask test --list`.
pub(crate) const ALL: &[Need] = &[
    ROOT,
    MOUNTS,
    LOOP_DEVICES,
    LANDLOCK,
    GNU_CP,
    STRACE,
    BSDTAR,
    CHROMIUM,
    CURL,
    GCC,
    GO,
    GZIP,
    IP,
    JAVAC,
    MKFS_BTRFS,
    MKFS_EXT4,
    MKFS_XFS,
    MOUNT,
    NGINX,
    PYTHON,
    SKOPEO,
    SLOWHTTPTEST,
    TAR,
    UNSHARE,
    ZSTD,
];

/// As `cp --version` begins.
const GNU_CP_VERSION: &str = "cp (GNU coreutils) 9.1";

/// A program that runs another in a mount namespace of its own: whatever it mounts is gone when
/// it ends, however it ends.
pub(crate) const PRIVATE_MOUNTS: [&str; 4] = ["unshare", "--mount", "--propagation", "private"];

/// A program that works where it is there.
const fn program(command: &'static str, package: &'static str) -> Need {
    Need::Program(Program {
        command,
        package,
        trial: &[],
    })
}

const fn toolchain(command: &'static str, package: &'static str) -> Need {
    Need::Toolchain(Program {
        command,
        package,
        trial: &[],
    })
}

impl Need {
    /// Why the need is not met, or `None` where it is.
    pub(crate) fn lack(&self) -> Option<Lack> {
        match self {
            Self::Root => (!is_root()).then(|| Lack::curable("not root")),
            Self::Mounts => {
                let [command, arguments @ ..] = PRIVATE_MOUNTS;
                let arguments = [
                    arguments.as_slice(),
                    &["mount", "-t", "tmpfs", "none", "/mnt"],
                ];
                trial_lack(command, &arguments.concat())
            }
            Self::LoopDevices => trial_lack("losetup", &["--find"]),
            Self::Landlock => landlock_lack(),
            Self::GnuCp => gnu_cp_lack(),
            Self::Program(program) if !program.is_there() => Some(Lack::curable(program.absence())),
            Self::Toolchain(program) => {
                (!program.is_there()).then(|| Lack::of_machine(program.absence()))
            }
            Self::Program(program) if program.trial.is_empty() => None,
            Self::Program(program) => trial_lack(program.command, program.trial),
        }
    }
}

impl Program {
    pub(super) fn is_there(&self) -> bool {
        env::split_paths(&search_path()).any(|directory| directory.join(self.command).is_file())
    }

    fn absence(&self) -> String {
        let Self {
            command, package, ..
        } = self;
        format!("{command} is not there; it is in Debian's package {package}")
    }
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => f.write_str("root"),
            Self::Mounts => f.write_str("mounts of its own"),
            Self::LoopDevices => f.write_str("loop devices"),
            Self::Landlock => f.write_str("Landlock of ABI 6"),
            Self::GnuCp => f.write_str(GNU_CP_VERSION),
            Self::Program(program) | Self::Toolchain(program) => {
                write!(f, "{} (package {})", program.command, program.package)
            }
        }
    }
}

/// `PATH` with the directories where programs for root are, which others lack.
pub(crate) fn search_path() -> std::ffi::OsString {
    let path = env::var_os("PATH").unwrap_or_default();
    let sbin = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from);
    env::join_paths(env::split_paths(&path).chain(sbin)).unwrap_or(path)
}

/// Whether the effective user is root, as /proc says.
pub(crate) fn is_root() -> bool {
    let status = fs::read_to_string(Path::new("/proc/self/status")).unwrap_or_default();
    effective_user(&status) == Some("0")
}

/// From `Uid: real effective saved filesystem`.
fn effective_user(status: &str) -> Option<&str> {
    let line = status.lines().find(|line| line.starts_with("Uid:"))?;
    line.split_whitespace().nth(2)
}

/// Why the command does not succeed, by its own last word.
fn trial_lack(command: &str, arguments: &[&str]) -> Option<Lack> {
    let tried = Command::new(command)
        .args(arguments)
        .env("PATH", search_path())
        .stdin(Stdio::null())
        .output();
    match tried {
        Ok(output) if output.status.success() => None,
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            let said = said
                .lines()
                .next_back()
                .unwrap_or("it said nothing")
                .to_owned();
            Some(Lack::of_machine(format!(
                "`{command} {}` failed: {said}",
                arguments.join(" ")
            )))
        }
        Err(error) => Some(Lack::curable(format!(
            "`{command}` could not be started: {error}"
        ))),
    }
}

/// Whether the kernel refuses a set of rules that it does not know, or has none at all.
fn landlock_lack() -> Option<Lack> {
    let rules = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(ABI::V6))
        .and_then(|rules| rules.handle_access(AccessNet::from_all(ABI::V6)))
        .and_then(|rules| rules.scope(Scope::from_all(ABI::V6)))
        .and_then(|rules| rules.create());
    rules.err().map(|error| Lack::of_machine(error.to_string()))
}

/// Whether `cp` is another one.
fn gnu_cp_lack() -> Option<Lack> {
    let output = Command::new("cp").arg("--version").output().ok();
    let said = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let said = said.unwrap_or_default();
    let version = said.lines().next().unwrap_or("no cp");
    let lacks = version != GNU_CP_VERSION;
    lacks.then(|| Lack::of_machine(format!("`{version}` is not {GNU_CP_VERSION}")))
}

#[cfg(test)]
pub(super) fn fake_program(package: &'static str) -> Need {
    program("underpass-no-such-program", package)
}

#[cfg(test)]
pub(super) fn fake_toolchain() -> Need {
    toolchain("underpass-no-such-program", "underpass-none")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_effective_user_is_the_second() {
        let status = "Name:\ta\nUid:\t1000\t0\t1000\t1000\nGid:\t1\t1\t1\t1\n";
        assert_eq!(effective_user(status), Some("0"));
        assert_eq!(effective_user(""), None);
    }

    #[test]
    fn a_program_nobody_has_is_lacking() {
        let reason = fake_program("underpass-none")
            .lack()
            .map(|lack| lack.to_string());
        assert_eq!(
            reason.as_deref(),
            Some(
                "underpass-no-such-program is not there; it is in Debian's package underpass-none"
            )
        );
    }

    #[test]
    fn a_toolchain_that_is_not_there_is_no_fault_of_the_machine() {
        let reason = "underpass-no-such-program is not there; it is in Debian's package \
                      underpass-none";
        assert_eq!(fake_toolchain().lack(), Some(Lack::of_machine(reason)));
    }

    #[test]
    fn a_trial_that_fails_gives_the_last_word() {
        let reason = trial_lack("ls", &["/no/such/file"]).map(|lack| lack.to_string());
        assert!(
            reason
                .expect("a reason")
                .starts_with("`ls /no/such/file` failed: ls: ")
        );
        assert_eq!(trial_lack("true", &[]), None);
    }
}
