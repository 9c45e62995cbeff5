//! Parses a request head: bytes in, a valid [`RequestHead`] or an error out.
//!
//! `httparse` parses the fields. Input that it accepts and that a server behind other servers must
//! not accept (a line end without CR, many empty lines before the request line, versions) is
//! checked here first, in the order of the bytes, so that the verdict does not depend on how the
//! bytes were split over reads:
//!
//! ```text
//!  empty lines ─► request line ─► every line end CR LF ─► fields ─► framing ─► host ─► target
//!  (at most two)  (as soon as     (as they come)          (when the head is complete)
//!                 it is there)
//! ```

use std::borrow::Cow;

use httparse::{EMPTY_HEADER, Status as Parsed, parse_headers};

use crate::body::framing::{Framing, framing};
use crate::fields::condition::Conditions;
use crate::limits::{EMPTY_LINES_MAX, FIELDS_MAX, HeadLimits};
use crate::line::line_end;
use crate::persistence::{Persistence, persistence};
use crate::request::request_line::{HttpTarget, Method, RequestLine, check_authority};
use crate::scheme::Scheme;
use crate::status::{HttpError, Status};
use crate::token::is_token;
use crate::version::HttpVersion;

/// A valid request head, with everything that a response depends on.
#[derive(Debug, Eq, PartialEq)]
pub struct RequestHead<'b> {
    /// The method.
    pub method: Method,
    /// The version of the protocol that the client speaks.
    pub version: HttpVersion,
    /// The requested host, with its port: from the target, else from the `Host` field.
    pub authority: Option<&'b [u8]>,
    /// The requested resource.
    pub target: HttpTarget<'b>,
    /// Whether the client keeps the connection.
    pub persistence: Persistence,
    /// The framing of the body.
    pub framing: Framing,
    /// The expectation of the client before it sends the body.
    pub expect: Expectation,
    /// The conditions, if there are any.
    pub conditions: Option<Conditions<'b>>,
    /// `Range`, unparsed.
    pub range: Option<&'b [u8]>,
    /// The remaining fields.
    pub fields: Fields<'b>,
}

/// An `Expect` field: RFC 9110, section 10.1.1.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Expectation {
    /// No expectation.
    Nothing,
    /// The client waits for `100 Continue` before it sends the body.
    Continue,
    /// An unknown expectation.
    Unknown,
}

/// The progress of receiving a head.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum HeadProgress {
    /// More bytes are needed.
    Partial,
    /// Complete: [`HeadScanner::parse`] reads it, [`HeadScanner::length`] returns its length.
    Complete,
}

/// Finds the end of a head in a growing buffer, examining each byte once.
#[derive(Debug)]
pub struct HeadScanner {
    limits: HeadLimits,
    /// The start of the request line, once a byte of it has been seen.
    start: usize,
    /// The start of the first incomplete line.
    seen: usize,
    /// The position up to which no end of that line was found.
    looked: usize,
    /// The request line, once it is complete and valid.
    line: Option<RequestLine>,
    /// The scheme of the connection.
    scheme: Scheme,
}

impl Default for HeadScanner {
    fn default() -> HeadScanner {
        HeadScanner::within(HeadLimits::default(), Scheme::Http)
    }
}

impl HeadScanner {
    /// Creates a scanner with these limits, for a connection with this scheme.
    pub fn within(limits: HeadLimits, scheme: Scheme) -> HeadScanner {
        HeadScanner {
            limits,
            start: 0,
            seen: 0,
            looked: 0,
            line: None,
            scheme,
        }
    }

    /// Examines the bytes since the last call. `head` starts where it did then.
    pub fn advance(&mut self, head: &[u8]) -> Result<HeadProgress, HttpError> {
        if self.seen == self.start {
            self.skip_empty_lines(head)?;
        }
        while let Some(end) = line_end(self.within_bounds(head), self.seen, self.looked)
            .map_err(|_| HttpError::bad("a line ends without CR"))?
        {
            let empty = end == self.seen;
            self.seen = end + 2;
            self.looked = self.seen;
            if empty {
                return Ok(HeadProgress::Complete);
            }
            if self.line.is_none() {
                self.line = Some(RequestLine::parse(&head[self.start..end])?);
            }
        }
        self.looked = self.within_bounds(head).len();
        self.check_room(head)?;
        Ok(HeadProgress::Partial)
    }

    /// Returns the bytes within the size limit. Nothing beyond it is examined, or the verdict would
    /// depend on how many bytes arrived in one read.
    fn within_bounds<'b>(&self, head: &'b [u8]) -> &'b [u8] {
        &head[..head.len().min(self.bound())]
    }

    fn bound(&self) -> usize {
        match &self.line {
            None => self.start + self.limits.line_bytes_max + 2,
            Some(_) => self.limits.head_bytes_max,
        }
    }

    fn skip_empty_lines(&mut self, head: &[u8]) -> Result<(), HttpError> {
        while head[self.start..].starts_with(b"\r\n") {
            if self.start / LINE_END_BYTES == EMPTY_LINES_MAX {
                return Err(HttpError::bad("too many empty lines before the request"));
            }
            self.start += LINE_END_BYTES;
            self.seen = self.start;
            self.looked = self.start;
        }
        match head.get(self.start) {
            // A TLS client would otherwise wait for a response until it times out.
            Some(byte) if !b"\r\n".contains(byte) && !is_token(*byte) => Err(HttpError::bad(
                "this is no HTTP: a request begins with a method",
            )),
            _ => Ok(()),
        }
    }

    fn check_room(&self, head: &[u8]) -> Result<(), HttpError> {
        if head.len() < self.bound() {
            return Ok(());
        }
        let (status, why) = match &self.line {
            None => (Status::UriTooLong, "the request line is too long"),
            Some(_) => (Status::HeadTooLarge, "the request head is too long"),
        };
        Err(HttpError::new(status, why))
    }

    /// Returns the length of a complete head, with the empty lines before it.
    pub fn length(&self) -> usize {
        self.seen
    }

    /// Parses the head that [`HeadScanner::advance`] found complete.
    pub fn parse<'b>(&self, head: &'b [u8]) -> Result<RequestHead<'b>, HttpError> {
        let line = self
            .line
            .as_ref()
            .ok_or(HttpError::bad("no request line"))?;
        let fields = self.start + line.length() + LINE_END_BYTES;
        parse(
            line,
            &head[self.start..],
            Fields::parse(&head[fields..self.seen])?,
            self.scheme,
        )
    }
}

const LINE_END_BYTES: usize = 2;

/// Checks a request line, at the start of `head`, and its fields.
fn parse<'b>(
    line: &RequestLine,
    head: &'b [u8],
    mut fields: Fields<'b>,
    scheme: Scheme,
) -> Result<RequestHead<'b>, HttpError> {
    let framing = framing(
        fields.content_length,
        fields.transfer_encoding,
        line.version,
    )?;
    let host = check_host(fields.host, line.version)?;
    let target = &head[line.target.clone()];
    let (authority, target) = HttpTarget::parse(target, line.method, scheme)?;
    Ok(RequestHead {
        method: line.method,
        version: line.version,
        authority: authority.or(host),
        target,
        persistence: persistence(fields.connection.as_deref(), line.version),
        framing,
        expect: expect(fields.expect.as_deref(), line.version),
        conditions: fields.take_conditions(),
        range: fields.range,
        fields,
    })
}

/// Returns the method of an invalid request, to the extent that it matters: a response to HEAD has
/// no body, however malformed the request is.
pub fn method_of(input: &[u8]) -> Method {
    let start = input.iter().position(|byte| !b"\r\n".contains(byte));
    match input[start.unwrap_or(0)..].starts_with(b"HEAD ") {
        true => Method::Head,
        false => Method::Unknown,
    }
}

/// Parses `Expect`: RFC 9110, section 10.1.1. An HTTP/1.0 client cannot expect anything.
fn expect(expect: Option<&[u8]>, version: HttpVersion) -> Expectation {
    match (expect, version) {
        (None, _) | (_, HttpVersion::Http10) => Expectation::Nothing,
        (Some(value), HttpVersion::Http11) if value.eq_ignore_ascii_case(b"100-continue") => {
            Expectation::Continue
        }
        (Some(_), HttpVersion::Http11) => Expectation::Unknown,
    }
}

/// Requires a well-formed `Host`, which only HTTP/1.0 may omit.
fn check_host(host: Option<&[u8]>, version: HttpVersion) -> Result<Option<&[u8]>, HttpError> {
    match (host, version) {
        (None, HttpVersion::Http10) => Ok(None),
        (None, HttpVersion::Http11) => Err(HttpError::bad("the Host field is missing")),
        (Some(authority), _) => check_authority(authority).map(|()| host),
    }
}

/// Declares the relevant fields: singletons, and those whose lines are joined by a comma as
/// described in RFC 9110, section 5.3.
macro_rules! fields {
    (once { $($once:ident: $one:literal,)* } joined { $($joined:ident: $many:literal,)* }) => {
        /// The relevant fields, by name.
        #[derive(Debug, Default, Eq, PartialEq)]
        pub struct Fields<'b> {
            $(#[doc = concat!("`", $one, "`")]
            pub $once: Option<&'b [u8]>,)*
            $(#[doc = concat!("`", $many, "`, its lines joined by commas.")]
            pub $joined: Option<Cow<'b, [u8]>>,)*
        }

        impl<'b> Fields<'b> {
            fn add(&mut self, name: &str, value: &'b [u8]) -> Result<(), HttpError> {
                $(if name.eq_ignore_ascii_case($one) {
                    return match self.$once.replace(value) {
                        None => Ok(()),
                        Some(_) => Err(HttpError::bad(concat!(
                            "there is more than one ", $one, " field"
                        ))),
                    };
                })*
                $(if name.eq_ignore_ascii_case($many) {
                    match &mut self.$joined {
                        None => self.$joined = Some(Cow::Borrowed(value)),
                        Some(lines) => {
                            lines.to_mut().extend_from_slice(b", ");
                            lines.to_mut().extend_from_slice(value);
                        }
                    }
                    return Ok(());
                })*
                Ok(())
            }
        }
    };
}

// Content-Type, Content-Range and credentials have no effect here, but a proxy or backend that
// picks another one of two lines would see another request. Referer and User-Agent are only logged.
fields! {
    once {
        host: "Host",
        content_length: "Content-Length",
        transfer_encoding: "Transfer-Encoding",
        range: "Range",
        if_modified_since: "If-Modified-Since",
        if_unmodified_since: "If-Unmodified-Since",
        if_range: "If-Range",
        origin: "Origin",
        content_type: "Content-Type",
        content_range: "Content-Range",
        authorization: "Authorization",
        proxy_authorization: "Proxy-Authorization",
    }
    joined {
        connection: "Connection",
        expect: "Expect",
        if_match: "If-Match",
        if_none_match: "If-None-Match",
        accept: "Accept",
        accept_encoding: "Accept-Encoding",
        want_repr_digest: "Want-Repr-Digest",
        referer: "Referer",
        user_agent: "User-Agent",
        forwarded: "Forwarded",
        x_forwarded_for: "X-Forwarded-For",
        x_forwarded_proto: "X-Forwarded-Proto",
        cookie: "Cookie",
    }
}

impl<'b> Fields<'b> {
    /// Parses the field lines of a complete head, including the empty line.
    pub fn parse(lines: &'b [u8]) -> Result<Fields<'b>, HttpError> {
        let mut headers = [EMPTY_HEADER; FIELDS_MAX];
        match parse_headers(lines, &mut headers) {
            Ok(Parsed::Complete((length, headers))) if length == lines.len() => {
                let mut fields = Fields::default();
                for header in headers {
                    fields.add(header.name, header.value)?;
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

    fn take_conditions(&mut self) -> Option<Conditions<'b>> {
        let conditions = Conditions {
            if_match: self.if_match.take(),
            if_none_match: self.if_none_match.take(),
            if_modified_since: self.if_modified_since,
            if_unmodified_since: self.if_unmodified_since,
            if_range: self.if_range,
        };
        (conditions != Conditions::default()).then_some(conditions)
    }
}

#[cfg(test)]
mod tests;
