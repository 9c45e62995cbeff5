//! `cargo xtask guest`: the tests of kernel TLS in two guests, whose kernels can and can't replace
//! a key, and tests of copying and serving with the oldest supported kernel.
//!
//! The guests are kernels of Debian that run as ordinary programs (user-mode Linux): they need
//! neither root nor virtualization. They have one processor, which is slow at ciphers: no
//! benchmarks run there, and no races between processors occur.

mod uml;

use std::fs;
use std::process::ExitCode;

use self::uml::UserModeLinux;
use super::cargo::run_tests;
use super::report::TestReport;
use crate::artifacts::{self, Binary};
use crate::needs::{GUEST, Lack};
use crate::workspace::{Fallible, Workspace, exit_code};

#[derive(clap::Args)]
pub(crate) struct GuestArguments {
    /// Number of responses to compare in each guest
    #[arg(long, default_value_t = 10_000)]
    answers: u32,
}

/// Number of responses compared by `cargo xtask test`.
pub(super) const ANSWERS_OF_A_TEST: u32 = 300;

/// Number of responses compared while packets are lost and reordered.
const ANSWERS_OF_A_BAD_NETWORK: u32 = 60;

/// Ten minutes, plus time for so many responses.
const fn boot_seconds(answers: u32) -> u32 {
    600 + answers / 5
}

/// The source of a guest's kernel, and the tests to run.
struct Guest {
    /// A release of Debian, and its kernel at the time of writing.
    release: &'static str,
    kernel: &'static str,
    /// Whether it panics on processors with AMX, whose registers it does not know.
    fears_amx: bool,
    /// Whether to run the tests of kernel TLS; otherwise those of the system.
    tests_tls: bool,
}

const GUESTS: [Guest; 3] = [
    Guest {
        release: "forky",
        kernel: "7.2, which replaces keys",
        fears_amx: false,
        tests_tls: true,
    },
    Guest {
        release: "bookworm",
        kernel: "6.1, which does not",
        fears_amx: true,
        tests_tls: true,
    },
    Guest {
        release: "bullseye",
        kernel: "5.10, the oldest that is promised",
        fears_amx: true,
        tests_tls: false,
    },
];

/// Tests that need only a kernel. Those of cold files are skipped, since all files are in memory,
/// and others depend on socket buffers and mechanisms; the rest of `cp` is slow.
const SYSTEM: [(&str, &str); 3] = [
    (
        "system",
        "pairs:: --skip a_cold --skip false_end --skip sealed_bytes --skip a_forced",
    ),
    ("serve", "process::"),
    ("cp", "atomic resume"),
];

/// Runs only these tests, for `cargo xtask guest`.
pub(crate) fn run(workspace: &Workspace, arguments: &GuestArguments) -> Fallible<ExitCode> {
    let mut cargo = workspace.cargo_over_everything("test");
    cargo.args(["--lib", "--test", TARGET, "--test", DOCTOR]);
    let built = artifacts::tests(cargo.args(SYSTEM.map(|(name, _)| format!("--test={name}"))))?;
    let mut report = TestReport::default();
    run_all(
        workspace,
        &built.ok_or("the build failed")?,
        arguments.answers,
        &mut report,
    )?;
    println!("{report}");
    Ok(exit_code(report.is_good()))
}

const TARGET: &str = "https";
const DOCTOR: &str = "tool";

pub(super) fn run_all(
    workspace: &Workspace,
    binaries: &[Binary],
    answers: u32,
    report: &mut TestReport,
) -> Fallible<()> {
    for guest in &GUESTS {
        let command = command(guest, binaries, answers)?;
        let name = format!("guest with Linux {}", guest.kernel);
        println!("\n   {name}");
        match guest.fetched(workspace) {
            Err(lack) => report.not_run(name, 1, lack),
            Ok(kernel) => {
                let boot = kernel.boot(&command, boot_seconds(answers))?;
                run_tests(&name, boot, report)?;
            }
        }
    }
    Ok(())
}

/// Returns the command for a guest. The tests that need kernel TLS also run on a bad network.
fn command(guest: &Guest, binaries: &[Binary], answers: u32) -> Fallible<String> {
    let binary = |name: &str| {
        let mut tests = binaries.iter().filter(|binary| binary.is_test());
        let found = tests.find(|binary| binary.target.name == name);
        found.ok_or_else(|| format!("{name} was not built"))
    };
    let found = |name: &str| binary(name).map(|binary| binary.executable.display());
    if !guest.tests_tls {
        let mut commands = String::from("true");
        for (name, left_out) in SYSTEM {
            let package = binary(name)?.manifest_path.with_file_name("");
            let (package, program) = (package.display(), found(name)?);
            commands += &format!(" && cd {package} && {program} --color never {left_out}");
        }
        return Ok(commands);
    }
    let (units, keys, system) = (found("underpass")?, found("underpass_net")?, found(TARGET)?);
    let doctor = found(DOCTOR)?;
    // Here rustix asserts that the vDSO has getcpu, which it lacks, when the time of a processor is
    // read, as explanations and metrics do.
    let system = format!("{system} --color never --ignored --test-threads 1 --skip explained");
    let netem = "tc qdisc add dev lo root netem delay 2ms reorder 5% loss 1%";
    Ok(format!(
        "{units} --color never kernel_tls && \
         {keys} --color never --ignored a_key_that_the_kernel_has && \
         {doctor} --color never --ignored what_kernel_tls_encrypts && \
         UNDERPASS_KERNEL_TLS_ANSWERS={answers} {system} kernel:: && \
         if {netem}; \
         then UNDERPASS_KERNEL_TLS_ANSWERS={ANSWERS_OF_A_BAD_NETWORK} {system} of_user_space; \
         else echo 'not run on a bad network: no tc (package iproute2)'; fi"
    ))
}

impl Guest {
    /// Fetches the guest, or returns the reason why it cannot run.
    fn fetched(&self, workspace: &Workspace) -> Result<UserModeLinux, Lack> {
        let processor = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        if self.fears_amx && processor.contains(" amx_tile") {
            return Err(Lack::of(GUEST, "this processor has AMX"));
        }
        let folder = workspace.root.join("target/guest").join(self.release);
        let fetched = UserModeLinux::fetch(folder, self.release);
        fetched.map_err(|error| {
            let reason = error.to_string();
            let reason = reason.lines().last().unwrap_or_default();
            let release = self.release;
            let reason = format!("user-mode Linux of {release} is not available: {reason}");
            Lack::of(GUEST, reason)
        })
    }
}
