//! Tables of requests and responses: each response as the line made by `digest`, with the state of
//! the connection.
//!
//! A row without a version is the field lines of `GET /f.txt`. `{tag}` stands for the current
//! entity-tag of that file, `{date}` for its date, `{earlier}` and `{later}` for one second off.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use super::{DATE, Server, pattern};

pub(crate) type Row = (String, String);

const SIZE: usize = 1000;
const EARLIER: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
const LATER: &str = "Sun, 06 Nov 1994 08:49:38 GMT";

/// Starts a server with the files that the rows request.
pub(crate) fn site() -> (Server, Vec<u8>) {
    let server = Server::with(|options| options.sites[0].listing = false);
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
    server.write(OsStr::from_bytes(b"\xff\xfe"), "bytes");
    server.write("o d\\/f.txt", "other");
    (server, file)
}

/// Replaces placeholders, and completes rows without a version.
pub(crate) fn fill_in(request: &str, tag: &str) -> String {
    let request = request
        .replace("{tag}", tag)
        .replace("{date}", DATE)
        .replace("{earlier}", EARLIER)
        .replace("{later}", LATER);
    match request.contains("HTTP/") {
        true => request,
        false => format!("GET /f.txt HTTP/1.1\r\nHost: a\r\n{request}\r\n\r\n"),
    }
}

/// Returns all rows.
pub(crate) fn all() -> Vec<Row> {
    [
        conditional_requests(),
        conditions_count_only_where_there_is_something(),
        ranges_of_a_known_state(),
        single_ranges(),
        several_ranges(),
        targets_hosts_and_versions(),
        sizes_of_heads(),
        lengths_and_codings(),
        long_bodies_end_the_connection(),
        fields_and_line_ends(),
        expectations(),
        paths(),
    ]
    .concat()
}

pub(crate) fn conditional_requests() -> Vec<Row> {
    table([
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
        (
            "If-Modified-Since: the day before yesterday",
            "200 whole open",
        ),
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
    ])
}

pub(crate) fn conditions_count_only_where_there_is_something() -> Vec<Row> {
    table([
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
    ])
}

pub(crate) fn ranges_of_a_known_state() -> Vec<Row> {
    table([
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
    ])
}

pub(crate) fn single_ranges() -> Vec<Row> {
    let mut all = Vec::new();
    all.extend(table([
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
        ("Range: bytes=0-9\r\nRange: bytes=0-9", "400 closed"),
    ]));
    all.extend(table([
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
    ]));
    all
}

pub(crate) fn several_ranges() -> Vec<Row> {
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
    table([
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
    ])
}

pub(crate) fn targets_hosts_and_versions() -> Vec<Row> {
    table([
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
        ("GET /f.txt HTTP/1.1\r\nHost: x:99999\r\n\r\n", "400 closed"),
        ("GET /f.txt HTTP/1.1\r\nHost: x%zz\r\n\r\n", "400 closed"),
        ("GET /f.txt HTTP/1.1\r\nHost: [1:2]\r\n\r\n", "400 closed"),
        (
            "GET /f.txt HTTP/1.1\r\nHost: [ab..cd]\r\n\r\n",
            "400 closed",
        ),
        (
            "GET /f.txt HTTP/1.1\r\nHost: [v1.a]\r\n\r\n",
            "200 whole open",
        ),
        (
            "GET http://x:99999/f.txt HTTP/1.1\r\nHost: a\r\n\r\n",
            "400 closed",
        ),
        (
            "GET http://x%zz/f.txt HTTP/1.1\r\nHost: a\r\n\r\n",
            "400 closed",
        ),
        (
            "GET http://[1:2]/f.txt HTTP/1.1\r\nHost: a\r\n\r\n",
            "400 closed",
        ),
        (
            "GET http://[ab..cd]/f.txt HTTP/1.1\r\nHost: a\r\n\r\n",
            "400 closed",
        ),
        (
            "GET http://[v1.a]/f.txt HTTP/1.1\r\nHost: a\r\n\r\n",
            "200 whole open",
        ),
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
        ("GET /f.txt\r\n", "400 closed"),
        (" GET /f.txt HTTP/1.1\r\nHost: a\r\n\r\n", "400 closed"),
        (
            "\r\nGET /f.txt HTTP/1.1\r\nHost: a\r\n\r\n",
            "200 whole open",
        ),
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
        ("HEAD /% HTTP/1.1\r\nHost: a\r\n\r\n", "400 closed"),
        ("HEAD /f.txt HTTP/1.1\r\nA : b\r\n\r\n", "400 closed"),
        ("\r\nHEAD /f.txt HTTP/1.1\r\n\r\n", "400 closed"),
        ("HEAD /f.txt HTTP/2.0\r\n\r\n", "505 closed"),
        (
            "HEAD /f.txt HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
            "400 closed",
        ),
    ])
}

pub(crate) fn sizes_of_heads() -> Vec<Row> {
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
    table([
        (&target(8_000)[..], "200 whole open"),
        (&target(16_000), "200 whole open"),
        (&target(17_000), "414 closed"),
        (&target(60_000), "414 closed"),
        (&cookies(30_000), "200 whole open"),
        (&cookies(40_000), "431 closed"),
        (&lines(99), "200 whole open"),
        (&lines(100), "431 closed"),
        (&lines(500), "431 closed"),
    ])
}

/// Returns a request with these framing fields and body.
fn framed(fields: &str, body: &str) -> String {
    format!("GET /f.txt HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n{body}")
}

pub(crate) fn lengths_and_codings() -> Vec<Row> {
    let mut all = Vec::new();
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
    all.extend(table(rows));
    all.extend(table([(
        "GET /f.txt HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "400 closed",
    )]));
    all
}

pub(crate) fn long_bodies_end_the_connection() -> Vec<Row> {
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
    table(rows)
}

pub(crate) fn fields_and_line_ends() -> Vec<Row> {
    let mut all = Vec::new();
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
    all.extend(table(rows));
    all.extend(table([
        ("GET /f.txt HTTP/1.1\r\n Host: a\r\n\r\n", "400 closed"),
        ("GET /f.txt HTTP/1.1\nHost: a\n\n", "400 closed"),
    ]));
    all
}

pub(crate) fn expectations() -> Vec<Row> {
    table([
        (
            "GET /f.txt HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n\r\n",
            "200 whole open",
        ),
        (
            "GET /f.txt HTTP/1.1\r\nHost: a\r\nExpect: 200-ok\r\n\r\n",
            "417 closed",
        ),
        (
            "POST /f.txt HTTP/1.1\r\nHost: a\r\nExpect: 200-ok\r\n\r\n",
            "417 closed",
        ),
        (
            "FETCH /f.txt HTTP/1.1\r\nHost: a\r\nExpect: 200-ok\r\n\r\n",
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
    ])
}

pub(crate) fn paths() -> Vec<Row> {
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
        ("/%ff%FE", "200 \"bytes\" open"),
        ("/o%20d%5c", "301 to /o%20d%5C/ open"),
        ("//o%20d%5c?q", "301 to /o%20d%5C/?q open"),
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
    table(rows)
}

/// Makes rows from field lines of `GET /f.txt`, or from whole requests.
fn table<R: Into<String>, E: Into<String>>(rows: impl IntoIterator<Item = (R, E)>) -> Vec<Row> {
    rows.into_iter()
        .map(|(request, expected)| (request.into(), expected.into()))
        .collect()
}
