//! The combined log format of NCSA, which every analyser reads.
//!
//! ```text
//! 127.0.0.1 - - [06/Nov/1994:08:49:37 +0000] "GET /f HTTP/1.1" 200 1024 "http://a/" "curl/8"
//! ```
//!
//! Values from the client are quoted. Quotes, backslashes and every byte that is not visible ASCII
//! are escaped, so that no request can end its quotes, start a line or control a terminal.

use std::io::Write;
use std::time::UNIX_EPOCH;

use httpdate::HttpDate;
use underpass_http::fields::writer::{date_bytes, push_decimal};

use crate::record::exchange::{EndedExchange, RequestPart};

/// Appends the line of a response.
pub(super) fn push(out: &mut Vec<u8>, ended: &EndedExchange<'_>) {
    // Writing into memory does not fail.
    let _ = match ended.exchange.client.nearest() {
        Some(client) => write!(out, "{client}"),
        None => write!(out, "unix:"),
    };
    out.extend_from_slice(b" - ");
    match ended.asker() {
        Some(asker) => push_word(out, asker.to_string().as_bytes()),
        None => out.push(b'-'),
    }
    out.extend_from_slice(b" [");
    push_time(out, ended);
    out.extend_from_slice(b"] \"");
    push_line(out, ended);
    out.extend_from_slice(b"\" ");
    push_decimal(out, u64::from(ended.status()));
    out.push(b' ');
    match ended.sent() {
        0 => out.push(b'-'),
        sent => push_decimal(out, sent),
    }
    for part in [RequestPart::Referer, RequestPart::Agent] {
        out.extend_from_slice(b" \"");
        push_escaped(out, ended.part(part).unwrap_or(b"-"));
        out.push(b'"');
    }
    out.push(b'\n');
}

/// Appends `06/Nov/1994:08:49:37 +0000`, converted from the HTTP date.
fn push_time(out: &mut Vec<u8>, ended: &EndedExchange<'_>) {
    let date = date_bytes(HttpDate::from(UNIX_EPOCH.max(ended.time())));
    out.extend_from_slice(&date[5..7]);
    out.push(b'/');
    out.extend_from_slice(&date[8..11]);
    out.push(b'/');
    out.extend_from_slice(&date[12..16]);
    out.push(b':');
    out.extend_from_slice(&date[17..25]);
    out.extend_from_slice(b" +0000");
}

fn push_line(out: &mut Vec<u8>, ended: &EndedExchange<'_>) {
    let Some(method) = ended.part(RequestPart::Method) else {
        out.push(b'-');
        return;
    };
    push_escaped(out, method);
    for part in [RequestPart::Target, RequestPart::Version] {
        if let Some(said) = ended.part(part) {
            out.push(b' ');
            push_escaped(out, said);
        }
    }
}

/// Like `push_escaped`, but spaces are escaped too.
fn push_word(out: &mut Vec<u8>, bytes: &[u8]) {
    let mut words = bytes.split(|&byte| byte == b' ');
    push_escaped(out, words.next().unwrap_or_default());
    for word in words {
        out.extend_from_slice(b"\\x20");
        push_escaped(out, word);
    }
}

fn push_escaped(out: &mut Vec<u8>, bytes: &[u8]) {
    for &byte in bytes {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            b' '..=b'~' => out.push(byte),
            _ => {
                let digit = |value: u8| b"0123456789abcdef"[usize::from(value)];
                out.extend_from_slice(&[b'\\', b'x', digit(byte >> 4), digit(byte & 0xf)]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_byte_ends_a_line_or_its_quotes() {
        let mut out = Vec::new();
        let all: Vec<u8> = (0..=255).collect();
        push_escaped(&mut out, &all);
        assert!(out.iter().all(|byte| (b' '..=b'~').contains(byte)));
        let text = String::from_utf8(out).unwrap();
        assert!(text.starts_with("\\x00\\x01") && text.ends_with("\\xfe\\xff"));
        assert!(
            text.contains(" !\\\"#") && text.contains("[\\\\]"),
            "{text}"
        );
    }
}
