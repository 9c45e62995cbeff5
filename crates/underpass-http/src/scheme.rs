//! The scheme of a URL.

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
    /// Returns `http` or `https`.
    pub fn name(self) -> &'static str {
        match self {
            Scheme::Http => "http",
            Scheme::Https => "https",
        }
    }
}
