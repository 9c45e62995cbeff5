//! The filter of names (`--exclude`, `--include`).
//!
//! Patterns are those of gitignore(5), an include being a line with a leading `!`. All are in one
//! list, in the order given, and the last one that matches a name decides. So:
//!
//! - A name that no pattern matches is copied. A list of includes alone therefore has no effect;
//!   "only these" is `--exclude '*' --include '*/' --include '*.rs'`: exclude all, include all
//!   folders, and include these.
//! - Nothing below an excluded folder is copied, even if a pattern includes it: such a folder is
//!   never entered.
//! - Patterns with a slash at the beginning or in the middle match paths below the operand, others
//!   names in any folder; a trailing slash matches only folders, not symbolic links.
//! - In addition to git's syntax, `{a,b}` matches either alternative.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use ignore::gitignore::{Gitignore, GitignoreBuilder};
use ignore::{Error, Match};

use crate::options::FilterRule;
use rustix::fs::FileType;

/// Parsed patterns.
#[derive(Debug)]
pub(crate) struct NameFilter {
    patterns: Gitignore,
}

impl NameFilter {
    /// Parses patterns.
    ///
    /// # Errors
    /// The invalid pattern, and the reason.
    pub(crate) fn of(rules: &[FilterRule]) -> Result<Self, String> {
        let mut builder = GitignoreBuilder::new("");
        for rule in rules {
            builder
                .add_line(None, &line(rule)?)
                .map_err(|error| complaint(rule, error))?;
        }
        let patterns = builder.build().map_err(|error| error.to_string())?;
        Ok(Self { patterns })
    }

    /// Returns whether a name is copied: `path` is its path below the operand, without a leading
    /// slash. Called for the children of a folder only if the folder is copied.
    pub(crate) fn admits(&self, path: &[u8], kind: FileType) -> bool {
        let is_folder = kind == FileType::Directory;
        let found = self.patterns.matched(OsStr::from_bytes(path), is_folder);
        !matches!(found, Match::Ignore(_))
    }
}

impl FilterRule {
    /// Checks the pattern.
    ///
    /// # Errors
    /// A message for the user: the pattern, and the reason why it is invalid.
    pub fn check(&self) -> Result<(), String> {
        NameFilter::of(std::slice::from_ref(self)).map(drop)
    }
}

fn complaint(rule: &FilterRule, error: Error) -> String {
    let reason = match error {
        Error::Glob { err, .. } => err,
        other => other.to_string(),
    };
    format!("the pattern '{}': {reason}", pattern_of(rule))
}

fn pattern_of(rule: &FilterRule) -> &str {
    match rule {
        FilterRule::Exclude(pattern) | FilterRule::Include(pattern) => pattern,
    }
}

/// Returns the equivalent line of a `.gitignore`. A command line has no comments: a leading `#` is
/// part of the name.
fn line(rule: &FilterRule) -> Result<String, String> {
    let pattern = pattern_of(rule);
    if pattern.trim_end().is_empty() {
        return Err(format!("the pattern '{pattern}' is empty"));
    }
    if pattern.starts_with('!') {
        return Err(format!(
            "the pattern '{pattern}' begins with '!': for a name that does, write '\\!'; \
             whether a pattern excludes or includes is said by its option"
        ));
    }
    Ok(match rule {
        FilterRule::Include(_) => format!("!{pattern}"),
        FilterRule::Exclude(_) if pattern.starts_with('#') => format!("\\{pattern}"),
        FilterRule::Exclude(_) => pattern.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses rules written as lines of a `.gitignore`.
    fn filter(lines: &[&str]) -> NameFilter {
        let rule = |line: &&str| match line.strip_prefix('!') {
            Some(pattern) => FilterRule::Include(pattern.into()),
            None => FilterRule::Exclude((*line).into()),
        };
        let rules: Vec<_> = lines.iter().map(rule).collect();
        NameFilter::of(&rules).unwrap()
    }

    /// Returns whether a path is copied; one with a trailing slash is a folder.
    fn admits(lines: &[&str], path: &str) -> bool {
        match path.strip_suffix('/') {
            Some(path) => filter(lines).admits(path.as_bytes(), FileType::Directory),
            None => filter(lines).admits(path.as_bytes(), FileType::RegularFile),
        }
    }

    #[test]
    fn patterns_mean_what_they_mean_in_a_gitignore() {
        let excluded = [
            ("*.o", "a.o"),
            ("*.o", "deep/er/a.o"),
            ("target", "target/"),
            ("target", "a/target"),
            ("target/", "a/target/"),
            ("/target", "target"),
            ("a/b", "a/b"),
            ("a/**", "a/b"),
            ("a/**", "a/b/c"),
            ("a/**/c", "a/c"),
            ("**/c", "a/b/c"),
            ("a?c", "abc"),
            ("[a-c]x", "bx"),
            ("[!a]x", "bx"),
            ("#a", "#a"),
            ("\\#a", "#a"),
            ("\\!a", "!a"),
            ("a\\*", "a*"),
            ("a  ", "a"),
            ("*", ".hidden"),
            ("*.{a,b}", "x.b"),
        ];
        for (pattern, path) in excluded {
            assert!(!admits(&[pattern], path), "{pattern} {path}");
        }
        let admitted = [
            ("*.o", "a.c"),
            ("target/", "target"),
            ("/target", "a/target"),
            ("a/b", "c/a/b"),
            ("a/**", "a/"),
            ("a/*", "a/b/c"),
            ("a*c", "a/c"),
            ("a?c", "a/c"),
            ("a\\*", "ab"),
            ("A", "a"),
        ];
        for (pattern, path) in admitted {
            assert!(admits(&[pattern], path), "{pattern} {path}");
        }
    }

    #[test]
    fn the_last_one_that_matches_decides() {
        assert!(admits(&["*.o", "!keep.o"], "a/keep.o"));
        assert!(!admits(&["!keep.o", "*.o"], "keep.o"));
        assert!(!admits(&["*.o", "!keep.o", "/keep.o"], "keep.o"));
        assert!(admits(&["!\\!a", "b"], "!a"));
        assert!(admits(&["*", "!#a"], "#a"));
    }

    #[test]
    fn includes_alone_change_nothing() {
        assert!(admits(&["!*.rs"], "a.rs"));
        assert!(admits(&["!*.rs"], "a.c"));
    }

    #[test]
    fn only_these_can_be_said() {
        let only = ["*", "!*/", "!*.rs"];
        assert!(admits(&only, "src/"));
        assert!(admits(&only, "src/lib.rs"));
        assert!(!admits(&only, "src/lib.c"));
    }

    #[test]
    fn a_link_is_no_folder() {
        let filter = filter(&["a/"]);
        assert!(filter.admits(b"a", FileType::Symlink));
        assert!(filter.admits(b"a", FileType::Fifo));
        assert!(!filter.admits(b"a", FileType::Directory));
    }

    #[test]
    fn names_may_be_any_bytes() {
        let filter = filter(&["*.o"]);
        assert!(!filter.admits(b"\xff/\xfe.o", FileType::RegularFile));
        assert!(filter.admits(b"\xff/\xfe.c", FileType::RegularFile));
        assert!(!filter.admits(b"two\nlines.o", FileType::RegularFile));
    }

    #[test]
    fn a_pattern_without_sense_is_named() {
        assert!(NameFilter::of(&[]).is_ok());
        for pattern in ["", "  ", "!a", "a{b", "[z-a]"] {
            for rule in [FilterRule::Exclude, FilterRule::Include] {
                let rule = rule(pattern.into());
                let error = NameFilter::of(std::slice::from_ref(&rule)).unwrap_err();
                assert!(error.contains(&format!("'{pattern}'")), "{error}");
                assert_eq!(rule.check(), Err(error));
            }
        }
    }
}
