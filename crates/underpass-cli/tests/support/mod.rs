//! The real binary as a server.

#![allow(dead_code, reason = "every test target uses its own part")]

use std::fs;
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;
use tempfile::TempDir;
use underpass_testkit::{ExitReport, ServerProcess, run, strace};

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_underpass");

pub(crate) fn underpass() -> Command {
    Command::new(BINARY)
}

/// Runs `underpass serve`, which has to end by itself.
pub(crate) fn serve(arguments: &[&str]) -> ExitReport {
    run(underpass().arg("serve").args(arguments))
}

/// `underpass serve` with one worker, on a folder of its own.
pub(crate) struct Server {
    process: ServerProcess,
    folder: TempDir,
}

impl Server {
    pub(crate) fn start() -> Server {
        Server::with(&[])
    }

    /// With options of its own.
    pub(crate) fn with(options: &[&str]) -> Server {
        Server::by(underpass(), options)
    }

    /// Started by another program, whose arguments end with the path of the binary.
    pub(crate) fn by(command: Command, options: &[&str]) -> Server {
        let folder = tempfile::tempdir().unwrap();
        let options = [&["--workers", "1"], options].concat();
        Server {
            process: ServerProcess::serve(command, &options, folder.path()),
            folder,
        }
    }

    /// Under strace, which writes into `log`, with expressions of its `-e`.
    pub(crate) fn traced(log: &Path, expressions: &[&str], options: &[&str]) -> Server {
        let mut strace = strace(log, expressions);
        strace.arg(BINARY);
        Server::by(strace, options)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        fs::write(self.path(name), content).unwrap();
    }

    /// Waits for the end that the test has caused.
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
