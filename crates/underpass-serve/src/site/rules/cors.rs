//! Who may read answers from other sites: the CORS protocol of the Fetch standard.

use std::time::Duration;

use serde::Deserialize;

use super::field::push_field;
use crate::request::request_line::is_token;

/// Which web sites may read what is served here, by scripts.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct CorsOptions {
    /// Origins as browsers send them (`https://app.example`), or `*` alone for all. None switches
    /// it off.
    pub origins: Vec<CorsOrigin>,
    /// The fields that scripts may send along.
    pub request_headers: Vec<FieldToken>,
    /// The fields of answers that scripts may read, beside the few that they always may.
    pub expose_headers: Vec<FieldToken>,
    /// How long a browser may remember the answer to its preflight.
    #[serde(with = "humantime_serde")]
    pub max_age: Duration,
}

/// An origin, or `*`.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq)]
#[serde(try_from = "String")]
pub struct CorsOrigin(String);

/// The name of a field.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq)]
#[serde(try_from = "String")]
pub struct FieldToken(String);

impl Default for CorsOptions {
    /// Off. The fields are those of ranges and conditions.
    fn default() -> CorsOptions {
        let tokens = |names: &[&str]| {
            names
                .iter()
                .map(|name| FieldToken(name.to_string()))
                .collect()
        };
        CorsOptions {
            origins: Vec::new(),
            request_headers: tokens(&[
                "Range",
                "If-Range",
                "If-Match",
                "If-None-Match",
                "If-Modified-Since",
                "If-Unmodified-Since",
            ]),
            expose_headers: tokens(&[
                "Accept-Ranges",
                "Content-Disposition",
                "Content-Encoding",
                "Content-Length",
                "Content-Range",
                "ETag",
                "Repr-Digest",
            ]),
            max_age: Duration::from_secs(3600),
        }
    }
}

impl CorsOrigin {
    /// Checks an origin: scheme, host, and a port that is not the scheme's own.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn parse(origin: &str) -> Result<CorsOrigin, String> {
        let lower = origin.to_ascii_lowercase();
        let host = ["https://", "http://"]
            .iter()
            .find_map(|scheme| lower.strip_prefix(scheme));
        let right = match host {
            Some(host) => {
                let port = !(lower.starts_with("https://") && host.ends_with(":443")
                    || lower.starts_with("http://") && host.ends_with(":80"));
                port && !host.contains('*')
                    && crate::request::host::check_authority(host.as_bytes()).is_ok()
            }
            None => lower == "*",
        };
        match right {
            true => Ok(CorsOrigin(lower)),
            false => Err(format!(
                "{origin:?} is no origin; one is https://host, or https://host:port with a port \
                 that is not the usual one, without a slash at its end; `*` is any"
            )),
        }
    }
}

impl TryFrom<String> for CorsOrigin {
    type Error = String;

    fn try_from(origin: String) -> Result<CorsOrigin, String> {
        CorsOrigin::parse(&origin)
    }
}

impl TryFrom<String> for FieldToken {
    type Error = String;

    fn try_from(name: String) -> Result<FieldToken, String> {
        match !name.is_empty() && name.bytes().all(is_token) {
            true => Ok(FieldToken(name)),
            false => Err(format!("{name:?} is no name of a field")),
        }
    }
}

/// The options, ready to be used.
#[derive(Debug)]
pub(crate) struct CorsRules {
    allowed: AllowedOrigins,
    /// What answers to every allowed origin have.
    shared: Vec<u8>,
    /// What the answer to a preflight has beside that.
    preflight: Vec<u8>,
}

#[derive(Debug)]
enum AllowedOrigins {
    Nobody,
    Everybody,
    /// Answers depend on who asks.
    Listed(Vec<CorsOrigin>),
}

impl CorsRules {
    pub(crate) fn new(options: &CorsOptions) -> Result<CorsRules, String> {
        let any = options.origins.iter().any(|origin| origin.0 == "*");
        let allowed = match options.origins.len() {
            0 => AllowedOrigins::Nobody,
            1 if any => AllowedOrigins::Everybody,
            _ if any => return Err("cors: `*` allows everybody; leave the others out".to_owned()),
            _ => AllowedOrigins::Listed(options.origins.clone()),
        };
        let list = |names: &[FieldToken]| -> String {
            let names: Vec<_> = names.iter().map(|name| name.0.as_str()).collect();
            names.join(", ")
        };
        let mut shared = Vec::new();
        push_list(
            &mut shared,
            "Access-Control-Expose-Headers",
            &list(&options.expose_headers),
        );
        let mut preflight = Vec::new();
        push_field(
            &mut preflight,
            "Access-Control-Allow-Methods",
            "GET, HEAD, OPTIONS",
        );
        push_list(
            &mut preflight,
            "Access-Control-Allow-Headers",
            &list(&options.request_headers),
        );
        let seconds = options.max_age.as_secs().to_string();
        push_field(&mut preflight, "Access-Control-Max-Age", &seconds);
        Ok(CorsRules {
            allowed,
            shared,
            preflight,
        })
    }

    /// Whether answers depend on the `CorsOrigin` of a request.
    pub(crate) fn varies(&self) -> bool {
        matches!(self.allowed, AllowedOrigins::Listed(_))
    }

    /// What an answer to a request of this origin is told as allowed for.
    pub(crate) fn admit<'o>(&self, origin: Option<&'o [u8]>) -> Option<&'o [u8]> {
        match &self.allowed {
            AllowedOrigins::Nobody => None,
            // Told to those who don't ask as well, since a cache may keep it for those who do.
            AllowedOrigins::Everybody => Some(b"*"),
            AllowedOrigins::Listed(listed) => origin.filter(|origin| {
                let mut listed = listed.iter();
                listed.any(|allowed| allowed.0.as_bytes() == *origin)
            }),
        }
    }

    /// Appends the fields of an answer to somebody who was admitted.
    pub(crate) fn push_to(&self, head: &mut Vec<u8>, admitted: &[u8]) {
        head.extend_from_slice(b"\r\nAccess-Control-Allow-Origin: ");
        head.extend_from_slice(admitted);
        head.extend_from_slice(&self.shared);
    }

    pub(crate) fn preflight(&self) -> &[u8] {
        &self.preflight
    }
}

fn push_list(head: &mut Vec<u8>, name: &str, list: &str) {
    if !list.is_empty() {
        push_field(head, name, list);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_as_browsers_send_them() {
        for right in [
            "*",
            "https://app.example",
            "http://localhost:3000",
            "HTTPS://A.example",
        ] {
            assert!(CorsOrigin::parse(right).is_ok(), "{right}");
        }
        for wrong in [
            "",
            "null",
            "app.example",
            "https://app.example/",
            "https://app.example:443",
            "http://a:80",
            "https://*.example",
            "https://",
            "ftp://a",
        ] {
            assert!(CorsOrigin::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn only_those_listed_are_admitted() {
        let cors = |origins: &[&str]| {
            let origins = origins.iter().map(|text| CorsOrigin::parse(text).unwrap());
            CorsRules::new(&CorsOptions {
                origins: origins.collect(),
                ..CorsOptions::default()
            })
        };
        let a = Some(&b"https://a.example"[..]);
        assert_eq!(cors(&[]).unwrap().admit(a), None);
        assert_eq!(cors(&["*"]).unwrap().admit(a), Some(&b"*"[..]));
        assert_eq!(cors(&["*"]).unwrap().admit(None), Some(&b"*"[..]));
        let listed = cors(&["https://b.example", "https://a.example"]).unwrap();
        assert_eq!(listed.admit(a), a);
        assert_eq!(listed.admit(Some(b"https://a.example.evil")), None);
        assert_eq!(listed.admit(Some(b"null")), None);
        assert!(listed.varies());
        assert!(cors(&["*", "https://a.example"]).is_err());
    }
}
