//! What of a folder clients can see, and what a site offers beside its files as they are.

use serde::Deserialize;

/// What becomes of names that begin with a dot, `.well-known` excepted.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "kebab-case")]
pub enum Hidden {
    /// They are not there.
    #[default]
    Denied,
    /// They are served as all others.
    Shown,
}

/// Which symbolic links are followed.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "kebab-case")]
pub enum Symlinks {
    /// None: a link is not there, nor what is behind it.
    None,
    /// Relative ones that stay beneath the root.
    #[default]
    Inside,
    /// All, wherever they lead: everyone who can write to the folder chooses what is served.
    All,
}

/// What there is beside files.
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
        match on {
            true => Offer::On,
            false => Offer::Off,
        }
    }
}

/// Which entries of a folder show in listings and archives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Visibility {
    pub(crate) hidden: Hidden,
    pub(crate) symlinks: Symlinks,
}

impl Visibility {
    /// Whether a name is kept from others.
    pub(crate) fn hides(self, name: &[u8]) -> bool {
        self.hidden == Hidden::Denied && name.starts_with(b".")
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
