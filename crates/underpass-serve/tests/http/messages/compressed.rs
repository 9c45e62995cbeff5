//! Files that are compressed while they are sent: content negotiation, and the handling of
//! failures.

use std::fs::OpenOptions;
use std::io::Read;

use serde_json::Value;
use underpass_serve::{Access, Coding, Explain, LogFormat};
use underpass_testkit::{HttpClient, HttpResponse};

use super::coding;
use crate::support::{Probe, Server, State, pattern};
use crate::{LARGE, noise};

/// Returns text that compresses well but does not repeat.
fn prose(length: usize) -> Vec<u8> {
    let lines = (0..).flat_map(|line: u64| format!("line {line} of a long story\n").into_bytes());
    lines.take(length).collect()
}

fn site(options: &str) -> Server {
    let server = Server::configured(&format!("compress = ['br', 'zstd', 'gzip']\n{options}"));
    server.write("probe", "probe");
    server.write("story.txt", prose(100_000));
    server
}

fn decoded(answer: &HttpResponse) -> Vec<u8> {
    let mut plain = Vec::new();
    let body = &answer.body[..];
    match answer.field("content-encoding") {
        Some("br") => brotli::Decompressor::new(body, 4096).read_to_end(&mut plain),
        Some("zstd") => zstd::stream::Decoder::new(body)
            .unwrap()
            .read_to_end(&mut plain),
        Some("gzip") => flate2::read::GzDecoder::new(body).read_to_end(&mut plain),
        other => panic!("no coding: {other:?}"),
    }
    .unwrap();
    plain
}

fn tag(server: &Server, accepted: &str) -> String {
    let answer = server.get_with("/story.txt", &format!("Accept-Encoding: {accepted}"));
    answer.field("etag").unwrap().to_owned()
}

#[test]
fn every_coding_comes_to_the_same_file() {
    let server = site("");
    let mut client = server.connect();
    for (number, content) in [
        prose(1024),
        prose(100_000),
        prose(2 << 20),
        pattern(1 << 20),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("{number}.txt");
        server.write(&name, &content);
        for coding in ["br", "zstd", "gzip"] {
            client.send(format!(
                "GET /{name} HTTP/1.1\r\nHost: a\r\nAccept-Encoding: {coding}\r\n\r\n"
            ));
            let answer = client.response();
            assert_eq!(answer.status, 200, "{coding}");
            assert_eq!(answer.field("content-encoding"), Some(coding));
            assert_eq!(answer.field("vary"), Some("Accept-Encoding"));
            assert_eq!(answer.field("accept-ranges"), None);
            let media = Some("text/plain; charset=utf-8");
            assert_eq!(answer.field("content-type"), media);
            assert!(decoded(&answer) == content, "{name} in {coding} is another");
            assert!(number == 3 || answer.body.len() < content.len() / 3);
        }
    }
    assert_eq!(client.state(), State::Open);
}

#[test]
fn everybody_gets_the_coding_they_like_best() {
    let server = site("");
    for (accepted, expected) in [
        ("gzip, deflate, br, zstd", "200 br"),
        ("gzip", "200 gzip"),
        ("br;q=0.5, gzip;q=0.8", "200 gzip"),
        ("br;q=0, *", "200 zstd"),
        ("identity", "200 plain"),
        ("identity, gzip;q=0.5", "200 plain"),
        ("deflate", "200 plain"),
        ("", "200 plain"),
        ("identity;q=0, br", "200 br"),
        ("identity;q=0", "406 plain"),
        ("*;q=0", "406 plain"),
    ] {
        let answer = server.get_with("/story.txt", &format!("Accept-Encoding: {accepted}"));
        assert_eq!(coding(&answer), expected, "{accepted}");
        assert_eq!(answer.field("vary"), Some("Accept-Encoding"), "{accepted}");
    }
    let plain = server.get("/story.txt");
    assert_eq!(coding(&plain), "200 plain");
    assert_eq!(plain.field("accept-ranges"), Some("bytes"));
    assert_eq!(plain.body, prose(100_000));
}

#[test]
fn nothing_else_is_compressed() {
    let server = site(
        "compress-bytes-min = 2000\n[[site.cache]]\npaths = ['kept.*']\n\
         control = 'max-age=60, no-transform'",
    );
    for (name, content, expected) in [
        ("picture.png", prose(5000), "200 plain"),
        ("archive.zip", prose(5000), "200 plain"),
        ("unknown", prose(5000), "200 plain"),
        ("story.txt.gz", prose(5000), "200 plain"),
        ("kept.txt", prose(5000), "200 plain"),
        ("small.txt", prose(1999), "200 plain"),
        ("empty.txt", prose(0), "200 plain"),
        ("enough.txt", prose(2000), "200 br"),
        ("picture.svg", prose(5000), "200 br"),
        ("data.json", prose(5000), "200 br"),
    ] {
        server.write(name, &content);
        let answer = server.get_with(&format!("/{name}"), "Accept-Encoding: br");
        assert_eq!(coding(&answer), expected, "{name}");
        let varies = ["small.txt", "empty.txt"].contains(&name) || expected == "200 br";
        let vary = varies.then_some("Accept-Encoding");
        assert_eq!(answer.field("vary"), vary, "{name}");
    }
    // A client that rejects the plain file is served even if the file is too small to compress.
    for (name, length) in [("small.txt", 1999), ("empty.txt", 0)] {
        let fields = "Accept-Encoding: gzip, identity;q=0";
        let answer = server.get_with(&format!("/{name}"), fields);
        assert_eq!(decoded(&answer), prose(length));
    }
    let off = Server::start();
    off.write("story.txt", prose(5000));
    let answer = off.get_with("/story.txt", "Accept-Encoding: br, gzip, zstd");
    assert_eq!(
        (coding(&answer), answer.field("vary")),
        ("200 plain".into(), None)
    );
}

#[test]
fn types_are_chosen() {
    let server = site("compress-types = ['application/octet-stream', '*/csv']");
    for (name, expected) in [
        ("unknown", "200 gzip"),
        ("a.csv", "200 gzip"),
        ("a.txt", "200 plain"),
    ] {
        server.write(name, prose(5000));
        let answer = server.get_with(&format!("/{name}"), "Accept-Encoding: gzip");
        assert_eq!(coding(&answer), expected, "{name}");
    }
}

#[test]
fn a_copy_that_lies_beside_goes_before() {
    let server = site("precompressed = ['gzip']");
    server.write("story.txt.gz", "a copy");
    for (accepted, expected) in [
        ("br, zstd, gzip", "200 gzip"),
        ("br", "200 br"),
        ("gzip;q=0.1, br", "200 gzip"),
    ] {
        let answer = server.get_with("/story.txt", &format!("Accept-Encoding: {accepted}"));
        assert_eq!(coding(&answer), expected, "{accepted}");
        let is_copy = answer.body == b"a copy";
        assert_eq!(is_copy, expected == "200 gzip");
        assert_eq!(answer.field("accept-ranges").is_some(), is_copy);
    }
}

#[test]
fn tags_are_weak_and_of_each_coding() {
    let server = site("precompressed = ['gzip']\netag = 'mtime-size'");
    server.write("story.txt.gz", prose(100_000));
    let copy = tag(&server, "gzip");
    std::fs::remove_file(server.site().join("story.txt.gz")).unwrap();
    let tags = [
        tag(&server, "identity"),
        copy,
        tag(&server, "gzip"),
        tag(&server, "br"),
    ];
    let strong: Vec<_> = tags.iter().map(|tag| tag.starts_with('"')).collect();
    assert_eq!(strong, [true, true, false, false]);
    assert!(tags[2..].iter().all(|tag| tag.starts_with("W/\"")));
    let opaque = |tag: &str| tag.trim_start_matches("W/").to_owned();
    for (number, tag) in tags.iter().enumerate() {
        let others = tags
            .iter()
            .enumerate()
            .filter(|(other, _)| *other != number);
        assert!(
            others
                .clone()
                .all(|(_, other)| opaque(other) != opaque(tag)),
            "{tags:?}"
        );
    }
    for (condition, accepted, expected) in [
        (format!("If-None-Match: {}", tags[2]), "gzip", 304),
        (format!("If-None-Match: {}", opaque(&tags[2])), "gzip", 304),
        (format!("If-None-Match: {}", tags[2]), "br", 200),
        (format!("If-None-Match: {}", tags[2]), "identity", 200),
        (format!("If-None-Match: {}", tags[0]), "gzip", 200),
        ("If-None-Match: *".to_owned(), "gzip", 304),
        (
            format!("If-Modified-Since: {}", crate::support::DATE),
            "gzip",
            304,
        ),
        (
            "If-Unmodified-Since: Sun, 06 Nov 1994 08:49:36 GMT".to_owned(),
            "gzip",
            412,
        ),
        // Only the plain file has a strong tag, so such a condition refers to it.
        (format!("If-Match: {}", tags[0]), "gzip", 200),
        (format!("If-Match: {}", tags[2]), "gzip", 412),
        (format!("If-Match: {}", tags[2]), "gzip, identity;q=0", 412),
        (
            format!("If-Match: {}", opaque(&tags[2])),
            "gzip, identity;q=0",
            412,
        ),
    ] {
        let fields = format!("Accept-Encoding: {accepted}\r\n{condition}");
        let answer = server.get_with("/story.txt", &fields);
        assert_eq!(answer.status, expected, "{fields}");
        assert_eq!(answer.field("vary"), Some("Accept-Encoding"), "{fields}");
        if expected == 304 {
            assert_eq!(answer.field("etag"), Some(&tags[2][..]));
            assert_eq!(answer.field("content-encoding"), None);
        }
        if condition.starts_with("If-Match") && expected == 200 {
            assert_eq!(answer.field("etag"), Some(&tags[0][..]));
            assert_eq!(answer.body, prose(100_000));
        }
    }
}

#[test]
fn ranges_are_of_the_plain_file() {
    let server = site("");
    let (plain, weak) = (tag(&server, "identity"), tag(&server, "gzip"));
    let get = |fields: &str| {
        let fields = format!("Accept-Encoding: gzip\r\nRange: bytes=10-19\r\n{fields}");
        server.get_with("/story.txt", fields.trim_end())
    };
    let part = get("");
    assert_eq!(coding(&part), "206 plain");
    assert_eq!(part.body, prose(100)[10..20]);
    assert_eq!(part.field("etag"), Some(&plain[..]));
    assert_eq!(part.field("vary"), Some("Accept-Encoding"));
    assert_eq!(get(&format!("If-Range: {plain}")).status, 206);
    for whole in [&weak[..], weak.trim_start_matches("W/")] {
        let answer = get(&format!("If-Range: {whole}"));
        assert_eq!(coding(&answer), "200 plain", "{whole}");
        assert_eq!(answer.body, prose(100_000));
    }
    // A range may be ignored, but the plain file may not be sent.
    let fields = "Accept-Encoding: gzip, identity;q=0\r\nRange: bytes=10-19";
    let answer = server.get_with("/story.txt", fields);
    assert_eq!(coding(&answer), "200 gzip");
    assert_eq!(decoded(&answer), prose(100_000));
}

#[test]
fn head_has_the_fields_of_get() {
    let server = site("cors.origins = ['*']");
    let mut client = server.connect();
    for target in ["/story.txt", "/story.txt?download"] {
        for fields in ["", "Origin: https://a\r\n", "Range: bytes=0-9\r\n"] {
            let [get, head] = ["GET", "HEAD"].map(|method| {
                let range = fields.starts_with("Range") && method == "GET";
                let fields = if range { "" } else { fields };
                client.send(format!(
                    "{method} {target} HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n{fields}\r\n"
                ));
                client.try_response(method).unwrap()
            });
            let fields = |answer: &HttpResponse| {
                let lines = answer.head.lines().filter(|line| !line.starts_with("Date"));
                lines.map(str::to_owned).collect::<Vec<_>>()
            };
            assert_eq!(fields(&get), fields(&head));
            assert_eq!(get.field("content-encoding"), Some("gzip"));
            assert_eq!(get.field("content-length"), None);
            let saved = target.ends_with("download");
            let name = saved.then_some("attachment; filename=\"story.txt\"");
            assert_eq!(get.field("content-disposition"), name);
        }
    }
    assert_eq!(client.state(), State::Open);
}

#[test]
fn who_does_not_know_chunks_gets_the_plain_file() {
    let server = site("");
    let old = |accepted: &str| {
        server.ask(format!(
            "GET /story.txt HTTP/1.0\r\nConnection: keep-alive\r\n\
             Accept-Encoding: {accepted}\r\n\r\n"
        ))
    };
    let plain = old("gzip");
    assert_eq!(coding(&plain), "200 plain");
    assert_eq!(plain.field("connection"), Some("keep-alive"));
    assert_eq!(plain.body, prose(100_000));
    // Without chunked coding, only the end of the connection can end the body.
    let insists = old("gzip, identity;q=0");
    assert_eq!(coding(&insists), "200 gzip");
    assert_eq!(insists.field("connection"), Some("close"));
    assert_eq!(insists.field("transfer-encoding"), None);
    assert_eq!(decoded(&insists), prose(100_000));
}

/// Returns a client that has the start of an incompressible body, and reads no further.
fn stalled(server: &Server, coding: &str) -> HttpClient {
    let mut client = HttpClient::connect_slow(server.address());
    client.send(format!(
        "GET /noise.txt HTTP/1.1\r\nHost: a\r\nAccept-Encoding: {coding}, identity;q=0.001\r\n\r\n"
    ));
    let answer = client.head();
    assert_eq!(answer.field("content-encoding"), Some(coding));
    client.await_bytes(64 << 10);
    client
}

#[test]
fn a_file_that_shrinks_ends_the_connection() {
    for coding in ["br", "zstd", "gzip"] {
        let server = site("");
        server.write("noise.txt", noise());
        let mut client = stalled(&server, coding);
        let path = server.site().join("noise.txt");
        let file = OpenOptions::new().write(true).open(path).unwrap();
        file.set_len(LARGE as u64 / 2).unwrap();
        let body = client.rest();
        assert!(body.len() < LARGE, "nothing was missing");
        assert!(!body.ends_with(b"0\r\n\r\n"), "{coding} looks complete");
    }
}

#[test]
fn beyond_so_many_at_once_files_are_sent_as_they_are() {
    let server = site("");
    server.write("noise.txt", noise());
    let mut clients: Vec<_> = (0..16).map(|_| stalled(&server, "gzip")).collect();
    let get =
        |accepted: &str| server.get_with("/story.txt", &format!("Accept-Encoding: {accepted}"));
    let plain = get("gzip");
    assert_eq!(coding(&plain), "200 plain");
    assert_eq!(plain.field("vary"), Some("Accept-Encoding"));
    assert_eq!(plain.body, prose(100_000));
    assert!(plain.field("etag").unwrap().starts_with('"'));
    assert_eq!(get("gzip, identity;q=0").status, 503);
    // When a client disconnects, its compression ends and its slot is free.
    drop(clients.pop());
    while coding(&get("gzip")) == "200 plain" {}
    // A client that continues reading gets the rest.
    let mut slow = clients.pop().unwrap();
    let mut body = Vec::new();
    while let Some(chunk) = slow.chunk().unwrap() {
        body.extend_from_slice(&chunk);
    }
    let mut plain = Vec::new();
    flate2::read::GzDecoder::new(&body[..])
        .read_to_end(&mut plain)
        .unwrap();
    assert!(plain == noise(), "another content");
}

#[test]
fn what_is_not_compressed_leaves_as_ever() {
    let server = site("");
    let length = 100_000;
    assert_eq!(server.get("/story.txt").body.len(), length);
    server.get_with("/story.txt", "Accept-Encoding: br");
    let account = server.stop().account;
    let reported = account.to_string();
    assert!(reported.contains("100000 bytes by sendfile"), "{reported}");
    assert_eq!(account.bytes(), length as u64, "{reported}");
}

#[test]
fn the_account_has_no_bytes_of_it_moved_by_the_kernel() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let server = Server::with(|options| {
        options.log.access = Access::File(log.clone());
        options.log.format = LogFormat::Json;
        options.explain = Explain::On;
        options.sites[0].compress = vec![Coding::Gzip];
    });
    server.write("story.txt", prose(100_000));
    let mut client = server.connect();
    let mut sent = Vec::new();
    for (method, accepted) in [("GET", "gzip"), ("HEAD", "gzip"), ("GET", "identity")] {
        client.send(format!(
            "{method} /story.txt HTTP/1.1\r\nHost: a\r\nAccept-Encoding: {accepted}\r\n\r\n"
        ));
        let answer = client.try_response(method).unwrap();
        let plan = answer.field("underpass-plan").unwrap_or("none");
        let expected = match (method, accepted) {
            ("GET", "gzip") => {
                "produced in memory while it is sent: contents are read and compressed"
            }
            ("HEAD", _) => "none",
            _ => "sendfile",
        };
        assert!(plan.starts_with(expected), "{plan}");
        sent.push(answer.body.len() as u64);
    }
    drop(client);
    server.stop();
    let lines = std::fs::read_to_string(&log).unwrap();
    let lines: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let [compressed, head, plain] = &lines[..] else {
        panic!("{lines:?}");
    };
    assert_eq!(
        (&compressed["promised"], &compressed["aborted"]),
        (&Value::Null, &Value::Null)
    );
    assert_eq!(compressed["moved"], serde_json::json!({}));
    let framing = compressed["sent"].as_u64().unwrap() - sent[0];
    assert!((1..100).contains(&framing), "{compressed}");
    assert_eq!(
        (&head["sent"], &head["moved"]),
        (&0.into(), &serde_json::json!({}))
    );
    assert_eq!(plain["moved"]["sendfile"]["bytes"], 100_000);
}
