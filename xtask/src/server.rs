//! `underpass serve` as a process: started, looked at from outside, stopped.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use crate::workspace::{Fallible, Workspace};

/// A running server. Dropped without being stopped it is killed.
pub(crate) struct ServerProcess {
    child: Child,
    output: BufReader<ChildStdout>,
    /// Its standard error goes here, so that no pipe can fill up.
    errors: tempfile::NamedTempFile,
    address: SocketAddr,
}

/// Workers of the server.
const WORKERS: usize = 2;

/// Descriptors that each of them keeps for later: an instance of inotify from the first file on
/// that it is asked for twice, and the ends of 16 pipes that large bodies have left through.
pub(crate) const KEPT: usize = WORKERS * (1 + 2 * 16);

/// What a process takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Footprint {
    pub(crate) descriptors: usize,
    pub(crate) resident_bytes: usize,
    /// The most that it ever had in memory.
    pub(crate) peak_bytes: usize,
}

/// How it ended.
pub(crate) struct ServerEnd {
    code: Option<i32>,
    pub(crate) farewell: String,
    errors: String,
}

/// Builds the tool and says where it is.
pub(crate) fn build(workspace: &Workspace) -> Fallible<PathBuf> {
    let metadata = workspace
        .cargo("build")
        .args(["-p", "underpass-cli"])
        .status()?;
    if !metadata.success() {
        return Err("the tool does not build".into());
    }
    let own = std::env::current_exe()?;
    let beside = own.parent().unwrap_or(Path::new("."));
    Ok(beside.join("underpass"))
}

impl ServerProcess {
    /// Starts the program with a folder to serve.
    pub(crate) fn start(mut program: Command, folder: &Path) -> Fallible<ServerProcess> {
        let errors = tempfile::NamedTempFile::new()?;
        let mut child = program
            .args(["serve", "--listen", "127.0.0.1:0"])
            .args(["--workers", &WORKERS.to_string()])
            .arg(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(errors.reopen()?)
            .spawn()?;
        let stdout = child.stdout.take().ok_or("no standard output")?;
        let mut output = BufReader::new(stdout);
        let mut greeting = String::new();
        output.read_line(&mut greeting)?;
        let address = greeting.split_once("http://").map(|(_, rest)| rest);
        let address = address.and_then(|rest| rest.split(['/', ' ', '\n']).next());
        let address = address.ok_or_else(|| format!("no address in {greeting:?}"))?;
        Ok(ServerProcess {
            address: address.parse()?,
            child,
            output,
            errors,
        })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn is_running(&self) -> bool {
        let state = fs::read_to_string(format!("/proc/{}/stat", self.child.id()));
        let is_dead = state.is_ok_and(|state| state.contains(") Z "));
        !is_dead
            && self
                .process()
                .is_some_and(|process| test_kill_process(process).is_ok())
    }

    pub(crate) fn footprint(&self) -> Fallible<Footprint> {
        let process = format!("/proc/{}", self.child.id());
        let status = fs::read_to_string(format!("{process}/status"))?;
        let bytes = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let kibibytes = line.and_then(|line| line.split_whitespace().next());
            let kibibytes = kibibytes.ok_or_else(|| format!("no {name} of the server"))?;
            Fallible::Ok(kibibytes.parse::<usize>()? << 10)
        };
        Ok(Footprint {
            descriptors: fs::read_dir(format!("{process}/fd"))?.count(),
            resident_bytes: bytes("VmRSS:")?,
            peak_bytes: bytes("VmHWM:")?,
        })
    }

    pub(crate) fn stop(mut self) -> Fallible<ServerEnd> {
        if let Some(process) = self.process() {
            kill_process(process, Signal::TERM)?;
        }
        let mut farewell = String::new();
        self.output.read_to_string(&mut farewell)?;
        let code = self.child.wait()?.code();
        let (_, farewell) = farewell.split_once("stopped").unwrap_or(("", &farewell));
        Ok(ServerEnd {
            code,
            farewell: format!("stopped{farewell}"),
            errors: fs::read_to_string(self.errors.path())?,
        })
    }

    fn process(&self) -> Option<Pid> {
        Pid::from_raw(i32::try_from(self.child.id()).ok()?)
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // It has ended if it was stopped.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl ServerEnd {
    /// The lines of its standard error that are not expected, and an exit code that is not 0.
    pub(crate) fn complaints(&self, is_expected: impl Fn(&str) -> bool) -> Vec<String> {
        let mut complaints: Vec<_> = self
            .errors
            .lines()
            .filter(|line| !is_expected(line))
            .map(|line| format!("the server said: {line}"))
            .collect();
        if self.code != Some(0) {
            complaints.push(format!("the server ended with {:?}", self.code));
        }
        complaints
    }
}
