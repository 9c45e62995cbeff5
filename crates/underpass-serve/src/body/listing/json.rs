//! A listing for programs. Its schema is in docs/serve.md; members are only ever added.

use std::io::{self, Write as _};

use serde::Serialize;
use underpass_http::calendar::rfc3339;
use underpass_http::path::encoded;

use crate::body::listing::view::{ListingTotals, ListingView, Sorting, is_invisible};
use crate::site::folder::{FolderEntry, FolderEntryKind};

/// Writes the part before the folder is read.
pub(crate) fn open(out: &mut Vec<u8>, view: &ListingView) -> io::Result<()> {
    let mut path = b"/".to_vec();
    path.extend_from_slice(view.path.bytes());
    if path.len() > 1 {
        path.push(b'/');
    }
    out.extend_from_slice(b"{\"path\":");
    push(out, &String::from_utf8_lossy(&path))
}

/// Writes the part before the first entry.
pub(crate) fn begin(out: &mut Vec<u8>, sorting: Sorting) -> io::Result<()> {
    let is_sorted = sorting == Sorting::Sorted;
    write!(out, ",\"sorted\":{is_sorted},\"entries\":[")
}

#[derive(Serialize)]
struct ListingRow<'e> {
    name: &'e str,
    /// The percent-encoded bytes of a name that is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    encoded_name: Option<String>,
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    modified: String,
}

/// Writes an entry, preceded by `before` others.
pub(crate) fn row(out: &mut Vec<u8>, entry: &FolderEntry, before: u64) -> io::Result<()> {
    let lossy = String::from_utf8_lossy(&entry.name);
    let is_lossy = lossy.as_bytes() != entry.name;
    let (kind, size) = match entry.kind {
        FolderEntryKind::Folder => ("folder", None),
        FolderEntryKind::File { size } => ("file", Some(size)),
    };
    let row = ListingRow {
        name: &lossy,
        encoded_name: is_lossy.then(|| encoded(&entry.name).collect()),
        kind,
        size,
        modified: rfc3339(entry.changed),
    };
    out.extend_from_slice(if before == 0 { b"\n" } else { b",\n" });
    push(out, &row)
}

/// Appends a value; invisible characters and terminal control characters are escaped.
fn push(out: &mut Vec<u8>, value: &(impl Serialize + ?Sized)) -> io::Result<()> {
    for character in serde_json::to_string(value)?.chars() {
        match is_invisible(character) {
            true => write!(out, "\\u{:04x}", u32::from(character))?,
            false => out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    Ok(())
}

/// Writes the part after the last entry.
pub(crate) fn close(out: &mut Vec<u8>, totals: ListingTotals) -> io::Result<()> {
    let ListingTotals {
        folders,
        files,
        bytes,
    } = totals;
    writeln!(
        out,
        "\n],\"folders\":{folders},\"files\":{files},\"bytes\":{bytes}}}"
    )
}

#[cfg(test)]
mod tests {
    use underpass_http::fields::validator::FileTime;

    use super::*;

    #[test]
    fn names_that_are_not_utf_8_are_printed_exactly() {
        let mut out = Vec::new();
        let entry = FolderEntry {
            name: b"a\xff\"/b".to_vec(),
            kind: FolderEntryKind::File { size: 7 },
            changed: FileTime {
                seconds: 784_111_777,
                nanoseconds: 0,
            },
        };
        row(&mut out, &entry, 0).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "\n{\"name\":\"a\u{fffd}\\\"/b\",\"encoded_name\":\"a%FF%22%2Fb\",\
             \"type\":\"file\",\"size\":7,\"modified\":\"1994-11-06T08:49:37Z\"}"
        );
    }

    #[test]
    fn what_nobody_could_see_is_escaped() {
        let mut out = Vec::new();
        let name = "a\n\u{1b}\u{7f}\u{9b}\u{202e}\u{fc}";
        push(&mut out, name).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text, "\"a\\n\\u001b\\u007f\\u009b\\u202e\u{fc}\"");
        assert_eq!(serde_json::from_str::<String>(&text).unwrap(), name);
    }
}
