//! The list of items that a waiting sender offers: one line each, with kind, size and name.

use underpass_http::path::{SitePath, encode_path};

/// An item that is offered.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct OfferedItem {
    pub(crate) kind: OfferedKind,
    /// Bytes of a file; 0 for others.
    pub(crate) size: u64,
    pub(crate) name: String,
}

/// The kind of an item.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum OfferedKind {
    File,
    Tree,
    /// Standard input.
    Stream,
}

impl OfferedItem {
    /// Returns its line.
    pub(crate) fn line(&self) -> String {
        let mut name = Vec::new();
        encode_path(self.name.as_bytes(), &mut name);
        let kind = match self.kind {
            OfferedKind::File => "file",
            OfferedKind::Tree => "tree",
            OfferedKind::Stream => "stream",
        };
        format!("{kind} {} {}\n", self.size, String::from_utf8_lossy(&name))
    }

    /// Reads a line; `None` if it is malformed, or names more than one thing.
    pub(crate) fn parse(line: &str) -> Option<OfferedItem> {
        let mut parts = line.splitn(3, ' ');
        let kind = match parts.next()? {
            "file" => OfferedKind::File,
            "tree" => OfferedKind::Tree,
            "stream" => OfferedKind::Stream,
            _ => return None,
        };
        let size = parts.next()?.parse().ok()?;
        let path = SitePath::parse(format!("/{}", parts.next()?).as_bytes()).ok()?;
        let name = str::from_utf8(path.bytes()).ok()?.to_owned();
        // What is beneath a tree comes with it.
        let is_name = !name.is_empty() && !name.contains('/');
        is_name.then_some(OfferedItem { kind, size, name })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_they_were_written_and_name_one_thing() {
        for name in ["a", "ä b%20.txt", "x\"y", "#?&"] {
            let item = OfferedItem {
                kind: OfferedKind::File,
                size: 7,
                name: name.to_owned(),
            };
            assert_eq!(OfferedItem::parse(item.line().trim_end()), Some(item));
        }
        for line in [
            "",
            "file",
            "file 1",
            "file x a",
            "file 1 ..",
            "file 1 a/b",
            "file 1 %2fa%2fb",
            "device 1 a",
            "file 1 ../a",
            "file -1 a",
        ] {
            assert_eq!(OfferedItem::parse(line), None, "{line}");
        }
    }
}
