//! What decides what a command line means: the program's name, the environment, the kernel.

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::Path;

use underpass_copy::Charset;

/// The name that the program was called by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CalledAs {
    /// `cp`: the caller expects GNU's.
    Cp,
    /// `underpass cp`.
    Underpass,
}

/// Whether options may follow operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ArgumentOrder {
    /// They may.
    Permuted,
    /// The first operand ends the options (`POSIXLY_CORRECT`).
    OptionsFirst,
}

/// What decides what a command line means, read once.
#[derive(Clone, Debug)]
pub(super) struct CpEnvironment {
    pub(super) called_as: CalledAs,
    pub(super) charset: Charset,
    /// `POSIXLY_CORRECT`.
    pub(super) order: ArgumentOrder,
    /// `VERSION_CONTROL`.
    pub(super) backup_names: Option<OsString>,
    /// `SIMPLE_BACKUP_SUFFIX`.
    pub(super) suffix: Option<OsString>,
    pub(super) has_selinux: bool,
    pub(super) processors: NonZeroUsize,
}

impl CpEnvironment {
    pub(super) fn read(called_as: CalledAs) -> Self {
        Self {
            called_as,
            charset: charset(|name| std::env::var_os(name)),
            order: match std::env::var_os("POSIXLY_CORRECT") {
                Some(_) => ArgumentOrder::OptionsFirst,
                None => ArgumentOrder::Permuted,
            },
            backup_names: std::env::var_os("VERSION_CONTROL"),
            suffix: std::env::var_os("SIMPLE_BACKUP_SUFFIX"),
            has_selinux: Path::new("/sys/fs/selinux/enforce").exists(),
            processors: std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN),
        }
    }
}

/// The charset of the locale: of the first of three variables that is set.
///
/// A charset other than UTF-8 counts as ASCII. Whether the locale is installed is not checked.
fn charset(variable: impl Fn(&str) -> Option<OsString>) -> Charset {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
        .into_iter()
        .filter_map(variable)
        .find(|value| !value.is_empty())
        .unwrap_or_default();
    let locale = locale.to_string_lossy().to_ascii_lowercase();
    let charset = locale.split_once('.').map(|(_, charset)| charset);
    let charset = charset.and_then(|charset| charset.split('@').next());
    match charset {
        Some("utf-8" | "utf8") => Charset::Utf8,
        _ => Charset::Ascii,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_variable_that_is_set_names_the_locale() {
        let table: [(&[(&str, &str)], Charset); 7] = [
            (&[], Charset::Ascii),
            (&[("LANG", "C.UTF-8")], Charset::Utf8),
            (&[("LANG", "de_DE.utf8@euro")], Charset::Utf8),
            (&[("LANG", "C.UTF-8"), ("LC_CTYPE", "C")], Charset::Ascii),
            (&[("LANG", "C"), ("LC_ALL", "C.UTF-8")], Charset::Utf8),
            (&[("LANG", "C.UTF-8"), ("LC_ALL", "")], Charset::Utf8),
            (&[("LANG", "de_DE")], Charset::Ascii),
        ];
        for (variables, expected) in table {
            let found = charset(|name| {
                let mut variables = variables.iter();
                let (_, value) = variables.find(|(known, _)| *known == name)?;
                Some((*value).into())
            });
            assert_eq!(found, expected, "{variables:?}");
        }
    }
}
