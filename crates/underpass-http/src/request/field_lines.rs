//! All fields of a request head, for protocols that define fields of their own.

use httparse::{EMPTY_HEADER, Status as Parsed, parse_headers};

use crate::limits::FIELDS_MAX;
use crate::status::HttpError;

/// The fields of a head, in order.
#[derive(Clone, Debug)]
pub struct FieldLines<'b> {
    fields: Vec<(&'b str, &'b [u8])>,
}

impl<'b> FieldLines<'b> {
    /// Reads the fields of a complete head that [`HeadScanner`](super::head::HeadScanner) found
    /// valid.
    pub fn of(head: &'b [u8]) -> FieldLines<'b> {
        let start = head.iter().position(|byte| !b"\r\n".contains(byte));
        let head = &head[start.unwrap_or(head.len())..];
        let line = head.windows(2).position(|pair| pair == b"\r\n");
        let lines = &head[line.map_or(head.len(), |line| line + 2)..];
        let mut headers = [EMPTY_HEADER; FIELDS_MAX];
        let fields = match parse_headers(lines, &mut headers) {
            Ok(Parsed::Complete((_, headers))) => {
                headers.iter().map(|it| (it.name, it.value)).collect()
            }
            _ => Vec::new(),
        };
        FieldLines { fields }
    }

    /// Returns names and values, without white space around these.
    pub fn iter(&self) -> impl Iterator<Item = (&'b str, &'b [u8])> {
        let fields = self.fields.iter();
        fields.map(|(name, value)| (*name, value.trim_ascii()))
    }

    /// Returns the value of a field that a head has once.
    ///
    /// # Errors
    /// 400 if it is there twice.
    pub fn once(&self, name: &str) -> Result<Option<&'b [u8]>, HttpError> {
        let mut named = self
            .iter()
            .filter(|(one, _)| one.eq_ignore_ascii_case(name));
        match (named.next(), named.next()) {
            (first, None) => Ok(first.map(|(_, value)| value)),
            (_, Some(_)) => Err(HttpError::bad("a field that may occur once occurs twice")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_found_by_its_name_and_refused_twice() {
        let lines = FieldLines::of(b"\r\nPUT / HTTP/1.1\r\nA: 1\r\nb:  x y \r\nB: 2\r\n\r\n");
        assert_eq!(lines.once("a"), Ok(Some(&b"1"[..])));
        assert_eq!(lines.once("C"), Ok(None));
        assert!(lines.once("B").is_err());
        assert_eq!(lines.iter().count(), 3);
        assert_eq!(FieldLines::of(b"").iter().count(), 0);
    }
}
