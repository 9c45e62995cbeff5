//! Reads the head of a response: status line and fields (RFC 9112, sections 2 and 4), bounded in
//! size, and the same however the bytes were split over reads.
//!
//! ```text
//!  1xx head ─► restart ─► 1xx head ─► restart ─► final head ─► framing of the body
//!              (a few)
//! ```

use httparse::{EMPTY_HEADER, Status as Parsed, parse_headers};

use crate::error::MessageError;
use crate::limits::{FIELDS_MAX, INTERIM_RESPONSES_MAX};
use crate::line::line_end;
use crate::persistence::{Persistence, persistence};
use crate::token::is_text;
use crate::version::HttpVersion;

/// A valid response head.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ResponseHead<'b> {
    /// The version of the protocol that the server speaks.
    pub version: HttpVersion,
    /// The status code: 100 to 599, without 101.
    pub status: u16,
    /// The reason phrase, which may be empty. It may contain any text.
    pub reason: &'b [u8],
    fields: Vec<(&'b str, &'b [u8])>,
}

/// Finds the end of a response head in a growing buffer, examining each byte once.
#[derive(Clone, Debug)]
pub struct ResponseScanner {
    bytes_max: usize,
    /// The start of the first incomplete line.
    line: usize,
    /// The position up to which no end of that line was found.
    looked: usize,
    /// The end of the status line, without its line end.
    status_end: Option<usize>,
    /// Interim responses before this one.
    interim: usize,
}

/// The progress of receiving a response head.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ResponseProgress {
    /// More bytes are needed.
    Partial,
    /// Complete: [`ResponseScanner::parse`] reads it.
    Complete,
}

const START: &[u8] = b"HTTP/1.";

impl ResponseScanner {
    /// Creates a scanner for a head of at most `bytes_max` bytes.
    pub fn new(bytes_max: usize) -> ResponseScanner {
        ResponseScanner {
            bytes_max,
            line: 0,
            looked: 0,
            status_end: None,
            interim: 0,
        }
    }

    /// Examines the bytes since the last call. `head` starts where it did then.
    ///
    /// # Errors
    /// [`MessageError::Version`] as soon as the first bytes are not those of a response,
    /// [`MessageError::LineEnd`] and [`MessageError::HeadTooLong`].
    pub fn advance(&mut self, head: &[u8]) -> Result<ResponseProgress, MessageError> {
        let examined = &head[..head.len().min(self.bytes_max)];
        let start = START.len().min(examined.len());
        if examined[..start] != START[..start] {
            return Err(MessageError::Version);
        }
        while let Some(end) =
            line_end(examined, self.line, self.looked).map_err(|_| MessageError::LineEnd)?
        {
            let is_last = end == self.line;
            self.line = end + 2;
            self.looked = self.line;
            if is_last {
                return Ok(ResponseProgress::Complete);
            }
            self.status_end.get_or_insert(end);
        }
        self.looked = examined.len();
        match head.len() < self.bytes_max {
            true => Ok(ResponseProgress::Partial),
            false => Err(MessageError::HeadTooLong),
        }
    }

    /// Returns the length of a complete head.
    pub fn length(&self) -> usize {
        self.line
    }

    /// Parses the head that [`ResponseScanner::advance`] found complete.
    ///
    /// # Errors
    /// [`MessageError::Version`], [`MessageError::StatusLine`], [`MessageError::Upgrade`],
    /// [`MessageError::FieldName`], [`MessageError::FieldValue`] and
    /// [`MessageError::TooManyFields`].
    pub fn parse<'b>(&self, head: &'b [u8]) -> Result<ResponseHead<'b>, MessageError> {
        let end = self.status_end.ok_or(MessageError::StatusLine)?;
        let (version, status, reason) = status_line(&head[..end])?;
        Ok(ResponseHead {
            version,
            status,
            reason,
            fields: fields(&head[end + 2..self.line])?,
        })
    }

    /// Begins the next head after an interim response, which starts at offset 0 again: the caller
    /// removes [`ResponseScanner::length`] bytes first.
    ///
    /// # Errors
    /// [`MessageError::TooManyInterim`]
    pub fn restart(&mut self) -> Result<(), MessageError> {
        if self.interim == INTERIM_RESPONSES_MAX {
            return Err(MessageError::TooManyInterim);
        }
        *self = ResponseScanner {
            interim: self.interim + 1,
            ..ResponseScanner::new(self.bytes_max)
        };
        Ok(())
    }
}

/// Parses `HTTP/1.x SP code SP reason`. Some servers omit the last space if there is no reason.
fn status_line(line: &[u8]) -> Result<(HttpVersion, u16, &[u8]), MessageError> {
    let (version, rest) = line
        .split_at_checked(b"HTTP/1.1".len())
        .ok_or(MessageError::StatusLine)?;
    let version = HttpVersion::parse(version).map_err(|_| MessageError::Version)?;
    let (code, reason) = match rest {
        [b' ', code @ ..] => code.split_at_checked(3).ok_or(MessageError::StatusLine)?,
        _ => return Err(MessageError::StatusLine),
    };
    let reason = match reason {
        [] => reason,
        [b' ', reason @ ..] if reason.iter().all(|&byte| is_text(byte)) => reason,
        _ => return Err(MessageError::StatusLine),
    };
    match code {
        b"101" => Err(MessageError::Upgrade),
        [b'1'..=b'5', b'0'..=b'9', b'0'..=b'9'] => {
            let digits = code.iter().map(|digit| u16::from(digit - b'0'));
            let status = digits.fold(0, |status, digit| status * 10 + digit);
            Ok((version, status, reason))
        }
        _ => Err(MessageError::StatusLine),
    }
}

/// Parses field lines, including the empty line.
fn fields(lines: &[u8]) -> Result<Vec<(&str, &[u8])>, MessageError> {
    let mut headers = [EMPTY_HEADER; FIELDS_MAX];
    match parse_headers(lines, &mut headers) {
        Ok(Parsed::Complete((length, headers))) if length == lines.len() => {
            let fields = headers.iter();
            Ok(fields.map(|field| (field.name, field.value)).collect())
        }
        Err(httparse::Error::TooManyHeaders) => Err(MessageError::TooManyFields),
        Err(httparse::Error::HeaderName) => Err(MessageError::FieldName),
        _ => Err(MessageError::FieldValue),
    }
}

impl<'b> ResponseHead<'b> {
    /// Whether another head follows: 1xx.
    pub fn is_interim(&self) -> bool {
        self.status < 200
    }

    /// Returns the values of all lines of a field, in order, whatever the letter case of its name.
    pub fn all<'n>(&self, name: &'n str) -> impl Iterator<Item = &'b [u8]> + use<'_, 'b, 'n> {
        let fields = self.fields.iter();
        let named = fields.filter(move |(field, _)| field.eq_ignore_ascii_case(name));
        named.map(|(_, value)| value.trim_ascii())
    }

    /// Returns the value of a field that may occur once.
    ///
    /// # Errors
    /// [`MessageError::Repeated`]
    pub fn once(&self, name: &str) -> Result<Option<&'b [u8]>, MessageError> {
        let mut values = self.all(name);
        match (values.next(), values.next()) {
            (value, None) => Ok(value),
            (_, Some(_)) => Err(MessageError::Repeated),
        }
    }

    /// Returns whether the server keeps the connection after this response. A body that ends with
    /// the connection ends it in any case.
    pub fn persistence(&self) -> Persistence {
        let lines: Vec<_> = self.all("Connection").collect();
        persistence(Some(&lines.join(&b","[..])), self.version)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BYTES_MAX: usize = 4 << 10;

    /// Returns the head and its length, or the error; `None` while it is incomplete.
    fn read(
        input: &[u8],
        cuts: impl Iterator<Item = usize>,
    ) -> Option<Result<(ResponseHead<'_>, usize), MessageError>> {
        let mut scan = ResponseScanner::new(BYTES_MAX);
        let mut there = 0;
        for cut in cuts {
            there = input.len().min(there + cut);
            match scan.advance(&input[..there]) {
                Err(error) => return Some(Err(error)),
                Ok(ResponseProgress::Partial) if there == input.len() => return None,
                Ok(ResponseProgress::Partial) => {}
                Ok(ResponseProgress::Complete) => {
                    return Some(scan.parse(input).map(|head| (head, scan.length())));
                }
            }
        }
        None
    }

    fn at_once(input: &[u8]) -> Option<Result<(ResponseHead<'_>, usize), MessageError>> {
        read(input, std::iter::once(input.len()))
    }

    fn parsed(input: &[u8]) -> ResponseHead<'_> {
        at_once(input).unwrap().unwrap().0
    }

    fn refused(input: &[u8]) -> Option<MessageError> {
        at_once(input).and_then(Result::err)
    }

    #[test]
    fn a_head_ends_with_an_empty_line() {
        let text = b"HTTP/1.1 206 Partial Content\r\nA: b\r\na:  c \r\n\r\nbody";
        let (head, length) = at_once(text).unwrap().unwrap();
        assert_eq!(length, text.len() - b"body".len());
        assert_eq!(head.version, HttpVersion::Http11);
        assert_eq!((head.status, head.reason), (206, &b"Partial Content"[..]));
        assert_eq!(head.all("A").collect::<Vec<_>>(), [&b"b"[..], b"c"]);
        assert_eq!(head.once("a"), Err(MessageError::Repeated));
        assert_eq!(head.once("B"), Ok(None));
        for end in 0..length {
            assert_eq!(at_once(&text[..end]), None, "{end}");
        }
    }

    #[test]
    fn status_lines() {
        for (line, status, reason) in [
            ("HTTP/1.1 200 OK", 200, "OK"),
            ("HTTP/1.0 200 OK", 200, "OK"),
            ("HTTP/1.1 404 ", 404, ""),
            ("HTTP/1.1 404", 404, ""),
            ("HTTP/1.1 599 a b\tc: d", 599, "a b\tc: d"),
            ("HTTP/1.1 100 Continue", 100, "Continue"),
            ("HTTP/1.1 200 \u{e9}", 200, "\u{e9}"),
        ] {
            let text = format!("{line}\r\n\r\n");
            let head = parsed(text.as_bytes());
            assert_eq!(
                (head.status, head.reason),
                (status, reason.as_bytes()),
                "{line}"
            );
            assert_eq!(head.is_interim(), status < 200);
        }
        for line in [
            "HTTP/1.1",
            "HTTP/1.1 ",
            "HTTP/1.1 20",
            "HTTP/1.1 2000 OK",
            "HTTP/1.1 200OK",
            "HTTP/1.1  200 OK",
            "HTTP/1.1\t200 OK",
            "HTTP/1.1 +20 OK",
            "HTTP/1.1 099 OK",
            "HTTP/1.1 600 OK",
            "HTTP/1.1 999 OK",
            "HTTP/1.1 200 a\rb",
            "HTTP/1.1 200 a\0b",
            "HTTP/1.10 200 OK",
        ] {
            let text = format!("{line}\r\n\r\n");
            assert_eq!(
                refused(text.as_bytes()),
                Some(MessageError::StatusLine),
                "{line:?}"
            );
        }
        let upgraded = b"HTTP/1.1 101 Switching Protocols\r\n\r\n";
        assert_eq!(refused(upgraded), Some(MessageError::Upgrade));
    }

    #[test]
    fn what_is_no_response_is_rejected_at_its_first_bytes() {
        for (input, expected) in [
            (&b"\x15\x03\x01"[..], MessageError::Version),
            (b"SSH-2.0-", MessageError::Version),
            (b"HTTP/2", MessageError::Version),
            (b"http/1.1 200 OK", MessageError::Version),
            (b"\r\nHTTP/1.1 200 OK\r\n", MessageError::Version),
            (b" HTTP", MessageError::Version),
            (b"HTTP/1.x 200 OK\r\n\r\n", MessageError::Version),
            (b"HTTP/1.1 200 OK\n", MessageError::LineEnd),
            (b"HTTP/1.1 200 OK\r\nA: b\n", MessageError::LineEnd),
            (b"HTTP/1.1 200 OK\r\n\n", MessageError::LineEnd),
        ] {
            assert_eq!(refused(input), Some(expected), "{}", input.escape_ascii());
        }
    }

    #[test]
    fn malformed_fields_are_rejected() {
        for (fields, expected) in [
            ("A : b", MessageError::FieldName),
            (" A: b", MessageError::FieldName),
            (": b", MessageError::FieldName),
            ("A: b\r\n folded", MessageError::FieldName),
            ("no colon", MessageError::FieldName),
            ("A: b\x01", MessageError::FieldValue),
            ("A: b\0c", MessageError::FieldValue),
            ("A: b\rc", MessageError::FieldValue),
        ] {
            let text = format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\n");
            assert_eq!(refused(text.as_bytes()), Some(expected), "{fields:?}");
        }
    }

    #[test]
    fn heads_are_bounded() {
        let sized = |value: usize| format!("HTTP/1.1 200 OK\r\nA: {}\r\n\r\n", "b".repeat(value));
        let around = sized(0).len();
        let fits = sized(BYTES_MAX - around);
        assert_eq!(at_once(fits.as_bytes()).unwrap().unwrap().1, BYTES_MAX);
        let long = sized(BYTES_MAX - around + 1);
        assert_eq!(refused(long.as_bytes()), Some(MessageError::HeadTooLong));
        let endless = [b"HTTP/1.1 200 ", &vec![b'a'; BYTES_MAX][..]].concat();
        assert_eq!(refused(&endless), Some(MessageError::HeadTooLong));
        let many = |count| format!("HTTP/1.1 200 OK\r\n{}\r\n", "A: b\r\n".repeat(count));
        assert_eq!(refused(many(FIELDS_MAX).as_bytes()), None);
        let refusal = refused(many(FIELDS_MAX + 1).as_bytes());
        assert_eq!(refusal, Some(MessageError::TooManyFields));
    }

    #[test]
    fn interim_responses_come_before_the_final_one() {
        let mut scan = ResponseScanner::new(BYTES_MAX);
        let mut input = &b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 104 x\r\nUpload-Offset: 7\r\n\r\n\
                           HTTP/1.1 201 Created\r\n\r\n"[..];
        let mut seen = Vec::new();
        loop {
            assert_eq!(scan.advance(input), Ok(ResponseProgress::Complete));
            let head = scan.parse(input).unwrap();
            seen.push(head.status);
            input = &input[scan.length()..];
            if !head.is_interim() {
                break;
            }
            scan.restart().unwrap();
        }
        assert_eq!(seen, [100, 104, 201]);
        let mut scan = ResponseScanner::new(BYTES_MAX);
        for _ in 0..INTERIM_RESPONSES_MAX {
            scan.restart().unwrap();
        }
        assert_eq!(scan.restart(), Err(MessageError::TooManyInterim));
    }

    #[test]
    fn connections_persist_as_the_server_says() {
        for (version, fields, persistence) in [
            ("1.1", "", Persistence::KeepAlive),
            ("1.1", "Connection: close\r\n", Persistence::Close),
            (
                "1.1",
                "Connection: a\r\nconnection: b, Close\r\n",
                Persistence::Close,
            ),
            ("1.0", "", Persistence::Close),
            ("1.0", "Connection: keep-alive\r\n", Persistence::KeepAlive),
        ] {
            let text = format!("HTTP/{version} 200 OK\r\n{fields}\r\n");
            assert_eq!(
                parsed(text.as_bytes()).persistence(),
                persistence,
                "{text:?}"
            );
        }
    }

    const LINES: &[&str] = &[
        "HTTP/1.1 200 OK\r\n",
        "HTTP/1.1 100\r\n",
        "HTTP/1.0 999 x\r\n",
        "HTTP/1.",
        "Content-Length: 5\r\n",
        "A: b\n",
        "A : b\r\n",
        " folded\r\n",
        "\r\n",
        "\n",
        "\r",
        "x",
    ];

    proptest! {
        #[test]
        fn the_verdict_does_not_depend_on_the_split(
            lines in proptest::collection::vec(proptest::sample::select(LINES), 0..8),
            long in prop_oneof![9 => Just(0usize), 1 => 3_000usize..5_000],
            cuts in proptest::collection::vec(1usize..12, 0..8),
        ) {
            let mut input = lines.concat().into_bytes();
            let middle = input.len() / 2;
            input.splice(middle..middle, std::iter::repeat_n(b'x', long));
            let cuts = cuts.into_iter().chain(std::iter::repeat(if long > 0 { 997 } else { 1 }));
            prop_assert_eq!(read(&input, cuts), at_once(&input));
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = at_once(&bytes);
            let _ = at_once(&[b"HTTP/1.1 ", &bytes[..], b"\r\n\r\n"].concat());
            let _ = at_once(&[b"HTTP/1.1 200 OK\r\n", &bytes[..], b"\r\n\r\n"].concat());
        }
    }
}
