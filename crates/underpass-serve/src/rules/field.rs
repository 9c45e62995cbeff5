//! Fields that a configuration adds to responses.

use serde::Deserialize;
use underpass_http::token::is_token;

/// The name of a field that a configuration may set.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq)]
#[serde(try_from = "String")]
pub struct FieldName(String);

/// The value of a field: visible characters, separated by blanks.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq)]
#[serde(try_from = "String")]
pub struct FieldValue(String);

/// Fields that the server sets itself. A second or wrong one would break responses.
const OURS: &[(&str, &str)] = &[
    ("accept-ranges", "the server sets it"),
    ("access-control-allow-headers", "set it by `cors`"),
    ("access-control-allow-methods", "set it by `cors`"),
    ("access-control-allow-origin", "set it by `cors`"),
    ("access-control-expose-headers", "set it by `cors`"),
    ("access-control-max-age", "set it by `cors`"),
    ("allow", "the server sets it"),
    ("cache-control", "set it by `cache`"),
    ("connection", "it describes the connection"),
    (
        "content-disposition",
        "the server sets it where `?download` asks for it",
    ),
    ("content-encoding", "the server sets it"),
    ("content-length", "the server sets it"),
    ("content-range", "the server sets it"),
    ("content-type", "set it by `types`"),
    ("date", "the server sets it"),
    ("etag", "the server sets it"),
    ("keep-alive", "it describes the connection"),
    ("last-modified", "the server sets it"),
    ("location", "set it by `redirect`"),
    ("repr-digest", "the server sets it where `hashes` allows it"),
    ("te", "it describes the connection"),
    ("trailer", "it describes the connection"),
    ("transfer-encoding", "it describes the connection"),
    ("upgrade", "it describes the connection"),
    ("vary", "the server sets it"),
    ("x-content-type-options", "set it by `security`"),
];

impl FieldName {
    /// Checks a name.
    ///
    /// # Errors
    /// A description, if the text is not a token or names a field that the server sets itself.
    pub fn parse(name: &str) -> Result<FieldName, String> {
        if name.is_empty() || !name.bytes().all(is_token) {
            return Err(format!("{name:?} is not a field name"));
        }
        let ours = OURS
            .iter()
            .find(|(ours, _)| name.eq_ignore_ascii_case(ours));
        match ours {
            Some((_, why)) => Err(format!("{name} cannot be set here: {why}")),
            None => Ok(FieldName(name.to_owned())),
        }
    }

    /// Returns the name as it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the names are equal, ignoring case.
    pub(crate) fn is(&self, other: &FieldName) -> bool {
        self.0.eq_ignore_ascii_case(&other.0)
    }
}

impl FieldValue {
    /// Checks a value.
    ///
    /// # Errors
    /// A description, if the text has control characters, such as line ends, or blanks at its ends.
    pub fn parse(value: &str) -> Result<FieldValue, String> {
        if value.is_empty() || value.starts_with([' ', '\t']) || value.ends_with([' ', '\t']) {
            return Err(format!(
                "the value {value:?} is empty, or starts or ends with a blank"
            ));
        }
        match value.contains(|letter: char| letter.is_ascii_control() && letter != '\t') {
            true => Err(format!("the value {value:?} contains control characters")),
            false => Ok(FieldValue(value.to_owned())),
        }
    }

    /// Returns the value as it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_can_be_smuggled_into_a_head() {
        for wrong in [
            "",
            " a",
            "a ",
            "a\r\nSet-Cookie: x",
            "a\nb",
            "a\0b",
            "a\x7f",
            "\t",
        ] {
            assert!(FieldValue::parse(wrong).is_err(), "{wrong:?}");
        }
        assert!(FieldValue::parse("max-age=5, \"x\"\tü").is_ok());
        for wrong in [
            "",
            "a b",
            "a:",
            "a\r\n",
            "ü",
            "Content-Length",
            "connection",
            "ETAG",
        ] {
            assert!(FieldName::parse(wrong).is_err(), "{wrong:?}");
        }
        assert!(FieldName::parse("X-Anything").is_ok());
    }
}
