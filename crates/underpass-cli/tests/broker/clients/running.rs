//! A client's program while it runs, and the events it prints.

use std::fs;
use std::process::{Command, Stdio};

use rustix::process::Signal;
use serde_json::Value;
use tempfile::NamedTempFile;
use underpass_testkit::ChildProcess;

/// A running program whose standard output, one event per line, can be read at any time.
#[derive(Debug)]
pub(crate) struct Running {
    process: ChildProcess,
    output: NamedTempFile,
}

impl Running {
    pub(crate) fn spawn(program: &Command) -> Running {
        let output = NamedTempFile::new().unwrap();
        let mut shell = Command::new("sh");
        shell
            .args(["-c", "exec \"$@\" >\"$EVENTS\"", "sh"])
            .arg(program.get_program())
            .args(program.get_args())
            .env("EVENTS", output.path())
            .stdin(Stdio::null());
        let process = ChildProcess::spawn(&mut shell);
        Running { process, output }
    }

    /// Returns the events so far.
    pub(crate) fn events(&self) -> Vec<Value> {
        read_events(&self.output)
    }

    /// Asks it to end; [`Running::end`] waits until it has ended.
    pub(crate) fn stop(&self) {
        self.process.signal(Signal::TERM);
    }

    /// Waits for its end, which must be a success, and returns all its events.
    pub(crate) fn end(self) -> Vec<Value> {
        let Running { process, output } = self;
        process.end().assert_success();
        read_events(&output)
    }

    /// Kills it, and returns all its events.
    pub(crate) fn kill(self) -> Vec<Value> {
        let events = self.events();
        self.process.kill();
        events
    }
}

fn read_events(file: &NamedTempFile) -> Vec<Value> {
    let output = fs::read_to_string(file.path()).unwrap();
    let lines = output.split_inclusive('\n');
    // The last line may be incomplete.
    let whole = lines.filter(|line| line.ends_with('\n'));
    let events = whole.map(|line| serde_json::from_str(line).unwrap());
    events.collect()
}
