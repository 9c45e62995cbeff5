//! Patterns over the paths of files: `*.css`, `/assets/**`.

use globset::{GlobBuilder, GlobMatcher};
use serde::Deserialize;

/// A pattern over paths. With a slash it is matched from the root (`/assets/**`, `/*/logo.svg`),
/// without one against the last name in any folder (`*.css`). `*` and `?` stop at slashes, `**`
/// does not; `[a-z]` and `{a,b}` work as in shells.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "String")]
pub struct Pattern(GlobMatcher);

impl Pattern {
    /// Parses a pattern.
    ///
    /// # Examples
    /// ```
    /// use underpass_serve::rules::Pattern;
    ///
    /// let styles = Pattern::parse("*.css")?;
    /// assert!(styles.matches(b"a/b.css"));
    /// assert!(Pattern::parse("/a/[").is_err());
    /// # Ok::<(), String>(())
    /// ```
    ///
    /// # Errors
    /// A description of the mistake.
    pub fn parse(pattern: &str) -> Result<Pattern, String> {
        let anchored = match pattern.strip_prefix('/') {
            Some(rest) => rest.to_owned(),
            None if pattern.contains('/') => pattern.to_owned(),
            None => format!("**/{pattern}"),
        };
        if pattern.trim_matches('/').is_empty() {
            return Err(format!(
                "the pattern {pattern:?} matches no file; `/**` matches all"
            ));
        }
        let glob = GlobBuilder::new(&anchored)
            .literal_separator(true)
            .backslash_escape(true)
            .build();
        match glob {
            Ok(glob) => Ok(Pattern(glob.compile_matcher())),
            Err(error) => Err(format!("the pattern {pattern:?}: {}", error.kind())),
        }
    }

    /// Whether the pattern matches the file at this path, relative to the root.
    pub fn matches(&self, path: &[u8]) -> bool {
        use std::ffi::OsStr;
        use std::os::unix::ffi::OsStrExt;

        self.0.is_match(OsStr::from_bytes(path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with_a_slash_from_the_root_without_one_anywhere() {
        for (pattern, matching, other) in [
            (
                "*.css",
                &["a.css", "a/b.css", "a/b/.css"][..],
                &["a.css/b", "a.cs"][..],
            ),
            ("/*.css", &["a.css"], &["a/b.css"]),
            (
                "/assets/**",
                &["assets/a", "assets/a/b"],
                &["assets", "x/assets/a"],
            ),
            ("assets/*", &["assets/a"], &["assets/a/b", "x/assets/a"]),
            ("/**", &["a", "a/b"], &[]),
            ("**/x/*.js", &["x/a.js", "a/b/x/c.js"], &["x/y/a.js"]),
            ("*.{js,mjs}", &["a.js", "b/a.mjs"], &["a.cjs"]),
        ] {
            let compiled = Pattern::parse(pattern).unwrap();
            for path in matching {
                assert!(compiled.matches(path.as_bytes()), "{pattern} {path}");
            }
            for path in other {
                assert!(!compiled.matches(path.as_bytes()), "{pattern} {path}");
            }
        }
        for wrong in ["", "/", "[", "a{b"] {
            assert!(Pattern::parse(wrong).is_err(), "{wrong}");
        }
    }
}
