//! Fields that a configuration adds to answers.

use serde::Deserialize;

use super::field::{FieldName, FieldValue};
use super::pattern::Pattern;
use crate::http::fields::push_field;

/// `Cache-Control` for files by pattern; the first rule that matches a file decides.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheRule {
    /// The files it is about.
    pub paths: Vec<Pattern>,
    /// The value, `public, max-age=3600`.
    pub control: FieldValue,
}

/// A field of answers with files, by pattern. Of several rules with one name the first that
/// matches decides.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeaderRule {
    /// The files it is about.
    pub paths: Vec<Pattern>,
    /// The field.
    pub name: FieldName,
    /// Its value.
    pub value: FieldValue,
}

/// Fields that restrict browsers, sent with every response.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct SecurityOptions {
    /// `X-Content-Type-ServerOptions: nosniff`: browsers must not guess what a file is.
    pub nosniff: bool,
    /// `X-Frame-ServerOptions`, for browsers that don't know `frame-ancestors`.
    pub frame_options: Option<FieldValue>,
    /// `Referrer-Policy`.
    pub referrer_policy: Option<FieldValue>,
    /// `Content-Security-Policy`.
    pub content_security_policy: Option<FieldValue>,
}

impl Default for SecurityOptions {
    /// Nothing but `nosniff`: the others change what pages may do.
    fn default() -> SecurityOptions {
        SecurityOptions {
            nosniff: true,
            frame_options: None,
            referrer_policy: None,
            content_security_policy: None,
        }
    }
}

/// The fields that restrict browsers, with their values.
#[derive(Clone, Copy, Debug)]
pub(super) struct SecurityFields<'o> {
    pub(super) nosniff: bool,
    pub(super) frame_options: Option<&'o str>,
    pub(super) referrer_policy: Option<&'o str>,
    pub(super) content_security_policy: Option<&'o str>,
}

impl<'o> SecurityFields<'o> {
    pub(super) fn of(options: &'o SecurityOptions) -> SecurityFields<'o> {
        let said = |value: &'o Option<FieldValue>| value.as_ref().map(FieldValue::as_str);
        SecurityFields {
            nosniff: options.nosniff,
            frame_options: said(&options.frame_options),
            referrer_policy: said(&options.referrer_policy),
            content_security_policy: said(&options.content_security_policy),
        }
    }

    pub(super) fn fields(self) -> Vec<u8> {
        let mut fields = Vec::new();
        for (name, value) in [
            ("X-Content-Type-Options", self.nosniff.then_some("nosniff")),
            ("X-Frame-Options", self.frame_options),
            ("Referrer-Policy", self.referrer_policy),
            ("Content-Security-Policy", self.content_security_policy),
        ] {
            if let Some(value) = value {
                push_field(&mut fields, name, value);
            }
        }
        fields
    }
}
