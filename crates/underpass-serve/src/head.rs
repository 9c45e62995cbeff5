//! Reads a request head: bytes in, a checked [`Request`] out, or why not.
//!
//! `httparse` reads the fields. What it is more tolerant about than a server behind other servers
//! may be (a line end without CR, any number of empty lines before the request line, versions) is
//! checked here first, in the order of the bytes, so that the verdict never depends on how the
//! bytes were split over reads:
//!
//! ```text
//!  empty lines ─► request line ─► every line end CR LF ─► fields ─► framing ─► host ─► target
//!  (at most two)  (as soon as     (as they come)          (when the head is complete)
//!                 it is there)
//! ```

use std::borrow::Cow;

use crate::condition::Conditions;
use crate::fields::Fields;
use crate::framing::{Framing, framing};
use crate::host;
use crate::limits::{EMPTY_LINES_MAX, HEAD_BYTES_MAX, REQUEST_LINE_BYTES_MAX};
use crate::request_line::{Method, RequestLine, Version};
use crate::status::{Refusal, Status};
use crate::target::Target;

/// A request whose head makes sense, with everything an answer depends on.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct Request<'b> {
    pub(crate) method: Method,
    pub(crate) version: Version,
    pub(crate) target: Target<'b>,
    pub(crate) persistence: Persistence,
    pub(crate) framing: Framing,
    pub(crate) expect: Expect,
    pub(crate) conditions: Conditions<'b>,
    pub(crate) range: Option<Cow<'b, [u8]>>,
}

/// What becomes of a connection after an answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Persistence {
    KeepAlive,
    Close,
}

/// RFC 9110, section 10.1.1.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Expect {
    Nothing,
    Continue,
    /// An expectation nobody knows.
    Unknown,
}

/// How much of a head is there.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Progress {
    /// More bytes are needed.
    Partial,
    /// All of it: [`Scan::parse`] reads it, [`Scan::length`] says where it ends.
    Complete,
}

/// Finds the end of a head in a buffer that grows, looking at each byte once.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    /// Where the request line begins, once a byte of it has been seen.
    start: usize,
    /// Where the first line begins that is not complete.
    seen: usize,
    /// Up to here no end of that line has been found.
    looked: usize,
    /// Whether the request line is complete, and right.
    line: Line,
}

#[derive(Debug, Default, Eq, PartialEq)]
enum Line {
    #[default]
    Awaited,
    Checked,
}

impl Scan {
    /// Looks at the bytes that came since the last call. `head` begins where it began then.
    pub(crate) fn advance(&mut self, head: &[u8]) -> Result<Progress, Refusal> {
        if self.seen == self.start && !self.skip_empty_lines(head)? {
            return Ok(Progress::Partial);
        }
        let looked_at = &head[..head.len().min(HEAD_BYTES_MAX)];
        while let Some(end) = line_end(looked_at, self.seen, self.looked)? {
            let empty = end == self.seen;
            self.seen = end + 2;
            self.looked = self.seen;
            if empty {
                return Ok(Progress::Complete);
            }
            if self.line == Line::Awaited {
                check_length(end - self.start)?;
                RequestLine::parse(&head[self.start..end])?;
                self.line = Line::Checked;
            }
        }
        self.looked = looked_at.len();
        self.check_room(head)?;
        Ok(Progress::Partial)
    }

    /// Says whether a byte of the request line is there.
    fn skip_empty_lines(&mut self, head: &[u8]) -> Result<bool, Refusal> {
        loop {
            match &head[self.start..] {
                [] | [b'\r'] => return Ok(false),
                [b'\r', b'\n', ..] if self.start == 2 * EMPTY_LINES_MAX => {
                    return Err(Refusal::bad("too many empty lines before the request"));
                }
                [b'\r', b'\n', ..] => {
                    self.start += 2;
                    self.seen = self.start;
                    self.looked = self.start;
                }
                _ => return Ok(true),
            }
        }
    }

    fn check_room(&self, head: &[u8]) -> Result<(), Refusal> {
        if self.line == Line::Awaited {
            check_length((head.len() - self.start).saturating_sub(1))?;
        }
        if head.len() >= HEAD_BYTES_MAX {
            return Err(Refusal::new(
                Status::HeadTooLarge,
                "the request head is too long",
            ));
        }
        Ok(())
    }

    /// The length of a complete head, with the empty lines before it.
    pub(crate) fn length(&self) -> usize {
        self.seen
    }

    /// Reads the head that [`Scan::advance`] found complete.
    pub(crate) fn parse<'b>(&self, head: &'b [u8]) -> Result<Request<'b>, Refusal> {
        parse(&head[self.start..self.seen])
    }
}

fn check_length(request_line: usize) -> Result<(), Refusal> {
    if request_line > REQUEST_LINE_BYTES_MAX {
        return Err(Refusal::new(
            Status::UriTooLong,
            "the request line is too long",
        ));
    }
    Ok(())
}

/// The index of the CR LF that ends the line beginning at `start`, looked for from `from` on. A CR
/// without LF is left to those who read the line.
fn line_end(head: &[u8], start: usize, from: usize) -> Result<Option<usize>, Refusal> {
    let Some(feed) = head[from..].iter().position(|&byte| byte == b'\n') else {
        return Ok(None);
    };
    match &head[start..from + feed] {
        [line @ .., b'\r'] => Ok(Some(start + line.len())),
        _ => Err(Refusal::bad("a line ends without CR")),
    }
}

/// Reads a whole head, from the request line to the empty line.
fn parse(head: &[u8]) -> Result<Request<'_>, Refusal> {
    let end = line_end(head, 0, 0)?.ok_or(Refusal::bad("no request line"))?;
    let line = RequestLine::parse(&head[..end])?;
    let fields = Fields::parse(&head[end + 2..])?;
    let framing = framing(
        &fields.content_length,
        &fields.transfer_encoding,
        line.version,
    )?;
    host::check(&fields.host, line.version)?;
    let target = Target::parse(line.target, line.method)?;
    Ok(Request {
        method: line.method,
        version: line.version,
        target,
        persistence: persistence(fields.connection.value(), line.version),
        framing,
        expect: expect(fields.expect.value(), line.version),
        conditions: Conditions {
            if_match: fields.if_match.into_value(),
            if_none_match: fields.if_none_match.into_value(),
            if_modified_since: fields.if_modified_since.into_value(),
            if_unmodified_since: fields.if_unmodified_since.into_value(),
            if_range: fields.if_range.into_value(),
        },
        range: fields.range.into_value(),
    })
}

/// RFC 9112, section 9.3.
fn persistence(connection: Option<&[u8]>, version: Version) -> Persistence {
    let asks_for = |option: &str| {
        let mut options = connection.unwrap_or_default().split(|&byte| byte == b',');
        options.any(|named| named.trim_ascii().eq_ignore_ascii_case(option.as_bytes()))
    };
    match version {
        _ if asks_for("close") => Persistence::Close,
        Version::Http11 => Persistence::KeepAlive,
        Version::Http10 if asks_for("keep-alive") => Persistence::KeepAlive,
        Version::Http10 => Persistence::Close,
    }
}

/// RFC 9110, section 10.1.1: a client of HTTP/1.0 cannot expect anything.
fn expect(expect: Option<&[u8]>, version: Version) -> Expect {
    match (expect, version) {
        (None, _) | (_, Version::Http10) => Expect::Nothing,
        (Some(value), Version::Http11) if value.eq_ignore_ascii_case(b"100-continue") => {
            Expect::Continue
        }
        (Some(_), Version::Http11) => Expect::Unknown,
    }
}
