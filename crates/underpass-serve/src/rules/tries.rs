//! Lists of candidates for a path, tried in order.
//!
//! ```text
//!  {path}           what was asked for, a file or a folder
//!  {path}.html      the same with something behind, a file
//!  /old{path}       the same beneath another folder
//!  /app/index.html  a file, whatever was asked for
//! ```
//!
//! The text for `{path}` is normalised, and the result is not subject to the rules again: no cycle
//! is possible, and no name above the root.

use serde::Deserialize;
use underpass_http::path::{PathForm, SitePath};

use super::pattern::Pattern;
use super::url_path::parse_path;
use crate::limits::TRIED_FILES_MAX;

/// A rule for the paths that match a pattern: they resolve to the first of `files` that exists.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TryRule {
    /// The paths it applies to.
    pub paths: Vec<Pattern>,
    /// The candidates, in order.
    pub files: Vec<Candidate>,
}

/// A candidate for a path: `{path}.html`, `/app/index.html`.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq)]
#[serde(try_from = "String")]
pub struct Candidate(CandidateShape);

#[derive(Clone, Debug, Eq, PartialEq)]
enum CandidateShape {
    /// A fixed file, whatever the path.
    Page(SitePath),
    /// The path beneath a folder, which may be the root.
    Beneath(SitePath),
    /// The path beneath a folder, with a suffix.
    Longer(SitePath, String),
}

/// The path to resolve, and the accepted kinds of files.
#[derive(Debug, Eq, PartialEq)]
pub(crate) enum SoughtPath {
    /// A file only; a folder counts as missing.
    File(SitePath),
    /// A file or a folder. It is as deep as the requested path, so relative links in a folder work.
    Anything(SitePath),
}

const PATH: &str = "{path}";

impl TryRule {
    /// Checks the number of candidates.
    pub(crate) fn check(&self) -> Result<(), String> {
        match self.files.len() {
            0 => Err("try: `files` is empty".to_owned()),
            count if count > TRIED_FILES_MAX => Err(format!(
                "try: `files` has {count} entries; at most {TRIED_FILES_MAX} are allowed"
            )),
            _ => Ok(()),
        }
    }

    /// Returns the fixed file at the end of the list, if any.
    pub(crate) fn last_page(&self) -> Option<&SitePath> {
        match &self.files.last()?.0 {
            CandidateShape::Page(page) => Some(page),
            CandidateShape::Beneath(_) | CandidateShape::Longer(..) => None,
        }
    }
}

impl Candidate {
    /// Parses a candidate.
    ///
    /// # Errors
    /// A description of the mistake.
    pub fn parse(text: &str) -> Result<Candidate, String> {
        // With a separate slash, so that it is a segment and normalised like one.
        let whole = text.replacen(PATH, &format!("/{PATH}"), 1);
        let wrong = || format!("{text:?}: {PATH} is allowed once, and not next to `..`");
        let path = parse_path(&whole)?;
        if path.form() == PathForm::Folder {
            return Err(format!(
                "{text:?} is a folder; expected a file, or {PATH}, which finds folders too"
            ));
        }
        if !text.contains(PATH) {
            return Ok(Candidate(CandidateShape::Page(path)));
        }
        let bytes = std::str::from_utf8(path.bytes()).map_err(|_| wrong())?;
        let (before, after) = bytes.split_once(PATH).ok_or_else(wrong)?;
        if after.contains(PATH) || text.contains("..") {
            return Err(wrong());
        }
        let folder = parse_path(&format!("/{before}"))?;
        Ok(Candidate(match after {
            "" => CandidateShape::Beneath(folder),
            after => CandidateShape::Longer(folder, after.to_owned()),
        }))
    }

    /// Whether it is a fixed file.
    pub(crate) fn is_page(&self) -> bool {
        matches!(self.0, CandidateShape::Page(_))
    }

    /// Returns the candidate for `path`; `None` if a suffix would follow a slash.
    pub(crate) fn of(&self, path: &SitePath) -> Option<SoughtPath> {
        match &self.0 {
            CandidateShape::Page(page) => Some(SoughtPath::File(page.clone())),
            CandidateShape::Beneath(folder) => {
                let beneath = folder.join(path.bytes(), path.form());
                Some(SoughtPath::Anything(beneath))
            }
            CandidateShape::Longer(folder, after) => match (after.strip_prefix('/'), path.form()) {
                (Some(inside), _) => {
                    let beneath = folder.join(path.bytes(), PathForm::Folder);
                    Some(SoughtPath::File(
                        beneath.join(inside.as_bytes(), PathForm::File),
                    ))
                }
                (None, PathForm::Folder) => None,
                (None, PathForm::File) => {
                    let beneath = folder.join(path.bytes(), PathForm::File);
                    Some(SoughtPath::File(beneath.with_suffix(after)))
                }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sought(candidate: &str, path: &str) -> String {
        let path = SitePath::parse(path.as_bytes()).unwrap();
        match Candidate::parse(candidate).unwrap().of(&path) {
            Some(SoughtPath::File(path)) => format!("file {path:?}"),
            Some(SoughtPath::Anything(path)) => format!("{path:?}"),
            None => "-".to_owned(),
        }
    }

    #[test]
    fn candidates_are_made_of_the_path() {
        for (candidate, path, expected) in [
            ("{path}", "/a/b", "a/b"),
            ("{path}", "/a/b/", "a/b/"),
            ("{path}", "/", "/"),
            ("{path}.html", "/a/b", "file a/b.html"),
            ("{path}.html", "/a/b/", "-"),
            ("{path}.html", "/", "-"),
            ("{path}/index.html", "/a", "file a/index.html"),
            ("{path}/index.html", "/a/", "file a/index.html"),
            ("{path}/index.html", "/", "file index.html"),
            ("/old{path}", "/a/", "old/a/"),
            ("/old{path}", "/", "old/"),
            ("/old{path}.txt", "/a", "file old/a.txt"),
            ("/old/%7e{path}", "/a", "old/~/a"),
            ("/app/index.html", "/a/b", "file app/index.html"),
            ("{path}", "/a/../b", "b"),
        ] {
            assert_eq!(sought(candidate, path), expected, "{candidate} {path}");
        }
    }

    #[test]
    fn rules_have_some_files_and_a_page_may_be_the_last() {
        let rule = |files: &[&str]| TryRule {
            paths: Vec::new(),
            files: files
                .iter()
                .map(|file| Candidate::parse(file).unwrap())
                .collect(),
        };
        assert!(rule(&[]).check().is_err());
        assert!(rule(&["/a"; TRIED_FILES_MAX]).check().is_ok());
        assert!(rule(&["/a"; TRIED_FILES_MAX + 1]).check().is_err());
        let page = SitePath::parse(b"/b").unwrap();
        assert_eq!(rule(&["/a", "/b"]).last_page(), Some(&page));
        for files in [&["/b", "{path}"][..], &["/b", "{path}.html"], &[]] {
            assert_eq!(rule(files).last_page(), None, "{files:?}");
        }
    }

    #[test]
    fn what_leads_elsewhere_or_makes_no_sense_is_refused() {
        for wrong in [
            "",
            "index.html",
            "{path}/",
            "/folder/",
            "/../x",
            "{path}/../x",
            "{path}/..",
            "/a/..{path}",
            "..{path}",
            "a{path}",
            "{path}{path}",
            "{path}/%7bpath%7d",
            "{path}?x",
            "{path}%00",
            "https://example.org/",
        ] {
            assert!(Candidate::parse(wrong).is_err(), "{wrong}");
        }
    }
}
