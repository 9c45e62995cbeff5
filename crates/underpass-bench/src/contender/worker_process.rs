//! A worker process: a program that does jobs from its standard input, one after the other.
//!
//! ```text
//!   worker ──► ready NAME VERSION             once, when it can begin
//!   bench  ──► send ⇥ FILE ⇥ ADDRESS:PORT     send the file over a new connection, shut it down
//!                                             for writing, wait until the other side ends it
//!   bench  ──► copy ⇥ FROM ⇥ TO ⇥ TIMES       TIMES times: remove TO, copy FROM to TO
//!   worker ──► ok BYTES                       the sum of what was moved
//!   worker ──► failed MESSAGE                 the job is not done
//! ```
//!
//! It ends when its standard input does. A worker that starts slowly (a virtual machine, an
//! interpreter) has started before anything is measured, and all workers are measured in the same
//! way, from outside: a program in any language is compared with this project's mover under the
//! same conditions. A worker may add more after BYTES; this project's own adds its account as JSON.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{ChildStdin, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use underpass::Mechanism;

use super::process::{ChildProcess, CommandSpec};
use crate::document::PayloadPath;
use crate::error::{Error, Result};

/// A virtual machine may take a while to start on a busy machine.
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// A GiB at 5 MB/s; a longer job is stuck.
pub(crate) const JOB_TIMEOUT: Duration = Duration::from_secs(200);

/// The interval at which the flag to stop is checked.
const POLL: Duration = Duration::from_millis(50);

pub(crate) struct WorkerProcess {
    name: String,
    process: ChildProcess,
    jobs: ChildStdin,
    answers: Receiver<String>,
}

#[derive(Debug)]
pub(crate) struct JobResult {
    pub(crate) bytes: u64,
    /// By mechanism, from a worker that counts.
    pub(crate) paths: Vec<PayloadPath>,
}

impl WorkerProcess {
    /// Starts a program that follows the protocol, waits until it is ready, and sets its version.
    /// Fails once `stop` is set.
    pub(crate) fn start(
        program: &mut CommandSpec,
        processor: Option<usize>,
        stop: &AtomicBool,
    ) -> Result<WorkerProcess> {
        let mut command = program.on(processor)?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = ChildProcess::start(&program.name, &mut command)?;
        let child = process.child();
        let (Some(jobs), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Error::Contender("a worker without streams".into()));
        };
        let (sender, answers) = mpsc::channel();
        thread::spawn(move || {
            let lines = BufReader::new(output).lines();
            lines
                .map_while(std::result::Result::ok)
                .try_for_each(|line| sender.send(line))
        });
        let mut worker = WorkerProcess {
            name: program.name.clone(),
            process,
            jobs,
            answers,
        };
        let ready = worker.answer(START_TIMEOUT, stop)?;
        match ready.strip_prefix("ready ") {
            Some(version) => program.version = version.to_owned(),
            None => return Err(worker.protocol_error(&ready)),
        }
        Ok(worker)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Sends it a job and waits for its end. Fails once `stop` is set.
    pub(crate) fn job(&mut self, words: &[&str], stop: &AtomicBool) -> Result<JobResult> {
        if let Some(word) = words.iter().find(|word| word.contains(['\t', '\n'])) {
            return Err(Error::Setting(format!("a job can't contain {word:?}")));
        }
        let sent = writeln!(self.jobs, "{}", words.join("\t"));
        sent.map_err(|error| {
            let name = &self.name;
            Error::Contender(format!("sending {name} a job: {error}"))
        })?;
        let answer = self.answer(JOB_TIMEOUT, stop)?;
        match parse(&answer) {
            Some(Ok(done)) => Ok(done),
            Some(Err(message)) => {
                let name = &self.name;
                Err(Error::Contender(format!("{name} failed: {message}")))
            }
            None => Err(self.protocol_error(&answer)),
        }
    }

    pub(crate) fn stop(&mut self) -> Result<()> {
        self.process.stop()
    }

    /// Stops it, by SIGKILL if necessary. That it has ended before is an error: what needed it went
    /// on without it.
    pub(crate) fn end(mut self) -> Result<()> {
        match self.process.has_ended()? {
            true => Err(Error::Contender(format!("{} ended too early", self.name))),
            false => {
                let _ = self.stop();
                Ok(())
            }
        }
    }

    fn answer(&mut self, timeout: Duration, stop: &AtomicBool) -> Result<String> {
        let start = Instant::now();
        loop {
            let is_stopped = stop.load(Ordering::Relaxed);
            let what = match self.answers.recv_timeout(POLL) {
                Ok(answer) => return Ok(answer),
                Err(RecvTimeoutError::Disconnected) => "ended",
                Err(RecvTimeoutError::Timeout) if is_stopped => "was interrupted",
                Err(RecvTimeoutError::Timeout) if start.elapsed() > timeout => "does not answer",
                Err(RecvTimeoutError::Timeout) => continue,
            };
            return Err(Error::Contender(format!("{} {what}", self.name)));
        }
    }

    fn protocol_error(&self, answer: &str) -> Error {
        let name = &self.name;
        Error::Contender(format!(
            "{name} answers {answer:?}, which is not in the protocol of workers"
        ))
    }
}

fn parse(answer: &str) -> Option<std::result::Result<JobResult, String>> {
    if let Some(message) = answer.strip_prefix("failed ") {
        return Some(Err(message.to_owned()));
    }
    let rest = answer.strip_prefix("ok ")?;
    let (bytes, account) = rest.split_once(' ').unwrap_or((rest, ""));
    Some(Ok(JobResult {
        bytes: bytes.parse().ok()?,
        paths: serde_json::from_str(account)
            .map_or_else(|_| Vec::new(), |account| payload_paths(&account)),
    }))
}

/// Reads an account as the mover writes it, without mechanisms that did nothing.
fn payload_paths(account: &Value) -> Vec<PayloadPath> {
    let refusals_of = |mechanism: Mechanism| {
        let all = account["refusals"].as_array().into_iter().flatten();
        let own = all.filter(|refusal| refusal["mechanism"] == mechanism.name());
        own.count() as u64
    };
    let paths = Mechanism::ALL.into_iter().map(|mechanism| {
        let counts = &account[mechanism.name()];
        PayloadPath {
            contender: 0,
            mechanism: mechanism.name().to_owned(),
            bytes: counts["bytes"].as_u64().unwrap_or(0),
            calls: counts["calls"].as_u64().unwrap_or(0),
            refusals: refusals_of(mechanism),
        }
    });
    paths
        .filter(|path| path.calls + path.refusals > 0)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_bytes_and_mechanisms() {
        let account = r#"{"bytes":7,"sendfile":{"bytes":7,"calls":2},"clone":{"bytes":0,"calls":0},
            "refusals":[{"mechanism":"clone"}]}"#;
        let done = parse(&format!("ok 7 {account}")).unwrap().unwrap();
        let counted = |path: &PayloadPath| {
            let mechanism = path.mechanism.clone();
            (mechanism, path.bytes, path.calls, path.refusals)
        };
        let counted: Vec<_> = done.paths.iter().map(counted).collect();
        let expected = [("clone".into(), 0, 0, 1), ("sendfile".into(), 7, 2, 0)];
        assert_eq!((done.bytes, &counted[..]), (7, &expected[..]));
        assert!(parse("ok 7").unwrap().unwrap().paths.is_empty());
    }

    #[test]
    fn a_failure_has_its_message_and_nonsense_is_none() {
        assert_eq!(parse("failed no disk").unwrap().unwrap_err(), "no disk");
        assert!(parse("okay").is_none());
        assert!(parse("ok many").is_none());
    }
}
