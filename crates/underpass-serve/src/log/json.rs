//! A log line as a JSON object: everything that is known about a response.
//!
//! All fields are always present, in the same order; unknown values are `null`. Fields may be added
//! at the end of the object. Clock times are RFC 3339 in UTC, durations are microseconds.

use std::io::Write;
use std::time::{Duration, UNIX_EPOCH};

use underpass::{Account, Mechanism};
use underpass_http::calendar::rfc3339;
use underpass_http::fields::validator::FileTime;
use underpass_http::fields::writer::push_decimal;
use underpass_net::TlsInfo;

use crate::record::end::{ExchangeEnd, cause_name};
use crate::record::exchange::{EndedExchange, RequestPart};

/// Appends the line of a response.
pub(super) fn push(out: &mut Vec<u8>, ended: &EndedExchange<'_>) {
    out.extend_from_slice(b"{\"time\":\"");
    push_time(out, ended);
    // Writing into memory does not fail.
    out.extend_from_slice(b"\",\"client\":");
    let _ = match ended.exchange.client.nearest() {
        Some(client) => write!(out, "\"{client}\""),
        None => write!(out, "null"),
    };
    push_said(out, "host", ended.part(RequestPart::Host));
    push_said(out, "method", ended.part(RequestPart::Method));
    push_target(out, ended.part(RequestPart::Target));
    push_said(out, "version", ended.part(RequestPart::Version));
    push_number(out, "status", u64::from(ended.status()));
    push_number(out, "sent", ended.sent());
    match ended.promised() {
        Some(promised) => push_number(out, "promised", promised),
        None => push_said(out, "promised", None),
    }
    push_moved(out, "moved", ended.account);
    push_refusals(out, ended.account);
    push_duration(out, "duration_us", Some(ended.duration.unwrap_or_default()));
    push_duration(out, "ready_us", Some(ended.ready()));
    push_duration(out, "cpu_us", ended.processor());
    push_said(out, "referer", ended.part(RequestPart::Referer));
    push_said(out, "agent", ended.part(RequestPart::Agent));
    push_number(out, "connection", ended.exchange.connection);
    push_number(out, "request", ended.exchange.number());
    push_number(out, "cold_reads", ended.beside.cold_reads);
    push_duration(out, "cold_us", Some(ended.beside.cold_time));
    match ended.end {
        ExchangeEnd::Complete => push_said(out, "aborted", None),
        end => push_said(out, "aborted", Some(end.name().as_bytes())),
    }
    push_tls(out, ended.exchange.tls.as_deref());
    let asker = ended.asker().map(ToString::to_string);
    push_said(out, "asker", asker.as_deref().map(str::as_bytes));
    push_number(out, "received", ended.received().bytes());
    push_moved(out, "received_by", ended.received());
    out.extend_from_slice(b"}\n");
}

fn push_name(out: &mut Vec<u8>, name: &str) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
}

fn push_number(out: &mut Vec<u8>, name: &str, number: u64) {
    push_name(out, name);
    push_decimal(out, number);
}

fn push_duration(out: &mut Vec<u8>, name: &str, duration: Option<Duration>) {
    push_name(out, name);
    match duration {
        None => out.extend_from_slice(b"null"),
        Some(duration) => {
            push_decimal(out, u64::try_from(duration.as_micros()).unwrap_or(u64::MAX));
        }
    }
}

fn push_said(out: &mut Vec<u8>, name: &str, said: Option<&[u8]>) {
    push_name(out, name);
    match said {
        None => out.extend_from_slice(b"null"),
        Some(said) => push_string(out, said),
    }
}

/// Appends a target. Non-ASCII bytes, which it must not contain, are percent-encoded, not lost.
fn push_target(out: &mut Vec<u8>, target: Option<&[u8]>) {
    match target {
        Some(target) if !target.is_ascii() => {
            let encoded = percent_encoding::percent_encode(target, percent_encoding::CONTROLS);
            push_said(out, "target", Some(encoded.to_string().as_bytes()));
        }
        target => push_said(out, "target", target),
    }
}

/// Appends a JSON string. Invalid UTF-8 becomes U+FFFD; control characters, non-ASCII ones
/// included, are escaped.
fn push_string(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(b'"');
    for chunk in bytes.utf8_chunks() {
        for letter in chunk.valid().chars() {
            match letter {
                '"' | '\\' => out.extend_from_slice(&[b'\\', letter as u8]),
                ' '..='~' => out.push(letter as u8),
                letter if letter.is_control() => {
                    let _ = write!(out, "\\u{:04x}", u32::from(letter));
                }
                letter => {
                    out.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
                }
            }
        }
        if !chunk.invalid().is_empty() {
            out.extend_from_slice("\u{fffd}".as_bytes());
        }
    }
    out.push(b'"');
}

/// `"moved":{"sendfile":{"bytes":1,"calls":1}},"refusals":[{"mechanism":"…","cause":"EINVAL"}]`
fn push_moved(out: &mut Vec<u8>, name: &str, account: &Account) {
    push_name(out, name);
    out.push(b'{');
    let mut comma = "";
    for mechanism in Mechanism::ALL {
        let tally = account.of(mechanism);
        if tally.calls > 0 {
            let (name, bytes, calls) = (mechanism.name(), tally.bytes, tally.calls);
            let _ = write!(
                out,
                "{comma}\"{name}\":{{\"bytes\":{bytes},\"calls\":{calls}}}"
            );
            comma = ",";
        }
    }
    out.push(b'}');
}

/// Appends `"refusals":[{"mechanism":"…","cause":"EINVAL"}]`.
fn push_refusals(out: &mut Vec<u8>, account: &Account) {
    push_name(out, "refusals");
    out.push(b'[');
    let mut comma = "";
    for refusal in &account.refusals {
        let (name, cause) = (refusal.mechanism.name(), cause_name(refusal.cause));
        let _ = write!(
            out,
            "{comma}{{\"mechanism\":\"{name}\",\"cause\":\"{cause}\"}}"
        );
        comma = ",";
    }
    out.push(b']');
}

/// Appends the TLS parameters of the connection: `"tls":{"version":"TLSv1.3",…}`.
fn push_tls(out: &mut Vec<u8>, tls: Option<&TlsInfo>) {
    let Some(tls) = tls else {
        return push_said(out, "tls", None);
    };
    out.extend_from_slice(b",\"tls\":{\"version\":");
    push_string(out, tls.version.name().as_bytes());
    push_said(out, "cipher", Some(tls.cipher_suite.as_bytes()));
    push_said(out, "name", tls.server_name.as_deref().map(str::as_bytes));
    push_said(out, "handshake", Some(tls.handshake.name().as_bytes()));
    push_said(out, "client", tls.client.as_deref().map(str::as_bytes));
    push_said(out, "sealed_by", Some(tls.sealed_by().name().as_bytes()));
    out.push(b'}');
}

/// Appends a time such as `1994-11-06T08:49:37.123456Z`.
fn push_time(out: &mut Vec<u8>, ended: &EndedExchange<'_>) {
    let since = ended.time().duration_since(UNIX_EPOCH).unwrap_or_default();
    let second = rfc3339(FileTime {
        seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
        nanoseconds: 0,
    });
    let micros = since.subsec_micros();
    let _ = write!(out, "{}.{micros:06}Z", second.trim_end_matches('Z'));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn string(bytes: &[u8]) -> String {
        let mut out = Vec::new();
        push_string(&mut out, bytes);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_string_is_one_whatever_the_bytes() {
        assert_eq!(string(b"a\"b\\c"), r#""a\"b\\c""#);
        assert_eq!(string(b"\n\0\x1b\x7f"), r#""\u000a\u0000\u001b\u007f""#);
        assert_eq!(string("ü\u{9b}".as_bytes()), "\"ü\\u009b\"");
        assert_eq!(string(b"\xffa\xc3"), "\"\u{fffd}a\u{fffd}\"");
    }

    #[test]
    fn a_target_loses_nothing() {
        let mut out = Vec::new();
        push_target(&mut out, Some(b"/a%20\xff\xc3\xbc"));
        assert_eq!(out, br#","target":"/a%20%FF%C3%BC""#);
    }
}
