//! Rules for fields that a configuration adds to responses.

use serde::Deserialize;
use underpass_http::fields::writer::push_field;

use super::field::{FieldName, FieldValue};
use super::pattern::Pattern;

/// `Cache-Control` for files by pattern; the first rule that matches a file decides.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheRule {
    /// The files it applies to.
    pub paths: Vec<Pattern>,
    /// The value, such as `public, max-age=3600`.
    pub control: FieldValue,
}

/// A field of responses with files, by pattern. Of several rules for one field, the first that
/// matches decides.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeaderRule {
    /// The files it applies to.
    pub paths: Vec<Pattern>,
    /// The field.
    pub name: FieldName,
    /// The value of the field.
    pub value: FieldValue,
}

/// Fields that restrict browsers, sent with every response.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct SecurityOptions {
    /// `X-Content-Type-Options: nosniff`: browsers must not guess what a file is.
    pub nosniff: bool,
    /// `X-Frame-Options`, for browsers that don't know `frame-ancestors`.
    pub frame_options: Option<FieldValue>,
    /// `Referrer-Policy`.
    pub referrer_policy: Option<FieldValue>,
    /// `Content-Security-Policy`.
    pub content_security_policy: Option<FieldValue>,
}

impl Default for SecurityOptions {
    /// Returns `nosniff` only: the others change what pages may do.
    fn default() -> SecurityOptions {
        SecurityOptions {
            nosniff: true,
            frame_options: None,
            referrer_policy: None,
            content_security_policy: None,
        }
    }
}

/// Additional fields of a response produced by the server.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ProducedFields {
    /// The request field that it depends on.
    pub(crate) varies_by: Option<&'static str>,
    /// Used if the site sets none.
    pub(crate) referrer_policy: Option<&'static str>,
    /// Used instead of the site's policy, which may not fit.
    pub(crate) content_security_policy: Option<&'static str>,
}

impl SecurityOptions {
    /// Formats the fields, together with those of a response produced by the server.
    pub(crate) fn fields(&self, own: ProducedFields) -> Vec<u8> {
        let mut fields = Vec::new();
        for (name, value) in [
            ("X-Content-Type-Options", self.nosniff.then_some("nosniff")),
            ("X-Frame-Options", said(&self.frame_options)),
            (
                "Referrer-Policy",
                said(&self.referrer_policy).or(own.referrer_policy),
            ),
            (
                "Content-Security-Policy",
                own.content_security_policy
                    .or(said(&self.content_security_policy)),
            ),
        ] {
            if let Some(value) = value {
                push_field(&mut fields, name, value);
            }
        }
        fields
    }
}

fn said(value: &Option<FieldValue>) -> Option<&str> {
    value.as_ref().map(FieldValue::as_str)
}
