//! Precompressed copies next to files: content negotiation, and the fields for caches.

use std::fs;
use std::os::unix::fs::symlink;
use std::time::{Duration, SystemTime};

use super::coding;
use crate::support::{Server, find, make_old, pattern};

/// Starts a site with `app.js` and a copy in every coding, with arbitrary contents.
fn site(options: &str) -> Server {
    let server = Server::configured(&format!(
        "precompressed = ['br', 'zstd', 'gzip']\n{options}"
    ));
    server.write("app.js", pattern(1000));
    server.write("app.js.br", "brotli");
    server.write("app.js.zst", "zstandard");
    server.write("app.js.gz", pattern(500));
    server.write("alone.js", "alone");
    server
}

#[test]
fn everybody_gets_the_copy_they_like_best() {
    let server = site("");
    for (accepted, expected) in [
        ("gzip, deflate, br, zstd", "200 br"),
        ("gzip", "200 gzip"),
        ("zstd, gzip", "200 zstd"),
        ("br;q=0.5, gzip;q=0.8", "200 gzip"),
        ("br;q=0, *", "200 zstd"),
        ("identity", "200 plain"),
        ("deflate", "200 plain"),
        ("", "200 plain"),
        ("identity;q=0, br", "200 br"),
        ("identity;q=0", "406 plain"),
        ("*;q=0", "406 plain"),
    ] {
        let answer = server.get_with("/app.js", &format!("Accept-Encoding: {accepted}"));
        assert_eq!(coding(&answer), expected, "{accepted}");
        assert_eq!(answer.field("vary"), Some("Accept-Encoding"), "{accepted}");
        if answer.status == 200 {
            let media = answer.field("content-type");
            assert_eq!(media, Some("text/javascript; charset=utf-8"), "{accepted}");
        }
    }
    let plain = server.get("/app.js");
    assert_eq!(coding(&plain), "200 plain");
    assert_eq!(plain.body, pattern(1000));
    let copy = server.get_with("/app.js", "Accept-Encoding: br");
    assert_eq!(copy.body, b"brotli");
    let alone = server.get_with("/alone.js", "Accept-Encoding: br");
    assert_eq!(
        (coding(&alone), alone.field("vary")),
        ("200 plain".into(), Some("Accept-Encoding"))
    );
    // Under its own name a copy is an ordinary file.
    let own = server.get_with("/app.js.gz", "Accept-Encoding: gzip, br");
    assert_eq!(coding(&own), "200 plain");
    assert_eq!(own.body, pattern(500));
}

#[test]
fn the_preference_is_configured_and_off_by_default() {
    let server = Server::configured("precompressed = ['gzip', 'br']");
    let off = Server::start();
    for server in [&server, &off] {
        server.write("a.css", "plain");
        server.write("a.css.br", "br");
        server.write("a.css.gz", "gz");
        server.write("a.css.zst", "zst");
    }
    let all = "Accept-Encoding: br, zstd, gzip";
    assert_eq!(server.get_with("/a.css", all).body, b"gz");
    assert_eq!(
        server.get_with("/a.css", "Accept-Encoding: zstd").body,
        b"plain"
    );
    let answer = off.get_with("/a.css", all);
    assert_eq!(
        (&answer.body[..], answer.field("vary")),
        (&b"plain"[..], None)
    );
    assert_eq!(off.get_with("/a.css", "Accept-Encoding: *;q=0").status, 200);
}

#[test]
fn every_coding_has_a_strong_tag_of_its_own() {
    for recipe in ["mtime-size-inode", "mtime-size"] {
        let server = site(&format!("etag = '{recipe}'"));
        // The size and time of the plain file; only the coding differs.
        server.write("same", "12345");
        server.write("same.br", "54321");
        server.write("same.gz", "abcde");
        let tag = |accepted: &str| {
            let answer = server.get_with("/same", &format!("Accept-Encoding: {accepted}"));
            answer.field("etag").unwrap().to_owned()
        };
        let tags = [tag("identity"), tag("br"), tag("gzip")];
        assert!(tags.iter().all(|tag| tag.starts_with('"')), "{tags:?}");
        assert!(
            tags[0] != tags[1] && tags[1] != tags[2] && tags[0] != tags[2],
            "{tags:?}"
        );
        let asked = |tag: &str| {
            let fields = format!("Accept-Encoding: br\r\nIf-None-Match: {tag}");
            server.get_with("/same", &fields)
        };
        let known = asked(&tags[1]);
        assert_eq!(
            (known.status, known.field("vary")),
            (304, Some("Accept-Encoding"))
        );
        assert_eq!(known.field("etag"), Some(&tags[1][..]));
        assert_eq!(known.field("content-encoding"), None);
        assert_eq!(asked(&tags[0]).status, 200);
        assert_eq!(asked(&tags[2]).status, 200);
    }
}

#[test]
fn ranges_count_the_bytes_that_are_sent() {
    let server = site("");
    let range = server.get_with("/app.js", "Accept-Encoding: gzip\r\nRange: bytes=100-199");
    assert_eq!(
        (range.status, range.field("content-encoding")),
        (206, Some("gzip"))
    );
    assert_eq!(range.field("content-range"), Some("bytes 100-199/500"));
    assert_eq!(range.field("vary"), Some("Accept-Encoding"));
    assert_eq!(range.body, pattern(500)[100..200]);
    let parts = server.get_with(
        "/app.js",
        "Accept-Encoding: gzip\r\nRange: bytes=0-9,100-109",
    );
    assert_eq!(
        (parts.status, parts.field("content-encoding")),
        (206, Some("gzip"))
    );
    assert!(find(&parts.body, &pattern(500)[100..110]).is_some());
    let behind = server.get_with("/app.js", "Accept-Encoding: gzip\r\nRange: bytes=500-");
    assert_eq!(
        (behind.status, behind.field("content-range")),
        (416, Some("bytes */500"))
    );
    assert_eq!(behind.field("vary"), Some("Accept-Encoding"));
    let tag = server.get("/app.js").field("etag").unwrap().to_owned();
    let fields = format!("Accept-Encoding: gzip\r\nRange: bytes=0-9\r\nIf-Range: {tag}");
    let other = server.get_with("/app.js", &fields);
    assert_eq!((other.status, other.body), (200, pattern(500)));
}

#[test]
fn a_copy_of_another_state_is_not_sent() {
    let server = site("");
    let asked = || server.get_with("/app.js", "Accept-Encoding: br");
    assert_eq!(asked().body, b"brotli");
    fs::write(server.site().join("app.js"), "new").unwrap();
    assert_eq!(asked().body, b"new");
    // A new copy with another inode, of the same time or later.
    let copy = server.site().join("new");
    fs::write(&copy, "new brotli").unwrap();
    let file = fs::File::open(&copy).unwrap();
    file.set_modified(SystemTime::now() + Duration::from_secs(5))
        .unwrap();
    fs::rename(&copy, server.site().join("app.js.br")).unwrap();
    assert_eq!(asked().body, b"new brotli");
    fs::remove_file(server.site().join("app.js.br")).unwrap();
    assert_eq!(asked().body, b"new");
}

#[test]
fn a_copy_is_a_file_under_the_same_policies() {
    let server = site("");
    let root = server.site();
    fs::write(server.outside().join("secret"), "secret").unwrap();
    make_old(&server.outside().join("secret"));
    for name in ["linked", "folder", "fifo", "inside"] {
        server.write(name, "plain");
    }
    symlink("../secret", root.join("linked.br")).unwrap();
    fs::create_dir(root.join("folder.br")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        root.join("fifo.br"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    symlink("app.js.br", root.join("inside.br")).unwrap();
    for (target, body) in [
        ("/linked", "plain"),
        ("/folder", "plain"),
        ("/fifo", "plain"),
        ("/inside", "brotli"),
    ] {
        let answer = server.get_with(target, "Accept-Encoding: br");
        assert_eq!(answer.body, body.as_bytes(), "{target}");
    }
}

#[test]
fn indexes_and_fallbacks_have_copies_too() {
    let server = site("pretty = true\nfallback = '/index.html'");
    server.write("index.html", "plain");
    server.write("index.html.br", "index in brotli");
    server.write("about.html", "plain");
    server.write("about.html.br", "about in brotli");
    for (target, body) in [
        ("/", "index in brotli"),
        ("/route", "index in brotli"),
        ("/about", "about in brotli"),
    ] {
        let answer = server.get_with(target, "Accept-Encoding: br");
        assert_eq!(answer.body, body.as_bytes(), "{target}");
        assert_eq!(
            answer.field("content-type"),
            Some("text/html; charset=utf-8")
        );
    }
}
