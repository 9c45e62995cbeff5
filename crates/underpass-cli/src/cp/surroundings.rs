//! What beside the command line decides what it means.

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::Path;

use underpass_copy::Charset;

use super::getopt::Order;

/// The environment and the kernel, as far as they matter. Read once.
#[derive(Clone, Debug)]
pub(super) struct Surroundings {
    pub(super) charset: Charset,
    /// `POSIXLY_CORRECT`.
    pub(super) order: Order,
    /// `VERSION_CONTROL`.
    pub(super) backup_names: Option<OsString>,
    /// `SIMPLE_BACKUP_SUFFIX`.
    pub(super) suffix: Option<OsString>,
    pub(super) selinux: Selinux,
    pub(super) processors: NonZeroUsize,
}

/// Whether this kernel labels files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Selinux {
    Absent,
    Present,
}

impl Surroundings {
    pub(super) fn read() -> Self {
        let is_set = |name| std::env::var_os(name).is_some();
        Self {
            charset: charset(|name| std::env::var_os(name)),
            order: match is_set("POSIXLY_CORRECT") {
                true => Order::OptionsFirst,
                false => Order::Free,
            },
            backup_names: std::env::var_os("VERSION_CONTROL"),
            suffix: std::env::var_os("SIMPLE_BACKUP_SUFFIX"),
            selinux: match Path::new("/sys/fs/selinux/enforce").exists() {
                true => Selinux::Present,
                false => Selinux::Absent,
            },
            processors: std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN),
        }
    }
}

/// The charset of the locale, by its name: the first of three variables that says anything.
///
/// A name with a charset other than UTF-8 counts as C. Whether a locale is installed is not asked:
/// where it isn't, the C library falls back to C.
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
