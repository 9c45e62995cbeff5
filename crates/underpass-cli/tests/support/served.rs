//! A running `underpass serve`, and curl as its client.

#![allow(dead_code, reason = "each target uses its part")]

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};

/// The server, which is told to stop when it is dropped.
#[derive(Debug)]
pub(crate) struct Served {
    child: Child,
    process: Pid,
    stdout: BufReader<ChildStdout>,
    /// `http://127.0.0.1:4711`
    pub(crate) address: String,
}

/// How the server ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    /// What it said after its address.
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Served {
    pub(crate) fn start(folder: &Path) -> Self {
        Self::start_under(&["env"], folder)
    }

    /// Under a program that runs another one, such as strace with its options.
    pub(crate) fn start_under(under: &[&str], folder: &Path) -> Self {
        let mut child = Command::new(under[0])
            .args(&under[1..])
            .args(["sh", "-c", "echo $$; exec \"$@\"", "sh"])
            .args([env!("CARGO_BIN_EXE_underpass"), "serve"])
            .arg(folder)
            .args(["--listen", "127.0.0.1:0", "--workers", "1"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("starts");
        let mut stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut line = || {
            let mut line = String::new();
            stdout.read_line(&mut line).expect("a line");
            line
        };
        let process = line().trim().parse().ok().and_then(Pid::from_raw);
        let greeting = line();
        let address = greeting
            .split_whitespace()
            .find(|word| word.starts_with("http://"))
            .unwrap_or_else(|| panic!("no address in {greeting:?}"));
        Self {
            address: address.trim_end_matches('/').to_owned(),
            child,
            process: process.expect("its number"),
            stdout,
        }
    }

    pub(crate) fn url(&self, name: &str) -> String {
        format!("{}/{name}", self.address)
    }

    /// Asks it to stop, and waits until it has.
    pub(crate) fn stop(mut self) -> Ended {
        kill_process(self.process, Signal::TERM).expect("it runs");
        let (mut stdout, mut stderr) = (String::new(), String::new());
        self.stdout.read_to_string(&mut stdout).expect("text");
        if let Some(mut pipe) = self.child.stderr.take() {
            pipe.read_to_string(&mut stderr).expect("text");
        }
        let code = self.child.wait().expect("ends").code();
        Ended {
            code,
            stdout,
            stderr,
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            let _gone = kill_process(self.process, Signal::KILL);
            let _gone = self.child.wait();
        }
    }
}

/// curl, silently, for 20 s at the most.
pub(crate) fn curl(arguments: &[&str]) -> Output {
    Command::new("curl")
        .args(["--silent", "--max-time", "20"])
        .args(arguments)
        .output()
        .expect("curl starts")
}
