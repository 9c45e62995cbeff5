//! Multiple ranges in one response: `multipart/byteranges`, RFC 9110, section 14.6.
//!
//! ```text
//!  --boundary                         ┐
//!  Content-Type: text/plain           │ a head in memory
//!  Content-Range: bytes 0-9/1000      ┘
//!
//!  0123456789                           a range of the file, moved by the kernel
//!  --boundary
//!  …
//!  --boundary--                         the closing line
//! ```
//!
//! All heads are written before the first byte is sent, so the length is exact.

use underpass_http::fields::content_range::push_content_range;
use underpass_http::fields::range::ByteRange;

/// The separator of the parts. Random for every response, so that no file can imitate it.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct Boundary(Vec<u8>);

/// The layout of a whole body.
#[derive(Debug)]
pub(crate) struct Multipart {
    /// The head of each part and the range that follows it.
    pub(crate) parts: Vec<(Vec<u8>, ByteRange)>,
    /// The line that ends the body.
    pub(crate) closing: Vec<u8>,
}

impl Boundary {
    /// Creates a boundary from 128 random bits.
    pub(crate) fn new(random: u128) -> Boundary {
        Boundary(format!("{random:032x}").into_bytes())
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl Multipart {
    /// Lays out `spans` of a file of `size` bytes.
    pub(crate) fn new(
        spans: &[ByteRange],
        size: u64,
        content_type: &[u8],
        boundary: &Boundary,
    ) -> Multipart {
        let parts = spans
            .iter()
            .map(|&span| (part_head(span, size, content_type, boundary), span));
        let mut closing = b"\r\n--".to_vec();
        closing.extend_from_slice(boundary.as_bytes());
        closing.extend_from_slice(b"--\r\n");
        Multipart {
            parts: parts.collect(),
            closing,
        }
    }

    /// Returns the exact length of the body.
    pub(crate) fn length(&self) -> u64 {
        let part = |(head, span): &(Vec<u8>, ByteRange)| head.len() as u64 + span.length;
        self.parts.iter().map(part).sum::<u64>() + self.closing.len() as u64
    }
}

fn part_head(span: ByteRange, size: u64, content_type: &[u8], boundary: &Boundary) -> Vec<u8> {
    let mut head = Vec::with_capacity(160);
    head.extend_from_slice(b"\r\n--");
    head.extend_from_slice(boundary.as_bytes());
    head.extend_from_slice(content_type);
    head.extend_from_slice(b"\r\nContent-Range: ");
    push_content_range(&mut head, span, size);
    head.extend_from_slice(b"\r\n\r\n");
    head
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layout_and_its_length() {
        let spans = [(0, 10), (990, 10)].map(|(first, length)| ByteRange { first, length });
        let boundary = Boundary::new(0);
        let content_type = b"\r\nContent-Type: text/plain; charset=utf-8";
        let body = Multipart::new(&spans, 1000, content_type, &boundary);
        let mut written = Vec::new();
        for (head, span) in &body.parts {
            written.extend_from_slice(head);
            written.extend(std::iter::repeat_n(b'x', span.length as usize));
        }
        written.extend_from_slice(&body.closing);
        assert_eq!(body.length(), written.len() as u64);
        let written = String::from_utf8(written).unwrap();
        let line = format!("--{}", std::str::from_utf8(boundary.as_bytes()).unwrap());
        let expected = format!(
            "\r\n{line}\r\nContent-Type: text/plain; charset=utf-8\r\n\
             Content-Range: bytes 0-9/1000\r\n\r\nxxxxxxxxxx\r\n{line}\r\n\
             Content-Type: text/plain; charset=utf-8\r\n\
             Content-Range: bytes 990-999/1000\r\n\r\nxxxxxxxxxx\r\n{line}--\r\n"
        );
        assert_eq!(written, expected);
    }

    #[test]
    fn boundaries_are_32_digits_and_differ() {
        let boundary = Boundary::new(1);
        assert_eq!(boundary.as_bytes().len(), 32);
        assert!(boundary.as_bytes().iter().all(u8::is_ascii_hexdigit));
        assert_ne!(boundary, Boundary::new(2));
        assert_ne!(boundary, Boundary::new(1 << 64));
    }
}
