//! The clients that may read a response, as caches are told.

use std::borrow::Cow;

use crate::access::options::{AccessCache, AccessOptions};

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
}
