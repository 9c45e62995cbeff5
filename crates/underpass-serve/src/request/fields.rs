//! The header fields that a response depends on.

use std::borrow::Cow;

use httparse::{EMPTY_HEADER, Status as Parsed, parse_headers};

use crate::http::status::{HttpError, Status};
use crate::limits::FIELDS_MAX;

/// The values of one field name.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) enum Field<'b> {
    #[default]
    Absent,
    /// One line of it.
    One(&'b [u8]),
    /// Several lines, joined by a comma as RFC 9110, section 5.3, has it. What must not be a list
    /// does not parse any more, which is the right end for it.
    Several(Vec<u8>),
}

/// The fields that matter here, by name.
#[derive(Debug, Default, Eq, PartialEq)]
pub(crate) struct Fields<'b> {
    pub(crate) host: Field<'b>,
    pub(crate) content_length: Field<'b>,
    pub(crate) transfer_encoding: Field<'b>,
    pub(crate) connection: Field<'b>,
    pub(crate) expect: Field<'b>,
    pub(crate) range: Field<'b>,
    pub(crate) if_match: Field<'b>,
    pub(crate) if_none_match: Field<'b>,
    pub(crate) if_modified_since: Field<'b>,
    pub(crate) if_unmodified_since: Field<'b>,
    pub(crate) if_range: Field<'b>,
    pub(crate) accept: Field<'b>,
    pub(crate) accept_encoding: Field<'b>,
    pub(crate) want_repr_digest: Field<'b>,
    pub(crate) origin: Field<'b>,
    pub(crate) referer: Field<'b>,
    pub(crate) user_agent: Field<'b>,
    pub(crate) forwarded: Field<'b>,
    pub(crate) x_forwarded_for: Field<'b>,
}

impl<'b> Fields<'b> {
    /// Reads the field lines of a complete head, the empty line included.
    pub(crate) fn parse(lines: &'b [u8]) -> Result<Fields<'b>, HttpError> {
        let mut headers = [EMPTY_HEADER; FIELDS_MAX];
        match parse_headers(lines, &mut headers) {
            Ok(Parsed::Complete((length, headers))) if length == lines.len() => {
                let mut fields = Fields::default();
                for header in headers {
                    if let Some(field) = fields.named(header.name) {
                        field.add(header.value);
                    }
                }
                Ok(fields)
            }
            Err(httparse::Error::TooManyHeaders) => Err(HttpError::new(
                Status::HeadTooLarge,
                "the request head has too many fields",
            )),
            Err(httparse::Error::HeaderName) => Err(HttpError::bad("a field name is malformed")),
            _ => Err(HttpError::bad("a field value is malformed")),
        }
    }

    /// Compares lengths first, which decides for most names.
    fn named(&mut self, name: &str) -> Option<&mut Field<'b>> {
        let (wanted, field) = match name.len() {
            4 => ("host", &mut self.host),
            5 => ("range", &mut self.range),
            6 if name.starts_with(['e', 'E']) => ("expect", &mut self.expect),
            6 if name.starts_with(['o', 'O']) => ("origin", &mut self.origin),
            6 => ("accept", &mut self.accept),
            7 => ("referer", &mut self.referer),
            8 if name.starts_with(['i', 'I']) && name.ends_with(['h', 'H']) => {
                ("if-match", &mut self.if_match)
            }
            8 => ("if-range", &mut self.if_range),
            9 => ("forwarded", &mut self.forwarded),
            10 if name.starts_with(['u', 'U']) => ("user-agent", &mut self.user_agent),
            10 => ("connection", &mut self.connection),
            13 => ("if-none-match", &mut self.if_none_match),
            14 => ("content-length", &mut self.content_length),
            15 if name.starts_with(['x', 'X']) => ("x-forwarded-for", &mut self.x_forwarded_for),
            15 => ("accept-encoding", &mut self.accept_encoding),
            16 => ("want-repr-digest", &mut self.want_repr_digest),
            17 if name.starts_with(['i', 'I']) => {
                ("if-modified-since", &mut self.if_modified_since)
            }
            17 => ("transfer-encoding", &mut self.transfer_encoding),
            19 => ("if-unmodified-since", &mut self.if_unmodified_since),
            _ => return None,
        };
        name.eq_ignore_ascii_case(wanted).then_some(field)
    }
}

impl<'b> Field<'b> {
    fn add(&mut self, value: &'b [u8]) {
        match self {
            Field::Absent => *self = Field::One(value),
            Field::One(first) => *self = Field::Several([first, value].join(&b", "[..])),
            Field::Several(joined) => {
                joined.extend_from_slice(b", ");
                joined.extend_from_slice(value);
            }
        }
    }

    pub(crate) fn value(&self) -> Option<&[u8]> {
        match self {
            Field::Absent => None,
            Field::One(value) => Some(value),
            Field::Several(joined) => Some(joined),
        }
    }

    /// Takes it away.
    pub(crate) fn take(&mut self) -> Option<Cow<'b, [u8]>> {
        match std::mem::take(self) {
            Field::Absent => None,
            Field::One(value) => Some(Cow::Borrowed(value)),
            Field::Several(joined) => Some(Cow::Owned(joined)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_is_found_in_any_letter_case() {
        let names = [
            "Host",
            "Content-Length",
            "Transfer-Encoding",
            "Connection",
            "Expect",
            "Range",
            "If-Match",
            "If-None-Match",
            "If-Modified-Since",
            "If-Unmodified-Since",
            "If-Range",
            "Accept-Encoding",
            "Want-Repr-Digest",
        ];
        for name in names {
            for spelt in [name.to_owned(), name.to_uppercase(), name.to_lowercase()] {
                let mut fields = Fields::default();
                fields.named(&spelt).expect(&spelt).add(b"x");
                let found = format!("{fields:?}").matches("One").count();
                assert_eq!(found, 1, "{spelt}");
            }
        }
        assert!(Fields::default().named("X-Host").is_none());
    }

    #[test]
    fn lines_of_one_name_are_joined() {
        let fields = Fields::parse(b"Range: a\r\nrange:  b \r\nRANGE: c\r\n\r\n").unwrap();
        assert_eq!(fields.range.value(), Some(&b"a, b, c"[..]));
    }

    #[test]
    fn malformed_lines_are_refused() {
        for wrong in [
            &b"Host : x\r\n\r\n"[..],
            b" Host: x\r\n\r\n",
            b": x\r\n\r\n",
            b"Host: x\r\n folded\r\n\r\n",
            b"no colon\r\n\r\n",
            b"nocolon\r\n\r\n",
            b"Ho(st: x\r\n\r\n",
            b"A: x\x01y\r\n\r\n",
            b"A: x\0y\r\n\r\n",
            b"A: x\ry\r\n\r\n",
            b"A: x\r\r\n\r\n",
        ] {
            let refusal = Fields::parse(wrong).unwrap_err();
            assert_eq!(refusal.status, Status::BadRequest, "{wrong:?}");
        }
        assert!(Fields::parse(b"A: \xff\xfe\tx\r\n\r\n").is_ok());
    }

    #[test]
    fn the_number_of_fields_is_bounded() {
        let lines = |count: usize| "A: b\r\n".repeat(count) + "\r\n";
        assert!(Fields::parse(lines(FIELDS_MAX).as_bytes()).is_ok());
        let refusal = Fields::parse(lines(FIELDS_MAX + 1).as_bytes()).unwrap_err();
        assert_eq!(refusal.status, Status::HeadTooLarge);
    }
}
