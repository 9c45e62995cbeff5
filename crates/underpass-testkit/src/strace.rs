//! strace: fault injection, and parsing of its log.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Returns a command that traces the program appended to it, with its threads and children, into
/// `log`. `expressions` are those of `-e`, such as `trace=splice` and `inject=splice:error=EINVAL`.
pub fn strace(log: &Path, expressions: &[&str]) -> Command {
    let mut strace = Command::new("strace");
    strace.args(["-f", "-q", "-o"]).arg(log);
    // This avoids any cost for calls that are not traced.
    if expressions.iter().any(|one| one.starts_with("trace=")) {
        strace.arg("--seccomp-bpf");
    }
    for expression in expressions {
        strace.args(["-e", expression]);
    }
    strace
}

/// A completed call.
#[derive(Clone, Debug)]
pub struct TracedCall {
    /// Its name.
    pub name: String,
    /// Its arguments as strace prints them.
    pub arguments: String,
    /// The count it returned; `None` for an error.
    pub returned: Option<u64>,
}

impl TracedCall {
    /// Returns an argument, counted from 0; with `-yy`, `16<TCP:[127.0.0.1:80->127.0.0.1:4711]>`
    /// or `17</srv/big>` for a descriptor.
    pub fn argument(&self, place: usize) -> &str {
        self.arguments.split(", ").nth(place).unwrap_or_default()
    }

    fn parse(line: &str) -> Option<Self> {
        let (call, result) = line.rsplit_once(" = ")?;
        let (name, arguments) = call.trim_end().strip_suffix(')')?.split_once('(')?;
        Some(Self {
            name: name.to_owned(),
            arguments: arguments.to_owned(),
            returned: result.split(' ').next()?.parse().ok(),
        })
    }
}

/// Returns all calls of a strace log; those that another thread interrupted are joined.
pub fn traced_calls(log: &Path) -> Vec<TracedCall> {
    parse_log(&fs::read_to_string(log).expect("a log"))
}

fn parse_log(log: &str) -> Vec<TracedCall> {
    let mut begun: HashMap<&str, &str> = HashMap::new();
    let mut calls = Vec::new();
    for line in log.lines() {
        let Some((thread, line)) = line.split_once(' ') else {
            continue;
        };
        let line = line.trim_start();
        if let Some(start) = line.strip_suffix(" <unfinished ...>") {
            begun.insert(thread, start);
        } else if let Some((_, rest)) = line.split_once(" resumed>") {
            let start = begun.remove(thread).unwrap_or_default();
            calls.extend(TracedCall::parse(&format!("{start}{rest}")));
        } else {
            calls.extend(TracedCall::parse(line));
        }
    }
    calls
}

/// Returns the sum of the counts returned by calls of that name for which `matching` holds.
pub fn bytes_by(calls: &[TracedCall], name: &str, matching: impl Fn(&TracedCall) -> bool) -> u64 {
    calls
        .iter()
        .filter(|call| call.name == name && matching(call))
        .filter_map(|call| call.returned)
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_threads_are_joined_and_errors_return_nothing() {
        let calls = parse_log(
            "7 splice(3</a>, NULL, 4<pipe:[1]>, NULL, 100, 0 <unfinished ...>\n\
             8 read(5, \"x\", 1) = 1\n\
             7 <... splice resumed>) = 100\n\
             7 splice(3</a>, NULL, 4<pipe:[1]>, NULL, 100, 0) = -1 EINVAL (Invalid argument)\n\
             8 +++ exited with 0 +++\n",
        );
        let names: Vec<_> = calls.iter().map(|call| &call.name[..]).collect();
        assert_eq!(names, ["read", "splice", "splice"]);
        assert_eq!(calls[1].argument(2), "4<pipe:[1]>");
        assert_eq!(calls[2].returned, None);
        assert_eq!(
            bytes_by(&calls, "splice", |call| call.argument(0) == "3</a>"),
            100
        );
    }
}
