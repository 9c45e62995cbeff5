//! Writes a response: its head as bytes, its body as pieces for the outbox.
//!
//! The head is written into a recycled buffer, which file content never passes through. The
//! response to HEAD is the response to GET without the body.

use std::sync::Arc;

use underpass::{FileRange, Outbox, Piece};
use underpass_http::fields::content_range::push_content_range;
use underpass_http::fields::digest::FileDigest;
use underpass_http::fields::range::{ByteRange, RangeSelection};
use underpass_http::fields::repr_digest::push_repr_digest;
use underpass_http::fields::writer::{DATE_BYTES, push_attachment, push_decimal, push_field};
use underpass_http::path::SitePath;
use underpass_http::persistence::Persistence;
use underpass_http::request::request_line::Method;
use underpass_http::status::Status;
use underpass_http::version::HttpVersion;

use crate::answer::decide::{FileBody, ReadyResponse};
use crate::answer::multipart::{Boundary, Multipart};
use crate::answer::text::{Subject, TextResponse};
use crate::body::producer::{BodyDelimiter, ProducedBody, StartedBody};
use crate::limits::RETRY_AFTER_SECONDS;
use crate::rules::ProducedFields;
use crate::site::file::SiteFile;
use crate::site::site_rules::SiteRules;

/// Everything the head of a response depends on besides the response itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResponseContext<'w> {
    pub(crate) method: Method,
    pub(crate) version: HttpVersion,
    pub(crate) persistence: Persistence,
    pub(crate) date: [u8; DATE_BYTES],
    pub(crate) joining: BodyJoining,
    /// The index of the site, and its rules.
    pub(crate) site: usize,
    pub(crate) rules: &'w SiteRules,
    /// The origin whose scripts may read the response.
    pub(crate) allowed_origin: Option<&'w [u8]>,
    /// Creates a random boundary for a multipart body.
    pub(crate) boundary: fn() -> Boundary,
}

/// Whether a body in memory is sent together with its head.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum BodyJoining {
    Allowed,
    /// The only allowed mechanism does not send from memory.
    Forbidden,
}

/// A response whose head is in the outbox.
#[derive(Debug)]
pub(crate) struct WrittenResponse {
    pub(crate) status: Status,
    pub(crate) head_bytes: u64,
    pub(crate) body: SentBody,
}

/// The location of a response body.
#[derive(Debug)]
pub(crate) enum SentBody {
    /// The whole body is in the outbox, or the body is empty.
    Memory,
    /// Ranges of this file are in the outbox.
    File(FileTransfer),
    /// The body is produced while it is sent.
    Produced(ProducedBody),
}

/// The file of a response, for messages about a failed transfer.
#[derive(Debug)]
pub(crate) struct FileTransfer {
    pub(crate) path: SitePath,
    pub(crate) size: u64,
    pub(crate) ranges: RangeSelection,
}

/// Asks the client to send the body that it announced.
pub(crate) const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// Puts a response into the outbox, its head written into `spare`. `page`, if any, replaces the
/// body of a text response; the status stays, and the page's validators are omitted.
pub(crate) fn write(
    response: ReadyResponse,
    page: Option<SiteFile>,
    context: &ResponseContext<'_>,
    spare: Vec<u8>,
    outbox: &mut Outbox,
) -> WrittenResponse {
    let head = |status| HeadWriter::new(spare, status, context);
    match response {
        ReadyResponse::Content(FileBody { file, ranges }, digest) => {
            let mut head = head(match ranges {
                RangeSelection::Whole => Status::Ok,
                RangeSelection::One(_) | RangeSelection::Several(_) => Status::PartialContent,
            });
            head.file(&file, digest.as_ref());
            match ranges {
                RangeSelection::Whole => send_whole(head, file, outbox),
                RangeSelection::One(range) => send_part(head, file, range, outbox),
                RangeSelection::Several(ranges) => send_parts(head, file, ranges, outbox),
            }
        }
        ReadyResponse::HashLine(file, digest) => {
            let line = digest.line(file.path.name());
            let mut head = head(Status::Ok);
            head.push(&context.rules.made_fields(ProducedFields::default()));
            if let Some(control) = context.rules.audience.restrict(None) {
                push_field(&mut head.bytes, "Cache-Control", &*control);
            }
            file.state.validators.push_to(&mut head.bytes);
            push_field(&mut head.bytes, "Content-Type", TEXT);
            head.length(line.len() as u64);
            head.send(&line, outbox)
        }
        ReadyResponse::NotModified(file) => {
            let mut head = head(Status::NotModified);
            file.state.validators.push_to(&mut head.bytes);
            head.push(&file.state.label.fields);
            head.send(b"", outbox)
        }
        ReadyResponse::Options => {
            let mut head = head(Status::NoContent);
            push_field(&mut head.bytes, "Allow", context.rules.allowed_methods());
            head.push(&context.rules.plain_fields);
            if let (Some(cors), Some(_)) = (&context.rules.cors, context.allowed_origin) {
                head.push(cors.preflight());
            }
            head.send(b"", outbox)
        }
        ReadyResponse::Text(text) => send_text(head(text.error.status), text, page, outbox),
    }
}

const TEXT: &str = "text/plain; charset=utf-8";

/// Writes the head of a produced body, and its opening except for HEAD.
pub(crate) fn write_produced(
    started: StartedBody,
    context: &ResponseContext<'_>,
    spare: Vec<u8>,
    outbox: &mut Outbox,
) -> WrittenResponse {
    let delimiter = BodyDelimiter::of(context.version);
    let context = ResponseContext {
        persistence: match delimiter {
            BodyDelimiter::LastChunk => context.persistence,
            BodyDelimiter::Close => Persistence::Close,
        },
        ..*context
    };
    let mut head = HeadWriter::new(spare, Status::Ok, &context);
    head.push(&started.fields);
    if delimiter == BodyDelimiter::LastChunk {
        push_field(&mut head.bytes, "Transfer-Encoding", "chunked");
    }
    let mut written = head.send(b"", outbox);
    if context.method != Method::Head {
        written.body = SentBody::Produced(ProducedBody::new(started, delimiter, outbox));
    }
    written
}

/// Sends a status with an explanatory body: a page, or one line.
fn send_text(
    mut head: HeadWriter<'_>,
    text: TextResponse,
    page: Option<SiteFile>,
    outbox: &mut Outbox,
) -> WrittenResponse {
    let rules = head.context.rules;
    head.push(match text.subject {
        Subject::Request => &rules.plain_fields,
        Subject::File => &rules.varied_fields,
    });
    head.push(&text.fields);
    if text.error.status == Status::ServiceUnavailable {
        head.push(b"\r\nRetry-After: ");
        push_decimal(&mut head.bytes, RETRY_AFTER_SECONDS);
    }
    match page {
        Some(page) => {
            let whole = ByteRange::whole(page.state.stamp.size);
            head.push(&page.state.label.content_type);
            head.length(whole.length);
            send_range(head, page, whole, RangeSelection::Whole, outbox)
        }
        // RFC 9110, section 15.3.5: it has no content, and no length of any.
        None if text.error.status == Status::NoContent => head.send(b"", outbox),
        None => {
            let mut body = format!("{}\n", text.error);
            for line in text.lines {
                body.push_str(&line);
                body.push('\n');
            }
            push_field(&mut head.bytes, "Content-Type", TEXT);
            head.length(body.len() as u64);
            head.send(body.as_bytes(), outbox)
        }
    }
}

/// Sends a whole file: from memory with its head if it is cached there.
fn send_whole(mut head: HeadWriter<'_>, file: SiteFile, outbox: &mut Outbox) -> WrittenResponse {
    head.push(&file.state.label.content_type);
    head.length(file.state.stamp.size);
    let (joining, method) = (head.context.joining, head.context.method);
    match (joining, method, file.state.content()) {
        (BodyJoining::Allowed, Method::Get, Some(content)) => {
            let written = head.send(b"", outbox);
            outbox.push(Piece::Content(Arc::clone(content)));
            written
        }
        _ => {
            let whole = ByteRange::whole(file.state.stamp.size);
            send_range(head, file, whole, RangeSelection::Whole, outbox)
        }
    }
}

fn send_part(
    mut head: HeadWriter<'_>,
    file: SiteFile,
    range: ByteRange,
    outbox: &mut Outbox,
) -> WrittenResponse {
    head.push(&file.state.label.content_type);
    head.push(b"\r\nContent-Range: ");
    push_content_range(&mut head.bytes, range, file.state.stamp.size);
    head.length(range.length);
    send_range(head, file, range, RangeSelection::One(range), outbox)
}

fn send_range(
    head: HeadWriter<'_>,
    file: SiteFile,
    range: ByteRange,
    ranges: RangeSelection,
    outbox: &mut Outbox,
) -> WrittenResponse {
    let method = head.context.method;
    let mut written = head.send(b"", outbox);
    if method != Method::Head && range.length > 0 {
        outbox.push(piece(&file, range));
        written.body = SentBody::File(FileTransfer {
            path: file.path,
            size: file.state.stamp.size,
            ranges,
        });
    }
    written
}

fn send_parts(
    mut head: HeadWriter<'_>,
    file: SiteFile,
    ranges: Vec<ByteRange>,
    outbox: &mut Outbox,
) -> WrittenResponse {
    let (size, boundary) = (file.state.stamp.size, (head.context.boundary)());
    let body = Multipart::new(&ranges, size, &file.state.label.content_type, &boundary);
    head.push(b"\r\nContent-Type: multipart/byteranges; boundary=");
    head.push(boundary.as_bytes());
    head.length(body.length());
    let mut written = head.send(b"", outbox);
    for (part_head, range) in body.parts {
        outbox.push(Piece::Bytes(part_head));
        outbox.push(piece(&file, range));
    }
    outbox.push(Piece::Bytes(body.closing));
    written.body = SentBody::File(FileTransfer {
        path: file.path,
        size,
        ranges: RangeSelection::Several(ranges),
    });
    written
}

fn piece(file: &SiteFile, range: ByteRange) -> Piece {
    Piece::Range(FileRange {
        file: Arc::clone(&file.state.descriptor),
        offset: range.first,
        len: range.length,
    })
}

impl FileTransfer {
    /// Returns the file offset after the first `moved` bytes of the response's ranges.
    pub(crate) fn offset_after(&self, moved: u64) -> u64 {
        let ranges = match &self.ranges {
            RangeSelection::Whole => &[ByteRange::whole(self.size)],
            RangeSelection::One(range) => std::slice::from_ref(range),
            RangeSelection::Several(ranges) => &ranges[..],
        };
        let mut left = moved;
        for range in ranges {
            if left < range.length {
                return range.first + left;
            }
            left -= range.length;
        }
        self.size
    }
}

/// A head under construction. Every field starts with the line break that ends the previous line.
struct HeadWriter<'c> {
    bytes: Vec<u8>,
    status: Status,
    context: &'c ResponseContext<'c>,
}

impl<'c> HeadWriter<'c> {
    /// Starts a head in the buffer `spare`.
    fn new(spare: Vec<u8>, status: Status, context: &'c ResponseContext<'c>) -> HeadWriter<'c> {
        let mut head = HeadWriter {
            bytes: spare,
            status,
            context,
        };
        head.bytes.reserve(512);
        head.push(b"HTTP/1.1 ");
        head.push(status.line().as_bytes());
        head.push(b"\r\nDate: ");
        head.push(&context.date);
        match (context.persistence, context.version) {
            (Persistence::Close, _) => head.push(b"\r\nConnection: close"),
            (Persistence::KeepAlive, HttpVersion::Http10) => {
                head.push(b"\r\nConnection: keep-alive");
            }
            (Persistence::KeepAlive, HttpVersion::Http11) => {}
        }
        if let (Some(cors), Some(origin)) = (&context.rules.cors, context.allowed_origin) {
            cors.push_to(&mut head.bytes, origin);
        }
        head
    }

    fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    fn length(&mut self, length: u64) {
        self.push(b"\r\nContent-Length: ");
        push_decimal(&mut self.bytes, length);
    }

    /// Writes the fields of every response with file content, except type and length.
    fn file(&mut self, file: &SiteFile, digest: Option<&FileDigest>) {
        self.push(&file.state.fields);
        if let Some(name) = &file.save_as {
            push_attachment(&mut self.bytes, name);
        }
        if let Some(digest) = digest {
            push_repr_digest(&mut self.bytes, digest);
        }
    }

    /// Ends the head and puts it into the outbox with the body, which is omitted for HEAD.
    fn send(mut self, body: &[u8], outbox: &mut Outbox) -> WrittenResponse {
        self.push(b"\r\n\r\n");
        let written = WrittenResponse {
            status: self.status,
            head_bytes: self.bytes.len() as u64,
            body: SentBody::Memory,
        };
        if self.context.method != Method::Head {
            self.push(body);
        }
        outbox.push(Piece::Bytes(self.bytes));
        written
    }
}

#[cfg(test)]
mod tests {
    use underpass_http::path::SitePath;

    use super::*;

    #[test]
    fn a_failure_is_located_within_the_file() {
        let range = |first, length| ByteRange { first, length };
        let transfer = FileTransfer {
            path: SitePath::parse(b"/f").unwrap(),
            size: 1000,
            ranges: RangeSelection::Several(vec![range(10, 5), range(100, 20)]),
        };
        let offsets = [0, 4, 5, 24, 25].map(|moved| transfer.offset_after(moved));
        assert_eq!(offsets, [10, 14, 100, 119, 1000]);
    }
}
