//! Paths as bytes: split, joined, and without the slashes at their end.

use std::ffi::{CStr, CString, OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// What precedes the last component of a path, with its slash, and the last component, with the
/// slashes that follow it.
pub(crate) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    let end = without_slashes(path).len();
    let start = path[..end].iter().rposition(|byte| *byte == b'/');
    path.split_at(start.map_or(0, |slash| slash + 1))
}

pub(crate) fn without_slashes(path: &[u8]) -> &[u8] {
    let last = path.iter().rposition(|byte| *byte != b'/');
    &path[..last.map_or(0, |last| last + 1)]
}

/// A folder's name without the slashes at its end; `/` stays.
pub(crate) fn plain(name: &CStr) -> CString {
    match without_slashes(name.to_bytes()) {
        b"" => name.to_owned(),
        plain => CString::new(plain).unwrap_or_default(),
    }
}

/// Appends a name to a path that is shown.
pub(crate) fn append(path: &mut Vec<u8>, name: &[u8]) {
    if !path.is_empty() && !path.ends_with(b"/") {
        path.push(b'/');
    }
    path.extend_from_slice(name);
}

/// A path that is shown, and a name in it.
pub(crate) fn joined(path: &OsStr, name: &[u8]) -> OsString {
    let mut joined = path.as_bytes().to_vec();
    append(&mut joined, name);
    OsString::from_vec(joined)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_split_before_their_last_component() {
        for (path, prefix, last) in [
            ("a", "", "a"),
            ("a/b", "a/", "b"),
            ("a/b//", "a/", "b//"),
            ("//a//b", "//a//", "b"),
            ("/", "", "/"),
            ("", "", ""),
            ("..", "", ".."),
            ("a/..", "a/", ".."),
        ] {
            let split = split(path.as_bytes());
            assert_eq!(split, (prefix.as_bytes(), last.as_bytes()), "{path}");
        }
    }
}
