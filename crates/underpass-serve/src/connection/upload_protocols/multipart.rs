//! Reads `multipart/form-data` (RFC 7578; RFC 2046, section 5.1): bytes in, events out.
//!
//! ```text
//!  --B CRLF   fields CRLF CRLF   content   CRLF --B CRLF   …   CRLF --B--   ignored
//!  └ Start    └ Fields           └ Content └ DelimiterEnd               └ Epilogue
//! ```
//!
//! The caller holds a window of the body and removes the bytes that were read from its front. The
//! reader keeps none of them, so the body may arrive in any pieces.

use httparse::{EMPTY_HEADER, Header, Status as Parsed, parse_headers};
use underpass_http::status::{HttpError, Status};

/// Bytes of the fields of one part. Browsers send about 200.
const FIELDS_BYTES_MAX: usize = 8 << 10;

/// Fields of one part. Browsers send two.
const FIELDS_MAX: usize = 16;

/// Parts of a form. A browser sends one for each chosen file.
const PARTS_MAX: usize = 1000;

/// White space after a boundary.
const PADDING_BYTES_MAX: usize = 64;

/// Longest boundary (RFC 2046, section 5.1.1).
const BOUNDARY_BYTES_MAX: usize = 70;

/// The smallest window in which every form can be read.
pub(crate) const WINDOW_BYTES_MIN: usize = FIELDS_BYTES_MAX + 4;

const MALFORMED: HttpError = HttpError::bad("the form is malformed");
const LONG_FIELDS: HttpError = HttpError::bad("the fields of a part of the form are too long");
const MANY_PARTS: HttpError = HttpError::new(
    Status::ContentTooLarge,
    "the form has more than 1,000 parts",
);
const ENCODED: HttpError =
    HttpError::bad("a part of the form has a Content-Transfer-Encoding; it is sent as it is");
pub(crate) const UNFINISHED: HttpError =
    HttpError::bad("the form ends without its closing boundary");

/// A partially read form.
#[derive(Debug)]
pub(crate) struct MultipartReader {
    /// A line break, two hyphens, and the boundary.
    delimiter: Vec<u8>,
    state: MultipartState,
    /// Whether a part was reported, and its end was not.
    is_part_open: bool,
    parts: usize,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum MultipartState {
    Start,
    DelimiterEnd,
    Fields,
    Content,
    Epilogue,
}

/// The first thing in a window.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum MultipartEvent {
    /// The head of a part: the name of its file, as it was sent. `None` for a part that is not a
    /// file, or a file field in which none was chosen.
    Part(Option<Vec<u8>>),
    /// The bytes that were read are content of the part.
    Content,
    /// The end of a part.
    PartEnd,
    /// The end of the form.
    End,
}

impl MultipartReader {
    /// Returns a reader for the body of a request with this `Content-Type`; `None` for another
    /// media type.
    ///
    /// # Errors
    /// 400 for a missing or malformed boundary.
    pub(crate) fn of(content_type: &[u8]) -> Result<Option<MultipartReader>, HttpError> {
        const BOUNDARY: HttpError = HttpError::bad("the boundary of the form is malformed");
        let end = content_type.iter().position(|&byte| byte == b';');
        let (media, parameters) = content_type.split_at(end.unwrap_or(content_type.len()));
        if !media
            .trim_ascii()
            .eq_ignore_ascii_case(b"multipart/form-data")
        {
            return Ok(None);
        }
        let boundary = parameter(parameters, "boundary").map_err(|_| BOUNDARY)?;
        let boundary = boundary.ok_or(BOUNDARY)?;
        let is_valid = (1..=BOUNDARY_BYTES_MAX).contains(&boundary.len())
            && boundary
                .iter()
                .all(|byte| byte.is_ascii_graphic() || *byte == b' ')
            && !boundary.ends_with(b" ");
        match is_valid {
            true => Ok(Some(MultipartReader {
                delimiter: [b"\r\n--", &boundary[..]].concat(),
                state: MultipartState::Start,
                is_part_open: false,
                parts: 0,
            })),
            false => Err(BOUNDARY),
        }
    }

    /// Reads from the front of a window. Returns the number of bytes read, and their meaning; an
    /// event of `None` and 0 bytes if more of the body is needed.
    ///
    /// # Errors
    /// 400 for a malformed form, 413 for too many parts.
    pub(crate) fn read(
        &mut self,
        window: &[u8],
    ) -> Result<(usize, Option<MultipartEvent>), HttpError> {
        match self.state {
            MultipartState::Start => self.read_start(window),
            MultipartState::DelimiterEnd => self.read_delimiter_end(window),
            MultipartState::Fields => self.read_fields(window),
            MultipartState::Content => Ok(self.read_content(window)),
            MultipartState::Epilogue => Ok((window.len(), Some(MultipartEvent::End))),
        }
    }

    /// Reads the first boundary, with or without a line break before it.
    fn read_start(&mut self, window: &[u8]) -> Result<(usize, Option<MultipartEvent>), HttpError> {
        let without = &self.delimiter[2..];
        for delimiter in [without, &self.delimiter] {
            if window.starts_with(delimiter) {
                let taken = delimiter.len();
                self.state = MultipartState::DelimiterEnd;
                return Ok((taken, None));
            }
        }
        match without.starts_with(window) || self.delimiter.starts_with(window) {
            true => Ok((0, None)),
            false => Err(HttpError::bad(
                "the form does not begin with the boundary that its Content-Type names",
            )),
        }
    }

    /// Reads the rest of the line of a boundary, which ends the part before it. The boundary alone
    /// does not: it may be the start of a longer one in malformed content.
    fn read_delimiter_end(
        &mut self,
        window: &[u8],
    ) -> Result<(usize, Option<MultipartEvent>), HttpError> {
        let is_open = self.is_part_open;
        let end = || is_open.then_some(MultipartEvent::PartEnd);
        if window.starts_with(b"--") {
            self.state = MultipartState::Epilogue;
            self.is_part_open = false;
            return Ok((2, end()));
        }
        let padding = window.iter().position(|byte| !b" \t".contains(byte));
        let rest = &window[padding.unwrap_or(window.len())..];
        match rest {
            [b'\r', b'\n', ..] => {
                self.state = MultipartState::Fields;
                self.is_part_open = false;
                Ok((window.len() - rest.len() + 2, end()))
            }
            [] | [b'\r'] if window.len() <= PADDING_BYTES_MAX => Ok((0, None)),
            [b'-'] if window.len() == 1 => Ok((0, None)),
            _ => Err(MALFORMED),
        }
    }

    fn read_fields(&mut self, window: &[u8]) -> Result<(usize, Option<MultipartEvent>), HttpError> {
        let end = match window {
            [b'\r', b'\n', ..] => Some(2),
            _ => find(window, b"\r\n\r\n").map(|at| at + 4),
        };
        let Some(end) = end.filter(|end| *end <= FIELDS_BYTES_MAX) else {
            return match window.len() >= FIELDS_BYTES_MAX {
                true => Err(LONG_FIELDS),
                false => Ok((0, None)),
            };
        };
        self.parts += 1;
        if self.parts > PARTS_MAX {
            return Err(MANY_PARTS);
        }
        let mut headers = [EMPTY_HEADER; FIELDS_MAX];
        let file = match parse_headers(&window[..end], &mut headers) {
            Ok(Parsed::Complete((length, headers))) if length == end => file_name(headers)?,
            _ => return Err(MALFORMED),
        };
        self.state = MultipartState::Content;
        self.is_part_open = true;
        Ok((end, Some(MultipartEvent::Part(file))))
    }

    fn read_content(&mut self, window: &[u8]) -> (usize, Option<MultipartEvent>) {
        let mut from = 0;
        while let Some(at) = window[from..].iter().position(|&byte| byte == b'\r') {
            let at = from + at;
            let rest = &window[at..];
            let may_be = match rest.len() < self.delimiter.len() {
                true => self.delimiter.starts_with(rest),
                false => rest.starts_with(&self.delimiter),
            };
            match (may_be, at) {
                (false, _) => from = at + 1,
                (true, 0) if rest.len() < self.delimiter.len() => return (0, None),
                (true, 0) => {
                    self.state = MultipartState::DelimiterEnd;
                    return (self.delimiter.len(), None);
                }
                (true, at) => return (at, Some(MultipartEvent::Content)),
            }
        }
        match window {
            [] => (0, None),
            window => (window.len(), Some(MultipartEvent::Content)),
        }
    }
}

fn find(window: &[u8], wanted: &[u8]) -> Option<usize> {
    let mut windows = window.windows(wanted.len());
    windows.position(|part| part == wanted)
}

/// Returns the file name of a part.
fn file_name(headers: &[Header<'_>]) -> Result<Option<Vec<u8>>, HttpError> {
    let once = |name: &str| {
        let mut named = headers.iter().filter(|header| {
            let field = header.name;
            field.eq_ignore_ascii_case(name)
        });
        match (named.next(), named.next()) {
            (field, None) => Ok(field.map(|header| header.value.trim_ascii())),
            _ => Err(MALFORMED),
        }
    };
    if let Some(encoding) = once("Content-Transfer-Encoding")? {
        let plain = [&b"binary"[..], b"8bit", b"7bit"];
        if !plain.iter().any(|one| encoding.eq_ignore_ascii_case(one)) {
            return Err(ENCODED);
        }
    }
    let disposition = once("Content-Disposition")?.ok_or(MALFORMED)?;
    let end = disposition.iter().position(|&byte| byte == b';');
    let (kind, parameters) = disposition.split_at(end.unwrap_or(disposition.len()));
    if !kind.trim_ascii().eq_ignore_ascii_case(b"form-data") {
        return Err(MALFORMED);
    }
    let name = match parameter(parameters, "filename*")? {
        Some(extended) => Some(decoded_extended(&extended)?),
        None => parameter(parameters, "filename")?.map(|name| unescaped(&name)),
    };
    Ok(name.filter(|name| !name.is_empty()))
}

/// Returns the last component of a file name: old browsers send a whole path.
pub(crate) fn last_component(name: &[u8]) -> &[u8] {
    let separator = name.iter().rposition(|byte| b"/\\".contains(byte));
    &name[separator.map_or(0, |at| at + 1)..]
}

/// Returns the value of a parameter in `; name=value; name="quoted value"`.
fn parameter(parameters: &[u8], wanted: &str) -> Result<Option<Vec<u8>>, HttpError> {
    let (mut rest, mut found) = (parameters, None);
    loop {
        rest = rest.trim_ascii_start();
        match rest {
            [] => return Ok(found),
            [b';', more @ ..] => rest = more.trim_ascii_start(),
            _ => return Err(MALFORMED),
        }
        if rest.is_empty() {
            return Ok(found);
        }
        let equals = rest.iter().position(|byte| b"=;\"".contains(byte));
        let equals = equals.filter(|at| rest[*at] == b'=').ok_or(MALFORMED)?;
        let name = rest[..equals].trim_ascii();
        let (value, after) = value(rest[equals + 1..].trim_ascii_start())?;
        rest = after;
        if name.eq_ignore_ascii_case(wanted.as_bytes()) && found.replace(value).is_some() {
            return Err(MALFORMED);
        }
    }
}

/// Reads a token or a quoted string. A backslash escapes only a quote: browsers do not escape the
/// backslashes in Windows paths.
fn value(text: &[u8]) -> Result<(Vec<u8>, &[u8]), HttpError> {
    let [b'"', quoted @ ..] = text else {
        let end = text.iter().position(|&byte| byte == b';');
        let (token, rest) = text.split_at(end.unwrap_or(text.len()));
        return Ok((token.trim_ascii_end().to_vec(), rest));
    };
    let (mut value, mut rest) = (Vec::new(), quoted);
    loop {
        match rest {
            [b'\\', b'"', more @ ..] => {
                value.push(b'"');
                rest = more;
            }
            [b'"', more @ ..] => return Ok((value, more)),
            [byte, more @ ..] => {
                value.push(*byte);
                rest = more;
            }
            [] => return Err(MALFORMED),
        }
    }
}

/// Decodes the three characters that browsers encode in a file name (the HTML standard, "multipart
/// form data"). Other percent signs are literal.
fn unescaped(name: &[u8]) -> Vec<u8> {
    let (mut plain, mut rest) = (Vec::with_capacity(name.len()), name);
    while let [byte, more @ ..] = rest {
        let (byte, more) = match rest {
            [b'%', b'2', b'2', more @ ..] => (b'"', more),
            [b'%', b'0', b'D' | b'd', more @ ..] => (b'\r', more),
            [b'%', b'0', b'A' | b'a', more @ ..] => (b'\n', more),
            _ => (*byte, more),
        };
        plain.push(byte);
        rest = more;
    }
    plain
}

/// Decodes `UTF-8'language'percent-encoded` (RFC 8187, section 3.2).
fn decoded_extended(value: &[u8]) -> Result<Vec<u8>, HttpError> {
    let mut parts = value.splitn(3, |&byte| byte == b'\'');
    let (charset, text) = (parts.next(), parts.nth(1));
    match (charset, text) {
        (Some(charset), Some(text)) if charset.eq_ignore_ascii_case(b"UTF-8") => {
            Ok(percent_encoding::percent_decode(text).collect())
        }
        _ => Err(HttpError::bad("a file name of the form is not in UTF-8")),
    }
}

#[cfg(test)]
mod tests;
