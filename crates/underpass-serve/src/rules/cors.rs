//! The origins that may read responses: the CORS protocol of the Fetch standard.

use std::time::Duration;

use serde::Deserialize;
use underpass_http::fields::writer::push_field;
use underpass_http::token::is_token;

/// The origins whose scripts may read responses.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct CorsOptions {
    /// Origins as browsers send them (`https://app.example`), or only `*` for all. CORS is off if
    /// empty.
    pub origins: Vec<CorsOrigin>,
    /// The request fields that scripts may set.
    pub request_headers: Vec<FieldToken>,
    /// The response fields that scripts may read, in addition to those that are always readable.
    pub expose_headers: Vec<FieldToken>,
    /// The time for which a browser may cache the response to a preflight.
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
    /// Returns options with CORS off. The fields are those of ranges and conditions.
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
    /// Checks an origin: scheme, host, and a port that is not the scheme's default.
    ///
    /// # Errors
    /// A description of the mistake.
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
                    && underpass_http::request::request_line::check_authority(host.as_bytes())
                        .is_ok()
            }
            None => lower == "*",
        };
        match right {
            true => Ok(CorsOrigin(lower)),
            false => Err(format!(
                "{origin:?} is not an origin; expected https://host or https://host:port, without \
                 the default port and without a trailing slash; or `*` for any"
            )),
        }
    }
}

impl FieldToken {
    /// Checks the name of a field.
    ///
    /// # Errors
    /// The text is not a token.
    pub fn parse(name: &str) -> Result<FieldToken, String> {
        match !name.is_empty() && name.bytes().all(is_token) {
            true => Ok(FieldToken(name.to_owned())),
            false => Err(format!("{name:?} is not a field name")),
        }
    }
}

/// Whether a site takes files in.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum UploadsOffered {
    Yes,
    No,
}

/// The request fields of tus and of the IETF's resumable uploads.
const UPLOAD_REQUEST_FIELDS: [&str; 14] = [
    "Authorization",
    "Content-Type",
    "Content-Digest",
    "Repr-Digest",
    "Tus-Resumable",
    "Upload-Checksum",
    "Upload-Complete",
    "Upload-Concat",
    "Upload-Defer-Length",
    "Upload-Draft-Interop-Version",
    "Upload-Length",
    "Upload-Metadata",
    "Upload-Offset",
    "X-HTTP-Method-Override",
];

/// The response fields of both.
const UPLOAD_RESPONSE_FIELDS: [&str; 15] = [
    "Accept-Patch",
    "Location",
    "Tus-Checksum-Algorithm",
    "Tus-Extension",
    "Tus-Max-Size",
    "Tus-Resumable",
    "Tus-Version",
    "Upload-Complete",
    "Upload-Concat",
    "Upload-Defer-Length",
    "Upload-Expires",
    "Upload-Length",
    "Upload-Limit",
    "Upload-Metadata",
    "Upload-Offset",
];

/// The compiled options.
#[derive(Debug)]
pub(crate) struct CorsRules {
    allowed: AllowedOrigins,
    /// The fields of responses to every allowed origin.
    shared: Vec<u8>,
    /// The additional fields of the response to a preflight.
    preflight: Vec<u8>,
}

#[derive(Debug)]
enum AllowedOrigins {
    Everybody,
    /// Responses depend on the origin.
    Listed(Vec<CorsOrigin>),
}

impl CorsRules {
    /// Compiles the options, with the methods and fields of uploads if those are offered; `None`
    /// if no origin is allowed.
    pub(crate) fn new(
        options: &CorsOptions,
        uploads: UploadsOffered,
    ) -> Result<Option<CorsRules>, String> {
        let any = options.origins.iter().any(|origin| origin.0 == "*");
        let allowed = match options.origins.len() {
            0 => return Ok(None),
            1 if any => AllowedOrigins::Everybody,
            _ if any => return Err("cors: `*` allows every origin; remove the others".to_owned()),
            _ => AllowedOrigins::Listed(options.origins.clone()),
        };
        let list = |names: &[FieldToken], of_uploads: &[&'static str]| -> String {
            let names = names.iter().map(|name| name.0.as_str());
            let of_uploads = of_uploads.iter().copied();
            let of_uploads = of_uploads.filter(|_| uploads == UploadsOffered::Yes);
            names.chain(of_uploads).collect::<Vec<_>>().join(", ")
        };
        let mut shared = Vec::new();
        push_list(
            &mut shared,
            "Access-Control-Expose-Headers",
            &list(&options.expose_headers, &UPLOAD_RESPONSE_FIELDS),
        );
        let mut preflight = Vec::new();
        push_field(
            &mut preflight,
            "Access-Control-Allow-Methods",
            match uploads {
                UploadsOffered::Yes => "GET, HEAD, OPTIONS, PUT, POST, PATCH, DELETE",
                UploadsOffered::No => "GET, HEAD, OPTIONS",
            },
        );
        push_list(
            &mut preflight,
            "Access-Control-Allow-Headers",
            &list(&options.request_headers, &UPLOAD_REQUEST_FIELDS),
        );
        let seconds = options.max_age.as_secs().to_string();
        push_field(&mut preflight, "Access-Control-Max-Age", &seconds);
        Ok(Some(CorsRules {
            allowed,
            shared,
            preflight,
        }))
    }

    /// Whether responses depend on the `Origin` of a request.
    pub(crate) fn varies(&self) -> bool {
        matches!(self.allowed, AllowedOrigins::Listed(_))
    }

    /// Returns the value of `Access-Control-Allow-Origin` for a request from `origin`.
    pub(crate) fn admit(&self, origin: Option<&[u8]>) -> Option<&[u8]> {
        match &self.allowed {
            // Sent even without `Origin`: a cache may reuse the response for requests with it.
            AllowedOrigins::Everybody => Some(b"*"),
            AllowedOrigins::Listed(listed) => {
                let mut listed = listed.iter().map(|allowed| allowed.0.as_bytes());
                listed.find(|allowed| Some(*allowed) == origin)
            }
        }
    }

    /// Appends the fields of a response to an allowed origin.
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
    fn names_of_fields_are_tokens() {
        assert!(FieldToken::parse("X-Anything").is_ok());
        for wrong in ["", "a b", "a:", "ü"] {
            assert!(FieldToken::parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn only_those_listed_are_admitted() {
        let cors = |origins: &[&str]| {
            let origins = origins.iter().map(|text| CorsOrigin::parse(text).unwrap());
            let options = CorsOptions {
                origins: origins.collect(),
                ..CorsOptions::default()
            };
            CorsRules::new(&options, UploadsOffered::No)
        };
        let rules = |origins| cors(origins).unwrap().unwrap();
        let a = Some(&b"https://a.example"[..]);
        assert!(cors(&[]).unwrap().is_none());
        assert_eq!(rules(&["*"]).admit(a), Some(&b"*"[..]));
        assert_eq!(rules(&["*"]).admit(None), Some(&b"*"[..]));
        let listed = rules(&["https://b.example", "https://a.example"]);
        assert_eq!(listed.admit(a), a);
        assert_eq!(listed.admit(Some(b"https://a.example.evil")), None);
        assert_eq!(listed.admit(Some(b"null")), None);
        assert!(listed.varies());
        assert!(cors(&["*", "https://a.example"]).is_err());
    }
}
