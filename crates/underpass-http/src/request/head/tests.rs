use proptest::prelude::*;

use super::*;

/// Returns the length of `head`, given in pieces of these sizes, or the status it is rejected with;
/// `None` while it is incomplete.
fn verdict(head: &[u8], cuts: impl Iterator<Item = usize>) -> Option<Result<usize, Status>> {
    let mut scan = HeadScanner::default();
    let mut there = 0;
    for cut in cuts {
        there = head.len().min(there + cut);
        match scan.advance(&head[..there]) {
            Ok(HeadProgress::Partial) if there == head.len() => return None,
            Ok(HeadProgress::Partial) => {}
            Ok(HeadProgress::Complete) => {
                let parsed = scan.parse(&head[..there]);
                return Some(parsed.map(|_| scan.length()).map_err(|error| error.status));
            }
            Err(error) => return Some(Err(error.status)),
        }
    }
    None
}

fn at_once(head: &[u8]) -> Option<Result<usize, Status>> {
    verdict(head, std::iter::once(head.len()))
}

fn parsed(head: &[u8]) -> RequestHead<'_> {
    let mut scan = HeadScanner::default();
    assert_eq!(scan.advance(head), Ok(HeadProgress::Complete));
    scan.parse(head).unwrap()
}

#[test]
fn a_head_ends_with_an_empty_line() {
    let head = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let more = [&head[..], b"GET"].concat();
    assert_eq!(at_once(&more), Some(Ok(head.len())));
    assert_eq!(at_once(&head[..head.len() - 1]), None);
    let late = [b"\r\n\r\n", &head[..]].concat();
    assert_eq!(at_once(&late), Some(Ok(late.len())));
}

#[test]
fn what_is_wrong_is_refused_as_soon_as_it_is_there() {
    for (head, status) in [
        (&b"\n"[..], Status::BadRequest),
        (b"\x16\x03\x01", Status::BadRequest),
        (b"\r\n\0", Status::BadRequest),
        (b"\r\n\r\n\r\n", Status::BadRequest),
        (b"GET /\r\n", Status::BadRequest),
        (b"GET / HTTP/1.1\n", Status::BadRequest),
        (b"GET / HTTP/1.1\r\nHost: a\n", Status::BadRequest),
        (b"GET / HTTP/1.1\r\r\n", Status::BadRequest),
        (b"PRI * HTTP/2.0\r\n", Status::VersionNotSupported),
    ] {
        assert_eq!(at_once(head), Some(Err(status)), "{}", head.escape_ascii());
    }
}

#[test]
fn request_lines_and_heads_are_bounded() {
    let line = |target: usize| format!("GET /{} HTTP/1.1\r\n", "a".repeat(target));
    let around = line(0).len() - 2;
    let fits = line(HeadLimits::default().line_bytes_max - around) + "Host: a\r\n\r\n";
    assert_eq!(at_once(fits.as_bytes()), Some(Ok(fits.len())));
    let long = line(HeadLimits::default().line_bytes_max - around + 1);
    for head in [
        long.as_bytes(),
        &long.as_bytes()[..long.len() - 2],
        &[b'G'; 20_000],
    ] {
        let judged = at_once(head);
        assert!(judged.is_none_or(|judged| judged == Err(Status::UriTooLong)));
    }
    assert_eq!(at_once(&[b'G'; 20_000]), Some(Err(Status::UriTooLong)));
    let room = HeadLimits::default().line_bytes_max + 2;
    for (bytes, judged) in [(room - 1, None), (room, Some(Err(Status::UriTooLong)))] {
        assert_eq!(at_once(&vec![b'G'; bytes]), judged);
    }
    let head = |value: usize| {
        format!(
            "GET / HTTP/1.1\r\nHost: a\r\nA: {}\r\n\r\n",
            "b".repeat(value)
        )
    };
    let around = head(0).len();
    let fits = head(HeadLimits::default().head_bytes_max - around);
    assert_eq!(
        at_once(fits.as_bytes()),
        Some(Ok(HeadLimits::default().head_bytes_max))
    );
    let long = head(HeadLimits::default().head_bytes_max - around + 1);
    assert_eq!(at_once(long.as_bytes()), Some(Err(Status::HeadTooLarge)));
    let many = format!(
        "GET / HTTP/1.1\r\n{}\r\n",
        "Host: a\r\n".repeat(FIELDS_MAX + 1)
    );
    assert_eq!(at_once(many.as_bytes()), Some(Err(Status::HeadTooLarge)));
}

#[test]
fn connections_persist_as_their_version_has_it() {
    for (version, fields, persistence) in [
        ("1.1", "", Persistence::KeepAlive),
        ("1.1", "Connection: Close\r\n", Persistence::Close),
        ("1.1", "Connection: x, close\r\n", Persistence::Close),
        (
            "1.1",
            "Connection: x\r\nConnection: close\r\n",
            Persistence::Close,
        ),
        ("1.0", "", Persistence::Close),
        ("1.0", "Connection: keep-alive\r\n", Persistence::KeepAlive),
        (
            "1.0",
            "Connection: keep-alive, close\r\n",
            Persistence::Close,
        ),
    ] {
        let head = format!("GET / HTTP/{version}\r\nHost: a\r\n{fields}\r\n");
        assert_eq!(parsed(head.as_bytes()).persistence, persistence, "{head}");
    }
}

#[test]
fn expectations_are_of_http_1_1() {
    for (version, value, expect) in [
        ("1.1", "100-continue", Expectation::Continue),
        ("1.1", "100-Continue", Expectation::Continue),
        ("1.1", "200-ok", Expectation::Unknown),
        ("1.0", "100-continue", Expectation::Nothing),
        ("1.0", "200-ok", Expectation::Nothing),
    ] {
        let head = format!("GET / HTTP/{version}\r\nHost: a\r\nExpect: {value}\r\n\r\n");
        assert_eq!(parsed(head.as_bytes()).expect, expect, "{head}");
    }
}

/// Tests two lines of every singleton request field of RFC 9110, and of Origin (RFC 6454). Fields
/// that are not read here have no effect.
#[test]
fn two_lines_of_a_singleton_field_are_refused() {
    let twice = |name: &str| {
        let lines = format!("{name}: 1\r\n{}: 1\r\n\r\n", name.to_uppercase());
        Fields::parse(lines.as_bytes())
            .map(drop)
            .map_err(|error| error.status)
    };
    for refused in [
        "Host",
        "Content-Length",
        "Transfer-Encoding",
        "Content-Type",
        "Content-Range",
        "Authorization",
        "Proxy-Authorization",
        "Range",
        "If-Range",
        "If-Modified-Since",
        "If-Unmodified-Since",
        "Origin",
    ] {
        assert_eq!(twice(refused), Err(Status::BadRequest), "{refused}");
    }
    for logged in ["Referer", "User-Agent"] {
        assert_eq!(twice(logged), Ok(()), "{logged}");
    }
    for not_read in ["Content-Location", "Date", "From", "Max-Forwards"] {
        assert_eq!(twice(not_read), Ok(()), "{not_read}");
    }
}

#[test]
fn every_field_is_found_in_any_letter_case() {
    for name in [
        "Host",
        "Content-Length",
        "Transfer-Encoding",
        "Connection",
        "Expect",
        "Range",
        "If-Match",
        "If-None-Match",
        "If-Modified-Since",
        "If-Unmodified-Since",
        "If-Range",
        "Accept-Encoding",
        "Want-Repr-Digest",
    ] {
        for spelt in [name.to_owned(), name.to_uppercase(), name.to_lowercase()] {
            let mut fields = Fields::default();
            fields.add(&spelt, b"x").unwrap();
            let found = format!("{fields:?}").matches("Some").count();
            assert_eq!(found, 1, "{spelt}");
        }
    }
    let mut fields = Fields::default();
    fields.add("X-Host", b"x").unwrap();
    assert_eq!(fields, Fields::default());
}

#[test]
fn lines_of_one_name_are_joined() {
    let fields = Fields::parse(b"Accept: a\r\naccept:  b \r\nACCEPT: c\r\n\r\n").unwrap();
    assert_eq!(fields.accept.as_deref(), Some(&b"a, b, c"[..]));
}

#[test]
fn malformed_lines_are_refused() {
    for wrong in [
        &b"Host : x\r\n\r\n"[..],
        b" Host: x\r\n\r\n",
        b": x\r\n\r\n",
        b"Host: x\r\n folded\r\n\r\n",
        b"no colon\r\n\r\n",
        b"nocolon\r\n\r\n",
        b"Ho(st: x\r\n\r\n",
        b"A: x\x01y\r\n\r\n",
        b"A: x\0y\r\n\r\n",
        b"A: x\ry\r\n\r\n",
        b"A: x\r\r\n\r\n",
    ] {
        let refusal = Fields::parse(wrong).unwrap_err();
        assert_eq!(refusal.status, Status::BadRequest, "{wrong:?}");
        let what = if wrong.starts_with(b"A:") {
            "value"
        } else {
            "name"
        };
        assert_eq!(refusal.why, format!("a field {what} is malformed"));
    }
    let more = Fields::parse(b"A: x\r\n\r\nB: x\r\n\r\n");
    assert!(more.is_err(), "behind the empty line");
    assert!(Fields::parse(b"A: \xff\xfe\tx\r\n\r\n").is_ok());
}

#[test]
fn the_number_of_fields_is_bounded() {
    let lines = |count: usize| "A: b\r\n".repeat(count) + "\r\n";
    assert!(Fields::parse(lines(FIELDS_MAX).as_bytes()).is_ok());
    let refusal = Fields::parse(lines(FIELDS_MAX + 1).as_bytes()).unwrap_err();
    assert_eq!(refusal.status, Status::HeadTooLarge);
}

const LINES: &[&str] = &[
    "GET / HTTP/1.1\r\n",
    "get /a HTTP/1.1\r\n",
    "GET /../ HTTP/1.1\r\n",
    "GET  / HTTP/1.1\r\n",
    "GET / HTTP/2.0\r\n",
    "Host: a\r\n",
    "Host: b\r\n",
    "Content-Length: 5\r\n",
    "Transfer-Encoding: chunked\r\n",
    "Expect: 100-continue\r\n",
    "A: b\n",
    "A: b\r",
    " folded\r\n",
    "\r\n",
    "\n",
    "\r",
    "hello",
];

proptest! {
    #[test]
    fn the_verdict_does_not_depend_on_the_split(
        lines in proptest::collection::vec(proptest::sample::select(LINES), 0..8),
        long in prop_oneof![9 => Just(0usize), 1 => 15_000usize..40_000],
        cuts in proptest::collection::vec(1usize..12, 0..8),
    ) {
        let mut head = lines.concat().into_bytes();
        let middle = head.len() / 2;
        head.splice(middle..middle, std::iter::repeat_n(b'x', long));
        let cuts = cuts.into_iter().chain(std::iter::repeat(if long > 0 { 997 } else { 1 }));
        prop_assert_eq!(verdict(&head, cuts), at_once(&head));
    }

    #[test]
    fn no_bytes_panic(head in proptest::collection::vec(any::<u8>(), 0..64)) {
        let _ = at_once(&head);
        let _ = at_once(&[b"GET / HTTP/1.1\r\n", &head[..], b"\r\n\r\n"].concat());
        let _ = at_once(&[b"GET ", &head[..], b" HTTP/1.1\r\nHost: a\r\n\r\n"].concat());
    }
}
