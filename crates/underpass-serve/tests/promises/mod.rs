//! What holds for any bytes whatever: one function for each parser that the outside world feeds,
//! which panics where its promise is broken.
//!
//! Fuzzers (`fuzz/` in the repository) call them with bytes that they breed. The tests below call
//! the same functions with random ones, so that no promise waits for a fuzzer to be broken. Where
//! it is possible the promise is that a second, plainer reading comes to the same.
//!
//! This is no interface: it is a part of the crate in its tests, and with the feature `fuzz`.

#![allow(missing_docs, reason = "hidden; what each promises stands beside it")]

mod access;
mod fields;

use std::borrow::Cow;
use std::time::{Duration, UNIX_EPOCH};

use percent_encoding::percent_decode;

use crate::answer::multipart::{Boundary, Multipart};
use crate::http::validator::{FileTime, Validators};
use crate::limits::{CHUNK_EXTRAS_BYTES_MAX, RequestLimits};
use crate::options::ServerOptions;
use crate::request::Scheme;
use crate::request::chunked::{BodyPosition, ChunkedReader};
use crate::request::condition::{ConditionResult, Conditions};
use crate::request::head::{HeadProgress, HeadScanner};
use crate::request::path::{PathForm, SitePath};
use crate::request::range::{ByteRange, RangeSelection, select};
use crate::request::request_line::HttpTarget;
use crate::request::request_line::is_token;

pub use access::{authorization, passwords, signed, tokens};
pub use fields::{accept, codings, forwarded, query};

/// However a head is split over reads, the verdict is the same, about the same request, and its
/// target leads nowhere but beneath the root. The first four bytes say how it is split.
pub fn head(data: &[u8]) {
    let (cuts, head) = data.split_at(data.len().min(4));
    let whole = verdict(head, &[usize::MAX]);
    assert_eq!(whole, verdict(head, &[1]), "byte by byte");
    let cuts: Vec<_> = cuts.iter().map(|&cut| usize::from(cut) + 1).collect();
    assert_eq!(whole, verdict(head, &cuts), "in pieces of {cuts:?}");
}

/// What is read of a head that comes in pieces of these sizes, over and over: the request, or the
/// status it is refused with; nothing while it is incomplete.
fn verdict(head: &[u8], cuts: &[usize]) -> Option<Result<String, &'static str>> {
    let limits = RequestLimits::default();
    let mut scan = HeadScanner::within(&limits, Scheme::Http);
    let mut there = 0_usize;
    for cut in cuts.iter().cycle() {
        there = there.saturating_add(*cut).min(head.len());
        match scan.advance(&head[..there]) {
            Err(refusal) => return Some(Err(refusal.status.line())),
            Ok(HeadProgress::Partial) if there == head.len() => return None,
            Ok(HeadProgress::Partial) => {}
            Ok(HeadProgress::Complete) => return Some(complete(&scan, &head[..there])),
        }
    }
    None
}

fn complete(scan: &HeadScanner, head: &[u8]) -> Result<String, &'static str> {
    assert!(scan.length() <= RequestLimits::default().head_bytes_max);
    let request = scan.parse(head).map_err(|refusal| refusal.status.line())?;
    if let HttpTarget::Path { path, .. } = &request.target {
        assert_beneath(path);
    }
    Ok(format!("{}: {request:?}", scan.length()))
}

/// A path is what decoding it once and taking its segments one by one comes to; it never leads
/// above the root; and encoded it is the same path again.
pub fn path(data: &[u8]) {
    let raw = [b"/", data].concat();
    let parsed = SitePath::parse(&raw).ok();
    let bytes = parsed.as_ref().map(|path| path.bytes().to_vec());
    assert_eq!(bytes, plain_path(&raw), "{}", raw.escape_ascii());
    let Some(path) = parsed else {
        return;
    };
    assert_beneath(&path);
    let mut encoded = Vec::new();
    path.encode_into(&mut encoded);
    assert!(encoded.iter().all(u8::is_ascii_graphic));
    assert!(encoded.starts_with(b"/") && !encoded.starts_with(b"//"));
    let again = SitePath::parse(&encoded).expect("a path of ours");
    assert_eq!(again.bytes(), path.bytes());
    let index = path.join(b"index.html", PathForm::File);
    assert!(index.form() == PathForm::File && index.bytes().ends_with(b"index.html"));
}

fn assert_beneath(path: &SitePath) {
    let mut hidden = false;
    if !path.bytes().is_empty() {
        for (place, segment) in path.bytes().split(|&byte| byte == b'/').enumerate() {
            assert!(!matches!(segment, b"" | b"." | b".."), "{path:?}");
            assert!(!segment.contains(&0), "{path:?}");
            hidden |= segment.starts_with(b".") && (place, segment) != (0, b".well-known");
        }
    }
    assert_eq!(path.is_hidden(), hidden, "{path:?}");
}

/// The same by other means: all escapes first, then all segments.
fn plain_path(raw: &[u8]) -> Option<Vec<u8>> {
    let is_hex = |at: usize| raw.get(at).is_some_and(u8::is_ascii_hexdigit);
    let mut escapes = (0..raw.len()).filter(|&at| raw[at] == b'%');
    if !escapes.all(|at| is_hex(at + 1) && is_hex(at + 2)) {
        return None;
    }
    let decoded: Vec<u8> = percent_decode(raw).collect();
    let mut segments: Vec<&[u8]> = Vec::new();
    for segment in decoded.split(|&byte| byte == b'/') {
        match segment {
            b"" | b"." => {}
            b".." => {
                segments.pop()?;
            }
            name => segments.push(name),
        }
    }
    (!decoded.contains(&0)).then(|| segments.join(&b'/'))
}

/// What is selected of a file is what a plain reading of the ranges asks for: every byte once, and
/// no other. The first byte says how large the file is.
pub fn range(data: &[u8]) {
    let Some((&size, value)) = data.split_first() else {
        return;
    };
    let value = [b"bytes=", value].concat();
    let small = u64::from(size);
    let selected = select(&value, small, &RequestLimits::default());
    check_spans(&selected, small);
    if let Some(asked) = plain_ranges(&value["bytes=".len()..], small) {
        let bytes_of = |spans: &[ByteRange]| {
            let has =
                |byte, span: &ByteRange| byte >= span.first && byte - span.first < span.length;
            let count = |byte| spans.iter().filter(|span| has(byte, span)).count();
            (0..small).map(count).collect::<Vec<_>>()
        };
        let asked: Vec<_> = bytes_of(&asked).iter().map(|&count| count.min(1)).collect();
        match &selected {
            Some(RangeSelection::Whole) => {}
            None => assert!(asked.iter().all(|&count| count == 0)),
            Some(RangeSelection::One(span)) => assert_eq!(bytes_of(&[*span]), asked),
            Some(RangeSelection::Several(spans)) => assert_eq!(bytes_of(spans), asked),
        }
    } else {
        assert_eq!(
            selected,
            Some(RangeSelection::Whole),
            "{}",
            value.escape_ascii()
        );
    }
    for size in [1, 1 << 31, 1 << 62, i64::MAX as u64, u64::MAX] {
        check_spans(&select(&value, size, &RequestLimits::default()), size);
    }
}

fn check_spans(selection: &Option<RangeSelection>, size: u64) {
    let spans = match selection {
        None | Some(RangeSelection::Whole) => return,
        Some(RangeSelection::One(span)) => std::slice::from_ref(span),
        Some(RangeSelection::Several(spans)) => &spans[..],
    };
    assert!(spans.len() <= RequestLimits::default().ranges_max);
    let mut sorted = spans.to_vec();
    sorted.sort_by_key(|span| span.first);
    let mut free = 0;
    for span in sorted {
        assert!(span.length > 0 && span.first >= free, "{selection:?}");
        free = span
            .first
            .checked_add(span.length)
            .expect("within the file");
        assert!(free <= size, "{selection:?}");
    }
}

/// The satisfiable members of a set, one by one; nothing if one is malformed or there is none.
fn plain_ranges(set: &[u8], size: u64) -> Option<Vec<ByteRange>> {
    let set = std::str::from_utf8(set).ok().filter(|set| set.is_ascii())?;
    let digits = |text: &str| match text.bytes().all(|byte| byte.is_ascii_digit()) {
        true if text.is_empty() => None,
        true => Some(text.parse().unwrap_or(u64::MAX)),
        false => None,
    };
    let is_blank = |char: char| char.is_ascii_whitespace();
    let members = set.split(',').map(|member| member.trim_matches(is_blank));
    let mut spans = Vec::new();
    let mut count = 0;
    for member in members.filter(|member| !member.is_empty()) {
        count += 1;
        let (first, last) = member.split_once('-')?;
        let (first, end) = match (first, last) {
            ("", last) => (size - digits(last)?.min(size), size),
            (first, "") => (digits(first)?, size),
            (first, last) => match (digits(first)?, digits(last)?) {
                (first, last) if first > last => return None,
                (first, last) => (first, last.saturating_add(1).min(size)),
            },
        };
        let length = end.saturating_sub(first);
        spans.extend((length > 0).then_some(ByteRange { first, length }));
    }
    (count > 0).then_some(spans)
}

/// A multipart body is as long as announced, and its parts say of themselves what was asked for.
pub fn multipart(data: &[u8]) {
    let Some((size, value)) = data.split_first_chunk::<8>() else {
        return;
    };
    // No file is larger than an offset can be.
    let size = u64::from_le_bytes(*size) & i64::MAX as u64;
    let value = [b"bytes=", value].concat();
    let limits = RequestLimits::default();
    let Some(RangeSelection::Several(spans)) = select(&value, size, &limits) else {
        return;
    };
    let boundary = Boundary::new(size.into());
    let body = Multipart::new(&spans, size, b"\r\nContent-Type: text/plain", &boundary);
    let mut length = body.closing.len() as u64;
    assert_eq!(body.parts.len(), spans.len());
    for ((head, sent), asked) in body.parts.iter().zip(&spans) {
        let (first, last) = (asked.first, asked.first + (asked.length - 1));
        let says = format!("\r\nContent-Range: bytes {first}-{last}/{size}\r\n\r\n");
        assert_eq!(sent, asked);
        assert!(head.ends_with(says.as_bytes()), "{}", head.escape_ascii());
        length += head.len() as u64 + sent.length;
    }
    assert_eq!(body.length(), length);
}

/// A chunked body ends where a line-by-line reading of it ends, however it is split. The first
/// four bytes say how.
pub fn chunked(data: &[u8]) {
    let (cuts, body) = data.split_at(data.len().min(4));
    let whole = chunked_end(body, &[usize::MAX]);
    let cuts: Vec<_> = cuts.iter().map(|&cut| usize::from(cut) + 1).collect();
    assert_eq!(whole, chunked_end(body, &[1]), "byte by byte");
    assert_eq!(whole, chunked_end(body, &cuts), "in pieces of {cuts:?}");
    let plain = plain_chunked(body);
    match whole {
        Some(Ok(end)) => assert_eq!(plain, Some(end), "{}", body.escape_ascii()),
        Some(Err(())) if body.len() > CHUNK_EXTRAS_BYTES_MAX => {}
        _ => assert_eq!(plain, None, "{}", body.escape_ascii()),
    }
}

/// Where a body ends that comes in pieces of these sizes; nothing while it goes on.
fn chunked_end(body: &[u8], cuts: &[usize]) -> Option<Result<usize, ()>> {
    let mut reader = ChunkedReader::new();
    let (mut taken, mut cuts) = (0_usize, cuts.iter().cycle());
    while taken < body.len() {
        let to = taken.saturating_add(*cuts.next()?).min(body.len());
        match reader.read(&body[taken..to]) {
            Err(_) => return Some(Err(())),
            Ok((count, BodyPosition::End)) => return Some(Ok(taken + count)),
            Ok((count, BodyPosition::Within)) => {
                assert_eq!(count, to - taken, "bytes were left though the body goes on");
                taken = to;
            }
        }
    }
    None
}

/// Where a body ends that is complete and right.
fn plain_chunked(body: &[u8]) -> Option<usize> {
    let mut rest = body;
    loop {
        let line = plain_line(&mut rest)?;
        let (size, extension) = match line.iter().position(|&byte| byte == b';') {
            Some(mark) => line.split_at(mark),
            None => (line, &b""[..]),
        };
        let is_size = (1..=16).contains(&size.len()) && size.iter().all(u8::is_ascii_hexdigit);
        if !is_size || !extension.iter().all(|&byte| is_text(byte)) {
            return None;
        }
        let size = u64::from_str_radix(std::str::from_utf8(size).ok()?, 16).ok()?;
        if size == 0 {
            break;
        }
        let (_, after) = rest.split_at_checked(usize::try_from(size).ok()?)?;
        rest = after.strip_prefix(b"\r\n")?;
    }
    loop {
        let line = plain_line(&mut rest)?;
        if line.is_empty() {
            return Some(body.len() - rest.len());
        }
        let colon = line.iter().position(|&byte| byte == b':')?;
        let (name, value) = line.split_at(colon);
        let is_name = !name.is_empty() && name.iter().all(|&byte| is_token(byte));
        if !is_name || !value.iter().all(|&byte| is_text(byte)) {
            return None;
        }
    }
}

/// The next line, without its CR LF.
fn plain_line<'b>(rest: &mut &'b [u8]) -> Option<&'b [u8]> {
    let end = rest.windows(2).position(|pair| pair == b"\r\n")?;
    let line = &rest[..end];
    *rest = &rest[end + 2..];
    Some(line)
}

fn is_text(byte: u8) -> bool {
    byte == b'\t' || !byte.is_ascii_control()
}

/// Where a tag stands, the date beside it doesn't count (RFC 9110, section 13.2.2); and a list in
/// which the tag is found has it written in it. The values are the lines of `data`.
pub fn conditions(data: &[u8]) {
    let changed = FileTime {
        seconds: 784_111_777,
        nanoseconds: 7,
    };
    let now = UNIX_EPOCH + Duration::from_secs(2_000_000_000);
    let file = Validators::new(changed, 1000, Some(9), None, now);
    let mut lines = data.split(|&byte| byte == b'\n');
    let mut next = || lines.next().filter(|line| !line.is_empty());
    let asked = [next(), next(), next(), next()];
    let verdict = |asked: &[Option<&[u8]>; 4]| {
        let [if_match, if_none_match, since, until] = *asked;
        let conditions = Conditions {
            if_match: if_match.map(Cow::Borrowed),
            if_none_match: if_none_match.map(Cow::Borrowed),
            if_modified_since: since,
            if_unmodified_since: until,
            if_range: None,
        };
        conditions.judge(&file)
    };
    let judged = verdict(&asked);
    let mut without = asked;
    if without[0].is_some() {
        without[3] = None;
    }
    if without[1].is_some() {
        without[2] = None;
    }
    assert_eq!(judged, verdict(&without));
    let names_it = |list: &[u8]| {
        let tag = file.tag.as_bytes();
        list == b"*" || list.windows(tag.len()).any(|part| part == tag)
    };
    if let (ConditionResult::NotModified, Some(list)) = (judged, &asked[1]) {
        assert!(names_it(list), "{}", list.escape_ascii());
    }
    if let (ConditionResult::Proceed | ConditionResult::NotModified, Some(list)) =
        (judged, &asked[0])
    {
        assert!(names_it(list), "{}", list.escape_ascii());
    }
    let if_range = next();
    let conditions = Conditions {
        if_range,
        ..Conditions::default()
    };
    let is_state = |value: &[u8]| {
        names_it(value) || std::str::from_utf8(value).is_ok_and(|date| date.contains("94"))
    };
    let counts = conditions.allow_range(&file);
    assert!(!counts || if_range.is_none_or(is_state));
}

/// A configuration is read or refused in words, and twice the same.
pub fn options(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let read = || ServerOptions::parse(text).map_err(|error| error.to_string());
    let (once, again) = (read(), read());
    assert_eq!(format!("{once:?}"), format!("{again:?}"));
    assert!(once.is_ok() || once.is_err_and(|error| !error.is_empty()));
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::select as one_of;

    /// Words, and now and then a byte that is none.
    pub(super) fn text(words: &'static [&'static str]) -> impl Strategy<Value = Vec<u8>> {
        let word = one_of(words).prop_map(|word| word.as_bytes().to_vec());
        let stray = vec(any::<u8>(), 1..3);
        vec(prop_oneof![24 => word, 1 => stray], 0..24).prop_map(|words| words.concat())
    }

    /// The same, behind four bytes that say how it is cut.
    fn cut(words: &'static [&'static str]) -> impl Strategy<Value = Vec<u8>> {
        (vec(any::<u8>(), 4), text(words)).prop_map(|(cuts, text)| [cuts, text].concat())
    }

    const HEADS: &[&str] = &[
        "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "HEAD http://b:8/%2e/f?q HTTP/1.0\r\n",
        "OPTIONS * HTTP/1.1\r\n",
        "CONNECT ",
        "GET ",
        "/",
        "..",
        "%2f",
        ".git",
        " HTTP/1.1\r\n",
        "Host: a\r\n",
        "Content-Length: 5\r\n",
        "Transfer-Encoding: chunked\r\n",
        "Expect: 100-continue\r\n",
        "Connection: close\r\n",
        "Range: bytes=0-\r\n",
        "\r\n",
        "\n",
        "\r",
        " ",
        ":",
    ];

    const PATHS: &[&str] = &[
        "/",
        ".",
        "..",
        "%2e",
        "%2F",
        "a",
        "b.c",
        ".well-known",
        "%00",
        "%",
        "%252e",
        "\\",
        "%c0%ae",
    ];

    const RANGES: &[&str] = &[
        "0",
        "1",
        "9",
        "64",
        "255",
        "99999999999999999999",
        "-",
        "-",
        "-",
        ",",
        ",",
        " ",
        "\t",
        "x",
    ];

    const CHUNKS: &[&str] = &[
        "0\r\n",
        "3\r\nabc\r\n",
        "00a;x=\"y\"\r\n0123456789\r\n",
        "\r\n",
        "T: x\r\n",
        "0",
        "f",
        ";",
        "\t",
        "\r",
        "\n",
        ":",
        "ffffffffffffffff",
        "ab",
    ];

    const CONDITIONS: &[&str] = &[
        "\"2ebc98a1-7-3e8-9\"",
        "W/",
        "*",
        ",",
        " ",
        "\"",
        "x",
        "\n",
        "\n",
        "Sun, 06 Nov 1994 08:49:37 GMT",
        "Sunday, 06-Nov-94 08:49:38 GMT",
        "Sun Nov  6 08:49:36 1994",
    ];

    const OPTIONS: &[&str] = &[
        "listen = ",
        "'127.0.0.1:80'",
        "workers = ",
        "0",
        "1",
        "\n",
        "[[site]]\n",
        "[requests]\n",
        "[connections]\n",
        "root = ",
        "'/srv'",
        "names = ",
        "['a']",
        "head-timeout = ",
        "'5s'",
        "'1 century'",
        "[",
        "]",
        "'",
        "\"",
        "#",
        "{",
    ];

    proptest! {
        #[test]
        fn heads(data in cut(HEADS)) {
            super::head(&data);
        }

        #[test]
        fn paths(data in text(PATHS)) {
            super::path(&data);
        }

        #[test]
        fn ranges(size in any::<u8>(), value in text(RANGES)) {
            super::range(&[&[size], &value[..]].concat());
        }

        #[test]
        fn multiparts(shift in 0u32..64, value in text(RANGES)) {
            super::multipart(&[&(1u64 << shift).to_le_bytes(), &value[..]].concat());
        }

        #[test]
        fn chunked_bodies(data in cut(CHUNKS)) {
            super::chunked(&data);
        }

        #[test]
        fn conditions(data in text(CONDITIONS)) {
            super::conditions(&data);
        }

        #[test]
        fn configurations(data in text(OPTIONS)) {
            super::options(&data);
        }
    }
}
