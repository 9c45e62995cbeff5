//! Dictionaries of structured fields (RFC 9651, section 3.2): integers are returned, all other
//! values are validated and skipped.

/// The value of a member.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum MemberValue {
    Integer(i64),
    Other,
}

/// The field is malformed, and counts as absent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct MalformedField;

/// Parses a dictionary and calls `member` for each member in order; the last one with a key counts.
/// If the result is an error, the members passed so far do not count.
pub(crate) fn read_dictionary<'f>(
    field: &'f [u8],
    mut member: impl FnMut(&'f [u8], MemberValue),
) -> Result<(), MalformedField> {
    let mut reader = DictionaryReader {
        rest: trim_spaces(field),
    };
    if reader.rest.is_empty() {
        return Ok(());
    }
    loop {
        let key = reader.key()?;
        let value = match reader.takes(b'=') {
            true => reader.item_or_list()?,
            false => MemberValue::Other,
        };
        reader.parameters()?;
        member(key, value);
        reader.skip(|byte| matches!(byte, b' ' | b'\t'));
        if reader.rest.is_empty() {
            return Ok(());
        }
        reader.expect(b',')?;
        reader.skip(|byte| matches!(byte, b' ' | b'\t'));
    }
}

fn trim_spaces(field: &[u8]) -> &[u8] {
    let start = field.iter().position(|&byte| byte != b' ');
    let end = field.iter().rposition(|&byte| byte != b' ');
    match (start, end) {
        (Some(start), Some(end)) => &field[start..=end],
        _ => b"",
    }
}

/// Integers and the whole part of decimals have no more digits than fit into a double.
const INTEGER_DIGITS_MAX: usize = 15;
const WHOLE_DIGITS_MAX: usize = 12;
const FRACTION_DIGITS_MAX: usize = 3;

/// What is still to be read. Each step takes what it has understood.
struct DictionaryReader<'f> {
    rest: &'f [u8],
}

impl<'f> DictionaryReader<'f> {
    fn next(&mut self) -> Result<u8, MalformedField> {
        let (&first, rest) = self.rest.split_first().ok_or(MalformedField)?;
        self.rest = rest;
        Ok(first)
    }

    fn takes(&mut self, wanted: u8) -> bool {
        let there = self.rest.first() == Some(&wanted);
        if there {
            self.rest = &self.rest[1..];
        }
        there
    }

    fn expect(&mut self, wanted: u8) -> Result<(), MalformedField> {
        match self.takes(wanted) {
            true => Ok(()),
            false => Err(MalformedField),
        }
    }

    /// Takes all bytes that belong to something.
    fn skip(&mut self, belongs: impl Fn(u8) -> bool) -> &'f [u8] {
        let end = self.rest.iter().position(|&byte| !belongs(byte));
        let (taken, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest;
        taken
    }

    fn key(&mut self) -> Result<&'f [u8], MalformedField> {
        let begins = |byte: u8| byte.is_ascii_lowercase() || byte == b'*';
        let belongs = |byte: u8| begins(byte) || byte.is_ascii_digit() || b"_-.".contains(&byte);
        match self.rest.first() {
            Some(&first) if begins(first) => Ok(self.skip(belongs)),
            _ => Err(MalformedField),
        }
    }

    fn item_or_list(&mut self) -> Result<MemberValue, MalformedField> {
        if !self.takes(b'(') {
            return self.bare_item();
        }
        loop {
            self.skip(|byte| byte == b' ');
            if self.takes(b')') {
                return Ok(MemberValue::Other);
            }
            self.bare_item()?;
            self.parameters()?;
            if !matches!(self.rest.first(), Some(b' ' | b')')) {
                return Err(MalformedField);
            }
        }
    }

    fn parameters(&mut self) -> Result<(), MalformedField> {
        while self.takes(b';') {
            self.skip(|byte| byte == b' ');
            self.key()?;
            if self.takes(b'=') {
                self.bare_item()?;
            }
        }
        Ok(())
    }

    fn bare_item(&mut self) -> Result<MemberValue, MalformedField> {
        match self.rest.first().ok_or(MalformedField)? {
            b'-' | b'0'..=b'9' => return self.number(),
            b'"' => self.string()?,
            b':' => self.bytes()?,
            b'?' => {
                self.expect(b'?')?;
                matches!(self.next()?, b'0' | b'1')
                    .then_some(())
                    .ok_or(MalformedField)?;
            }
            b'@' => {
                self.expect(b'@')?;
                match self.number()? {
                    MemberValue::Integer(_) => {}
                    MemberValue::Other => return Err(MalformedField),
                }
            }
            b'%' => self.display_string()?,
            b'*' | b'a'..=b'z' | b'A'..=b'Z' => {
                let belongs =
                    |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~:/".contains(&byte);
                self.skip(belongs);
            }
            _ => return Err(MalformedField),
        }
        Ok(MemberValue::Other)
    }

    fn number(&mut self) -> Result<MemberValue, MalformedField> {
        let negative = self.takes(b'-');
        let digits = self.skip(|byte| byte.is_ascii_digit());
        if self.takes(b'.') {
            let fraction = self.skip(|byte| byte.is_ascii_digit());
            let whole = (1..=WHOLE_DIGITS_MAX).contains(&digits.len());
            let fits = (1..=FRACTION_DIGITS_MAX).contains(&fraction.len());
            return (whole && fits)
                .then_some(MemberValue::Other)
                .ok_or(MalformedField);
        }
        if !(1..=INTEGER_DIGITS_MAX).contains(&digits.len()) {
            return Err(MalformedField);
        }
        let add = |number: i64, digit: &u8| number * 10 + i64::from(digit - b'0');
        let number = digits.iter().fold(0, add);
        Ok(MemberValue::Integer(if negative {
            -number
        } else {
            number
        }))
    }

    fn string(&mut self) -> Result<(), MalformedField> {
        self.expect(b'"')?;
        loop {
            match self.next()? {
                b'"' => return Ok(()),
                b'\\' if matches!(self.next()?, b'"' | b'\\') => {}
                b'\\' => return Err(MalformedField),
                b' '..=b'~' => {}
                _ => return Err(MalformedField),
            }
        }
    }

    fn bytes(&mut self) -> Result<(), MalformedField> {
        self.expect(b':')?;
        self.skip(|byte| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte));
        self.expect(b':')
    }

    fn display_string(&mut self) -> Result<(), MalformedField> {
        let is_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        self.expect(b'%')?;
        self.expect(b'"')?;
        loop {
            match self.next()? {
                b'"' => return Ok(()),
                b'%' if is_hex(self.next()?) && is_hex(self.next()?) => {}
                b'%' => return Err(MalformedField),
                b' '..=b'~' => {}
                _ => return Err(MalformedField),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(field: &str) -> Option<Vec<(String, MemberValue)>> {
        let mut members = Vec::new();
        let read = read_dictionary(field.as_bytes(), |key, value| {
            members.push((String::from_utf8(key.to_vec()).unwrap(), value));
        });
        read.is_ok().then_some(members)
    }

    #[test]
    fn integers_are_read_and_the_rest_is_passed_over() {
        let integer = |key: &str, value| (key.to_owned(), MemberValue::Integer(value));
        let other = |key: &str| (key.to_owned(), MemberValue::Other);
        for (field, members) in [
            ("", vec![]),
            ("   ", vec![]),
            ("a=1", vec![integer("a", 1)]),
            ("  a=-7,b ", vec![integer("a", -7), other("b")]),
            ("a=1 \t,\t b=2", vec![integer("a", 1), integer("b", 2)]),
            ("a=1,a=2", vec![integer("a", 1), integer("a", 2)]),
            ("*k_-.9=010", vec![integer("*k_-.9", 10)]),
            ("a=999999999999999", vec![integer("a", 999_999_999_999_999)]),
            ("a;q=1;r, b=2;  s=\"x\"", vec![other("a"), integer("b", 2)]),
            (
                "a=1.5, b=\"q\\\"\\\\,\", c=tok/en:*",
                vec![other("a"), other("b"), other("c")],
            ),
            (
                "a=:aGk=:, b=?1, c=@17, d=%\"%c3%bc\"",
                ["a", "b", "c", "d"].map(other).into(),
            ),
            ("a=(), b=( 1 \"x\";p=1 t )", vec![other("a"), other("b")]),
        ] {
            assert_eq!(read(field), Some(members), "{field:?}");
        }
    }

    #[test]
    fn what_is_malformed_is_not_read() {
        for field in [
            "A=1",
            "1=a",
            "a=",
            "a=1,",
            ",a=1",
            "a=1 b=2",
            "a==1",
            "a=1;",
            "a=1;B",
            "a=--1",
            "a=1.",
            "a=.5",
            "a=1.2345",
            "a=1234567890123.1",
            "a=1234567890123456",
            "a=\"x",
            "a=\"\\x\"",
            "a=\"\u{7f}\"",
            "a=:x",
            "a=:-:",
            "a=?2",
            "a=@1.5",
            "a=%\"%C3\"",
            "a=%x",
            "a=(1",
            "a=(1\"x\")",
            "a=(1,2)",
            "a=((1))",
            "\ta=1",
            "a=1\t",
            "a=\u{e4}",
        ] {
            let expected =
                (field == "a=1\t").then(|| vec![("a".to_owned(), MemberValue::Integer(1))]);
            assert_eq!(read(field), expected, "{field:?}");
        }
    }
}
