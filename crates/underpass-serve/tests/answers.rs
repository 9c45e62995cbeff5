//! What a request gets: raw bytes in; status, fields, body and what becomes of the connection out.
//!
//! Every row is one request on a connection of its own. Its answer is checked whole and compared
//! as one line, which `support::digest` writes. The rows follow RFC 9110 and 9112; where those
//! leave a choice, the row is this server's.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use support::digest::digest;
use support::{Client, DATE, Server, State, pattern};

const SIZE: usize = 1000;
const EARLIER: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
const LATER: &str = "Sun, 06 Nov 1994 08:49:38 GMT";
const GARBAGE: &str = "the day before yesterday";

/// A server with the files the rows ask for.
fn site() -> (Server, Vec<u8>) {
    let server = Server::start();
    let file = pattern(SIZE);
    server.write("f.txt", &file);
    server.write("empty.txt", "");
    server.write("probe", "probe");
    server.write("dir/index.html", "index");
    server.write("dir/f.txt", "other");
    server.write("bare/f.txt", "other");
    server.write(".hidden", "hidden");
    server.write(".git/config", "hidden");
    server.write(".well-known/x", "known");
    server.write("a\\b;x=1+", "odd");
    server.write("%2e%2e", "percent");
    server.write("üñ", "utf-8");
    (server, file)
}

/// Runs rows of a request and the line its answer comes to.
fn run<'r>(rows: impl IntoIterator<Item = (&'r str, &'r str)>) {
    let (server, file) = site();
    let tag = server.get("/f.txt").field("etag").unwrap().to_owned();
    for (request, expected) in rows {
        let request = fill_in(request, &tag);
        let mut client = server.connect();
        client.send(request.as_bytes());
        let method = request.split(' ').next().unwrap();
        let mut line = Vec::new();
        for expected in expected.split(" + ") {
            let answer = match client.try_answer(method) {
                Ok(answer) => answer,
                Err(error) => panic!("{request:?}: {error}"),
            };
            line.push(digest(method, &answer, &file));
            if expected != "100" {
                check_connection(&request, &answer, expected);
            }
        }
        let state = match client.state() {
            State::Open => "open",
            State::Closed => "closed",
        };
        assert_eq!(
            format!("{} {state}", line.join(" + ")),
            expected,
            "{request:?}"
        );
    }
}

/// An answer that ends the connection says so.
fn check_connection(request: &str, answer: &support::Answer, expected: &str) {
    let says = answer.field("connection");
    match (expected.ends_with(" closed"), says) {
        (true, says) => assert_eq!(says, Some("close"), "{request:?}"),
        (false, says) => assert_ne!(says, Some("close"), "{request:?}"),
    }
}

/// Stands in for what a table can't spell.
fn fill_in(request: &str, tag: &str) -> String {
    let request = request
        .replace("{tag}", tag)
        .replace("{date}", DATE)
        .replace("{earlier}", EARLIER)
        .replace("{later}", LATER)
        .replace("{garbage}", GARBAGE);
    match request.contains("HTTP/") {
        true => request,
        false => format!("GET /f.txt HTTP/1.1\r\nHost: a\r\n{request}\r\n\r\n"),
    }
}

/// Rows that are the field lines of `GET /f.txt`.
fn fields<'r>(rows: &'r [(&'r str, &'r str)]) -> impl Iterator<Item = (&'r str, &'r str)> {
    rows.iter().copied()
}

#[test]
fn conditional_requests() {
    run(fields(&[
        ("If-None-Match: {tag}", "304 open"),
        ("If-None-Match: W/{tag}", "304 open"),
        ("If-None-Match: \"x\", {tag}", "304 open"),
        ("If-None-Match: \"x\"\r\nIf-None-Match: {tag}", "304 open"),
        ("If-None-Match: *", "304 open"),
        (
            "If-None-Match: \"x\"\r\nIf-Modified-Since: {date}",
            "200 whole open",
        ),
        ("If-None-Match: unquoted", "200 whole open"),
        (
            "If-None-Match: {tag}\r\nIf-Modified-Since: {earlier}",
            "304 open",
        ),
        ("If-Modified-Since: {date}", "304 open"),
        ("If-Modified-Since: {later}", "304 open"),
        ("If-Modified-Since: {earlier}", "200 whole open"),
        ("If-Modified-Since: {garbage}", "200 whole open"),
        (
            "If-Modified-Since: Sunday, 06-Nov-94 08:49:37 GMT",
            "304 open",
        ),
        ("If-Modified-Since: Sun Nov  6 08:49:37 1994", "304 open"),
        ("If-Match: \"x\"", "412 open"),
        ("If-Match: W/{tag}", "412 open"),
        ("If-Match: \"x\"\r\nIf-Unmodified-Since: {date}", "412 open"),
        ("If-Match: {tag}", "200 whole open"),
        ("If-Match: *", "200 whole open"),
        (
            "If-Match: {tag}\r\nIf-Unmodified-Since: {earlier}",
            "200 whole open",
        ),
        ("If-Unmodified-Since: {earlier}", "412 open"),
        ("If-Unmodified-Since: {date}", "200 whole open"),
        ("If-Match: {tag}\r\nIf-None-Match: {tag}", "304 open"),
        ("If-None-Match: {tag}\r\nRange: bytes=0-9", "304 open"),
        ("If-Match: \"x\"\r\nRange: bytes=0-9", "412 open"),
    ]));
}

#[test]
fn conditions_count_only_where_there_is_something() {
    run([
        (
            "GET /none HTTP/1.1\r\nHost: a\r\nIf-Match: \"x\"\r\n\r\n",
            "404 open",
        ),
        (
            "GET /none HTTP/1.1\r\nHost: a\r\nIf-None-Match: *\r\n\r\n",
            "404 open",
        ),
        (
            "GET /dir HTTP/1.1\r\nHost: a\r\nIf-None-Match: *\r\n\r\n",
            "301 to /dir/ open",
        ),
        (
            "HEAD /f.txt HTTP/1.1\r\nHost: a\r\nIf-None-Match: {tag}\r\n\r\n",
            "304 open",
        ),
        (
            "HEAD /f.txt HTTP/1.1\r\nHost: a\r\nIf-Match: \"x\"\r\n\r\n",
            "412 open",
        ),
        (
            "POST /f.txt HTTP/1.1\r\nHost: a\r\nIf-Match: \"x\"\r\n\r\n",
            "405 allow open",
        ),
    ]);
}

#[test]
fn ranges_of_a_known_state() {
    run(fields(&[
        ("Range: bytes=0-9\r\nIf-Range: {tag}", "206 0-9/1000 open"),
        ("Range: bytes=0-9\r\nIf-Range: \"x\"", "200 whole open"),
        ("Range: bytes=0-9\r\nIf-Range: W/{tag}", "200 whole open"),
        (
            "Range: bytes=0-9\r\nIf-Range: {tag}, {tag}",
            "200 whole open",
        ),
        ("Range: bytes=0-9\r\nIf-Range: *", "200 whole open"),
        ("Range: bytes=0-9\r\nIf-Range: junk", "200 whole open"),
        ("Range: bytes=0-9\r\nIf-Range: {date}", "206 0-9/1000 open"),
        ("Range: bytes=0-9\r\nIf-Range: {later}", "200 whole open"),
        ("Range: bytes=0-9\r\nIf-Range: {earlier}", "200 whole open"),
        ("Range: bytes=1000-\r\nIf-Range: \"x\"", "200 whole open"),
        ("If-Range: \"x\"", "200 whole open"),
    ]));
}

#[test]
fn single_ranges() {
    run(fields(&[
        ("Range: bytes=0-9", "206 0-9/1000 open"),
        ("Range: bytes=990-2000", "206 990-999/1000 open"),
        ("Range: bytes=999-", "206 999-999/1000 open"),
        ("Range: bytes=-5", "206 995-999/1000 open"),
        ("Range: bytes=-2000", "206 0-999/1000 open"),
        ("Range: bytes=-0", "416 */1000 open"),
        ("Range: bytes=1000-", "416 */1000 open"),
        ("Range: bytes=99999999999999999999-", "416 */1000 open"),
        ("Range: bytes=5-99999999999999999999", "206 5-999/1000 open"),
        ("Range: bytes=5-2", "200 whole open"),
        ("Range: bytes=abc", "200 whole open"),
        ("Range: bytes=", "200 whole open"),
        ("Range: bytes = 0-9", "200 whole open"),
        ("Range: items=0-9", "200 whole open"),
        ("Range: BYTES=0-9", "206 0-9/1000 open"),
        ("Range: bytes=,,0-9", "206 0-9/1000 open"),
        ("Range: bytes=0-9\r\nRange: bytes=0-9", "200 whole open"),
    ]));
    run([
        (
            "HEAD /f.txt HTTP/1.1\r\nHost: a\r\nRange: bytes=0-9\r\n\r\n",
            "200 length 1000 open",
        ),
        (
            "GET /empty.txt HTTP/1.1\r\nHost: a\r\nRange: bytes=0-9\r\n\r\n",
            "200 \"\" open",
        ),
        (
            "OPTIONS /f.txt HTTP/1.1\r\nHost: a\r\nRange: bytes=0-9\r\n\r\n",
            "204 allow open",
        ),
    ]);
}

#[test]
fn several_ranges() {
    let many = |count: usize, step: isize| {
        let first = if step < 0 { 900 } else { 0 };
        let members: Vec<String> = (0..count as isize)
            .map(|i| first + i * step)
            .map(|at| format!("{at}-{at}"))
            .collect();
        format!("Range: bytes={}", members.join(","))
    };
    let parts = |count: usize| {
        let parts: Vec<String> = (0..count)
            .map(|i| format!("{}-{}/1000", i * 2, i * 2))
            .collect();
        format!("206 parts {} open", parts.join(" "))
    };
    run(fields(&[
        (
            "Range: bytes=0-0,-1",
            "206 parts 0-0/1000 999-999/1000 open",
        ),
        (
            "Range: bytes=0-9,20-29",
            "206 parts 0-9/1000 20-29/1000 open",
        ),
        (
            "Range: bytes=20-29,0-9",
            "206 parts 20-29/1000 0-9/1000 open",
        ),
        ("Range: bytes=0-9,5-14", "206 0-14/1000 open"),
        ("Range: bytes=0-9,0-9,0-9", "206 0-9/1000 open"),
        ("Range: bytes=0-9, 2000-", "206 0-9/1000 open"),
        ("Range: bytes=0-9,5-2", "200 whole open"),
        ("Range: bytes=0-9,x", "200 whole open"),
        ("Range: bytes=0-,0-", "200 whole open"),
        (&many(128, 2), &parts(128)),
        (&many(129, 2), "200 whole open"),
        (&many(17, -2), "200 whole open"),
    ]));
}

#[test]
fn targets_hosts_and_versions() {
    run([
        (
            "GET http://b/f.txt HTTP/1.1\r\nHost: a\r\n\r\n",
            "200 whole open",
        ),
        ("GET http://b HTTP/1.1\r\nHost: a\r\n\r\n", "403 open"),
        (
            "GET https://b/f.txt HTTP/1.1\r\nHost: a\r\n\r\n",
            "421 closed",
        ),
        ("GET http://b/f.txt HTTP/1.1\r\n\r\n", "400 closed"),
        (
            "GET http://u@b/f.txt HTTP/1.1\r\nHost: a\r\n\r\n",
            "400 closed",
        ),
        ("GET /f.txt HTTP/1.1\r\n\r\n", "400 closed"),
        (
            "GET /f.txt HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
            "400 closed",
        ),
        (
            "GET /f.txt HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
            "400 closed",
        ),
        ("GET /f.txt HTTP/1.1\r\nHost:\r\n\r\n", "400 closed"),
        ("GET /f.txt HTTP/1.1\r\nHost: a/b\r\n\r\n", "400 closed"),
        ("GET /f.txt HTTP/1.1\r\nHost: a b\r\n\r\n", "400 closed"),
        ("GET /f.txt HTTP/1.1\r\nHost: u@a\r\n\r\n", "400 closed"),
        ("GET /f.txt HTTP/1.1\r\nHost: a:8x\r\n\r\n", "400 closed"),
        (
            "GET /f.txt HTTP/1.1\r\nHost: [::1]:80\r\n\r\n",
            "200 whole open",
        ),
        ("GET /f.txt HTTP/1.0\r\n\r\n", "200 whole closed"),
        (
            "GET /f.txt HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
            "200 whole open",
        ),
        (
            "GET /f.txt HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
            "200 whole closed",
        ),
        ("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", "204 allow open"),
        ("OPTIONS /x HTTP/1.1\r\nHost: a\r\n\r\n", "204 allow open"),
        ("GET * HTTP/1.1\r\nHost: a\r\n\r\n", "400 closed"),
        ("GET f.txt HTTP/1.1\r\nHost: a\r\n\r\n", "400 closed"),
        ("POST /f.txt HTTP/1.1\r\nHost: a\r\n\r\n", "405 allow open"),
        ("PUT /f.txt HTTP/1.1\r\nHost: a\r\n\r\n", "405 allow open"),
        (
            "DELETE /f.txt HTTP/1.1\r\nHost: a\r\n\r\n",
            "405 allow open",
        ),
        ("PATCH /f.txt HTTP/1.1\r\nHost: a\r\n\r\n", "405 allow open"),
        ("TRACE /f.txt HTTP/1.1\r\nHost: a\r\n\r\n", "405 allow open"),
        (
            "CONNECT b:80 HTTP/1.1\r\nHost: a\r\n\r\n",
            "405 allow closed",
        ),
        ("FETCH /f.txt HTTP/1.1\r\nHost: a\r\n\r\n", "501 open"),
        ("get /f.txt HTTP/1.1\r\nHost: a\r\n\r\n", "501 open"),
        ("G(T /f.txt HTTP/1.1\r\nHost: a\r\n\r\n", "400 closed"),
        ("GET /f.txt HTTP/1.2\r\nHost: a\r\n\r\n", "200 whole open"),
        ("GET /f.txt HTTP/2.0\r\nHost: a\r\n\r\n", "505 closed"),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "505 closed"),
        ("GET /f.txt HTTP/1.10\r\nHost: a\r\n\r\n", "400 closed"),
        (
            "GET /f.txt http/1.1\r\nHost: a\r\nX: HTTP/\r\n\r\n",
            "400 closed",
        ),
        ("GET /f.txt HTTP/01.1\r\nHost: a\r\n\r\n", "400 closed"),
        ("GET /f.txt HTTP/1.1x\r\nHost: a\r\n\r\n", "400 closed"),
        ("GET /HTTP/\r\n", "400 closed"),
        (
            "\r\n\r\nGET /f.txt HTTP/1.1\r\nHost: a\r\n\r\n",
            "200 whole open",
        ),
        (
            "\r\n\r\n\r\nGET /f.txt HTTP/1.1\r\nHost: a\r\n\r\n",
            "400 closed",
        ),
        ("\nGET /f.txt HTTP/1.1\r\nHost: a\r\n\r\n", "400 closed"),
        ("GET  /f.txt HTTP/1.1\r\nHost: a\r\n\r\n", "400 closed"),
        ("GET\t/f.txt HTTP/1.1\r\nHost: a\r\n\r\n", "400 closed"),
        ("GET /f.txt HTTP/1.1 \r\nHost: a\r\n\r\n", "400 closed"),
        (
            "HEAD /f.txt HTTP/1.1\r\nHost: a\r\n\r\n",
            "200 length 1000 open",
        ),
        ("HEAD /none HTTP/1.1\r\nHost: a\r\n\r\n", "404 open"),
    ]);
}

#[test]
fn sizes_of_heads() {
    let target = |length: usize| {
        format!(
            "GET /f.txt?{} HTTP/1.1\r\nHost: a\r\n\r\n",
            "q".repeat(length)
        )
    };
    let cookies = |length: usize| {
        format!(
            "GET /f.txt HTTP/1.1\r\nHost: a\r\nCookie: {}\r\n\r\n",
            "c".repeat(length)
        )
    };
    let lines = |count: usize| {
        format!(
            "GET /f.txt HTTP/1.1\r\nHost: a\r\n{}\r\n",
            "A: b\r\n".repeat(count)
        )
    };
    run([
        (&target(8_000)[..], "200 whole open"),
        (&target(16_000), "200 whole open"),
        (&target(17_000), "414 closed"),
        (&target(60_000), "414 closed"),
        (&cookies(30_000), "200 whole open"),
        (&cookies(40_000), "431 closed"),
        (&lines(99), "200 whole open"),
        (&lines(100), "431 closed"),
        (&lines(500), "431 closed"),
    ]);
}

/// A request with these framing fields and body, and another one behind it.
fn framed(fields: &str, body: &str) -> String {
    format!("GET /f.txt HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n{body}")
}

#[test]
fn lengths_and_codings() {
    let chunked = "Transfer-Encoding: chunked";
    let rows = [
        (
            "Content-Length: 5\r\nTransfer-Encoding: chunked",
            "0\r\n\r\n",
            "400 closed",
        ),
        (
            "Content-Length: 5\r\nContent-Length: 5",
            "hello",
            "400 closed",
        ),
        (
            "Content-Length: 5\r\nContent-Length: 6",
            "hello",
            "400 closed",
        ),
        ("Content-Length: 5, 5", "hello", "400 closed"),
        ("Content-Length: +5", "hello", "400 closed"),
        ("Content-Length: -5", "hello", "400 closed"),
        ("Content-Length: 0x5", "hello", "400 closed"),
        ("Content-Length: 5a", "hello", "400 closed"),
        ("Content-Length: 5 5", "hello", "400 closed"),
        (
            "Content-Length: 99999999999999999999",
            "hello",
            "400 closed",
        ),
        ("Content-Length:", "", "400 closed"),
        ("Content-Length: 005", "hello", "200 whole open"),
        ("Content-Length: 0", "", "200 whole open"),
        ("transfer-encoding: CHUNKED", "0\r\n\r\n", "200 whole open"),
        ("Transfer-Encoding: identity", "", "400 closed"),
        ("Transfer-Encoding: x", "", "400 closed"),
        (
            "Transfer-Encoding: chunked, identity",
            "0\r\n\r\n",
            "400 closed",
        ),
        (
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
            "0\r\n\r\n",
            "400 closed",
        ),
        (
            "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked",
            "0\r\n\r\n",
            "400 closed",
        ),
        (
            "Transfer-Encoding: chunked, chunked",
            "0\r\n\r\n",
            "400 closed",
        ),
        ("Transfer-Encoding: chunked,", "0\r\n\r\n", "400 closed"),
        ("Transfer-Encoding: chunked;q=1", "0\r\n\r\n", "400 closed"),
        (
            "Transfer-Encoding: gzip, chunked",
            "0\r\n\r\n",
            "501 closed",
        ),
        ("Transfer-Encoding: \x0bchunked", "0\r\n\r\n", "400 closed"),
        (chunked, "0x5\r\nhello\r\n0\r\n\r\n", "400 closed"),
        (chunked, "+5\r\nhello\r\n0\r\n\r\n", "400 closed"),
        (chunked, "1_0\r\nhello\r\n0\r\n\r\n", "400 closed"),
        (chunked, " 5\r\nhello\r\n0\r\n\r\n", "400 closed"),
        (
            chunked,
            "00000000000000005\r\nhello\r\n0\r\n\r\n",
            "400 closed",
        ),
        (chunked, "5\r\nhello!\r\n0\r\n\r\n", "400 closed"),
        (chunked, "5\nhello\r\n0\r\n\r\n", "400 closed"),
        (chunked, "5;a\nb\r\nhello\r\n0\r\n\r\n", "400 closed"),
        (chunked, "5 \r\nhello\r\n0\r\n\r\n", "400 closed"),
        (
            chunked,
            "5;a=\"b\"\r\nhello\r\n0\r\nT: x\r\n\r\n",
            "200 whole open",
        ),
        ("Content-Length: 5", "hello", "200 whole open"),
    ];
    let rows = rows.map(|(fields, body, expected)| (framed(fields, body), expected));
    run(rows
        .iter()
        .map(|(request, expected)| (&request[..], *expected)));
    run([(
        "GET /f.txt HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "400 closed",
    )]);
}

#[test]
fn long_bodies_end_the_connection() {
    let chunk = format!("{:x}\r\n{}\r\n", 65_536, "b".repeat(65_536));
    let extras = format!("5;{}\r\nhello\r\n0\r\n\r\n", "e".repeat(20_000));
    let rows = [
        (
            framed("Content-Length: 65536", &"b".repeat(65_536)),
            "200 whole open",
        ),
        (
            framed("Content-Length: 65537", &"b".repeat(65_537)),
            "200 whole closed",
        ),
        (
            framed("Transfer-Encoding: chunked", &format!("{chunk}0\r\n\r\n")),
            "200 whole open",
        ),
        (
            framed(
                "Transfer-Encoding: chunked",
                &format!("{chunk}1\r\nb\r\n0\r\n\r\n"),
            ),
            "200 whole closed",
        ),
        (framed("Transfer-Encoding: chunked", &extras), "400 closed"),
    ];
    run(rows
        .iter()
        .map(|(request, expected)| (&request[..], *expected)));
}

#[test]
fn fields_and_line_ends() {
    let request = |lines: &str| format!("GET /f.txt HTTP/1.1\r\nHost: a\r\n{lines}\r\n\r\n");
    let rows = [
        ("A : b", "400 closed"),
        (": b", "400 closed"),
        ("A: b\r\n c", "400 closed"),
        ("no colon", "400 closed"),
        ("A(: b", "400 closed"),
        ("A: b\x01", "400 closed"),
        ("A: b\0c", "400 closed"),
        ("A: b\rc", "400 closed"),
        ("A: b\r", "400 closed"),
        ("A: b\nB: c", "400 closed"),
        ("A: \u{e9}\u{ff}", "200 whole open"),
    ]
    .map(|(lines, expected)| (request(lines), expected));
    run(rows
        .iter()
        .map(|(request, expected)| (&request[..], *expected)));
    run([
        ("GET /f.txt HTTP/1.1\r\n Host: a\r\n\r\n", "400 closed"),
        ("GET /f.txt HTTP/1.1\nHost: a\n\n", "400 closed"),
    ]);
}

#[test]
fn expectations() {
    let (server, file) = site();
    let mut client = server.connect();
    client.send(framed("Expect: 100-Continue\r\nContent-Length: 5", ""));
    assert_eq!(client.answer().status, 100);
    client.send("hello");
    assert_eq!(digest("GET", &client.answer(), &file), "200 whole");
    assert_eq!(client.state(), State::Open);
    run([
        (
            "GET /f.txt HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n\r\n",
            "200 whole open",
        ),
        (
            "GET /f.txt HTTP/1.1\r\nHost: a\r\nExpect: 200-ok\r\n\r\n",
            "417 closed",
        ),
        (
            "PUT /f.txt HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n",
            "405 allow closed",
        ),
        (
            "GET /f.txt HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n\
             Content-Length: 99999999\r\n\r\n",
            "200 whole closed",
        ),
        (
            "GET /f.txt HTTP/1.0\r\nExpect: 100-continue\r\n\r\n",
            "200 whole closed",
        ),
    ]);
}

#[test]
fn paths() {
    let rows = [
        ("/%", "400 closed"),
        ("/%2", "400 closed"),
        ("/%zz", "400 closed"),
        ("/f%00.txt", "400 closed"),
        ("/f\x01.txt", "400 closed"),
        ("/f\x7f.txt", "400 closed"),
        ("/f .txt", "400 closed"),
        ("/f%2etxt", "200 whole open"),
        ("/./f.txt", "200 whole open"),
        ("/dir/../f.txt", "200 whole open"),
        ("/dir/%2E%2e/f.txt", "200 whole open"),
        ("/none/../f.txt", "200 whole open"),
        ("/../f.txt", "400 closed"),
        ("/%2e%2e/f.txt", "400 closed"),
        ("/..%2ff.txt", "400 closed"),
        ("/a/b/../../../f.txt", "400 closed"),
        ("/%252e%252e", "200 \"percent\" open"),
        ("/%252e%252e/f.txt", "404 open"),
        ("/%c0%ae%c0%ae/f.txt", "404 open"),
        ("/dir%2ff.txt", "200 \"other\" open"),
        ("/a\\b;x=1+", "200 \"odd\" open"),
        ("/a%5cb;x=1+", "200 \"odd\" open"),
        ("/üñ", "200 \"utf-8\" open"),
        ("/%c3%bc%c3%b1", "200 \"utf-8\" open"),
        ("//f.txt", "200 whole open"),
        ("/dir//index.html", "200 \"index\" open"),
        ("/f.txt/", "404 open"),
        ("/f.txt/x", "404 open"),
        ("/dir/", "200 \"index\" open"),
        ("/dir", "301 to /dir/ open"),
        ("/dir?a=b&c", "301 to /dir/?a=b&c open"),
        ("//dir", "301 to /dir/ open"),
        ("/./dir", "301 to /dir/ open"),
        ("/d%69r", "301 to /dir/ open"),
        ("/bare", "301 to /bare/ open"),
        ("/bare/", "403 open"),
        ("/none/", "404 open"),
        ("/", "403 open"),
        ("/f.txt#top", "400 closed"),
        ("/f.txt?a=b", "200 whole open"),
        ("/.hidden", "404 open"),
        ("/.git/config", "404 open"),
        ("/.git", "404 open"),
        ("/.well-known/x", "200 \"known\" open"),
        ("/none", "404 open"),
    ];
    let long = format!("/{}", "n".repeat(256));
    let rows: Vec<_> = rows
        .into_iter()
        .chain([(&long[..], "404 open")])
        .map(|(target, expected)| {
            (
                format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"),
                expected,
            )
        })
        .collect();
    run(rows
        .iter()
        .map(|(request, expected)| (&request[..], *expected)));
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let (server, file) = site();
    let mut client = server.connect();
    let request = |target: &str| format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n");
    let body = "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello";
    let targets = ["/f.txt", "/dir/", "/none", "/f.txt"];
    let mut pipeline = targets.map(request).concat();
    pipeline.push_str(body);
    client.send(pipeline.repeat(20));
    for _ in 0..20 {
        let line = |client: &mut Client| digest("GET", &client.answer(), &file);
        assert_eq!(line(&mut client), "200 whole");
        assert_eq!(line(&mut client), "200 \"index\"");
        assert_eq!(line(&mut client), "404");
        assert_eq!(line(&mut client), "200 whole");
        assert_eq!(line(&mut client), "405 allow");
    }
    assert_eq!(client.state(), State::Open);
}

#[test]
fn what_follows_a_close_is_not_answered() {
    let (server, file) = site();
    let mut client = server.connect();
    let close = "GET /f.txt HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    client.send(close.repeat(3));
    assert_eq!(digest("GET", &client.answer(), &file), "200 whole");
    assert_eq!(client.state(), State::Closed);
}

#[test]
fn a_request_byte_by_byte_is_the_same_request() {
    let (server, file) = site();
    let mut client = server.connect();
    let request = "GET /f.txt HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
                   5;e\r\nhello\r\n0\r\nT: x\r\n\r\n";
    for byte in request.bytes() {
        client.send([byte]);
    }
    assert_eq!(digest("GET", &client.answer(), &file), "200 whole");
    assert_eq!(client.state(), State::Open);
}

#[test]
fn head_is_get_without_its_body() {
    let (server, _) = site();
    for target in ["/f.txt", "/dir/", "/dir", "/none", "/bare/", "/empty.txt"] {
        let get = server.get(target);
        let mut client = server.connect();
        client.send(format!("HEAD {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
        let head = client.try_answer("HEAD").unwrap();
        let without_date = |answer: &support::Answer| {
            let lines = answer
                .head
                .lines()
                .filter(|line| !line.starts_with("Date: "));
            lines.map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(without_date(&head), without_date(&get));
        assert_eq!(client.state(), State::Open);
    }
}

#[test]
fn an_answer_to_unread_input_arrives() {
    let (server, _) = site();
    let mut client = server.connect();
    client.send("GET /f.txt HTTP/1.1\r\nHost: a\r\nContent-Length: 200000\r\n\r\n");
    client.send(vec![b'b'; 200_000]);
    assert_eq!(client.answer().status, 200);
    assert_eq!(client.state(), State::Closed);
}

#[test]
fn a_file_that_just_changed_has_no_date() {
    let (server, _) = site();
    std::fs::write(server.site().join("young"), "young").unwrap();
    let answer = server.get("/young");
    assert_eq!(answer.field("last-modified"), None);
    assert!(answer.field("etag").unwrap().starts_with('"'));
    assert_eq!(server.get("/f.txt").field("last-modified"), Some(DATE));
}
