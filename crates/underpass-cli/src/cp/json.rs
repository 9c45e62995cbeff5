//! `--json`: one object per line. `docs/cp-json.md` says what is in them.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use serde_json::{Map, Value, json};
use underpass_copy::{CopySummary, EntryKind, Finished, Problem};

/// Grows when something that was there changes its meaning.
const VERSION: u32 = 1;

/// A name that is done with.
pub(super) fn finished(finished: &Finished) -> String {
    let mut object = object("name");
    name(&mut object, "source", &finished.source);
    name(&mut object, "dest", &finished.dest);
    let mut set = |key: &str, value: Value| {
        object.insert(key.to_owned(), value);
    };
    set("kind", json!(finished.kind));
    set("outcome", json!(finished.outcome));
    if finished.kind == EntryKind::File {
        set("size", finished.size.into());
    }
    if let Some(travel) = &finished.travel {
        set("plan", json!(travel.plan));
        set("account", json!(travel.account));
        set("holes_sought", json!(travel.holes_sought));
    }
    if finished.resumed > 0 {
        set("resumed", finished.resumed.into());
    }
    if let Some(hash) = &finished.hash {
        set("blake3", hash.as_str().into());
    }
    Value::Object(object).to_string()
}

/// Something that went wrong.
pub(super) fn problem(problem: &Problem) -> String {
    let mut object = object("problem");
    name(&mut object, "path", &problem.path);
    if let Some(other) = &problem.other {
        name(&mut object, "other", other);
    }
    object.insert("severity".to_owned(), json!(problem.severity));
    let errno = problem.errno.map(underpass::errno::name);
    for (key, value) in [("errno", errno.as_deref()), ("call", problem.call)] {
        if let Some(value) = value {
            object.insert(key.to_owned(), value.into());
        }
    }
    if let Some(moved) = problem.moved {
        object.insert("moved".to_owned(), moved.into());
    }
    object.insert("message".to_owned(), problem.to_string().into());
    Value::Object(object).to_string()
}

/// The sum: the last line.
pub(super) fn summary(summary: &CopySummary) -> String {
    let mut object = object("summary");
    if let Value::Object(fields) = json!(summary) {
        object.extend(fields);
    }
    Value::Object(object).to_string()
}

fn object(kind: &str) -> Map<String, Value> {
    let mut object = Map::new();
    object.insert("version".to_owned(), VERSION.into());
    object.insert("type".to_owned(), kind.into());
    object
}

/// A name that is not UTF-8 can't be a string of JSON: what can be shown of it is, and all of it
/// comes beside it in hexadecimal.
fn name(object: &mut Map<String, Value>, key: &str, name: &OsStr) {
    object.insert(key.to_owned(), name.to_string_lossy().into());
    if name.to_str().is_none() {
        let hex = name.as_bytes().iter().map(|byte| format!("{byte:02x}"));
        object.insert(format!("{key}_hex"), hex.collect::<String>().into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_not_utf_8_are_printed_whole() {
        let mut object = object("name");
        name(&mut object, "source", OsStr::from_bytes(b"a\xff"));
        name(&mut object, "dest", OsStr::new("é"));
        let object = Value::Object(object);
        assert_eq!(object["source"], "a\u{fffd}");
        assert_eq!(object["source_hex"], "61ff");
        assert_eq!(object["dest"], "é");
        assert!(object.get("dest_hex").is_none());
        assert_eq!(object["version"], 1);
    }
}
