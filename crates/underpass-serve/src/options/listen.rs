//! The listen addresses of a server, and their schemes.

use std::fmt;
use std::net::SocketAddr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use underpass_http::scheme::Scheme;
use underpass_net::{BadListenAt, ListenAt};

/// An address to listen on.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HttpListen {
    /// The address.
    pub at: ListenAt,
    /// The scheme; if `None`, HTTPS if a certificate is configured.
    pub scheme: Option<Scheme>,
}

impl HttpListen {
    /// Returns all addresses that `text` stands for: an optional `http:` or `https:` followed by an
    /// address for [`ListenAt::resolve`].
    ///
    /// # Errors
    /// See [`ListenAt::resolve`].
    ///
    /// # Examples
    /// ```
    /// use underpass_serve::{HttpListen, Scheme};
    ///
    /// let all = HttpListen::resolve("https:443", None)?;
    /// assert_eq!(all[0].scheme, Some(Scheme::Https));
    /// assert_eq!(all[0].to_string(), "https:127.0.0.1:443");
    /// assert_eq!(HttpListen::resolve("8080", None)?[0].scheme, None);
    /// # Ok::<(), underpass_net::BadListenAt>(())
    /// ```
    pub fn resolve(text: &str, port: Option<u16>) -> Result<Vec<HttpListen>, BadListenAt> {
        let (scheme, rest) = split_scheme(text);
        let all = ListenAt::resolve(rest, port)?;
        Ok(all
            .into_iter()
            .map(|at| HttpListen { at, scheme })
            .collect())
    }
}

/// Splits off the scheme before an address, with or without the slashes of a URL.
fn split_scheme(text: &str) -> (Option<Scheme>, &str) {
    for scheme in [Scheme::Https, Scheme::Http] {
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

impl From<ListenAt> for HttpListen {
    fn from(at: ListenAt) -> HttpListen {
        HttpListen { at, scheme: None }
    }
}

impl From<SocketAddr> for HttpListen {
    fn from(address: SocketAddr) -> HttpListen {
        ListenAt::from(address).into()
    }
}

impl fmt::Display for HttpListen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(scheme) = self.scheme {
            write!(f, "{}:", scheme.name())?;
        }
        self.at.fmt(f)
    }
}

/// Resolves a list of texts.
pub(super) fn resolved<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<HttpListen>, D::Error> {
    let mut all = Vec::new();
    for text in Vec::<String>::deserialize(from)? {
        all.extend(HttpListen::resolve(&text, None).map_err(D::Error::custom)?);
    }
    Ok(all)
}
