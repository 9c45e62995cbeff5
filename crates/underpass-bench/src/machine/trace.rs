//! System calls by name, from an additional pass under `strace` that is not timed.
//!
//! The calls are counted from the log and not by `strace -c`, which omits calls that are newer than
//! strace itself.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::error::{Error, ErrorContext, Result};
use crate::machine::proc::process_tree;

/// Calls that an older strace prints by number. New calls have had the same number on all
/// architectures since 2019.
const NEWER_CALLS: [(&str, &str); 2] =
    [("syscall_0x1c3", "cachestat"), ("syscall_0x1b7", "openat2")];

pub(crate) type CallCounts = BTreeMap<String, u64>;

/// Counts the system calls of a process and its descendants while `work` runs.
///
/// Returns [`Error::Setting`] if strace is missing or may not attach.
pub(crate) fn count_calls(
    root: u32,
    log: &Path,
    work: impl FnOnce() -> Result<()>,
) -> Result<CallCounts> {
    let mut strace = attach(root, log)?;
    let worked = work();
    let pid = i32::try_from(strace.id()).ok().and_then(Pid::from_raw);
    if let Some(pid) = pid {
        kill_process(pid, Signal::INT).context(|| "ending strace".into())?;
    }
    strace.wait().context(|| "waiting for strace".into())?;
    worked?;
    let text = std::fs::read(log).context(|| "reading strace's log".into())?;
    Ok(parse_log(&String::from_utf8_lossy(&text)))
}

/// Starts strace on the whole process tree and waits until each process is attached.
fn attach(root: u32, log: &Path) -> Result<Child> {
    let tree = process_tree(root)?;
    let mut command = Command::new("strace");
    command
        .args(["-f", "-s", "0", "-e", "signal=none", "-o"])
        .arg(log);
    for pid in &tree {
        command.args(["-p", &pid.to_string()]);
    }
    let missing = |error| Error::Setting(format!("strace does not start: {error}"));
    let mut strace = command.stderr(Stdio::piped()).spawn().map_err(missing)?;
    let errors = strace
        .stderr
        .take()
        .ok_or_else(|| Error::Setting("strace has no standard error".into()))?;
    let mut errors = BufReader::new(errors).lines();
    let mut attached = 0;
    while attached < tree.len() {
        let line = errors.next().and_then(std::result::Result::ok);
        let line = line.ok_or_else(|| Error::Setting("strace may not attach here".into()))?;
        attached += usize::from(line.contains(" attached"));
    }
    // Strace would block if its later messages were not read.
    std::thread::spawn(move || errors.for_each(drop));
    Ok(strace)
}

/// Lines of `strace -f -o`: `PID name(…) = …`, and `PID <... name resumed>…` for the second half
/// of a call that was counted with its first.
fn parse_log(text: &str) -> CallCounts {
    let mut calls = CallCounts::new();
    for line in text.lines() {
        let Some((_, call)) = line.trim_start().split_once(' ') else {
            continue;
        };
        let Some((name, _)) = call.trim_start().split_once('(') else {
            continue;
        };
        if name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
            let newer = NEWER_CALLS.iter().find(|(printed, _)| *printed == name);
            let name = newer.map_or(name, |(_, name)| name);
            *calls.entry(name.to_owned()).or_default() += 1;
        }
    }
    calls
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_counted_by_name_with_interrupted_calls_once() {
        let text = "\
7 epoll_wait(5, <unfinished ...>
8 sendfile(16, 17, [0] => [1048576], 1048576) = 1048576
7 <... epoll_wait resumed>[{events=EPOLLIN}], 1024, -1) = 1
12345 recvfrom(16, \"\"..., 4096, 0, NULL, NULL) = 82
8 sendfile(16, 17, [1048576], 1048576) = -1 EAGAIN (Resource temporarily unavailable)
8 syscall_0x1c3(0x11, 0x7f, 0x7f, 0, 0x5, 0) = 0
8 +++ exited with 0 +++
";
        let expected = [
            ("cachestat", 1),
            ("epoll_wait", 1),
            ("recvfrom", 1),
            ("sendfile", 2),
        ];
        let expected = expected.map(|(name, count)| (name.to_owned(), count));
        assert_eq!(parse_log(text), CallCounts::from(expected));
    }
}
