//! A response in one line, after checking it as far as possible.

use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, percent_encode};
use underpass_testkit::HttpResponse;

/// Returns the [`sketch`] after checking that the response has every required field and no
/// contradicting fields.
pub(crate) fn digest(request: &str, answer: &HttpResponse, file: &[u8]) -> String {
    check_fields(answer);
    sketch(request, answer, file)
}

/// Resolves the `Location` of a response to this request (RFC 3986, section 5).
pub(crate) fn resolved(request: &[u8], location: &str) -> String {
    if location.starts_with('/') || location.contains("://") {
        return location.to_owned();
    }
    let request = String::from_utf8_lossy(request);
    let target = request.split_whitespace().nth(1).unwrap_or_default();
    let target = target.split(['?', '#']).next().unwrap_or_default();
    let path = match target.split_once("://") {
        Some((_, rest)) => rest.split_once('/').map_or("", |(_, path)| path),
        None => target,
    };
    let decoded: Vec<u8> = percent_decode_str(path).collect();
    let mut folders = Vec::new();
    for segment in decoded.split(|byte| *byte == b'/') {
        match segment {
            b"" | b"." => {}
            b".." => drop(folders.pop()),
            segment => folders.push(segment),
        }
    }
    folders.pop();
    let mut resolved = String::from("/");
    for folder in folders {
        resolved += &percent_encode(folder, NON_ALPHANUMERIC).to_string();
        resolved.push('/');
    }
    resolved + location.trim_start_matches("./")
}

/// Summarizes a response: status, parts of `file` in the body, redirect target, `Allow`. Panics if
/// the content does not match the fields.
pub(crate) fn sketch(request: &str, answer: &HttpResponse, file: &[u8]) -> String {
    let method = request.split_whitespace().next().unwrap_or_default();
    let mut words = vec![answer.status.to_string()];
    if let Some(range) = answer.field("content-range") {
        words.push(range.replace("bytes ", ""));
    }
    if let Some(location) = answer.field("location") {
        words.push(format!("to {}", resolved(request.as_bytes(), location)));
    }
    if answer.field("allow").is_some() {
        words.push("allow".into());
    }
    match (method, answer.status) {
        ("HEAD", 200) => words.push(format!(
            "length {}",
            answer.field("content-length").unwrap()
        )),
        ("HEAD", _) => {}
        (_, 200) => words.push(whole(answer, file)),
        (_, 206) => words.extend(parts(answer, file)),
        _ => {}
    }
    words.join(" ")
}

fn check_fields(answer: &HttpResponse) {
    let has = |name: &str| answer.field(name).is_some();
    let carries_file = matches!(answer.status, 200 | 206);
    if answer.status != 100 {
        assert!(httpdate::parse_http_date(answer.field("date").unwrap()).is_ok());
    }
    assert_eq!(has("accept-ranges"), carries_file, "{}", answer.head);
    assert_eq!(
        has("allow"),
        matches!(answer.status, 204 | 405),
        "{}",
        answer.head
    );
    assert!(
        answer
            .field("allow")
            .is_none_or(|allow| allow == "GET, HEAD, OPTIONS")
    );
    assert!(
        has("etag") || !matches!(answer.status, 200 | 206 | 304 | 412),
        "{}",
        answer.head
    );
    assert!(
        has("content-length") || matches!(answer.status, 100 | 204 | 304),
        "{}",
        answer.head
    );
    assert!(
        !has("content-range") || matches!(answer.status, 206 | 416),
        "{}",
        answer.head
    );
    for byte in answer.head.replace("\r\n", "").bytes() {
        assert!((b' '..0x7f).contains(&byte), "{:?}", answer.head);
    }
}

fn whole(answer: &HttpResponse, file: &[u8]) -> String {
    match answer.body == file {
        true => "whole".into(),
        false => format!("{:?}", String::from_utf8_lossy(&answer.body)),
    }
}

/// Returns the parts of a 206, each compared with the slice it claims to be.
fn parts(answer: &HttpResponse, file: &[u8]) -> Vec<String> {
    if let Some(range) = answer.field("content-range") {
        assert_eq!(answer.body, slice(range, file), "{range}");
        return Vec::new();
    }
    let media = answer.field("content-type").unwrap();
    let boundary = media
        .strip_prefix("multipart/byteranges; boundary=")
        .unwrap();
    let mut rest = &answer.body[..];
    let mut parts = vec!["parts".to_owned()];
    let opening = format!("\r\n--{boundary}\r\n");
    while let Some(part) = rest.strip_prefix(opening.as_bytes()) {
        let end = super::find(part, b"\r\n\r\n").unwrap();
        let head = std::str::from_utf8(&part[..end]).unwrap();
        assert!(head.contains("Content-Type: text/plain"), "{head}");
        let (_, range) = head.split_once("Content-Range: ").unwrap();
        let expected = slice(range, file);
        let (body, after) = part[end + 4..].split_at(expected.len());
        assert_eq!(body, expected, "{range}");
        parts.push(range.replace("bytes ", ""));
        rest = after;
    }
    assert_eq!(rest, format!("\r\n--{boundary}--\r\n").as_bytes());
    parts
}

fn slice<'f>(range: &str, file: &'f [u8]) -> &'f [u8] {
    let (span, size) = range
        .strip_prefix("bytes ")
        .unwrap()
        .split_once('/')
        .unwrap();
    assert_eq!(size.parse(), Ok(file.len()));
    let (first, last) = span.split_once('-').unwrap();
    &file[first.parse().unwrap()..=last.parse().unwrap()]
}
