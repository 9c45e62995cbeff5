//! What other servers fell for.

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use underpass_testkit::content;

use crate::client::{
    IETF_TYPE, TUS, TUS_TYPE, Uploads, ask, create, look, named, offset, pair, patch, server,
    target,
};

#[test]
fn lengths_and_offsets_are_numbers_of_bytes() {
    let server = server("");
    let at = server.address();
    for bad in [
        "-1",
        "+1",
        "1.0",
        "1e3",
        "0x10",
        "9223372036854775808",
        "18446744073709551615",
        "18446744073709551616",
        "99999999999999999999999999999999",
        "1 2",
        "1,2",
        "abc",
        "",
        "\u{661}",
    ] {
        let length = format!("Upload-Length: {bad}");
        let created = ask(at, "POST /in/", &[TUS, &length, &named("a")], "");
        assert_eq!(created.status, 400, "{bad:?}");
    }
    // More than any disk has.
    let huge = "Upload-Length: 9223372036854775807";
    assert_eq!(
        ask(at, "POST /in/", &[TUS, huge, &named("a")], "").status,
        507
    );
    let target = create(at, "/in/", "a", 6);
    assert_eq!(patch(at, &target, 0, b"abc").status, 204);
    for bad in [
        "-1",
        "-3",
        "+3",
        "3.0",
        "9223372036854775808",
        "18446744073709551619",
        "",
        "x",
    ] {
        let from = format!("Upload-Offset: {bad}");
        let line = format!("PATCH {target}");
        assert_eq!(
            ask(at, &line, &[TUS, TUS_TYPE, &from], "def").status,
            400,
            "{bad:?}"
        );
    }
    assert_eq!(patch(at, &target, i64::MAX as usize, b"def").status, 409);
    // More bytes than the file has left.
    assert_eq!(patch(at, &target, 3, b"defg").status, 400);
    assert_eq!(offset(&look(at, &target)), 3);
    // Not by chunks either.
    let mut client = underpass_testkit::HttpClient::connect(at);
    let chunked = [
        TUS,
        TUS_TYPE,
        "Upload-Offset: 3",
        "Transfer-Encoding: chunked",
    ];
    client.send(crate::client::head(
        &format!("PATCH {target}"),
        &chunked,
        None,
    ));
    client.send("2\r\nde\r\n2\r\nfg\r\n0\r\n\r\n");
    assert_eq!(client.response().status, 400);
    assert_eq!(offset(&look(at, &target)), 5);
    assert_eq!(patch(at, &target, 5, b"f").status, 204);
    assert_eq!(fs::read(server.site().join("in/a")).unwrap(), b"abcdef");
}

#[test]
fn names_lead_nowhere() {
    let server = server("");
    let at = server.address();
    for bad in [
        &b".."[..],
        b".",
        b"",
        b"a/b",
        b"../a",
        b"/etc/passwd",
        b"..\\a",
        b"a\\b",
        b".hidden",
        b".underpass-uploads",
        b"a\0",
        b"\0",
        b"a\nb",
        b"a\r\nX: y",
        b"\xff\xfe",
        &[b'a'; 256],
    ] {
        let field = named(bad);
        let created = ask(at, "POST /in/", &[TUS, "Upload-Length: 1", &field], "");
        assert_eq!(created.status, 400, "{}", bad.escape_ascii());
    }
    for bad in [
        "../a",
        "../../a",
        "/a",
        "a/../../b",
        "a//b",
        "./a",
        ".git/config",
        "a/.b",
        "a\\..\\b",
        ".underpass-uploads/x",
    ] {
        let field = format!("Upload-Metadata: {}", pair("relativePath", bad));
        let created = ask(at, "POST /in/", &[TUS, "Upload-Length: 1", &field], "");
        assert_eq!(created.status, 400, "{bad}");
    }
    for path in ["/in/../x", "/in/..%2fx", "/x", "/", "/inside/"] {
        let created = ask(
            at,
            &format!("POST {path}"),
            &[TUS, "Upload-Length: 1", &named("a")],
            "",
        );
        assert!(
            matches!(created.status, 400 | 404 | 405),
            "{path}: {}",
            created.head
        );
    }
    // A link that leads out.
    std::os::unix::fs::symlink(server.outside(), server.site().join("in/out")).unwrap();
    let field = format!("Upload-Metadata: {}", pair("relativePath", "out/a"));
    let created = ask(at, "POST /in/", &[TUS, "Upload-Length: 1", &field], "");
    assert_eq!(created.status, 403);
    assert!(!server.outside().join("a").exists());
    assert_eq!(Uploads::of(&server.site().join("in")).count(), 0);
}

#[test]
fn identifiers_are_exact_and_belong_to_their_path() {
    let server = server("delete = true");
    let at = server.address();
    server.write("in/f", "kept");
    let target = create(at, "/in/", "a", 3);
    let (_, id) = target.split_once('=').unwrap();
    let status = |line: String| ask(at, &line, &[TUS, TUS_TYPE, "Upload-Offset: 0"], "").status;
    let upper = id.to_uppercase();
    let mut bad = vec![
        format!("/in/?upload=..%2F{id}"),
        format!("/in/?upload=%2F{id}"),
        format!("/in/?upload={id}%2F"),
        format!("/in/?upload={id}.json"),
        format!("/in/?upload=../in/{id}"),
        format!("/in/?upload={}", &id[1..]),
        format!("/in/?upload={id}&upload={id}"),
        "/in/?upload=".to_owned(),
        "/in/?upload".to_owned(),
        "/in/?upload=..".to_owned(),
        "/in/f?upload=..".to_owned(),
    ];
    if upper != id {
        bad.push(format!("/in/?upload={upper}"));
    }
    for bad in bad {
        for method in ["HEAD", "PATCH", "DELETE"] {
            assert_eq!(status(format!("{method} {bad}")), 400, "{method} {bad}");
        }
    }
    // The same identifier elsewhere: never what has the name there.
    for path in ["/in", "/in/f", "/in/a", "/in/sub/", "/in/%2e/x"] {
        for method in ["HEAD", "PATCH", "DELETE"] {
            let line = format!("{method} {path}?upload={id}");
            assert_eq!(status(line.clone()), 404, "{line}");
        }
    }
    assert_eq!(fs::read(server.site().join("in/f")).unwrap(), b"kept");
    // Another spelling of the same path.
    assert_eq!(status(format!("HEAD /in//?upload={id}")), 204);
    assert_eq!(status(format!("HEAD /in/./?x=y&upload={id}")), 204);
    // Not read as a file, under no name.
    for name in [
        format!("/in/.underpass-uploads/{id}"),
        format!("/in/.underpass-uploads/{id}.json"),
    ] {
        assert_eq!(server.get(&name).status, 404);
        assert!(matches!(status(format!("DELETE {name}")), 400 | 403 | 404));
    }
    assert_eq!(offset(&look(at, &target)), 0);
}

#[test]
fn two_bodies_at_once_are_not_mixed() {
    let server = server("");
    let at = server.address();
    let bytes = content(9, 2_000_000);
    let target = create(at, "/in/", "a", bytes.len());
    let ended = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !server.site().join("in/a").exists() {
                    let head = look(at, &target);
                    if head.status != 204 {
                        break;
                    }
                    let from = offset(&head);
                    // The newest may finish, the others are ended.
                    let line = format!("PATCH {target}");
                    let field = format!("Upload-Offset: {from}");
                    let fields = [TUS, TUS_TYPE, &field];
                    let mut client = crate::client::start(
                        at,
                        &line,
                        &fields,
                        (bytes.len() - from, &bytes[from..]),
                    );
                    if let Err(_ended) = client.try_response("GET") {
                        ended.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let arrived = fs::read(server.site().join("in/a")).unwrap();
    underpass_testkit::assert_same(&arrived, &bytes, "the file");
}

#[test]
fn one_protocol_is_not_continued_by_the_other() {
    let server = server("");
    let at = server.address();
    let part = ask(
        at,
        "POST /in/",
        &[TUS, "Upload-Length: 3", "Upload-Concat: partial"],
        "",
    );
    let part = target("/in/", &part);
    let ietf = [IETF_TYPE, "Upload-Offset: 0", "Upload-Complete: ?1"];
    let line = format!("PATCH {part}");
    assert_eq!(ask(at, &line, &ietf, "abc").status, 412);
    assert_eq!(patch(at, &part, 0, b"abc").status, 204);
    assert_eq!(ask(at, &line, &ietf, "").status, 412);
    assert_eq!(offset(&look(at, &part)), 3);
}
