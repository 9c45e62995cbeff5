//! The data of a log line.

use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use underpass::{Account, SendStats};

use crate::metrics::worker_metrics::ExchangeEnd;
use crate::request::head::RequestHead;

/// A completed or aborted exchange.
#[derive(Debug)]
pub(crate) struct LogRecord<'r> {
    /// When the first byte of the request was seen.
    pub(crate) time: SystemTime,
    pub(crate) client: Option<IpAddr>,
    pub(crate) text: &'r RequestText,
    pub(crate) status: u16,
    /// Bytes of the body that the kernel took.
    pub(crate) sent: u64,
    /// Bytes that the body has, where that is known before it is sent.
    pub(crate) promised: Option<u64>,
    pub(crate) account: &'r Account,
    pub(crate) beside: SendStats,
    pub(crate) duration: Duration,
    /// From the first byte of the request until the answer was ready to be sent.
    pub(crate) ready: Duration,
    /// Processor time of the worker's thread, where it was measured.
    pub(crate) processor: Option<Duration>,
    pub(crate) connection: u64,
    pub(crate) request: u64,
    pub(crate) end: ExchangeEnd,
}

/// What the client sent, as far as it is logged, in one reused buffer.
#[derive(Debug, Default)]
pub(crate) struct RequestText {
    bytes: Vec<u8>,
    /// Where each part ends in `bytes`; it begins where the one before it ends.
    ends: [usize; PARTS],
    there: [bool; PARTS],
}

const PARTS: usize = 6;

/// Parts of what was said.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RequestPart {
    Method,
    Target,
    /// `HTTP/1.1`.
    Version,
    Host,
    Referer,
    Agent,
}

impl RequestText {
    /// Uses the room of `spare`.
    pub(crate) fn new(mut buffer: Vec<u8>) -> RequestText {
        buffer.clear();
        RequestText {
            bytes: buffer,
            ends: [0; PARTS],
            there: [false; PARTS],
        }
    }

    /// Gives the room back.
    pub(crate) fn into_buffer(self) -> Vec<u8> {
        self.bytes
    }

    /// Copies the head of a request that was understood, or as much of it as came.
    pub(crate) fn copy_from(&mut self, head: &[u8], request: Option<&RequestHead<'_>>) {
        let [method, target, version] = split_line(first_line(head));
        let fields = request.map(|request| &request.fields);
        self.add(RequestPart::Method, method);
        self.add(RequestPart::Target, target);
        self.add(RequestPart::Version, version);
        self.add(
            RequestPart::Host,
            request.and_then(|request| request.authority),
        );
        self.add(
            RequestPart::Referer,
            fields.and_then(|fields| fields.referer.value()),
        );
        self.add(
            RequestPart::Agent,
            fields.and_then(|fields| fields.user_agent.value()),
        );
    }

    fn add(&mut self, part: RequestPart, value: Option<&[u8]>) {
        self.there[part as usize] = value.is_some();
        self.bytes.extend_from_slice(value.unwrap_or_default());
        self.ends[part as usize] = self.bytes.len();
    }

    /// A part, if it was said.
    pub(crate) fn part(&self, part: RequestPart) -> Option<&[u8]> {
        let number = part as usize;
        let start = number.checked_sub(1).map_or(0, |before| self.ends[before]);
        self.there[number].then(|| &self.bytes[start..self.ends[number]])
    }
}

/// The first line that is not empty, complete or not.
fn first_line(head: &[u8]) -> &[u8] {
    let start = head.iter().position(|byte| !b"\r\n".contains(byte));
    let line = &head[start.unwrap_or(head.len())..];
    let end = line.iter().position(|byte| b"\r\n".contains(byte));
    &line[..end.unwrap_or(line.len())]
}

/// Method, target and version. Where the line is not made of these, what there is stands for the
/// method, so that it shows in the log.
fn split_line(line: &[u8]) -> [Option<&[u8]>; 3] {
    if line.is_empty() {
        return [None; 3];
    }
    let mut parts = line.split(|&byte| byte == b' ');
    match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some(method), Some(target), Some(version), None) if version.starts_with(b"HTTP/") => {
            [Some(method), Some(target), Some(version)]
        }
        _ => [Some(line), None, None],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_none_is_reported_as_it_came() {
        let parts = |head: &'static [u8]| split_line(first_line(head));
        let whole = [Some(&b"GET"[..]), Some(b"/a"), Some(b"HTTP/1.1")];
        assert_eq!(parts(b"\r\n\r\nGET /a HTTP/1.1\r\nHost: b\r\n"), whole);
        assert_eq!(
            parts(b"GET /a b HTTP/1.1\r\n"),
            [Some(&b"GET /a b HTTP/1.1"[..]), None, None]
        );
        assert_eq!(
            parts(b"\x16\x03\x01"),
            [Some(&b"\x16\x03\x01"[..]), None, None]
        );
        assert_eq!(parts(b"\r\n"), [None; 3]);
    }

    #[test]
    fn parts_are_found_again_and_the_room_is_used_again() {
        let mut said = RequestText::new(b"old".to_vec());
        said.copy_from(b"HEAD /x HTTP/1.0\r\n\r\n", None);
        assert_eq!(said.part(RequestPart::Method), Some(&b"HEAD"[..]));
        assert_eq!(said.part(RequestPart::Version), Some(&b"HTTP/1.0"[..]));
        assert_eq!(said.part(RequestPart::Agent), None);
        assert!(said.into_buffer().capacity() >= 3);
    }
}
