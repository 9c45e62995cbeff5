//! The IETF's resumable uploads, in the versions that clients speak.

use std::fs;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use underpass_testkit::{HttpClient, HttpResponse, assert_same, content, wait_until};

use crate::client::{
    IETF_TYPE, Uploads, ask, ask_all, head, offset, reset, server, site, start, target,
};
use crate::support::Server;

const TARGET: &str = "/in/a";
const PART: &str = "Upload-Complete: ?0";
const LAST: &str = "Upload-Complete: ?1";

fn file(server: &Server) -> Vec<u8> {
    fs::read(server.site().join("in/a")).unwrap()
}

fn uploads(server: &Server) -> Uploads {
    Uploads::of(&server.site().join("in"))
}

/// Creates an upload without its bytes, as clients do that do not see interim responses.
#[track_caller]
fn create(server: &Server, fields: &[&str]) -> String {
    let created = ask(server.address(), &format!("PUT {TARGET}"), fields, "");
    assert_eq!(created.status, 201, "{}", created.head);
    target(TARGET, &created)
}

fn look(server: &Server, target: &str) -> HttpResponse {
    ask(server.address(), &format!("HEAD {target}"), &[], "")
}

fn append(server: &Server, target: &str, from: usize, how: &str, body: &[u8]) -> HttpResponse {
    let from = format!("Upload-Offset: {from}");
    let line = format!("PATCH {target}");
    ask(server.address(), &line, &[IETF_TYPE, &from, how], body)
}

fn complete(response: &HttpResponse) -> Option<&str> {
    response.field("upload-complete")
}

#[test]
fn a_file_is_created_empty_and_completed_by_the_client() {
    let server = server("");
    let bytes = content(1, 300_000);
    let target = create(&server, &[PART, "Upload-Length: 300000"]);
    let told = look(&server, &target);
    assert_eq!(
        (told.status, offset(&told), complete(&told)),
        (204, 0, Some("?0"))
    );
    assert_eq!(told.field("upload-length"), Some("300000"));
    assert_eq!(told.field("cache-control"), Some("no-store"));
    let limit = told.field("upload-limit").unwrap();
    let age: u64 = limit.strip_prefix("max-age=").unwrap().parse().unwrap();
    assert!((86_000..=86_400).contains(&age), "{limit}");
    assert_eq!(told.field("tus-resumable"), None);
    let part = append(&server, &target, 0, PART, &bytes[..100_000]);
    assert_eq!(
        (part.status, offset(&part), complete(&part)),
        (204, 100_000, Some("?0"))
    );
    let whole = append(&server, &target, 100_000, PART, &bytes[100_000..]);
    assert_eq!((whole.status, complete(&whole)), (204, Some("?0")));
    // All bytes are there, and the client has not said so.
    assert!(!server.site().join("in/a").exists());
    let told = look(&server, &target);
    assert_eq!((offset(&told), complete(&told)), (300_000, Some("?0")));
    let done = append(&server, &target, 300_000, LAST, b"");
    assert_eq!((done.status, complete(&done)), (201, Some("?1")));
    assert_eq!(done.field("location"), Some("./a"));
    assert_same(&file(&server), &bytes, "the file");
    assert_eq!(done.field("etag"), server.get(TARGET).field("etag"));
    let told = look(&server, &target);
    assert_eq!(
        (told.status, offset(&told), complete(&told)),
        (204, 300_000, Some("?1"))
    );
    assert_eq!(append(&server, &target, 300_000, LAST, b"x").status, 410);
    assert_eq!(append(&server, &target, 300_000, LAST, b"").status, 410);
    let again = append(&server, &target, 0, LAST, &bytes);
    assert_eq!(
        (again.status, offset(&again), complete(&again)),
        (409, 300_000, Some("?1"))
    );
    assert_eq!(uploads(&server).count(), 0);
}

#[test]
fn versions_that_are_known_are_told_the_upload_before_the_body() {
    for (version, complete, incomplete) in [
        ("3", "Upload-Incomplete: ?0", "Upload-Incomplete: ?1"),
        ("5", LAST, PART),
        ("6", LAST, PART),
        ("8", LAST, PART),
    ] {
        for method in ["PUT", "POST"] {
            let server = server("");
            let version = format!("Upload-Draft-Interop-Version: {version}");
            let line = format!("{method} {TARGET}");
            let (interim, done) = ask_all(server.address(), &line, &[&version, complete], "abc");
            assert_eq!(interim.len(), 1, "{version}");
            assert_eq!(interim[0].status, 104);
            assert!(interim[0].head.contains(&version), "{}", interim[0].head);
            assert!(interim[0].head.contains("Upload-Limit: max-age=86400"));
            let upload = target(TARGET, &interim[0]);
            assert_eq!(done.status, 201);
            assert!(done.head.contains(complete), "{}", done.head);
            assert_eq!(file(&server), b"abc");
            let line = format!("HEAD {upload}");
            let told = ask(server.address(), &line, &[&version], "");
            assert!(told.head.contains(complete), "{}", told.head);

            // A part, and the rest of it.
            fs::remove_file(server.site().join("in/a")).unwrap();
            let line = format!("{method} {TARGET}");
            let (interim, part) = ask_all(server.address(), &line, &[&version, incomplete], "abc");
            assert_eq!((interim.len(), part.status, offset(&part)), (1, 201, 3));
            assert!(part.head.contains(incomplete));
            assert_eq!(part.field("location"), interim[0].field("location"));
            let line = format!("PATCH {}", target(TARGET, &part));
            let kind = match version.ends_with(['3', '5']) {
                true => "",
                false => IETF_TYPE,
            };
            let fields = [&version, complete, kind, "Upload-Offset: 3"];
            let done = ask(server.address(), &line, &fields, "def");
            assert_eq!(done.status, 201, "{}", done.head);
            assert_eq!(file(&server), b"abcdef");
        }
    }
}

#[test]
fn other_versions_bring_whole_files() {
    for version in [
        "",
        "Upload-Draft-Interop-Version: 99",
        "Upload-Draft-Interop-Version: x",
    ] {
        let server = server("");
        let line = format!("PUT {TARGET}");
        let (interim, done) = ask_all(server.address(), &line, &[version, LAST], "abc");
        assert_eq!((interim.len(), done.status), (0, 201));
        assert_eq!(file(&server), b"abc");
        assert_eq!(uploads(&server).count(), 0);
        // A part of a file never gets the name.
        fs::remove_file(server.site().join("in/a")).unwrap();
        let (interim, part) = ask_all(server.address(), &line, &[version, PART], "abc");
        assert_eq!((interim.len(), part.status), (0, 201));
        assert!(!server.site().join("in/a").exists());
        assert_eq!(offset(&look(&server, &target(TARGET, &part))), 3);
    }
    let server = server("");
    for malformed in [
        "Upload-Complete: 1",
        "Upload-Complete: true",
        "Upload-Complete: ?2",
    ] {
        let line = format!("PUT {TARGET}");
        let done = ask(server.address(), &line, &[malformed], "abc");
        assert!(matches!(done.status, 201 | 409), "{malformed}");
    }
    assert_eq!(file(&server), b"abc");
    // HTTP/1.0 has no interim responses.
    let server = crate::client::server("");
    let mut client = HttpClient::connect(server.address());
    client.send(
        "PUT /in/a HTTP/1.0\r\nUpload-Draft-Interop-Version: 8\r\nUpload-Complete: ?1\r\n\
         Content-Length: 3\r\n\r\nabc",
    );
    assert_eq!(client.head().status, 201);
}

#[test]
fn a_body_that_is_awaited_is_asked_for_after_the_upload_is_told() {
    let server = server("");
    let mut client = HttpClient::connect(server.address());
    let fields = [
        "Upload-Draft-Interop-Version: 8",
        LAST,
        "Expect: 100-continue",
    ];
    client.send(head("PUT /in/a", &fields, Some(3)));
    assert_eq!(client.head().status, 104);
    assert_eq!(client.head().status, 100);
    client.send("abc");
    assert_eq!(client.response().status, 201);
    assert_eq!(file(&server), b"abc");
}

#[test]
fn a_creation_that_is_cut_is_resumed_at_the_upload_it_was_told() {
    let server = server("");
    let bytes = content(2, 500_000);
    let fields = ["Upload-Draft-Interop-Version: 6", LAST];
    let line = format!("PUT {TARGET}");
    let sent = (bytes.len(), &bytes[..200_000]);
    let mut client = start(server.address(), &line, &fields, sent);
    let target = target(TARGET, &client.head());
    uploads(&server).await_size(&target, 200_000);
    reset(client);
    wait_until("the offset", || look(&server, &target).status == 204);
    let told = look(&server, &target);
    assert_eq!(
        (offset(&told), told.field("upload-length")),
        (200_000, Some("500000"))
    );
    let done = append(&server, &target, 200_000, LAST, &bytes[200_000..]);
    assert_eq!(done.status, 201, "{}", done.head);
    assert_same(&file(&server), &bytes, "the file");
    // A plain PUT that is cut keeps nothing.
    fs::remove_file(server.site().join("in/a")).unwrap();
    let client = start(server.address(), &line, &[], (10, b"abc"));
    wait_until("a partial file", || uploads(&server).count() == 1);
    drop(client);
    wait_until("no partial file", || uploads(&server).count() == 0);
}

#[test]
fn another_offset_changes_nothing() {
    let server = server("");
    let target = create(&server, &[PART]);
    assert_eq!(append(&server, &target, 0, PART, b"abc").status, 204);
    for (from, how) in [(0, PART), (2, LAST), (4, PART), (999_999_999_999_999, LAST)] {
        let refused = append(&server, &target, from, how, b"def");
        assert_eq!((refused.status, offset(&refused)), (409, 3), "{from}");
        assert_eq!(complete(&refused), Some("?0"));
    }
    let line = format!("PATCH {target}");
    let at = server.address();
    for (fields, status) in [
        (["Content-Type: text/plain", "Upload-Offset: 3", PART], 415),
        (["", "Upload-Offset: 3", PART], 415),
        ([IETF_TYPE, "", PART], 400),
        ([IETF_TYPE, "Upload-Offset: -3", PART], 400),
        ([IETF_TYPE, "Upload-Offset: 3", ""], 400),
        ([IETF_TYPE, "Upload-Offset: 3", "Upload-Complete: yes"], 400),
    ] {
        assert_eq!(ask(at, &line, &fields, "def").status, status, "{fields:?}");
    }
    assert_eq!(uploads(&server).size(&target), 3);
}

#[test]
fn lengths_that_differ_end_the_upload() {
    type Requests<'r> = &'r [(&'r [&'r str], &'r str)];
    let cases: [Requests<'_>; 5] = [
        // More than the length, at once and in two parts.
        &[(&[PART, "Upload-Offset: 0"], "abcdefg")],
        &[
            (&[PART, "Upload-Offset: 0"], "abc"),
            (&[LAST, "Upload-Offset: 3"], "defg"),
        ],
        // Fewer bytes than it.
        &[(&[LAST, "Upload-Offset: 0"], "abc")],
        &[(&[LAST, "Upload-Offset: 0"], "")],
        // Another one.
        &[(&[PART, "Upload-Offset: 0", "Upload-Length: 7"], "abc")],
    ];
    for requests in cases {
        let server = server("");
        let target = create(&server, &[PART, "Upload-Length: 6"]);
        let line = format!("PATCH {target}");
        let mut status = 0;
        for (fields, body) in requests {
            let fields = [fields, &[IETF_TYPE][..]].concat();
            status = ask(server.address(), &line, &fields, body).status;
        }
        assert_eq!(status, 400, "{requests:?}");
        assert_eq!(look(&server, &target).status, 404);
        assert_eq!(uploads(&server).count(), 0);
        assert!(!server.site().join("in/a").exists());
    }
    // By chunks, whose sum is not announced.
    for (chunks, how) in [
        ("4\r\nabcd\r\n3\r\nefg\r\n0\r\n\r\n", PART),
        ("4\r\nabcd\r\n0\r\n\r\n", LAST),
    ] {
        let server = server("");
        let target = create(&server, &[PART, "Upload-Length: 6"]);
        let mut client = HttpClient::connect(server.address());
        let fields = [
            IETF_TYPE,
            how,
            "Upload-Offset: 0",
            "Transfer-Encoding: chunked",
        ];
        client.send(head(&format!("PATCH {target}"), &fields, None));
        client.send(chunks);
        assert_eq!(client.response().status, 400, "{chunks:?}");
        assert_eq!(look(&server, &target).status, 404);
    }
    let server = server("");
    let line = format!("PUT {TARGET}");
    let fields = ["Upload-Draft-Interop-Version: 8", LAST, "Upload-Length: 4"];
    assert_eq!(ask(server.address(), &line, &fields, "abc").status, 400);
    assert_eq!(uploads(&server).count(), 0);
}

#[test]
fn an_upload_of_unknown_length_ends_when_the_client_says_so() {
    let server = server("");
    let target = create(&server, &[PART]);
    assert_eq!(look(&server, &target).field("upload-length"), None);
    assert_eq!(append(&server, &target, 0, PART, b"abc").status, 204);
    let mut client = HttpClient::connect(server.address());
    let fields = [
        IETF_TYPE,
        LAST,
        "Upload-Offset: 3",
        "Transfer-Encoding: chunked",
    ];
    client.send(head(&format!("PATCH {target}"), &fields, None));
    client.send("2\r\nde\r\n1\r\nf\r\n0\r\n\r\n");
    assert_eq!(client.response().status, 201);
    assert_eq!(file(&server), b"abcdef");
    fs::remove_file(server.site().join("in/a")).unwrap();
    let target = create(&server, &[PART]);
    assert_eq!(append(&server, &target, 0, LAST, b"").status, 201);
    assert_eq!(file(&server), b"");
}

#[test]
fn an_upload_is_cancelled() {
    let server = server("delete = false");
    let target = create(&server, &[PART]);
    let line = format!("PATCH {target}");
    let fields = [IETF_TYPE, PART, "Upload-Offset: 0"];
    let mut running = start(server.address(), &line, &fields, (6, b"abc"));
    uploads(&server).await_size(&target, 3);
    let line = format!("DELETE {target}");
    assert_eq!(ask(server.address(), &line, &[], "").status, 204);
    assert!(running.rest().is_empty());
    assert_eq!(look(&server, &target).status, 404);
    assert_eq!(append(&server, &target, 3, LAST, b"def").status, 404);
    assert_eq!(ask(server.address(), &line, &[], "").status, 404);
    assert_eq!(uploads(&server).count(), 0);
}

#[test]
fn the_newer_request_wins_over_a_creation_too() {
    let server = server("");
    let fields = ["Upload-Draft-Interop-Version: 8", LAST];
    let line = format!("PUT {TARGET}");
    let mut older = start(server.address(), &line, &fields, (6, b"abc"));
    let target = target(TARGET, &older.head());
    uploads(&server).await_size(&target, 3);
    assert_eq!(offset(&look(&server, &target)), 3);
    assert!(older.rest().is_empty());
    let done = append(&server, &target, 3, LAST, b"def");
    assert_eq!(done.status, 201);
    assert_eq!(file(&server), b"abcdef");
}

#[test]
fn a_name_that_is_taken_at_the_end_leaves_the_upload() {
    let server = server("");
    let target = create(&server, &[PART]);
    server.write("in/a", "other");
    let refused = append(&server, &target, 0, LAST, b"abc");
    // It is complete, and not an offset that differs.
    assert_eq!((refused.status, complete(&refused)), (409, Some("?1")));
    assert_eq!(refused.field("upload-offset"), None);
    assert_eq!(file(&server), b"other");
    assert_eq!(offset(&look(&server, &target)), 3);
    fs::remove_file(server.site().join("in/a")).unwrap();
    assert_eq!(append(&server, &target, 3, LAST, b"").status, 201);
    assert_eq!(file(&server), b"abc");
    let line = format!("PUT {TARGET}");
    assert_eq!(ask(server.address(), &line, &[PART], "").status, 409);
    let replaced = site("upload = [{ path = '/in', overwrite = true }]\n");
    replaced.write("in/a", "old");
    let target = create(&replaced, &[PART]);
    let done = append(&replaced, &target, 0, LAST, b"new");
    assert_eq!((done.status, complete(&done)), (204, Some("?1")));
    assert_eq!(file(&replaced), b"new");
}

#[test]
fn limits_are_told_and_kept() {
    let server = server("file-bytes-max = '10'");
    let line = format!("PUT {TARGET}");
    let limit = Some("max-size=10, max-age=86400");
    let version = "Upload-Draft-Interop-Version: 8";
    for (fields, body) in [
        (vec![PART, "Upload-Length: 11"], ""),
        (vec![PART], "0123456789a"),
        (vec![LAST, version], "0123456789a"),
    ] {
        let refused = ask(server.address(), &line, &fields, body);
        assert_eq!(refused.status, 413, "{fields:?}");
        assert_eq!(refused.field("upload-limit"), limit);
    }
    let target = create(&server, &[PART]);
    let refused = append(&server, &target, 0, PART, b"0123456789a");
    assert_eq!(
        (refused.status, refused.field("upload-limit")),
        (413, limit)
    );
    assert_eq!(append(&server, &target, 0, LAST, b"0123456789").status, 201);
    let nameless = ask(server.address(), "PUT /in/", &[PART], "");
    assert_eq!(nameless.status, 400);
    let outside = ask(server.address(), "PUT /x", &[PART], "");
    assert_eq!(outside.status, 405);
}

#[test]
fn digests_are_those_of_the_body_and_of_the_file() {
    let digest = |bytes: &[u8]| {
        let hex = underpass_testkit::sha256(bytes);
        let bytes: Vec<u8> = (0..hex.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
            .collect();
        format!("sha-256=:{}:", BASE64_STANDARD.encode(bytes))
    };
    let server = server("");
    let of_file = format!("Repr-Digest: {}", digest(b"abcdef"));
    let target = create(&server, &[PART, &of_file]);
    let line = format!("PATCH {target}");
    let send = |from: &str, of_body: &[u8], how: &str, body: &str| {
        let of_body = format!("Content-Digest: {}", digest(of_body));
        let fields = [IETF_TYPE, from, how, &of_body];
        ask(server.address(), &line, &fields, body).status
    };
    assert_eq!(send("Upload-Offset: 0", b"abd", PART, "abc"), 400);
    assert_eq!(offset(&look(&server, &target)), 0);
    assert_eq!(send("Upload-Offset: 0", b"abc", PART, "abc"), 204);
    assert_eq!(send("Upload-Offset: 3", b"def", LAST, "def"), 201);
    assert_eq!(file(&server), b"abcdef");
    fs::remove_file(server.site().join("in/a")).unwrap();
    let target = create(&server, &[PART, &of_file]);
    assert_eq!(append(&server, &target, 0, LAST, b"abcdeF").status, 400);
    assert_eq!(look(&server, &target).status, 404);
    assert!(!server.site().join("in/a").exists());
}

/// Sends a body in pieces, each after the offset of those before it was reported.
#[track_caller]
fn send_reported(client: &mut HttpClient, from: usize, body: &[u8], wrap: fn(&[u8]) -> Vec<u8>) {
    let pieces: Vec<_> = body.chunks(body.len().div_ceil(3)).collect();
    let mut sent = from;
    for piece in &pieces[..2] {
        client.send(wrap(piece));
        sent += piece.len();
        loop {
            let interim = client.head();
            assert_eq!(interim.status, 104, "{}", interim.head);
            assert_eq!(interim.field("location"), None);
            assert!(interim.field("upload-draft-interop-version").is_some());
            if offset(&interim) == sent {
                break;
            }
            assert!(offset(&interim) < sent, "{}", interim.head);
        }
    }
    client.send(wrap(pieces[2]));
}

fn chunk(piece: &[u8]) -> Vec<u8> {
    [format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat()
}

#[test]
fn clients_that_name_a_version_are_told_the_offset_while_they_send() {
    let server = server("");
    let at = server.address();
    let body = content(4, 3_000_000);
    // Others are told nothing, however long it takes.
    let fields = ["Upload-Complete: ?0"];
    let mut unnamed = start(at, "PUT /in/unnamed", &fields, (6, b"abc"));
    let unknown = ["Upload-Complete: ?0", "Upload-Draft-Interop-Version: 99"];
    let mut unknown = start(at, "PUT /in/unknown", &unknown, (6, b"abc"));
    let mut plain = start(at, "PUT /in/plain", &[], (6, b"abc"));

    for (name, version, fields) in [
        ("three", "3", ["Upload-Incomplete: ?0", ""]),
        ("six", "6", ["Upload-Complete: ?1", ""]),
        (
            "eight",
            "8",
            ["Upload-Complete: ?1", "Transfer-Encoding: chunked"],
        ),
    ] {
        let version = format!("Upload-Draft-Interop-Version: {version}");
        let is_chunked = !fields[1].is_empty();
        let length = (!is_chunked).then_some(body.len());
        let mut client = HttpClient::connect(at);
        let line = format!("PUT /in/{name}");
        client.send(head(&line, &[&version, fields[0], fields[1]], length));
        let first = client.head();
        assert_eq!((first.status, first.field("upload-offset")), (104, None));
        assert!(first.field("location").is_some());
        match is_chunked {
            true => {
                send_reported(&mut client, 0, &body, chunk);
                client.send("0\r\n\r\n");
            }
            false => send_reported(&mut client, 0, &body, <[u8]>::to_vec),
        }
        let mut stored = client.head();
        while stored.status == 104 {
            stored = client.head();
        }
        assert_eq!(stored.status, 201, "{name}: {}", stored.head);
        assert!(std::fs::read(server.site().join("in").join(name)).unwrap() == body);
    }
    for client in [&mut unnamed, &mut unknown, &mut plain] {
        client.send("def");
        assert_eq!(client.response().status, 201);
    }
}

#[test]
fn parts_are_reported_from_where_they_begin() {
    let server = server("");
    let at = server.address();
    let body = content(5, 300_000);
    let created = ask(at, "PUT /in/a", &["Upload-Complete: ?0"], &body[..1000]);
    let target = target("/in/a", &created);
    let mut client = HttpClient::connect(at);
    let fields = [
        IETF_TYPE,
        "Upload-Draft-Interop-Version: 8",
        "Upload-Offset: 1000",
        "Upload-Complete: ?1",
    ];
    let line = format!("PATCH {target}");
    client.send(head(&line, &fields, Some(body.len() - 1000)));
    send_reported(&mut client, 1000, &body[1000..], <[u8]>::to_vec);
    let mut stored = client.head();
    while stored.status == 104 {
        stored = client.head();
    }
    assert_eq!(stored.status, 201, "{}", stored.head);
    assert!(std::fs::read(server.site().join("in/a")).unwrap() == body);
}

#[test]
fn a_whole_body_is_stored_whoever_names_the_version_and_has_the_length_it_says() {
    let server = server("");
    let at = server.address();
    for (line, fields, status) in [
        ("PUT /in/b", ["Upload-Length: 3", ""], 201),
        ("PUT /in/c", ["Upload-Length: 9", ""], 400),
        ("POST /in/d", ["", ""], 201),
        ("POST /in/e", ["Upload-Draft-Interop-Version: 7", ""], 201),
        ("POST /in/g", ["Upload-Length: 2", ""], 400),
        ("POST /in/", ["", ""], 400),
    ] {
        let answer = ask(at, line, &[LAST, fields[0], fields[1]], "abc");
        assert_eq!(answer.status, status, "{line} {fields:?}");
    }
    assert_eq!(fs::read(server.site().join("in/d")).unwrap(), b"abc");
    assert!(!server.site().join("in/c").exists());
    // Apple's clients say so of forms, too.
    let form = "--B\r\nContent-Disposition: form-data; name=f; filename=h\r\n\r\nx\r\n--B--\r\n";
    let version = "Upload-Draft-Interop-Version: 6";
    let boundary = "Content-Type: multipart/form-data; boundary=B";
    let stored = ask(at, "POST /in/", &[LAST, version, boundary], form);
    assert_eq!(stored.status, 201, "{}", stored.text());
    assert_eq!(fs::read(server.site().join("in/h")).unwrap(), b"x");
}
