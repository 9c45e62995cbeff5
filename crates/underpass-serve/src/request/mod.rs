//! Parses requests: bytes in, checked values out.

pub(crate) mod accept;
pub(crate) mod chunked;
pub(crate) mod condition;
pub(crate) mod forwarded;
pub(crate) mod head;
pub(crate) mod path;
pub(crate) mod query;
pub(crate) mod range;
pub(crate) mod request_line;

/// The scheme of a listener.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Scheme {
    /// HTTP. If another listener uses HTTPS, requests are redirected to it, except for
    /// `/.well-known/acme-challenge/`.
    Http,
    /// HTTP over TLS.
    Https,
}

impl Scheme {
    const ALL: [Scheme; 2] = [Scheme::Https, Scheme::Http];

    /// Returns `http` or `https`.
    pub fn name(self) -> &'static str {
        match self {
            Scheme::Http => "http",
            Scheme::Https => "https",
        }
    }

    /// Splits off the scheme before an address, with or without the slashes of a URL.
    pub(crate) fn split(text: &str) -> (Option<Scheme>, &str) {
        for scheme in Scheme::ALL {
            let rest = text.strip_prefix(scheme.name());
            if let Some(rest) = rest.and_then(|rest| rest.strip_prefix(':')) {
                let address = rest
                    .strip_prefix("//")
                    .map(|rest| rest.trim_end_matches('/'));
                return (Some(scheme), address.unwrap_or(rest));
            }
        }
        (None, text)
    }
}
