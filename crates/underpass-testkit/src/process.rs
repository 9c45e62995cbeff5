//! Child processes: their output as it arrives, signals, and a guaranteed end.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, kill_process_group, pidfd_open};
use signal_hook::consts::{SIGHUP, SIGINT};
use signal_hook::flag;

use crate::wait::{WAIT_MAX, wait_until};

/// A child in a separate process group. Its output is read continuously, so that no pipe fills up.
/// Dropping it kills the group, including processes that it started.
#[derive(Debug)]
pub struct ChildProcess {
    child: Child,
    ended: Option<ExitStatus>,
    captured: Mutex<Captured>,
}

/// How a process ended.
#[derive(Clone, Debug)]
pub struct ExitReport {
    /// The exit code; `None` if a signal ended it.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Standard output after the last line that was waited for.
    pub output: String,
    /// All of standard error.
    pub errors: String,
}

#[derive(Clone, Copy, Debug)]
enum Channel {
    Output,
    Errors,
}

#[derive(Debug)]
struct Captured {
    lines: Receiver<(Channel, String)>,
    output: String,
    errors: String,
    /// The length of `output` that has been waited for.
    heard: usize,
    /// Every process that shares the output has closed it.
    is_closed: bool,
}

/// Runs a program that reads no input, to its end.
///
/// # Panics
///
/// Panics if it does not start, or does not end within [`WAIT_MAX`].
#[track_caller]
pub fn run(command: &mut Command) -> ExitReport {
    ChildProcess::spawn(command.stdin(Stdio::null())).end()
}

/// Runs a program that reads all or a part of `input`, to its end.
///
/// # Panics
///
/// As [`run`].
#[track_caller]
pub fn run_with_input(command: &mut Command, input: &[u8]) -> ExitReport {
    let mut process = ChildProcess::spawn(command.stdin(Stdio::piped()));
    let mut stdin = process.child.stdin.take().expect("a pipe");
    let _may_be_closed = stdin.write_all(input);
    drop(stdin);
    process.end()
}

/// Copies a program by another process. A process that another thread starts during the copy would
/// inherit the open file, with which the program cannot be executed ("text file busy").
#[track_caller]
pub fn copy_program(from: &Path, to: &Path) {
    run(Command::new("cp").arg(from).arg(to)).assert_success();
}

/// Makes children react to signals that this process ignores (nohup, a background job of a script):
/// a caught signal has its default action after exec, an ignored one stays ignored.
fn stop_ignoring() {
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc");
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = u64::from_str_radix(ignored.unwrap_or("0").trim(), 16).expect("a mask");
    for signal in [SIGHUP, SIGINT] {
        if ignored & (1 << (signal - 1)) != 0 {
            flag::register(signal, Arc::default()).expect("a signal that can be caught");
        }
    }
}

impl ChildProcess {
    /// Starts a program; the command sets its standard input.
    #[track_caller]
    pub fn spawn(command: &mut Command) -> Self {
        stop_ignoring();
        let spawned = command
            .process_group(0)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let mut child = spawned.unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let (sender, lines) = channel();
        let output = child.stdout.take().expect("a pipe");
        let errors = child.stderr.take().expect("a pipe");
        read_lines(output, Channel::Output, sender.clone());
        read_lines(errors, Channel::Errors, sender);
        let captured = Captured {
            lines,
            output: String::new(),
            errors: String::new(),
            heard: 0,
            is_closed: false,
        };
        Self {
            child,
            ended: None,
            captured: Mutex::new(captured),
        }
    }

    /// Returns the process that was started; a tracer, not the traced process.
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Returns its number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the only child of the process, or else the process.
    pub(crate) fn traced_pid(&self) -> Pid {
        let started = self.child.id();
        let children = format!("/proc/{started}/task/{started}/children");
        let child = std::fs::read_to_string(children).unwrap_or_default();
        let child = child.trim().parse().ok().and_then(Pid::from_raw);
        child.unwrap_or_else(|| self.pid())
    }

    /// Sends a signal to the process that was started.
    #[track_caller]
    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("it runs");
    }

    /// Waits for a line with `words` on either channel, and returns it.
    #[track_caller]
    pub fn hear(&self, words: &str) -> String {
        let deadline = Instant::now() + WAIT_MAX;
        let mut captured = self.captured();
        loop {
            match captured.next_line(deadline) {
                Ok(line) if line.contains(words) => {
                    captured.heard = captured.output.len();
                    return line.trim_end_matches('\n').to_owned();
                }
                Ok(_) => {}
                Err(why) => panic!("no {words:?}, {why}: {captured:#?}"),
            }
        }
    }

    /// Returns the standard output so far.
    pub fn output(&self) -> String {
        self.captured().output.clone()
    }

    /// Returns the standard output so far, or standard error if that is empty.
    pub(crate) fn said(&self) -> String {
        let captured = self.captured();
        match captured.output.is_empty() {
            true => captured.errors.clone(),
            false => captured.output.clone(),
        }
    }

    /// Returns whether it has ended.
    pub fn is_over(&mut self) -> bool {
        self.ended = self.ended.or(self.child.try_wait().expect("a child"));
        self.ended.is_some()
    }

    /// Waits for an effect of the process.
    ///
    /// # Panics
    ///
    /// Panics if it ends before that.
    #[track_caller]
    pub fn until(&mut self, mut holds: impl FnMut() -> bool) {
        wait_until("progress", || {
            let holds = holds();
            assert!(holds || !self.is_over(), "it ended before that");
            holds
        });
    }

    /// Waits for the end of the started process; others may still hold its output.
    #[track_caller]
    pub fn wait(&mut self) -> ExitStatus {
        self.try_wait().expect("it does not end")
    }

    /// Kills it, and checks that it had not ended before.
    #[track_caller]
    pub fn kill(mut self) {
        self.signal(Signal::KILL);
        assert_eq!(self.wait().code(), None, "it had ended by itself");
    }

    /// Waits for the end of the process, and of all others that share its output.
    #[track_caller]
    pub fn end(self) -> ExitReport {
        self.try_end().expect("it does not end")
    }

    /// As [`ChildProcess::end`], for work that takes several times [`WAIT_MAX`] on a busy machine.
    #[track_caller]
    pub fn end_within(self, waits: u32) -> ExitReport {
        let limit = WAIT_MAX * waits;
        self.end_before(Instant::now() + limit)
            .expect("it does not end")
    }

    /// As [`ChildProcess::end`]; returns `None` if it hangs and had to be killed.
    pub fn try_end(self) -> Option<ExitReport> {
        self.end_before(Instant::now() + WAIT_MAX)
    }

    fn end_before(mut self, deadline: Instant) -> Option<ExitReport> {
        while !self.captured().is_closed {
            let ended = self.captured().next_line(deadline);
            if ended == Err(Silence::TimedOut) {
                return None;
            }
        }
        let status = self.try_wait()?;
        let mut captured = self.captured();
        let heard = captured.heard;
        Some(ExitReport {
            code: status.code(),
            signal: status.signal(),
            output: captured.output.split_off(heard),
            errors: std::mem::take(&mut captured.errors),
        })
    }

    fn try_wait(&mut self) -> Option<ExitStatus> {
        if !self.is_over() {
            let ended = pidfd_open(self.pid(), PidfdFlags::empty()).expect("a descriptor");
            let limit = Timespec::try_from(WAIT_MAX).expect("a minute");
            let polled = poll(&mut [PollFd::new(&ended, PollFlags::IN)], Some(&limit));
            if polled.expect("waits") > 0 {
                self.ended = Some(self.child.wait().expect("a child"));
            }
        }
        self.ended
    }

    fn captured(&self) -> MutexGuard<'_, Captured> {
        // A panic in one wait leaves nothing inconsistent.
        self.captured
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        // The id of a group without processes may have been reused.
        if self.ended.is_none() || !self.captured().is_closed {
            let _gone = kill_process_group(self.pid(), Signal::KILL);
        }
        let _gone = self.child.wait();
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Silence {
    Closed,
    TimedOut,
}

impl std::fmt::Display for Silence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Closed => "and it has ended",
            Self::TimedOut => "and it goes on",
        })
    }
}

impl Captured {
    fn next_line(&mut self, deadline: Instant) -> Result<String, Silence> {
        let left = deadline.saturating_duration_since(Instant::now());
        match self.lines.recv_timeout(left.max(Duration::from_millis(1))) {
            Ok((channel, line)) => {
                match channel {
                    Channel::Output => self.output.push_str(&line),
                    Channel::Errors => self.errors.push_str(&line),
                }
                Ok(line)
            }
            Err(RecvTimeoutError::Timeout) => Err(Silence::TimedOut),
            Err(RecvTimeoutError::Disconnected) => {
                self.is_closed = true;
                Err(Silence::Closed)
            }
        }
    }
}

/// Passes lines on until the pipe is closed.
fn read_lines(from: impl Read + Send + 'static, channel: Channel, to: Sender<(Channel, String)>) {
    thread::spawn(move || {
        let mut from = BufReader::new(from);
        let mut line = Vec::new();
        while from.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
            let text = String::from_utf8_lossy(&line).into_owned();
            if to.send((channel, text)).is_err() {
                return;
            }
            line.clear();
        }
    });
}

impl ExitReport {
    /// Checks for exit code 0.
    #[track_caller]
    pub fn assert_success(&self) {
        assert_eq!(self.code, Some(0), "{self:?}");
    }

    /// Checks for exit code 0 and an empty standard error.
    #[track_caller]
    pub fn assert_clean(&self) {
        assert_eq!((self.code, &self.errors[..]), (Some(0), ""), "{self:?}");
    }

    /// Checks for an exit code, and for each of `words` on standard error.
    #[track_caller]
    pub fn assert_failed(&self, code: i32, words: &[&str]) {
        assert_eq!(self.code, Some(code), "{self:?}");
        assert_contains(&self.errors, words);
    }

    /// Checks for each of `words` on standard output.
    #[track_caller]
    pub fn assert_output(&self, words: &[&str]) {
        assert_contains(&self.output, words);
    }
}

/// Checks that a text contains each of `words`.
#[track_caller]
pub fn assert_contains(text: &str, words: &[&str]) {
    for word in words {
        assert!(text.contains(word), "no {word:?} in {text}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut shell = Command::new("sh");
        shell.args(["-c", script]);
        shell
    }

    #[test]
    fn both_channels_and_the_code_are_reported() {
        let report = run(&mut shell("echo out; echo error >&2; exit 3"));
        assert_eq!((report.code, report.signal), (Some(3), None));
        assert_eq!(
            (&report.output[..], &report.errors[..]),
            ("out\n", "error\n")
        );
        report.assert_failed(3, &["err", "ror"]);
    }

    #[test]
    fn input_is_read_to_its_end_or_not_at_all() {
        let input = b"one\ntwo\n";
        assert_eq!(
            run_with_input(&mut shell("cat"), input).output,
            "one\ntwo\n"
        );
        run_with_input(&mut shell("exit 0"), input).assert_clean();
    }

    #[test]
    fn what_was_waited_for_is_no_longer_in_the_report() {
        let process = ChildProcess::spawn(&mut shell("echo one; echo two; echo three"));
        assert_eq!(process.hear("tw"), "two");
        assert_eq!(process.output(), "one\ntwo\n");
        let report = process.end();
        report.assert_clean();
        assert_eq!(report.output, "three\n");
    }

    #[test]
    #[should_panic(expected = "and it has ended")]
    fn a_line_that_cannot_come_any_more_is_no_wait() {
        ChildProcess::spawn(&mut shell("echo one")).hear("two");
    }

    #[test]
    fn a_signal_is_reported() {
        let process = ChildProcess::spawn(&mut shell("echo ready; exec sleep 600"));
        process.hear("ready");
        process.signal(Signal::TERM);
        assert_eq!(process.end().signal, Some(15));
    }

    #[test]
    fn a_dropped_one_takes_its_children_with_it() {
        let process = ChildProcess::spawn(&mut shell("sleep 600 & echo $!; wait"));
        let child = process.hear("").parse().ok().and_then(Pid::from_raw);
        let child = pidfd_open(child.expect("a number"), PidfdFlags::empty()).expect("it runs");
        drop(process);
        let limit = Timespec::try_from(WAIT_MAX).expect("a minute");
        let mut polled = [PollFd::new(&child, PollFlags::IN)];
        assert_eq!(poll(&mut polled, Some(&limit)), Ok(1));
    }
}
