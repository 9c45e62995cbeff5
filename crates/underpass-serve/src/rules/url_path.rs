//! Paths and file names in a configuration.

use serde::Deserialize;
use underpass_http::path::{PathForm, SitePath};

/// The path of a file in a URL: `/404.html`. It starts with a slash, ends without one and does not
/// lead above the root.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq)]
#[serde(try_from = "String")]
pub struct UrlPath(SitePath);

/// The name of a file in a folder: `index.html`.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq)]
#[serde(try_from = "String")]
pub struct FileName(String);

impl UrlPath {
    /// Checks a path.
    ///
    /// # Errors
    /// A description of the mistake.
    pub fn parse(path: &str) -> Result<UrlPath, String> {
        match parse_path(path)? {
            path if path.form() == PathForm::File => Ok(UrlPath(path)),
            _ => Err(format!("{path:?} is the path of a folder; expected a file")),
        }
    }

    pub(crate) fn path(&self) -> &SitePath {
        &self.0
    }
}

/// Parses any path of a URL, without a query.
pub(crate) fn parse_path(path: &str) -> Result<SitePath, String> {
    if !path.starts_with('/') {
        return Err(format!("the path {path:?} does not begin with a slash"));
    }
    if path.contains(['?', '#']) {
        return Err(format!("the path {path:?} contains a query or a fragment"));
    }
    SitePath::parse(path.as_bytes()).map_err(|error| format!("{path:?}: {}", error.why))
}

impl FileName {
    /// Checks a name.
    ///
    /// # Errors
    /// A description of the mistake.
    pub fn parse(name: &str) -> Result<FileName, String> {
        match name {
            "" | "." | ".." => Err(format!("{name:?} is not a file name")),
            _ if name.contains(['/', '\0']) => Err(format!(
                "{name:?} is not a file name: it contains a slash or a NUL"
            )),
            _ => Ok(FileName(name.to_owned())),
        }
    }

    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_segment_of_a_path() {
        for right in ["index.html", "...", ".a", "a b"] {
            assert_eq!(FileName::parse(right).unwrap().as_str(), right);
        }
        for wrong in ["", ".", "..", "a/b", "/", "a\0"] {
            assert!(FileName::parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
