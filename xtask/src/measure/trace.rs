//! System calls per request, by name: one extra pass under `strace -c`, never timed.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::error::{Doing, Error, Result};
use super::proc::process_tree;
use super::server::Server;

/// Counts of calls by name.
pub(crate) type Calls = BTreeMap<String, u64>;

/// Counts the server's system calls while `work` runs.
pub(crate) fn count_calls(
    server: &Server,
    summary: &Path,
    work: impl FnOnce() -> Result<()>,
) -> Result<Calls> {
    let mut strace = attach(server, summary)?;
    let worked = work();
    let pid = i32::try_from(strace.id()).ok().and_then(Pid::from_raw);
    if let Some(pid) = pid {
        kill_process(pid, Signal::INT).doing(|| "ending strace".into())?;
    }
    strace.wait().doing(|| "waiting for strace".into())?;
    worked?;
    let text = std::fs::read_to_string(summary).doing(|| "reading strace's summary".into())?;
    Ok(parse_summary(&text))
}

/// Starts strace on the whole process tree and waits until each process is attached.
fn attach(server: &Server, summary: &Path) -> Result<Child> {
    let tree = process_tree(server.pid())?;
    let mut command = Command::new("strace");
    command.args(["-f", "-c", "-o"]).arg(summary);
    for pid in &tree {
        command.args(["-p", &pid.to_string()]);
    }
    let missing = |error| Error::Setting(format!("strace does not start: {error}"));
    let mut strace = command.stderr(Stdio::piped()).spawn().map_err(missing)?;
    let errors = strace
        .stderr
        .take()
        .ok_or_else(|| Error::Setting("strace is mute".into()))?;
    let mut errors = BufReader::new(errors).lines();
    let mut attached = 0;
    while attached < tree.len() {
        let line = errors.next().and_then(std::result::Result::ok);
        let line = line.ok_or_else(|| Error::Setting("strace may not attach here".into()))?;
        attached += usize::from(line.contains(" attached"));
    }
    // What it says later has to go somewhere, or it would wait for a reader.
    std::thread::spawn(move || errors.for_each(drop));
    Ok(strace)
}

/// The table of `strace -c`: share, seconds, µs per call, calls, errors or blank, name.
fn parse_summary(text: &str) -> Calls {
    let row = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.first()?.parse::<f64>().ok()?;
        let calls = words.get(3)?.parse().ok()?;
        let name = *words.last()?;
        (words.len() >= 5 && name != "total").then(|| (name.to_owned(), calls))
    };
    text.lines().filter_map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_is_read_by_name_with_and_without_errors() {
        let text = "\
% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 62.10    0.000077           7        11           sendfile
 37.90    0.000047           4        10         3 recvfrom
------ ----------- ----------- --------- --------- ----------------
100.00    0.000124           5        21         3 total
";
        let expected = [("recvfrom".to_owned(), 10), ("sendfile".to_owned(), 11)];
        assert_eq!(parse_summary(text), Calls::from(expected));
    }
}
