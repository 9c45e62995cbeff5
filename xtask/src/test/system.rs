//! The tests with needs: which there are, what they need, and how they are run.

use std::fmt;
use std::path::Path;
use std::process::{Command, Stdio};

use super::cargo::run_tests;
use super::needs::{self, Need};
use super::packages::{self, Packages};
use super::report::Report;
use crate::artifacts::{Binary, BinaryKind};
use crate::workspace::{Fallible, Metadata, Workspace};

/// An integration-test target all of whose tests are marked
/// `#[ignore = "needs …; run by cargo xtask test"]`.
pub(crate) struct SystemTest {
    pub(crate) package: &'static str,
    pub(crate) target: &'static str,
    pub(crate) needs: &'static [Need],
    pub(crate) why: &'static str,
}

/// Every such target. One that needs mounts is run in a mount namespace of its own.
pub(crate) const SYSTEM_TESTS: &[SystemTest] = &[
    SystemTest {
        package: "underpass-cli",
        target: "doctor_faults",
        needs: &[needs::STRACE],
        why: "doctor tells calls that are missing, forbidden or lie, and is interruptible",
    },
    SystemTest {
        package: "underpass-cli",
        target: "cp_usage",
        needs: &[needs::GNU_CP],
        why: "under the name cp every word is GNU's",
    },
    SystemTest {
        package: "underpass-cli",
        target: "bench_traced",
        needs: &[needs::STRACE],
        why: "a mechanism made slow is caught by bench compare, and equal runs are called equal",
    },
    SystemTest {
        package: "underpass-cli",
        target: "doctor_mounts",
        needs: &[needs::ROOT, needs::MOUNT, needs::UNSHARE, needs::MOUNTS],
        why: "doctor tells file systems that differ, are read-only or full",
    },
    SystemTest {
        package: "xtask",
        target: "mounts",
        needs: &[needs::ROOT, needs::MOUNT, needs::UNSHARE, needs::MOUNTS],
        why: "what a test mounts is seen by nobody else and gone afterwards",
    },
    SystemTest {
        package: "xtask",
        target: "release",
        needs: &[needs::ROOT, needs::TAR, needs::SKOPEO],
        why: "a static binary runs where nothing else is, and its image is one to other programs",
    },
    SystemTest {
        package: "underpass-serve",
        target: "oracle",
        needs: &[needs::NGINX],
        why: "every difference from nginx is intended",
    },
    SystemTest {
        package: "underpass-serve",
        target: "archive_tools",
        needs: &[needs::TAR, needs::BSDTAR, needs::ZSTD, needs::CURL],
        why: "a folder that was downloaded as an archive is the same when it is unpacked",
    },
    SystemTest {
        package: "underpass-serve",
        target: "compressed_tools",
        needs: &[needs::CURL, needs::GZIP, needs::ZSTD],
        why: "what is compressed while it is sent is read by others as the same file",
    },
    SystemTest {
        package: "underpass-serve",
        target: "listing_browser",
        needs: &[needs::CHROMIUM],
        why: "a listing works in a browser, with and without scripts",
    },
    SystemTest {
        package: "underpass-serve",
        target: "oracle_generated",
        needs: &[needs::NGINX],
        why: "thousands of made-up requests: every difference from nginx has its rule",
    },
    SystemTest {
        package: "underpass-cli",
        target: "serve_siege",
        needs: &[needs::ROOT, needs::STRACE, needs::SLOWHTTPTEST],
        why: "others are served while descriptors run out, a disk fails, and clients are slow",
    },
    SystemTest {
        package: "xtask",
        target: "soak",
        needs: &[],
        why: "a minute of clients that come, stall and vanish while files change",
    },
    SystemTest {
        package: "underpass-net",
        target: "confined",
        needs: &[needs::LANDLOCK],
        why: "a confined worker reads beneath its root and can do nothing else",
    },
    SystemTest {
        package: "underpass-cli",
        target: "serve_user",
        needs: &[needs::ROOT],
        why: "started by root it becomes another user, whose rights decide what is served",
    },
    SystemTest {
        package: "underpass-cli",
        target: "serve_traced",
        needs: &[needs::STRACE],
        why: "the system calls of a request are counted, and some are made to fail",
    },
    SystemTest {
        package: "underpass",
        target: "kernel",
        needs: &[
            needs::ROOT,
            needs::MOUNT,
            needs::UNSHARE,
            needs::MOUNTS,
            needs::LOOP_DEVICES,
            needs::MKFS_EXT4,
            needs::MKFS_XFS,
            needs::MKFS_BTRFS,
        ],
        why: "the mover between real file systems, full ones, and out of pipes",
    },
    SystemTest {
        package: "underpass-cli",
        target: "cp_system",
        needs: &[
            needs::ROOT,
            needs::STRACE,
            needs::MOUNT,
            needs::UNSHARE,
            needs::MOUNTS,
            needs::LOOP_DEVICES,
            needs::MKFS_EXT4,
            needs::MKFS_XFS,
            needs::MKFS_BTRFS,
        ],
        why: "trees copied between real file systems, full, shared and nested ones, and deep ones",
    },
    SystemTest {
        package: "underpass-cli",
        target: "faults",
        needs: &[needs::STRACE, needs::CURL],
        why: "the tool while system calls fail: a right result or a clear error",
    },
    SystemTest {
        package: "underpass-cli",
        target: "cp_gnu",
        needs: &[needs::ROOT, needs::GNU_CP],
        why: "cp does what GNU cp does: thousands of random worlds and command lines",
    },
    SystemTest {
        package: "underpass-cli",
        target: "cp_attack",
        needs: &[needs::ROOT],
        why: "cp is not led astray by somebody who swaps names for links while it runs",
    },
    SystemTest {
        package: "underpass-cli",
        target: "cp_faults",
        needs: &[needs::ROOT, needs::STRACE],
        why: "cp while system calls fail: a complete copy or an exit code that is not 0",
    },
    SystemTest {
        package: "underpass-cli",
        target: "syscalls",
        needs: &[needs::STRACE, needs::CURL],
        why: "payload goes by the calls that the account names, and no other",
    },
    SystemTest {
        package: "underpass-cli",
        target: "folder",
        needs: &[needs::CURL],
        why: "a folder of a gibibyte, downloaded by many connections at once",
    },
    SystemTest {
        package: "xtask",
        target: "peers_c",
        needs: &[needs::GCC],
        why: "the programs that are measured beside Underpass move every byte",
    },
    SystemTest {
        package: "xtask",
        target: "peers_python",
        needs: &[needs::PYTHON],
        why: "as those in C",
    },
    SystemTest {
        package: "xtask",
        target: "peers_java",
        needs: &[needs::JAVAC],
        why: "as those in C",
    },
    SystemTest {
        package: "xtask",
        target: "peers_go",
        needs: &[needs::GO],
        why: "as those in C, and the servers give every byte over and over",
    },
];

impl fmt::Display for SystemTest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} --test {}", self.package, self.target)
    }
}

pub(super) fn run(
    workspace: &Workspace,
    binaries: &[Binary],
    packages: Packages,
    report: &mut Report,
) -> Fallible<()> {
    if packages == Packages::Install {
        let needs: Vec<_> = SYSTEM_TESTS.iter().flat_map(|row| row.needs).collect();
        packages::install_missing(&needs)?;
    }
    let metadata = workspace.metadata()?;
    for row in SYSTEM_TESTS {
        println!("\n   {row}");
        match binary(&metadata, row, binaries) {
            Some(test) => run_row(row, test, binaries, report)?,
            None => report.fail(format!("{row} was not built")),
        }
    }
    Ok(())
}

fn run_row(
    row: &SystemTest,
    test: &Binary,
    binaries: &[Binary],
    report: &mut Report,
) -> Fallible<()> {
    match (
        count(&test.executable)?,
        row.needs.iter().find_map(Need::lack),
    ) {
        (0, _) => report.fail(format!("{row} has no test that is marked")),
        (tests, Some(lack)) => {
            println!("   not run: {lack}");
            report.not_run(row.to_string(), tests, lack);
        }
        (_, None) => run_tests(&row.to_string(), command(row, test, binaries), report)?,
    }
    Ok(())
}

fn binary<'a>(metadata: &Metadata, row: &SystemTest, binaries: &'a [Binary]) -> Option<&'a Binary> {
    let package = metadata
        .ours()
        .find(|package| package.name == row.package)?;
    binaries.iter().find(|binary| {
        binary.kind == BinaryKind::IntegrationTest
            && binary.target == row.target
            && binary.manifest == package.manifest_path
    })
}

/// The number of tests in the binary that are marked.
fn count(executable: &Path) -> Fallible<u64> {
    let listed = Command::new(executable)
        .args(["--list", "--ignored", "--format", "terse"])
        .stdin(Stdio::null())
        .output()?;
    let listed = String::from_utf8_lossy(&listed.stdout);
    Ok(listed
        .lines()
        .filter(|line| line.ends_with(": test"))
        .count() as u64)
}

/// Runs the test where and as cargo would: in its package's directory, with the tool's path.
fn command(row: &SystemTest, test: &Binary, binaries: &[Binary]) -> Command {
    let mut command = if row.needs.contains(&needs::MOUNTS) {
        let [program, arguments @ ..] = needs::PRIVATE_MOUNTS;
        let mut command = Command::new(program);
        command.args(arguments).arg(&test.executable);
        command
    } else {
        Command::new(&test.executable)
    };
    let directory = test.manifest.parent().unwrap_or(Path::new("."));
    command
        .arg("--ignored")
        .current_dir(directory)
        .env("CARGO_MANIFEST_DIR", directory);
    for program in binaries
        .iter()
        .filter(|binary| binary.kind == BinaryKind::Program)
    {
        command.env(
            format!("CARGO_BIN_EXE_{}", program.target),
            &program.executable,
        );
    }
    command.env("PATH", needs::search_path());
    command
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::fake::ours;

    fn built(package: &str, target: &str, kind: BinaryKind) -> Binary {
        let manifest = format!("/w/{package}/Cargo.toml").into();
        let executable = format!("/t/{package}-{target}").into();
        Binary {
            manifest,
            target: target.into(),
            kind,
            executable,
        }
    }

    const ROW: SystemTest = SystemTest {
        package: "a",
        target: "kernel",
        needs: &[needs::MOUNTS],
        why: "it mounts",
    };

    #[test]
    fn a_target_is_told_from_its_namesakes() {
        let metadata = Metadata {
            packages: vec![ours("b"), ours("a")],
        };
        let binaries = [
            built("b", "kernel", BinaryKind::IntegrationTest),
            built("a", "kernel", BinaryKind::Program),
            built("a", "kernel", BinaryKind::IntegrationTest),
        ];
        assert_eq!(binary(&metadata, &ROW, &binaries), Some(&binaries[2]));
        assert_eq!(binary(&metadata, &ROW, &binaries[..2]), None);
    }

    #[test]
    fn mounts_are_private_and_the_tool_is_known() {
        let binaries = [built("cli", "underpass", BinaryKind::Program)];
        let command = command(
            &ROW,
            &built("a", "kernel", BinaryKind::IntegrationTest),
            &binaries,
        );
        assert_eq!(command.get_program(), "unshare");
        let arguments: Vec<_> = command.get_args().collect();
        let expected = [
            "--mount",
            "--propagation",
            "private",
            "/t/a-kernel",
            "--ignored",
        ];
        assert_eq!(arguments, expected);
        let tool = command
            .get_envs()
            .find(|(name, _)| *name == "CARGO_BIN_EXE_underpass");
        assert_eq!(
            tool.and_then(|(_, value)| value),
            Some("/t/cli-underpass".as_ref())
        );
        assert_eq!(command.get_current_dir(), Some(Path::new("/w/a")));
    }
}
