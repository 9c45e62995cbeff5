//! Names as `cp` shows them: what a shell would read as the same bytes.

use std::fmt;

/// Shows bytes between single quotes, in double quotes where they hold a single quote and nothing
/// that a shell would take for more, and everything else that does not print as `$'\n'`.
///
/// ```
/// use underpass_copy::Quoted;
/// assert_eq!(Quoted(b"a b").to_string(), "'a b'");
/// assert_eq!(Quoted(b"it's").to_string(), r#""it's""#);
/// assert_eq!(Quoted(b"two\nlines").to_string(), r"'two'$'\n''lines'");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Quoted<'a>(pub &'a [u8]);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let _ = f;
        todo!()
    }
}
