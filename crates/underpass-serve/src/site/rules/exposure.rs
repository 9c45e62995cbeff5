//! The visibility of a folder's entries, and the extras that a site offers besides its files.

use std::borrow::Cow;

use serde::Deserialize;
use underpass_receive::UPLOADS_FOLDER;

use crate::access::options::{AccessCache, AccessOptions};

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

/// The clients that may read a response.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Audience {
    Everyone,
    /// Some clients only, with this cache policy and the request fields that identify them.
    Some(AccessCache, &'static str),
}

impl Audience {
    /// Returns the audience of responses that depend on the requester.
    pub(crate) fn of(access: &AccessOptions) -> Audience {
        match access.is_configured() {
            true if access.link_cookies => Audience::Some(access.cache, "Authorization, Cookie"),
            true => Audience::Some(access.cache, "Authorization"),
            false => Audience::Everyone,
        }
    }

    /// Returns the `Cache-Control` of a response that would have `control` if public: no shared
    /// cache stores it (RFC 9111, sections 3.5 and 5.2.2.7).
    pub(crate) fn restrict<'c>(self, control: Option<&'c str>) -> Option<Cow<'c, str>> {
        let cache = match self {
            Audience::Everyone => return control.map(Cow::Borrowed),
            Audience::Some(cache, _) => cache,
        };
        let mut directives = vec![match cache {
            AccessCache::Private => "private",
            AccessCache::NoStore => "no-store",
        }];
        if cache == AccessCache::Private {
            let all = control.unwrap_or_default().split(',').map(str::trim);
            directives.extend(all.filter(|directive| {
                let name = directive.split('=').next().unwrap_or_default().trim_end();
                let shared = ["", "public", "private", "s-maxage", "proxy-revalidate"];
                !shared.iter().any(|word| word.eq_ignore_ascii_case(name))
            }));
        }
        Some(Cow::Owned(directives.join(", ")))
    }

    /// Returns the request fields that the response depends on.
    pub(crate) fn varies(self) -> Option<&'static str> {
        match self {
            Audience::Everyone => None,
            Audience::Some(_, fields) => Some(fields),
        }
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
            Hidden::Shown => name == UPLOADS_FOLDER.as_bytes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_shared_cache_keeps_what_some_may_read() {
        let restricted = |cache, control| Audience::Some(cache, "").restrict(control).unwrap();
        for (control, expected) in [
            (None, "private"),
            (
                Some("public, max-age=60, immutable"),
                "private, max-age=60, immutable",
            ),
            (Some("max-age=60, S-MaxAge=600"), "private, max-age=60"),
            (Some("no-store"), "private, no-store"),
            (Some("private=\"x\", no-cache"), "private, no-cache"),
        ] {
            assert_eq!(restricted(AccessCache::Private, control), expected);
            assert_eq!(restricted(AccessCache::NoStore, control), "no-store");
            let open = Audience::Everyone.restrict(control);
            assert_eq!(open.as_deref(), control);
        }
    }

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
