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

/// The default port of HTTPS, which URLs omit.
pub const HTTPS_PORT: u16 = 443;

/// Returns the start of an HTTPS URL for a host.
pub fn https_origin(host: &[u8], port: u16) -> Vec<u8> {
    let mut origin = b"https://".to_vec();
    origin.extend_from_slice(host);
    if port != HTTPS_PORT {
        origin.extend_from_slice(format!(":{port}").as_bytes());
    }
    origin
}
