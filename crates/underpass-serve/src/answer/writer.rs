//! Writes an answer: its head as bytes, its body as pieces for the outbox.
//!
//! The head is written straight into a recycled buffer; a file's content never comes near it. What
//! HEAD gets is what GET gets, without the body.

use std::sync::Arc;

use underpass::{FileRange, Outbox, Piece};

use crate::answer::decide::{FileBody, Response};
use crate::answer::multipart::{Boundary, Multipart, push_content_range};
use crate::answer::repr_digest::push_repr_digest;
use crate::http::date::DATE_BYTES;
use crate::http::decimal::push_decimal;
use crate::http::digest::FileDigest;
use crate::http::disposition::push_attachment;
use crate::http::status::{HttpError, Status};
use crate::request::head::Persistence;
use crate::request::path::SitePath;
use crate::request::range::ByteRange;
use crate::request::request_line::{HttpVersion, Method};
use crate::site::file::SiteFile;
use crate::site::rules::{MatchedRedirect, SiteRules};

/// What a reply depends on beside the answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResponseContext<'c> {
    pub(crate) method: Method,
    pub(crate) version: HttpVersion,
    pub(crate) persistence: Persistence,
    pub(crate) date: [u8; DATE_BYTES],
    pub(crate) joining: BodyJoining,
    pub(crate) rules: &'c SiteRules,
    /// The origin whose scripts may read it.
    pub(crate) admitted: Option<&'c [u8]>,
    /// The hash of the file whose content is sent, for those who want it.
    pub(crate) digest: Option<&'c FileDigest>,
}

/// Whether a body that is in memory leaves with its head.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum BodyJoining {
    Allowed,
    /// What is sent from memory is not sent by the only mechanism that is allowed.
    Forbidden,
}

/// What is being sent of a file, for those who have to tell that it failed.
#[derive(Debug)]
pub(crate) struct FileTransfer {
    pub(crate) path: SitePath,
    pub(crate) size: u64,
    pub(crate) spans: SentRanges,
}

/// One part of a file or several, which is rare enough to cost memory.
#[derive(Debug)]
pub(crate) enum SentRanges {
    One(ByteRange),
    Several(Vec<ByteRange>),
}

const ALLOW: &[u8] = b"\r\nAllow: GET, HEAD, OPTIONS";

/// Puts `answer` into the outbox, its head written into `spare`, and says what of a file goes with
/// it. An error is shown as `page`, if there is one, under its own status and without a sign of
/// what state the page is in.
pub(crate) fn reply(
    answer: Response<'_>,
    page: Option<SiteFile>,
    circumstances: &ResponseContext<'_>,
    spare: Vec<u8>,
    outbox: &mut Outbox,
) -> Option<FileTransfer> {
    let head = HeadWriter::new(spare, circumstances);
    match answer {
        Response::Content(content) => with_file(head, content, outbox),
        answer => {
            let head = without_file(
                HeadWriter {
                    page: page.as_ref(),
                    ..head
                },
                answer,
            );
            let Some(page) = page else {
                outbox.push(Piece::Bytes(head));
                return None;
            };
            let span = ByteRange {
                first: 0,
                length: page.state.size,
            };
            send(head, circumstances.method, page, span, outbox)
        }
    }
}

fn with_file(head: HeadWriter<'_>, content: FileBody, outbox: &mut Outbox) -> Option<FileTransfer> {
    let (method, joining) = (head.circumstances.method, head.circumstances.joining);
    match content {
        FileBody::Whole(file) => {
            let head = head.status(Status::Ok).file(&file);
            if let (BodyJoining::Allowed, Method::Get, Some(content)) =
                (joining, method, file.state.content())
            {
                outbox.push(joined(head, content));
                return None;
            }
            let span = ByteRange {
                first: 0,
                length: file.state.size,
            };
            send(head, method, file, span, outbox)
        }
        FileBody::Part(file, span) => {
            let head = head.status(Status::PartialContent).part(&file, span);
            send(head, method, file, span, outbox)
        }
        FileBody::Parts(file, spans) => parts(head, file, spans, outbox),
    }
}

/// Puts a refusal of what could not be read as a request into the outbox.
pub(crate) fn refuse(refusal: HttpError, circumstances: &ResponseContext<'_>, outbox: &mut Outbox) {
    let head = HeadWriter::new(Vec::new(), circumstances).plain(refusal, &[]);
    outbox.push(Piece::Bytes(head));
}

/// Puts the head of an answer that was made into the outbox; `fields` are all but the usual ones,
/// each with a line end before it.
pub(crate) fn push_made(fields: &[u8], circumstances: &ResponseContext<'_>, outbox: &mut Outbox) {
    let mut head = HeadWriter::new(Vec::with_capacity(512), circumstances).status(Status::Ok);
    head.push(fields);
    outbox.push(Piece::Bytes(head.end()));
}

/// What asks a client to send the body it announced.
pub(crate) const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

fn without_file(head: HeadWriter<'_>, answer: Response<'_>) -> Vec<u8> {
    match answer {
        Response::NotModified(file) => {
            let mut head = head.status(Status::NotModified);
            file.state.validators.push_to(&mut head.bytes);
            head.push(&file.state.label.fields);
            head.end()
        }
        Response::PreconditionFailed(file) => {
            let why = HttpError::new(Status::PreconditionFailed, "the file is in another state");
            let mut tag = b"\r\nETag: ".to_vec();
            tag.extend_from_slice(file.state.validators.tag.as_bytes());
            head.about_file(why, &tag)
        }
        Response::Unsatisfiable(size) => {
            let why = HttpError::new(Status::RangeNotSatisfiable, "the range lies behind the end");
            let mut range = b"\r\nContent-Range: bytes */".to_vec();
            push_decimal(&mut range, size);
            head.about_file(why, &range)
        }
        Response::Moved { folder, query } => {
            let why = HttpError::new(Status::MovedPermanently, "this is a folder");
            head.plain(why, &location(&folder, query))
        }
        Response::Redirected(MatchedRedirect { status, location }) => {
            let mut field = b"\r\nLocation: ".to_vec();
            field.extend_from_slice(&location);
            head.plain(HttpError::new(status, "it is elsewhere"), &field)
        }
        Response::NotAcceptable => {
            let why = "the file is in none of the codings that are accepted";
            head.about_file(HttpError::new(Status::NotAcceptable, why), &[])
        }
        Response::Options => {
            let (rules, admitted) = (head.circumstances.rules, head.circumstances.admitted);
            let mut head = head.status(Status::NoContent);
            head.push(ALLOW);
            head.push(&rules.plain_fields);
            if admitted.is_some() {
                head.push(rules.cors.preflight());
            }
            head.end()
        }
        Response::NotAllowed => {
            let why = HttpError::new(Status::MethodNotAllowed, "this server only reads");
            head.plain(why, ALLOW)
        }
        Response::Plain(why) | Response::Trouble(why, _) => head.plain(why, &[]),
        Response::Content(_) => unreachable!("it has a file"),
        Response::Vouched(_)
        | Response::Compressed(..)
        | Response::Listing(..)
        | Response::Archive(..)
        | Response::Hash(..) => {
            unreachable!("these are made elsewhere")
        }
    }
}

fn location(folder: &SitePath, query: Option<&[u8]>) -> Vec<u8> {
    let mut location = b"\r\nLocation: ".to_vec();
    folder.encode_into(&mut location);
    if !folder.bytes().is_empty() {
        location.push(b'/');
    }
    if let Some(query) = query {
        location.push(b'?');
        location.extend_from_slice(query);
    }
    location
}

fn send(
    head: Vec<u8>,
    method: Method,
    file: SiteFile,
    span: ByteRange,
    outbox: &mut Outbox,
) -> Option<FileTransfer> {
    outbox.push(Piece::Bytes(head));
    if method == Method::Head || span.length == 0 {
        return None;
    }
    outbox.push(range(&file, span));
    Some(FileTransfer {
        path: file.path,
        size: file.state.size,
        spans: SentRanges::One(span),
    })
}

fn parts(
    head: HeadWriter<'_>,
    file: SiteFile,
    spans: Vec<ByteRange>,
    outbox: &mut Outbox,
) -> Option<FileTransfer> {
    let boundary = Boundary::random();
    let media = &file.state.label.media;
    let body = Multipart::new(&spans, file.state.size, media, &boundary);
    let head = head
        .status(Status::PartialContent)
        .parts(&file, &boundary, body.length());
    outbox.push(Piece::Bytes(head));
    for (part_head, span) in body.parts {
        outbox.push(Piece::Bytes(part_head));
        outbox.push(range(&file, span));
    }
    outbox.push(Piece::Bytes(body.closing));
    Some(FileTransfer {
        path: file.path,
        size: file.state.size,
        spans: SentRanges::Several(spans),
    })
}

fn joined(mut bytes: Vec<u8>, content: &[u8]) -> Piece {
    let head = bytes.len();
    bytes.extend_from_slice(content);
    Piece::Joined { bytes, head }
}

fn range(file: &SiteFile, span: ByteRange) -> Piece {
    Piece::Range(FileRange {
        file: Arc::clone(&file.state.descriptor),
        offset: span.first,
        len: span.length,
    })
}

impl FileTransfer {
    /// The offset in the file that follows the first `moved` bytes of the answer's ranges.
    pub(crate) fn offset_after(&self, moved: u64) -> u64 {
        let mut left = moved;
        for span in self.spans.as_slice() {
            if left < span.length {
                return span.first + left;
            }
            left -= span.length;
        }
        self.size
    }
}

impl SentRanges {
    fn as_slice(&self) -> &[ByteRange] {
        match self {
            SentRanges::One(span) => std::slice::from_ref(span),
            SentRanges::Several(spans) => spans,
        }
    }
}

/// A head being written. Every field begins with the line end of what stands before it.
struct HeadWriter<'c> {
    bytes: Vec<u8>,
    circumstances: &'c ResponseContext<'c>,
    page: Option<&'c SiteFile>,
}

impl<'c> HeadWriter<'c> {
    fn new(bytes: Vec<u8>, circumstances: &'c ResponseContext<'c>) -> HeadWriter<'c> {
        HeadWriter {
            bytes,
            circumstances,
            page: None,
        }
    }

    fn status(mut self, status: Status) -> HeadWriter<'c> {
        self.push(b"HTTP/1.1 ");
        self.push(status.line().as_bytes());
        self.push(b"\r\nDate: ");
        self.push(&self.circumstances.date);
        match (self.circumstances.persistence, self.circumstances.version) {
            (Persistence::Close, _) => self.push(b"\r\nConnection: close"),
            (Persistence::KeepAlive, HttpVersion::Http10) => {
                self.push(b"\r\nConnection: keep-alive");
            }
            (Persistence::KeepAlive, HttpVersion::Http11) => {}
        }
        if let Some(admitted) = self.circumstances.admitted {
            self.circumstances
                .rules
                .cors
                .push_to(&mut self.bytes, admitted);
        }
        self
    }

    fn length(&mut self, length: u64) {
        self.push(b"\r\nContent-Length: ");
        push_decimal(&mut self.bytes, length);
    }

    fn media(&mut self, file: &SiteFile) {
        self.push(b"\r\nContent-Type: ");
        file.state.label.media.push_to(&mut self.bytes);
    }

    fn fields(&mut self, file: &SiteFile) {
        self.push(&file.state.fields);
        if let Some(name) = &file.save_as {
            push_attachment(&mut self.bytes, name);
        }
        if let Some(digest) = self.circumstances.digest {
            push_repr_digest(&mut self.bytes, digest);
        }
    }

    fn file(mut self, file: &SiteFile) -> Vec<u8> {
        self.fields(file);
        self.media(file);
        self.length(file.state.size);
        self.end()
    }

    fn part(mut self, file: &SiteFile, span: ByteRange) -> Vec<u8> {
        self.fields(file);
        self.media(file);
        self.push(b"\r\nContent-Range: ");
        push_content_range(&mut self.bytes, span, file.state.size);
        self.length(span.length);
        self.end()
    }

    fn parts(mut self, file: &SiteFile, boundary: &Boundary, length: u64) -> Vec<u8> {
        self.fields(file);
        self.push(b"\r\nContent-Type: multipart/byteranges; boundary=");
        self.push(boundary.as_bytes());
        self.length(length);
        self.end()
    }

    /// A status with a body that says the same in words: a page, or one line.
    fn plain(self, refusal: HttpError, fields: &[u8]) -> Vec<u8> {
        let common = &self.circumstances.rules.plain_fields;
        self.told(refusal, common, fields)
    }

    /// The same, about a file that is there.
    fn about_file(self, refusal: HttpError, fields: &[u8]) -> Vec<u8> {
        let common = &self.circumstances.rules.varied_fields;
        self.told(refusal, common, fields)
    }

    fn told(self, refusal: HttpError, common: &[u8], fields: &[u8]) -> Vec<u8> {
        let method = self.circumstances.method;
        let mut head = self.status(refusal.status);
        head.push(common);
        head.push(fields);
        if let Some(page) = head.page {
            head.media(page);
            head.length(page.state.size);
            return head.end();
        }
        head.push(b"\r\nContent-Type: text/plain; charset=utf-8");
        let (status, why) = (refusal.status.line().as_bytes(), refusal.why.as_bytes());
        let parts = [status, b": ", why, b"\n"];
        head.length(parts.iter().map(|part| part.len() as u64).sum());
        let mut bytes = head.end();
        if method != Method::Head {
            bytes.extend(parts.into_iter().flatten());
        }
        bytes
    }

    fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    fn end(mut self) -> Vec<u8> {
        self.push(b"\r\n\r\n");
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::path::SitePath;

    #[test]
    fn a_failure_is_located_within_the_file() {
        let span = |first, length| ByteRange { first, length };
        let sending = FileTransfer {
            path: SitePath::parse(b"/f").unwrap(),
            size: 1000,
            spans: SentRanges::Several(vec![span(10, 5), span(100, 20)]),
        };
        let offsets = [0, 4, 5, 24, 25].map(|moved| sending.offset_after(moved));
        assert_eq!(offsets, [10, 14, 100, 119, 1000]);
    }

    #[test]
    fn a_location_has_one_slash_in_front_and_keeps_the_query() {
        let located = |raw: &[u8], query| {
            let folder = SitePath::parse(raw).unwrap();
            String::from_utf8(location(&folder, query)).unwrap()
        };
        assert_eq!(located(b"//evil", None), "\r\nLocation: /evil/");
        assert_eq!(located(b"/%5cevil", None), "\r\nLocation: /%5Cevil/");
        assert_eq!(
            located(b"/a%0d%0ab", Some(b"q=1")),
            "\r\nLocation: /a%0D%0Ab/?q=1"
        );
        assert_eq!(located(b"/%C3%BC%3f", None), "\r\nLocation: /%C3%BC%3F/");
    }
}
