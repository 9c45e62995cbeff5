//! Names that files may be received under.

use crate::error::Error;
use crate::folder::UPLOADS_FOLDER;

/// A path beneath an area: one name or more, none of them hidden.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct RelativePath(String);

/// Longest name that Linux file systems take, in bytes.
const NAME_BYTES_MAX: usize = 255;

/// Longest path, in bytes: a record of it stays small.
const PATH_BYTES_MAX: usize = 1024;

impl RelativePath {
    /// Checks a path whose names are separated by slashes.
    ///
    /// # Errors
    /// [`Error::Name`] for an empty path or name, `.` and `..`, names that begin with a dot, are
    /// longer than 255 bytes, or contain a backslash or a control character, paths longer than
    /// 1,024 bytes, and what is not UTF-8.
    pub fn parse(path: &[u8]) -> Result<RelativePath, Error> {
        let text = std::str::from_utf8(path);
        let text = text.map_err(|_| Error::Name("the name is not UTF-8"))?;
        if text.len() > PATH_BYTES_MAX {
            return Err(Error::Name("the path is longer than 1,024 bytes"));
        }
        text.split('/').try_for_each(check_name)?;
        Ok(RelativePath(text.to_owned()))
    }

    /// As [`parse`](RelativePath::parse), but names may begin with a dot, except for `.`, `..` and
    /// the folder of partial files.
    ///
    /// # Errors
    /// [`Error::Name`].
    pub fn parse_hidden(path: &[u8]) -> Result<RelativePath, Error> {
        let is_reserved =
            |name: &&[u8]| [&b"."[..], b"..", UPLOADS_FOLDER.as_bytes()].contains(name);
        if path
            .split(|byte| *byte == b'/')
            .any(|name| is_reserved(&name))
        {
            return Err(Error::Name("the name is reserved"));
        }
        // What is left of a hidden name without its dots is a name like others.
        let shown = path.split(|byte| *byte == b'/').map(|name| {
            let dots = name.iter().take_while(|byte| **byte == b'.').count();
            match &name[dots..] {
                [] if dots > 0 => &b"_"[..],
                shown => shown,
            }
        });
        RelativePath::parse(&Vec::from_iter(shown).join(&b'/'))?;
        let is_long = path
            .split(|byte| *byte == b'/')
            .any(|name| name.len() > NAME_BYTES_MAX);
        let text = str::from_utf8(path).map_err(|_| Error::Name("the name is not UTF-8"))?;
        match is_long || text.len() > PATH_BYTES_MAX {
            true => Err(Error::Name("a name is longer than 255 bytes")),
            false => Ok(RelativePath(text.to_owned())),
        }
    }

    /// The path.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The last name.
    pub fn name(&self) -> &str {
        self.split().1
    }

    /// The names of the folders, and the last name.
    pub(crate) fn split(&self) -> (Option<&str>, &str) {
        match self.0.rsplit_once('/') {
            Some((folders, name)) => (Some(folders), name),
            None => (None, &self.0),
        }
    }

    /// Returns the path of `beneath` in this folder.
    ///
    /// # Errors
    /// [`Error::Name`] where it is too long.
    pub fn join(&self, beneath: &RelativePath) -> Result<RelativePath, Error> {
        RelativePath::parse(format!("{}/{}", self.0, beneath.0).as_bytes())
    }
}

fn check_name(name: &str) -> Result<(), Error> {
    Err(Error::Name(match name {
        "" => "a name in the path is empty",
        _ if name.starts_with('.') => "names that begin with a dot are not received",
        _ if name.len() > NAME_BYTES_MAX => "a name is longer than 255 bytes",
        _ if name.contains('\\') => "a name contains a backslash",
        _ if name.chars().any(char::is_control) => "a name contains a control character",
        _ => return Ok(()),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_names_are_names_like_others_where_they_are_taken() {
        for good in [".profile", "a/.b", "..a", "...", "a"] {
            assert!(
                RelativePath::parse_hidden(good.as_bytes()).is_ok(),
                "{good}"
            );
        }
        let long = format!(".{}", "a".repeat(255));
        for bad in [
            ".",
            "..",
            "a/..",
            "",
            "a//b",
            ".\\a",
            ".a\n",
            UPLOADS_FOLDER,
            &long,
        ] {
            assert!(
                RelativePath::parse_hidden(bad.as_bytes()).is_err(),
                "{bad:?}"
            );
        }
        assert!(RelativePath::parse_hidden(b".\xff").is_err());
    }

    #[test]
    fn paths_cannot_climb_hide_or_deceive() {
        let long = "a".repeat(255);
        for good in ["a", "a/b/c", "ä ö.txt", "a..b", &long] {
            assert!(RelativePath::parse(good.as_bytes()).is_ok(), "{good}");
        }
        let too_long = "a".repeat(256);
        let too_deep = "ab/".repeat(400) + "c";
        for bad in [
            "", "/", "/a", "a/", "a//b", ".", "..", "a/../b", ".a", "a/.b", "a\\b", "a\nb", "a\0b",
            "a\u{85}b", &too_long, &too_deep,
        ] {
            assert!(RelativePath::parse(bad.as_bytes()).is_err(), "{bad:?}");
        }
        assert!(RelativePath::parse(b"a\xff").is_err());
    }
}
