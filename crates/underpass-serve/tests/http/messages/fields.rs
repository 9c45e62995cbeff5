//! Fields of responses: media types, caching, configured fields, CORS, downloads, entity-tags.

use std::fs;

use underpass_testkit::HttpResponse;

use crate::support::Server;

fn options(server: &Server, fields: &str) -> HttpResponse {
    let request = format!("OPTIONS /f.txt HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n");
    let mut client = server.connect();
    client.send(request);
    client.head()
}

#[test]
fn every_answer_forbids_guessing_unless_configured_otherwise() {
    let safe = Server::start();
    let open = Server::configured("security = {nosniff = false, frame-options = 'DENY'}");
    for server in [&safe, &open] {
        server.write("f.txt", "f");
        fs::create_dir(server.site().join("d")).unwrap();
    }
    for request in [
        "GET /f.txt HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /f.txt HTTP/1.1\r\nHost: a\r\nIf-None-Match: *\r\n\r\n",
        "GET /f.txt HTTP/1.1\r\nHost: a\r\nRange: bytes=0-0\r\n\r\n",
        "GET /none HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /d HTTP/1.1\r\nHost: a\r\n\r\n",
        "POST /f.txt HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /f.txt HTTP/1.1\r\n\r\n",
    ] {
        let answer = safe.ask(request);
        assert_eq!(
            answer.field("x-content-type-options"),
            Some("nosniff"),
            "{request}"
        );
        let answer = open.ask(request);
        assert_eq!(answer.field("x-content-type-options"), None, "{request}");
        assert_eq!(answer.field("x-frame-options"), Some("DENY"), "{request}");
    }
}

#[test]
fn fields_by_pattern_are_those_of_the_file_that_is_sent() {
    let server = Server::configured(
        "fallback = '/index.html'\nimmutable = true\n\
         cache = [{paths = ['*.html'], control = 'no-cache'}, \
         {paths = ['/a/**'], control = 'max-age=60'}]\n\
         header = [{paths = ['/a/*.wasm'], name = 'X-Kind', value = 'wasm; \"q\"'}]",
    );
    for name in [
        "index.html",
        "a/x.html",
        "a/x.wasm",
        "x.wasm",
        "x.3f9ab2c1.wasm",
    ] {
        server.write(name, "content");
    }
    let forever = Some("public, max-age=31536000, immutable");
    for (target, cache, kind) in [
        ("/", Some("no-cache"), None),
        ("/route.wasm", Some("no-cache"), None),
        ("/a/x.html", Some("no-cache"), None),
        ("/a/x.wasm", Some("max-age=60"), Some("wasm; \"q\"")),
        ("/%61/./x.wasm?q", Some("max-age=60"), Some("wasm; \"q\"")),
        ("/x.wasm", None, None),
        ("/x.3f9ab2c1.wasm", forever, None),
    ] {
        for fields in [
            "X: y",
            "If-None-Match: *",
            "Range: bytes=0-0",
            "Range: bytes=0-0,4-4",
        ] {
            let answer = server.get_with(target, fields);
            assert!(
                matches!(answer.status, 200 | 206 | 304),
                "{target} {fields}"
            );
            assert_eq!(answer.field("cache-control"), cache, "{target} {fields}");
            assert_eq!(answer.field("x-kind"), kind, "{target} {fields}");
        }
        let failed = server.get_with(target, "If-Match: \"x\"");
        assert_eq!(
            (failed.status, failed.field("cache-control")),
            (412, None),
            "{target}"
        );
    }
}

#[test]
fn types_and_charsets_are_configured() {
    let server = Server::configured(
        "types = {charset = 'iso-8859-1', default = 'text/plain', extensions = {x = 'a/b'}}",
    );
    for (name, media) in [
        ("f.x", "a/b"),
        ("f.txt", "text/plain; charset=iso-8859-1"),
        ("README", "text/plain; charset=iso-8859-1"),
        ("f.png", "image/png"),
    ] {
        server.write(name, "content");
        assert_eq!(
            server.get(&format!("/{name}")).field("content-type"),
            Some(media)
        );
    }
}

#[test]
fn listed_origins_may_read_and_no_others() {
    let server = Server::configured(
        "cors = {origins = ['https://a.example', 'http://b.example:3000'], max-age = '10m', \
         request-headers = ['Range', 'X-Y'], expose-headers = ['ETag']}",
    );
    server.write("f.txt", "f");
    for target in ["/f.txt", "/none"] {
        let allowed = server.get_with(target, "Origin: https://a.example");
        assert_eq!(
            allowed.field("access-control-allow-origin"),
            Some("https://a.example")
        );
        assert_eq!(allowed.field("access-control-expose-headers"), Some("ETag"));
        assert_eq!(allowed.field("vary"), Some("Origin"));
        for fields in [
            "X: y",
            "Origin: null",
            "Origin: https://a.example.evil",
            "Origin: *",
        ] {
            let other = server.get_with(target, fields);
            assert_eq!(other.field("access-control-allow-origin"), None, "{fields}");
            assert_eq!(other.field("vary"), Some("Origin"), "{fields}");
        }
    }
    let known = server.get_with("/f.txt", "Origin: https://a.example\r\nIf-None-Match: *");
    assert_eq!(known.status, 304);
    assert_eq!(
        known.field("access-control-allow-origin"),
        Some("https://a.example")
    );
    let asked = "Access-Control-Request-Method: GET\r\nAccess-Control-Request-Headers: range";
    let preflight = options(
        &server,
        &format!("Origin: http://b.example:3000\r\n{asked}"),
    );
    assert_eq!(preflight.status, 204);
    for (name, value) in [
        ("access-control-allow-origin", "http://b.example:3000"),
        ("access-control-allow-methods", "GET, HEAD, OPTIONS"),
        ("access-control-allow-headers", "Range, X-Y"),
        ("access-control-max-age", "600"),
        ("vary", "Origin"),
    ] {
        assert_eq!(preflight.field(name), Some(value), "{name}");
    }
    let refused = options(&server, &format!("Origin: https://evil.example\r\n{asked}"));
    for name in [
        "access-control-allow-origin",
        "access-control-allow-methods",
    ] {
        assert_eq!(refused.field(name), None, "{name}");
    }
}

#[test]
fn every_origin_may_read_where_a_star_is_configured() {
    let server = Server::configured("cors.origins = ['*']");
    server.write("f.txt", "f");
    for fields in ["X: y", "Origin: https://a.example"] {
        let answer = server.get_with("/f.txt", fields);
        assert_eq!(answer.field("access-control-allow-origin"), Some("*"));
        assert_eq!(answer.field("vary"), None);
        let exposed = answer.field("access-control-expose-headers").unwrap();
        assert!(
            exposed.contains("ETag") && exposed.contains("Content-Range"),
            "{exposed}"
        );
    }
    let plain = Server::start();
    plain.write("f.txt", "f");
    let answer = plain.get_with("/f.txt", "Origin: https://a.example");
    assert_eq!(answer.field("access-control-allow-origin"), None);
}

#[test]
fn a_download_is_saved_under_its_own_name() {
    let server = Server::start();
    server.write("dir/Bücher \"x\".txt", "content");
    server.write("index.html", "index");
    let target = "/dir/B%c3%bccher%20%22x%22.txt";
    let saved = "attachment; filename=\"B_cher _x_.txt\"; \
                 filename*=UTF-8''B%C3%BCcher%20%22x%22.txt";
    for query in ["?download", "?a=b&download", "?download=1"] {
        let answer = server.get(&format!("{target}{query}"));
        assert_eq!(answer.field("content-disposition"), Some(saved), "{query}");
    }
    let part = server.get_with(&format!("{target}?download"), "Range: bytes=0-0");
    assert_eq!(
        (part.status, part.field("content-disposition")),
        (206, Some(saved))
    );
    let index = server.get("/?download");
    let named = Some("attachment; filename=\"index.html\"");
    assert_eq!(index.field("content-disposition"), named);
    for query in ["", "?downloads", "?x=download"] {
        let answer = server.get(&format!("{target}{query}"));
        assert_eq!(answer.field("content-disposition"), None, "{query}");
    }
    let off = Server::configured("download = false");
    off.write("f", "f");
    assert_eq!(off.get("/f?download").field("content-disposition"), None);
}

#[test]
fn tags_without_inodes_are_the_same_for_copies() {
    for (recipe, same) in [("mtime-size", true), ("mtime-size-inode", false)] {
        let server = Server::configured(&format!("etag = '{recipe}'"));
        server.write("a", "content");
        server.write("b", "content");
        server.write("c", "other size");
        let tag = |target: &str| server.get(target).field("etag").unwrap().to_owned();
        assert_eq!(tag("/a") == tag("/b"), same, "{recipe}");
        assert_ne!(tag("/a"), tag("/c"));
    }
}
