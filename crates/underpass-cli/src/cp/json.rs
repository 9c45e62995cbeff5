//! `--json`: one object per line. `docs/cp-json.md` documents the fields.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use serde_json::{Value, json};
use underpass_copy::{CopySummary, EntryKind, Finished, Problem};

/// Increased when an existing field changes its meaning.
const VERSION: u32 = 1;

/// Returns the line of a finished entry.
pub(super) fn finished(finished: &Finished) -> String {
    let travel = finished.travel.as_deref();
    let facts = json!({
        "source": finished.source.to_string_lossy(),
        "source_hex": hex(&finished.source),
        "dest": finished.dest.to_string_lossy(),
        "dest_hex": hex(&finished.dest),
        "kind": finished.kind,
        "outcome": finished.outcome,
        "size": (finished.kind == EntryKind::File).then_some(finished.size),
        "plan": travel.map(|travel| &travel.plan),
        "account": travel.map(|travel| &travel.account),
        "holes_sought": travel.map(|travel| &travel.holes_sought),
        "resumed": Some(finished.resumed).filter(|bytes| *bytes > 0),
        "blake3": finished.hash.as_deref(),
    });
    line("name", facts)
}

/// Returns the line of a problem.
pub(super) fn problem(problem: &Problem) -> String {
    let facts = json!({
        "path": problem.path.to_string_lossy(),
        "path_hex": hex(&problem.path),
        "other": problem.other.as_ref().map(|other| other.to_string_lossy()),
        "other_hex": problem.other.as_ref().and_then(|other| hex(other)),
        "severity": problem.severity,
        "errno": problem.errno.map(underpass::errno::name),
        "call": problem.call,
        "moved": problem.moved,
        "message": problem.to_string(),
    });
    line("problem", facts)
}

/// Returns the line of the totals, the last one.
pub(super) fn summary(summary: &CopySummary) -> String {
    line("summary", json!(summary))
}

/// Formats a line, without members that have no value.
fn line(kind: &str, mut facts: Value) -> String {
    facts["version"] = VERSION.into();
    facts["type"] = kind.into();
    if let Value::Object(members) = &mut facts {
        members.retain(|_, value| !value.is_null());
    }
    facts.to_string()
}

/// Returns a name in hexadecimal if it is not UTF-8: a JSON string can then only hold an
/// approximation, and this is added to it.
fn hex(name: &OsStr) -> Option<String> {
    let hex = name.as_bytes().iter().map(|byte| format!("{byte:02x}"));
    name.to_str().is_none().then(|| hex.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_not_utf_8_are_printed_whole() {
        assert_eq!(hex(OsStr::from_bytes(b"a\xff")).as_deref(), Some("61ff"));
        assert_eq!(hex(OsStr::new("é")), None);
    }
}
