//! The visibility of a folder's entries, and the extras that a site offers besides its files.

use serde::Deserialize;
use underpass_receive::UPLOADS_FOLDER;

/// The handling of names that start with a dot, except `.well-known`.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "kebab-case")]
pub enum Hidden {
    /// They are treated as missing.
    #[default]
    Denied,
    /// They are served like all others.
    Shown,
}

/// The symbolic links that are followed.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "kebab-case")]
pub enum Symlinks {
    /// None: links and paths through them are treated as missing.
    None,
    /// Relative ones that stay beneath the root.
    #[default]
    Inside,
    /// All, whatever their target: everyone who can write to the folder chooses the served files.
    All,
}

/// The offers of a site besides files.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extras {
    /// Listings of folders without an index.
    pub(crate) listing: Offer,
    /// Folders as archives.
    pub(crate) archives: Offer,
    /// Hashes of files.
    pub(crate) hashes: Offer,
}

/// Whether a site offers something.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Offer {
    On,
    Off,
}

impl From<bool> for Offer {
    fn from(on: bool) -> Offer {
        if on { Offer::On } else { Offer::Off }
    }
}

/// The entries of a folder that are visible in listings and archives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Visibility {
    pub(crate) hidden: Hidden,
    pub(crate) symlinks: Symlinks,
}

impl Visibility {
    /// Whether a name is hidden.
    pub(crate) fn hides(self, name: &[u8]) -> bool {
        match self.hidden {
            Hidden::Denied => name.starts_with(b"."),
            // In any case: a file system may not distinguish letter cases.
            Hidden::Shown => name.eq_ignore_ascii_case(UPLOADS_FOLDER.as_bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_a_dot_in_front_are_hidden_where_they_are_denied() {
        for (hidden, name, expected) in [
            (Hidden::Denied, ".a", true),
            (Hidden::Denied, "a", false),
            (Hidden::Shown, ".a", false),
            (Hidden::Shown, "a", false),
        ] {
            let symlinks = Symlinks::default();
            let visibility = Visibility { hidden, symlinks };
            assert_eq!(visibility.hides(name.as_bytes()), expected, "{name}");
        }
    }
}
