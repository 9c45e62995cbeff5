//! The real binary as a server.

#![allow(dead_code, reason = "every test target uses its own part")]

use std::fmt::Debug;
use std::fs;
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::{Resource, Rlimit, Signal, getrlimit, prlimit};
use tempfile::TempDir;
use underpass_testkit::{ExitReport, ServerProcess, WAIT_MAX, in_parallel, run, sampled, strace};

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_underpass");

pub(crate) fn underpass() -> Command {
    Command::new(BINARY)
}

/// Runs `underpass serve`, which must end without a signal.
pub(crate) fn serve(arguments: &[&str]) -> ExitReport {
    run(underpass().arg("serve").args(arguments))
}

/// Runs curl silently, with additional arguments.
pub(crate) fn curl(arguments: &[&str]) -> ExitReport {
    let limit = WAIT_MAX.as_secs().to_string();
    run(Command::new("curl")
        .args(["--silent", "--max-time", &limit])
        .args(arguments))
}

/// Returns an example of the library, which cargo puts next to the tool.
pub(crate) fn example(name: &str) -> PathBuf {
    let example = Path::new(BINARY).with_file_name("examples").join(name);
    let missing = format!("{name} is missing: cargo build -p underpass --examples");
    assert!(example.exists(), "{missing}");
    example
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().expect("a name of letters")
}

/// Runs the sampled cases, each with its number, on two threads. `run` returns an error message, if
/// any, and whether the fault was injected, which must be true for nearly all cases.
pub(crate) fn run_faults<C: Debug + Sync>(
    cases: &[C],
    run: impl Fn(usize, &C) -> (Option<String>, bool) + Sync,
) {
    let cases = sampled(cases);
    let outcomes = in_parallel(2, &cases, |_, &(number, case)| {
        let (fault, came) = run(number, case);
        (fault.map(|fault| format!("{case:?}\n    {fault}")), came)
    });
    let came = outcomes.iter().filter(|(_, came)| *came).count();
    println!("{} cases, the fault came to pass in {came}", cases.len());
    let wrong: Vec<_> = outcomes
        .into_iter()
        .filter_map(|(fault, _)| fault)
        .collect();
    assert!(
        wrong.is_empty(),
        "{} wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    assert!(came * 10 > cases.len() * 9, "{came} of {}", cases.len());
}

/// `underpass serve` with one worker, on a separate folder.
pub(crate) struct Server {
    process: ServerProcess,
    folder: TempDir,
}

impl Server {
    pub(crate) fn start() -> Server {
        Server::with(&[])
    }

    /// Starts a server with more options.
    pub(crate) fn with(options: &[&str]) -> Server {
        Server::by(underpass(), options)
    }

    /// Starts a server through a program whose arguments end with the path of the binary.
    pub(crate) fn by(command: Command, options: &[&str]) -> Server {
        let folder = tempfile::tempdir().expect("a folder");
        let options = [&["--workers", "1"], options].concat();
        Server {
            process: ServerProcess::serve(command, &options, folder.path()),
            folder,
        }
    }

    /// Starts a server under strace, which writes to `log`, with expressions of its `-e`.
    pub(crate) fn traced(log: &Path, expressions: &[&str], options: &[&str]) -> Server {
        let mut strace = strace(log, expressions);
        strace.arg(BINARY);
        Server::by(strace, options)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        fs::write(self.path(name), content).expect("room");
    }

    /// Changes its limit on descriptors while it runs.
    pub(crate) fn limit_descriptors(&self, count: u64) {
        let limit = Rlimit {
            current: Some(count),
            maximum: getrlimit(Resource::Nofile).maximum,
        };
        prlimit(Some(self.pid()), Resource::Nofile, limit).expect("a process of ours");
    }

    /// Waits for its end, which the test has caused.
    pub(crate) fn end(self) -> ExitReport {
        self.process.end()
    }

    /// Stops it as Ctrl-C does.
    pub(crate) fn stop(self) -> ExitReport {
        self.signal(Signal::INT);
        self.end()
    }
}

impl Deref for Server {
    type Target = ServerProcess;

    fn deref(&self) -> &ServerProcess {
        &self.process
    }
}

impl DerefMut for Server {
    fn deref_mut(&mut self) -> &mut ServerProcess {
        &mut self.process
    }
}
