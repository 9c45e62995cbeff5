//! The credentials of a request: `Authorization` (RFC 9110, section 11.6.2).

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use zeroize::Zeroizing;

/// The parsed value of `Authorization`.
#[derive(Debug)]
pub(crate) enum Credentials<'b> {
    /// RFC 7617.
    Basic(Login),
    /// RFC 6750.
    Bearer(&'b [u8]),
}

/// A user name and a password, both unverified.
pub(crate) struct Login {
    pub(crate) user: String,
    pub(crate) password: Zeroizing<Vec<u8>>,
}

/// Basic with or without its padding, which some clients leave out.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

impl Credentials<'_> {
    /// Parses the field; `None` if it is malformed or has another scheme.
    pub(crate) fn parse(value: &[u8]) -> Option<Credentials<'_>> {
        let space = value.iter().position(|&byte| byte == b' ')?;
        let (scheme, rest) = (&value[..space], value[space..].trim_ascii());
        match scheme {
            scheme if scheme.eq_ignore_ascii_case(b"basic") => {
                let decoded = Zeroizing::new(BASE64.decode(rest).ok()?);
                let colon = decoded.iter().position(|&byte| byte == b':')?;
                Some(Credentials::Basic(Login {
                    user: String::from_utf8(decoded[..colon].to_vec()).ok()?,
                    password: Zeroizing::new(decoded[colon + 1..].to_vec()),
                }))
            }
            scheme if scheme.eq_ignore_ascii_case(b"bearer") && !rest.is_empty() => {
                Some(Credentials::Bearer(rest))
            }
            _ => None,
        }
    }
}

impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Login of {:?}", self.user)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(value: &str) -> Option<(String, String)> {
        match Credentials::parse(value.as_bytes())? {
            Credentials::Basic(login) => {
                let password = String::from_utf8(login.password.to_vec()).unwrap();
                Some((login.user, password))
            }
            Credentials::Bearer(token) => {
                Some((String::new(), String::from_utf8(token.to_vec()).unwrap()))
            }
        }
    }

    #[test]
    fn both_schemes_are_read_in_any_letter_case() {
        for (value, user, secret) in [
            (
                "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==",
                "Aladdin",
                "open sesame",
            ),
            ("basic QWxhZGRpbjpvcGVuIHNlc2FtZQ", "Aladdin", "open sesame"),
            ("BASIC  dGVzdDoxMjPCow==", "test", "123\u{a3}"),
            ("Basic YTpiOmM=", "a", "b:c"),
            ("Basic Og==", "", ""),
            ("Bearer abc.def", "", "abc.def"),
            ("bearer  abc", "", "abc"),
        ] {
            let expected = Some((user.to_owned(), secret.to_owned()));
            assert_eq!(read(value), expected, "{value}");
        }
    }

    #[test]
    fn what_is_malformed_or_unknown_says_nothing() {
        for value in [
            "",
            "Basic",
            "Basic ",
            "Basic a",
            "Basic !!!!",
            "Basic YWJj",
            "Basic //86YQ==",
            "Bearer ",
            "Bearer",
            "Digest username=a",
            "Basically YTpi",
            "Basic\tYTpi",
        ] {
            assert_eq!(read(value), None, "{value:?}");
        }
    }

    #[test]
    fn passwords_are_not_shown() {
        let login = Credentials::parse(b"Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
        let shown = format!("{login:?}");
        assert!(
            shown.contains("Aladdin") && !shown.contains("sesame"),
            "{shown}"
        );
    }
}
