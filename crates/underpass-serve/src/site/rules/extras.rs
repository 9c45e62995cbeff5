//! What a site offers beside its files as they are.

use crate::options::SiteOptions;
use crate::site::rules::{Hidden, Symlinks};

/// What there is beside files.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extras {
    pub(crate) listing: Listings,
    pub(crate) archives: Archives,
    pub(crate) hashes: Hashes,
}

/// Whether folders without an index are listed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Listings {
    Offered,
    Off,
}

/// Whether folders may be asked for as archives.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Archives {
    Offered,
    Off,
}

/// Whether files may be asked for their hashes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Hashes {
    Offered,
    Off,
}

/// What of a folder is seen by those who list it or take it along.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sight {
    pub(crate) hidden: Hidden,
    pub(crate) symlinks: Symlinks,
}

impl Extras {
    pub(crate) fn of(options: &SiteOptions) -> Extras {
        Extras {
            listing: match options.listing {
                true => Listings::Offered,
                false => Listings::Off,
            },
            archives: match options.archives.unwrap_or(options.listing) {
                true => Archives::Offered,
                false => Archives::Off,
            },
            hashes: match options.hashes {
                true => Hashes::Offered,
                false => Hashes::Off,
            },
        }
    }
}

impl Sight {
    /// Whether a name is kept from others.
    pub(crate) fn hides(self, name: &[u8]) -> bool {
        self.hidden == Hidden::Denied && name.starts_with(b".")
    }
}
