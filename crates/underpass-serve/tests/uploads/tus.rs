//! tus 1.0.0: the core, and the extensions that are offered.

use std::fs;
use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use underpass_serve::password_line;
use underpass_testkit::{HttpResponse, assert_same, content, wait_until};

use crate::client::{
    TUS, TUS_TYPE, Uploads, ask, create, id, look, named, now, offset, pair, patch, server, site,
    start, target,
};
use crate::process::serve_apart;
use crate::put;
use crate::support::Server;

const IN: &str = "/in/";

fn file(server: &Server, name: &str) -> Vec<u8> {
    fs::read(server.site().join("in").join(name)).unwrap()
}

fn uploads(server: &Server) -> Uploads {
    Uploads::of(&server.site().join("in"))
}

#[track_caller]
fn assert_tus(response: &HttpResponse, status: u16) {
    assert_eq!(response.status, status, "{}", response.head);
    assert_eq!(response.field("tus-resumable"), Some("1.0.0"));
}

#[test]
fn a_file_arrives_in_parts_at_exact_offsets() {
    let server = server("");
    let (at, bytes) = (server.address(), content(1, 300_000));
    let target = create(at, IN, "a b.bin", bytes.len());
    let mut from = 0;
    for part in [100_000, 1, 0, 150_000, 49_999] {
        let head = look(at, &target);
        assert_tus(&head, 204);
        assert_eq!(offset(&head), from);
        assert_eq!(head.field("upload-length"), Some("300000"));
        assert_eq!(head.field("cache-control"), Some("no-store"));
        let metadata = pair("filename", "a b.bin");
        assert_eq!(head.field("upload-metadata"), Some(&metadata[..]));
        assert!(head.field("upload-expires").unwrap().ends_with(" GMT"));
        let patched = patch(at, &target, from, &bytes[from..from + part]);
        assert_tus(&patched, 204);
        from += part;
        assert_eq!(offset(&patched), from);
    }
    assert_same(&file(&server, "a b.bin"), &bytes, "the file");
    // The client may not have received the last response.
    let head = look(at, &target);
    assert_tus(&head, 204);
    assert_eq!(
        (offset(&head), head.field("upload-length")),
        (300_000, Some("300000"))
    );
    assert_tus(&patch(at, &target, 300_000, b"x"), 410);
    assert_tus(&patch(at, &target, 300_000, b""), 204);
    let again = patch(at, &target, 250_001, &bytes[250_001..]);
    assert_tus(&again, 409);
    assert_eq!(offset(&again), 300_000);
    assert_eq!(uploads(&server).count(), 0);
}

#[test]
fn options_tell_what_is_offered() {
    let server = server("file-bytes-max = '10Ki'");
    for path in ["/in/", "/in/a/b"] {
        let told = ask(server.address(), &format!("OPTIONS {path}"), &[], "");
        assert_tus(&told, 204);
        assert_eq!(told.field("tus-version"), Some("1.0.0"));
        assert_eq!(told.field("tus-max-size"), Some("10240"));
        assert_eq!(
            told.field("tus-checksum-algorithm"),
            Some("sha1,sha256,sha512")
        );
        let extensions = told.field("tus-extension").unwrap();
        for extension in [
            "creation",
            "creation-with-upload",
            "creation-defer-length",
            "termination",
            "expiration",
            "checksum",
            "concatenation",
        ] {
            assert!(
                extensions.split(',').any(|it| it == extension),
                "{extension}"
            );
        }
        assert!(told.field("allow").unwrap().contains("PATCH"));
        assert_eq!(
            told.field("upload-limit"),
            Some("max-size=10240, max-age=86400")
        );
        let types = "application/offset+octet-stream, application/partial-upload";
        assert_eq!(told.field("accept-patch"), Some(types));
    }
    let outside = ask(server.address(), "OPTIONS /other/", &[], "");
    assert_eq!((outside.status, outside.field("tus-version")), (204, None));
}

#[test]
fn without_uploads_nothing_changes() {
    let server = Server::start();
    server.write("f", "content");
    let id = "0".repeat(32);
    let head = ask(
        server.address(),
        &format!("HEAD /f?upload={id}"),
        &[TUS],
        "",
    );
    assert_eq!(
        (head.status, head.field("content-length")),
        (200, Some("7"))
    );
    assert_eq!(head.field("tus-resumable"), None);
    let options = ask(server.address(), "OPTIONS /", &[TUS], "");
    assert_eq!(options.field("tus-version"), None);
    assert_eq!(options.field("allow"), Some("GET, HEAD, OPTIONS"));
    for line in ["POST /", "PATCH /f", "DELETE /f"] {
        assert_eq!(ask(server.address(), line, &[TUS], "").status, 405);
    }
}

#[test]
fn other_versions_are_refused_and_every_response_names_this_one() {
    let server = server("");
    let at = server.address();
    let target = create(at, IN, "a", 3);
    let other = "Tus-Resumable: 0.2.2";
    for (line, fields) in [
        ("POST /in/".to_owned(), vec![other, "Upload-Length: 3"]),
        (format!("HEAD {target}"), vec![other]),
        (format!("HEAD {target}"), vec![]),
        (
            format!("PATCH {target}"),
            vec![other, TUS_TYPE, "Upload-Offset: 0"],
        ),
        (format!("DELETE {target}"), vec![other]),
        (format!("DELETE {target}"), vec![]),
    ] {
        let refused = ask(at, &line, &fields, "");
        assert_tus(&refused, 412);
        assert_eq!(refused.field("tus-version"), Some("1.0.0"), "{line}");
    }
    assert_eq!(offset(&look(at, &target)), 0);
    for (line, status) in [
        ("POST /in/", 400),
        ("POST /elsewhere/", 405),
        ("HEAD /in/?upload=00000000000000000000000000000000", 404),
        ("PATCH /in/?upload=00000000000000000000000000000000", 404),
        ("PUT /in/?upload=00000000000000000000000000000000", 405),
    ] {
        assert_tus(&ask(at, line, &[TUS], ""), status);
    }
}

#[test]
fn bodies_of_another_type_or_place_change_nothing() {
    let server = server("");
    let at = server.address();
    let target = create(at, IN, "a", 6);
    assert_tus(&patch(at, &target, 0, b"abc"), 204);
    for kind in [
        "",
        "Content-Type: text/plain",
        "Content-Type: application/octet-stream",
    ] {
        let line = format!("PATCH {target}");
        let refused = ask(at, &line, &[TUS, kind, "Upload-Offset: 3"], "def");
        assert_tus(&refused, 415);
    }
    for wrong in [0, 2, 4, 6, 7, usize::MAX >> 1] {
        let refused = patch(at, &target, wrong, b"def");
        assert_tus(&refused, 409);
        assert_eq!(offset(&refused), 3);
    }
    assert_eq!(uploads(&server).size(&target), 3);
    assert_tus(&patch(at, &target, 3, b"def"), 204);
    assert_eq!(file(&server, "a"), b"abcdef");
}

#[test]
fn a_length_may_be_announced_later_and_once() {
    let server = server("file-bytes-max = '10'");
    let at = server.address();
    let fields = [TUS, "Upload-Defer-Length: 1", &named("a")];
    let target = target(IN, &ask(at, "POST /in/", &fields, ""));
    let head = look(at, &target);
    assert_eq!(head.field("upload-defer-length"), Some("1"));
    assert_eq!(head.field("upload-length"), None);
    assert_tus(&patch(at, &target, 0, b"abc"), 204);
    let send = |offset: &str, length: &str, body: &str| {
        let line = format!("PATCH {target}");
        ask(at, &line, &[TUS, TUS_TYPE, offset, length], body).status
    };
    assert_eq!(send("Upload-Offset: 3", "Upload-Length: 2", ""), 400);
    assert_eq!(send("Upload-Offset: 3", "Upload-Length: 11", ""), 413);
    assert_eq!(send("Upload-Offset: 3", "Upload-Length: 5", "d"), 204);
    assert_eq!(send("Upload-Offset: 4", "Upload-Length: 6", "e"), 400);
    assert_eq!(look(at, &target).field("upload-length"), Some("5"));
    assert_eq!(send("Upload-Offset: 4", "Upload-Length: 5", "e"), 204);
    assert_eq!(file(&server, "a"), b"abcde");
    // It may be known after the last byte only.
    let target = crate::client::target(
        IN,
        &ask(
            at,
            "POST /in/",
            &[TUS, "Upload-Defer-Length: 1", &named("b")],
            "",
        ),
    );
    assert_tus(&patch(at, &target, 0, b"abc"), 204);
    let line = format!("PATCH {target}");
    let fields = [TUS, TUS_TYPE, "Upload-Offset: 3", "Upload-Length: 3"];
    assert_tus(&ask(at, &line, &fields, ""), 204);
    assert_eq!(file(&server, "b"), b"abc");
}

#[test]
fn metadata_name_the_file_and_its_folders() {
    let server = server("");
    let at = server.address();
    fs::create_dir(server.site().join("in/sub")).unwrap();
    for (path, metadata, expected) in [
        ("/in/", vec![("filename", "a")], "a"),
        ("/in", vec![("filename", "a2")], "a2"),
        ("/in/sub/", vec![("filename", "b")], "sub/b"),
        ("/in/c%20d", vec![], "c d"),
        ("/in/", vec![("relativePath", "x/y/z")], "x/y/z"),
        (
            "/in/",
            vec![("filename", "z"), ("relativePath", "p/q")],
            "p/q/z",
        ),
        (
            "/in/",
            vec![("filename", "z"), ("relativePath", "p/z"), ("type", "")],
            "p/z",
        ),
    ] {
        let pairs: Vec<_> = metadata
            .iter()
            .map(|(key, value)| pair(key, value))
            .collect();
        let metadata = match pairs.is_empty() {
            true => String::new(),
            false => format!("Upload-Metadata: {}", pairs.join(",")),
        };
        let line = format!("POST {path}");
        let created = ask(at, &line, &[TUS, "Upload-Length: 2", &metadata], "");
        assert_tus(&created, 201);
        let target = target(path, &created);
        assert_tus(&patch(at, &target, 0, b"ok"), 204);
        assert_eq!(file(&server, expected), b"ok", "{path} {metadata}");
    }
    let nameless = ask(at, "POST /in/", &[TUS, "Upload-Length: 2"], "");
    assert_tus(&nameless, 400);
    let long = format!("Upload-Metadata: {}", pair("x", vec![b'x'; 4000]));
    assert_tus(
        &ask(at, "POST /in/a9", &[TUS, "Upload-Length: 2", &long], ""),
        400,
    );
}

#[test]
fn the_first_bytes_may_come_with_the_creation() {
    let server = server("");
    let at = server.address();
    let with = |name: &str, length: &str, kind: &str, body: &str| {
        ask(at, "POST /in/", &[TUS, length, kind, &named(name)], body)
    };
    let created = with("a", "Upload-Length: 6", TUS_TYPE, "abc");
    assert_tus(&created, 201);
    assert_eq!(offset(&created), 3);
    let rest = target(IN, &created);
    assert_tus(&patch(at, &rest, 3, b"def"), 204);
    assert_eq!(file(&server, "a"), b"abcdef");

    let whole = with("b", "Upload-Length: 3", TUS_TYPE, "abc");
    assert_tus(&whole, 201);
    assert_eq!(offset(&whole), 3);
    assert_eq!(file(&server, "b"), b"abc");
    assert_eq!(offset(&look(at, &target(IN, &whole))), 3);

    assert_tus(&with("empty", "Upload-Length: 0", "", ""), 201);
    assert_eq!(file(&server, "empty"), b"");
    assert_tus(
        &with("c", "Upload-Length: 3", "Content-Type: text/plain", "abc"),
        415,
    );
    assert_tus(&with("c", "Upload-Length: 2", TUS_TYPE, "abc"), 400);
    assert_tus(&with("a", "Upload-Length: 3", TUS_TYPE, "new"), 409);
    assert_eq!(uploads(&server).count(), 0);
}

#[test]
fn an_upload_is_cancelled_without_the_right_to_remove_files() {
    let server = server("delete = false");
    let at = server.address();
    server.write("in/f", "kept");
    let target = create(at, IN, "a", 6);
    assert_tus(&patch(at, &target, 0, b"abc"), 204);
    assert_tus(&ask(at, &format!("DELETE {target}"), &[TUS], ""), 204);
    assert_tus(&look(at, &target), 404);
    assert_tus(&patch(at, &target, 3, b"def"), 404);
    assert_tus(&ask(at, &format!("DELETE {target}"), &[TUS], ""), 404);
    assert_eq!(uploads(&server).count(), 0);
    // A running one ends.
    let target = create(at, IN, "b", 6);
    let line = format!("PATCH {target}");
    let fields = [TUS, TUS_TYPE, "Upload-Offset: 0"];
    let mut running = start(at, &line, &fields, (6, b"abc"));
    uploads(&server).await_size(&target, 3);
    assert_tus(&ask(at, &format!("DELETE {target}"), &[TUS], ""), 204);
    assert!(running.rest().is_empty());
    assert_eq!(uploads(&server).count(), 0);
    assert_eq!(ask(at, "DELETE /in/f", &[TUS], "").status, 403);
    assert_eq!(file(&server, "f"), b"kept");
}

#[test]
fn uploads_expire_after_their_last_byte() {
    let server = server("expire-after = '1h'");
    let (at, uploads) = (server.address(), uploads(&server));
    let target = create(at, IN, "a", 6);
    let idle = create(at, IN, "idle", 6);
    let soon = now() + 1000;
    for target in [&target, &idle] {
        uploads.set_expires(target, soon);
    }
    // Requests without bytes do not keep it.
    assert_tus(&patch(at, &target, 0, b""), 204);
    assert_tus(&patch(at, &target, 1, b"a"), 409);
    assert_eq!(uploads.record(&target).expires, soon);
    assert_tus(&patch(at, &target, 0, b"a"), 204);
    assert!(uploads.record(&target).expires > now() + 3000);
    // A sweep takes what has expired and is not being received.
    let fields = [TUS, TUS_TYPE, "Upload-Offset: 1"];
    let line = format!("PATCH {target}");
    let mut running = start(at, &line, &fields, (5, b"bc"));
    uploads.await_size(&target, 3);
    let later = SystemTime::now() + Duration::from_secs(5000);
    uploads.area().sweep(later).unwrap();
    assert_tus(&look(at, &idle), 404);
    running.send("def");
    assert_tus(&running.head(), 204);
    assert_eq!(file(&server, "a"), b"abcdef");

    let expired = create(at, IN, "c", 6);
    uploads.set_expires(&expired, now() - 1);
    assert_tus(&look(at, &expired), 404);
    assert_eq!(uploads.count(), 0);
}

#[test]
fn bodies_are_compared_with_their_checksum() {
    let server = server("");
    let (at, uploads) = (server.address(), uploads(&server));
    let target = create(at, IN, "a", 9);
    let line = format!("PATCH {target}");
    // printf abc | openssl dgst -ALGORITHM -binary | base64
    let sha1 = "qZk+NkcGgWq6PiVxeFDCbJzQ2J0=";
    let sha256 = "ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=";
    let sha512 = "3a81oZNherrMQXNJriBBMRLm+k6JqX6iCp7u5ktV05ohkpkqJ0/BqDa6PCOj/uu9\
                  RU1EI2Q86A4qmslPpUyknw==";
    let send = |offset: usize, algorithm: &str, hash: &str, body: &str| {
        let offset = format!("Upload-Offset: {offset}");
        let checksum = format!("Upload-Checksum: {algorithm} {hash}");
        let sent = ask(at, &line, &[TUS, TUS_TYPE, &offset, &checksum], body);
        assert_eq!(sent.field("tus-resumable"), Some("1.0.0"));
        sent.status
    };
    assert_eq!(send(0, "sha1", sha1, "abd"), 460);
    assert_eq!(offset(&look(at, &target)), 0);
    assert_eq!(send(0, "sha1", sha1, "abc"), 204);
    assert_eq!(send(3, "sha256", sha256, "abC"), 460);
    assert_eq!(send(3, "sha256", sha1, "abc"), 400);
    assert_eq!(send(3, "md5", "kAFQmDzST7DWlj99KOF/cg==", "abc"), 400);
    assert_eq!(send(3, "sha256", sha256, "abc"), 204);
    // What is cut cannot be compared.
    let checksum = format!("Upload-Checksum: sha512 {sha512}");
    let fields = [TUS, TUS_TYPE, "Upload-Offset: 6", &checksum];
    let running = start(at, &line, &fields, (3, b"ab"));
    uploads.await_size(&target, 8);
    assert_eq!(offset(&look(at, &target)), 6);
    drop(running);
    assert_eq!(send(6, "sha512", sha512, "abc"), 204);
    assert_eq!(file(&server, "a"), b"abcabcabc");
}

#[test]
fn bytes_that_a_killed_server_has_not_compared_are_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let uploads = Uploads::of(folder.path());
    let process = serve_apart(folder.path());
    let target = create(process.address(), "/", "a", 9);
    assert_eq!(patch(process.address(), &target, 0, b"abc").status, 204);
    let checksum = format!("Upload-Checksum: sha1 {}", BASE64_STANDARD.encode([0; 20]));
    let fields = [TUS, TUS_TYPE, "Upload-Offset: 3", &checksum];
    let line = format!("PATCH {target}");
    let running = start(process.address(), &line, &fields, (6, b"xx"));
    uploads.await_size(&target, 5);
    process.signal(rustix::process::Signal::KILL);
    drop((process, running));
    let process = serve_apart(folder.path());
    assert_eq!(offset(&look(process.address(), &target)), 3);
    assert_eq!(patch(process.address(), &target, 3, b"defghi").status, 204);
    assert_eq!(fs::read(folder.path().join("a")).unwrap(), b"abcdefghi");
}

#[test]
fn parts_that_came_at_once_are_joined() {
    let server = server("");
    let (at, uploads) = (server.address(), uploads(&server));
    let bytes = content(3, 700_000);
    let parts: Vec<_> = bytes.chunks(200_000).collect();
    let create_part = |part: &[u8]| {
        let length = format!("Upload-Length: {}", part.len());
        let created = ask(
            at,
            "POST /in/",
            &[TUS, &length, "Upload-Concat: partial"],
            "",
        );
        assert_tus(&created, 201);
        target(IN, &created)
    };
    let targets: Vec<_> = parts.iter().map(|part| create_part(part)).collect();
    let head = look(at, &targets[0]);
    assert_eq!(head.field("upload-concat"), Some("partial"));
    let urls: Vec<_> = targets
        .iter()
        .map(|target| format!("https://proxy.example/prefix{target}"))
        .collect();
    let join = |urls: &[String], fields: &str| {
        let urls = format!("Upload-Concat: final;{}", urls.join(" "));
        ask(at, "POST /in/", &[TUS, &urls, fields, &named("joined")], "")
    };
    for (target, part) in targets.iter().zip(&parts).rev() {
        assert_tus(&join(&urls, ""), 400);
        assert_tus(&patch(at, target, 0, part), 204);
    }
    // A whole upload, one of another path, the same twice, a length.
    let whole = create(at, IN, "whole", 3);
    assert_tus(&join(&[urls[0].clone(), whole.clone()], ""), 400);
    assert_tus(&join(&[urls[0].clone(), urls[0].clone()], ""), 400);
    assert_tus(&join(&urls, "Upload-Length: 700000"), 400);
    let fields = format!("Upload-Concat: final;{}", urls.join(" "));
    let elsewhere = ask(at, "POST /in/sub/", &[TUS, &fields, &named("joined")], "");
    assert_tus(&elsewhere, 404);
    assert_tus(&ask(at, &format!("DELETE {whole}"), &[TUS], ""), 204);

    let joined = join(&urls, "");
    assert_tus(&joined, 201);
    assert_same(&file(&server, "joined"), &bytes, "the file");
    assert_eq!(offset(&look(at, &target(IN, &joined))), 700_000);
    assert_tus(&look(at, &targets[1]), 404);
    assert_eq!(uploads.count(), 0);
    // Parts have no name, and a name that is taken leaves them.
    let part = create_part(b"abc");
    assert_tus(&patch(at, &part, 0, b"abc"), 204);
    let again = join(std::slice::from_ref(&part), "");
    assert_tus(&again, 409);
    assert_eq!(offset(&look(at, &part)), 3);
}

#[test]
fn methods_may_be_overridden_by_post_and_by_nothing_else() {
    let server = server("");
    let at = server.address();
    server.write("in/f", "kept");
    let target = create(at, IN, "a", 3);
    let over = |line: &str, method: &str| {
        let method = format!("X-HTTP-Method-Override: {method}");
        let fields = [TUS, TUS_TYPE, "Upload-Offset: 0", &method];
        ask(at, line, &fields, "").status
    };
    let post = format!("POST {target}");
    assert_eq!(over(&post, "HEAD"), 204);
    assert_eq!(over(&post, "PATCH"), 204);
    assert_eq!(over(&post, "PUT"), 405);
    assert_eq!(over(&post, "GET"), 405);
    assert_eq!(over(&format!("GET {target}"), "DELETE"), 200);
    assert_eq!(over(&format!("HEAD {target}"), "DELETE"), 204);
    assert_eq!(over(&format!("PATCH {target}"), "DELETE"), 204);
    assert_eq!(over("POST /in/f", "DELETE"), 400);
    assert_eq!(over("GET /in/f", "DELETE"), 200);
    assert_eq!(file(&server, "f"), b"kept");
    assert_eq!(offset(&look(at, &target)), 0);
    assert_eq!(over(&post, "DELETE"), 204);
    assert_tus(&look(at, &target), 404);
}

#[test]
fn the_newer_request_wins() {
    let server = server("");
    let (at, uploads) = (server.address(), uploads(&server));
    let bytes = content(5, 1_000_000);
    let target = create(at, IN, "a", bytes.len());
    let line = format!("PATCH {target}");
    let mut sent = 0;
    for round in 1..5 {
        let from = format!("Upload-Offset: {sent}");
        let next = round * 100_000;
        let fields = [TUS, TUS_TYPE, &from];
        let mut older = start(at, &line, &fields, (bytes.len() - sent, &bytes[sent..next]));
        uploads.await_size(&target, next);
        match round {
            1 => assert_eq!(offset(&look(at, &target)), next),
            2 => assert_eq!(offset(&patch(at, &target, 0, b"x")), next),
            _ => assert_eq!(offset(&patch(at, &target, next, b"")), next),
        }
        assert!(older.rest().is_empty());
        sent = next;
    }
    assert_tus(&patch(at, &target, sent, &bytes[sent..]), 204);
    assert_same(&file(&server, "a"), &bytes, "the file");
}

#[test]
fn an_upload_that_another_process_receives_is_locked() {
    let server = server("");
    let at = server.address();
    let process = serve_apart(&server.site().join("in"));
    let target = create(process.address(), "/", "a", 6);
    let fields = [TUS, TUS_TYPE, "Upload-Offset: 0"];
    let line = format!("PATCH {target}");
    let mut running = start(process.address(), &line, &fields, (6, b"abc"));
    uploads(&server).await_size(&target, 3);
    // It was created under another path, so it is not this server's.
    assert_tus(&look(at, &format!("/in{target}")), 404);
    let other = serve_apart(&server.site().join("in"));
    assert_tus(&look(other.address(), &target), 423);
    assert_tus(&patch(other.address(), &target, 3, b"def"), 423);
    running.send("d");
    uploads(&server).await_size(&target, 4);
    drop(running);
    wait_until("unlocked", || look(other.address(), &target).status == 204);
    assert_tus(&patch(other.address(), &target, 4, b"ef"), 204);
    assert_eq!(file(&server, "a"), b"abcdef");
}

#[test]
fn a_name_that_is_taken_at_the_end_leaves_the_upload() {
    let server = server("");
    let at = server.address();
    let target = create(at, IN, "a", 3);
    server.write("in/a", "other");
    assert_tus(&patch(at, &target, 0, b"abc"), 409);
    // Its client would take the offset for success.
    assert_tus(&look(at, &target), 409);
    assert_tus(&patch(at, &target, 3, b""), 409);
    assert_eq!(file(&server, "a"), b"other");
    fs::remove_file(server.site().join("in/a")).unwrap();
    let head = look(at, &target);
    assert_tus(&head, 204);
    assert_eq!(offset(&head), 3);
    assert_eq!(file(&server, "a"), b"abc");
    assert_tus(
        &ask(at, "POST /in/", &[TUS, "Upload-Length: 1", &named("a")], ""),
        409,
    );
}

#[test]
fn files_are_replaced_where_that_is_allowed() {
    let server = server("overwrite = true");
    let at = server.address();
    server.write("in/a", "old");
    let target = create(at, IN, "a", 3);
    assert_eq!(file(&server, "a"), b"old");
    assert_tus(&patch(at, &target, 0, b"new"), 204);
    assert_eq!(file(&server, "a"), b"new");
    // Not by one that was to be the first.
    let fields = [TUS, "Upload-Length: 3", "If-None-Match: *", &named("b")];
    let target = crate::client::target(IN, &ask(at, "POST /in/", &fields, ""));
    server.write("in/b", "old");
    assert_tus(&patch(at, &target, 0, b"new"), 412);
    assert_eq!(file(&server, "b"), b"old");
}

pub(crate) fn basic(user: &str) -> String {
    let login = BASE64_STANDARD.encode(format!("{user}:{user}"));
    format!("Authorization: Basic {login}")
}

/// A server with users `anna` and `ben`, who may upload but in `/in/anna`, which is anna's. Her
/// files may be read by anna only.
fn with_users() -> (Server, tempfile::TempDir) {
    with_users_and("")
}

/// Returns a server for two users, with more options of its area.
pub(crate) fn with_users_and(options: &str) -> (Server, tempfile::TempDir) {
    let files = tempfile::tempdir().unwrap();
    let users = ["anna", "ben"].map(|user| password_line(user, user.as_bytes()).unwrap());
    fs::write(files.path().join("users"), users.join("\n")).unwrap();
    let server = site(&format!(
        "upload = [{{ path = '/in'{options} }}]\n[site.access]\nusers = '{}'\n\
         [[site.access.rule]]\npaths = ['/in/anna']\nmethods = ['PUT']\nallow = ['user:anna']\n\
         [[site.access.rule]]\npaths = ['/in']\nmethods = ['PUT']\nallow = ['users']\n",
        files.path().join("users").display()
    ));
    (server, files)
}

#[test]
fn uploads_belong_to_those_who_started_them() {
    let (server, files) = with_users();
    let (at, uploads) = (server.address(), uploads(&server));
    let (anna, ben) = (&basic("anna")[..], &basic("ben")[..]);
    let create = |who: &str, path: &str, name: &str| {
        let fields = [TUS, "Upload-Length: 6", who, &named(name)];
        ask(at, &format!("POST {path}"), &fields, "")
    };
    assert_tus(&create("", IN, "a"), 401);
    assert_tus(&create(ben, "/in/anna/", "a"), 403);
    // The name in the metadata is judged as the path is.
    let fields = [
        TUS,
        "Upload-Length: 6",
        ben,
        &format!("Upload-Metadata: {}", pair("relativePath", "anna/a")),
    ];
    assert_tus(&ask(at, "POST /in/", &fields, ""), 403);
    let target = target(IN, &create(anna, IN, "a"));
    let with = |method: &str, who: &str, fields: &[&str], body: &str| {
        let fields = [&[TUS, who], fields].concat();
        ask(at, &format!("{method} {target}"), &fields, body).status
    };
    let fields = [TUS, TUS_TYPE, "Upload-Offset: 0", anna];
    let line = format!("PATCH {target}");
    let mut running = start(at, &line, &fields, (6, b"abc"));
    uploads.await_size(&target, 3);
    for (who, status) in [(ben, 404), ("", 401)] {
        assert_eq!(with("HEAD", who, &[], ""), status);
        assert_eq!(with("DELETE", who, &[], ""), status);
        assert_eq!(
            with("PATCH", who, &[TUS_TYPE, "Upload-Offset: 3"], "def"),
            status
        );
        let over = "X-HTTP-Method-Override: DELETE";
        assert_eq!(with("POST", who, &[over], ""), status);
    }
    // Nobody has ended it.
    running.send("d");
    uploads.await_size(&target, 4);
    assert_eq!(with("HEAD", anna, &[], ""), 204);
    drop(running);
    // Whoever may not any more does not complete it.
    let ben_only = password_line("ben", b"ben").unwrap();
    fs::write(files.path().join("new"), ben_only).unwrap();
    fs::rename(files.path().join("new"), files.path().join("users")).unwrap();
    wait_until("the end of anna", || with("HEAD", anna, &[], "") == 401);
    assert!(!server.site().join("in/a").exists());
    assert_eq!(uploads.size(&target), 4);
}

#[test]
fn access_is_asked_again_at_the_end() {
    let (server, files) = with_users();
    let (at, uploads) = (server.address(), uploads(&server));
    let anna = &basic("anna")[..];
    let fields = [TUS, "Upload-Length: 6", anna, &named("a")];
    let target = target(IN, &ask(at, "POST /in/", &fields, ""));
    let fields = [TUS, TUS_TYPE, "Upload-Offset: 0", anna];
    let line = format!("PATCH {target}");
    let mut running = start(at, &line, &fields, (6, b"abc"));
    uploads.await_size(&target, 3);
    fs::write(
        files.path().join("new"),
        password_line("ben", b"ben").unwrap(),
    )
    .unwrap();
    fs::rename(files.path().join("new"), files.path().join("users")).unwrap();
    let other = [TUS, anna];
    wait_until("the end of anna", || {
        ask(at, "POST /in/?x", &other, "").status == 401
    });
    running.send("def");
    assert_eq!(running.response().status, 401);
    assert!(!server.site().join("in/a").exists());
}

#[test]
fn limits_are_those_of_the_configuration() {
    let limited = server(
        "file-bytes-max = '10', unfinished-max = 3, unfinished-per-client-max = 3, at-once-max = 1",
    );
    let (at, uploads) = (limited.address(), uploads(&limited));
    let post = |fields: &[&str]| {
        let fields = [&[TUS], fields].concat();
        ask(at, "POST /in/", &fields, "").status
    };
    assert_eq!(post(&["Upload-Length: 11", &named("a")]), 413);
    let fields = [TUS, "Upload-Defer-Length: 1", &named("a")];
    let target = target(IN, &ask(at, "POST /in/", &fields, ""));
    assert_tus(&patch(at, &target, 0, b"01234567890"), 413);
    let line = format!("PATCH {target}");
    let chunked = [
        TUS,
        TUS_TYPE,
        "Upload-Offset: 0",
        "Transfer-Encoding: chunked",
    ];
    let mut client = underpass_testkit::HttpClient::connect(at);
    client.send(crate::client::head(&line, &chunked, None));
    client.send("6\r\nabcdef\r\n5\r\nghijk\r\n0\r\n\r\n");
    assert_tus(&client.response(), 413);
    assert_eq!(offset(&look(at, &target)), 6);

    // Another body must wait until this one has ended.
    let fields = [TUS, TUS_TYPE, "Upload-Offset: 6"];
    let running = start(at, &line, &fields, (4, b"g"));
    uploads.await_size(&target, 7);
    let second = create(at, IN, "b", 3);
    let busy = patch(at, &second, 0, b"abc");
    assert_tus(&busy, 503);
    assert!(busy.field("retry-after").is_some());
    drop(running);
    wait_until("a place", || patch(at, &second, 0, b"ab").status == 204);

    create(at, IN, "c", 3);
    for number in 0..200 {
        let refused = post(&["Upload-Length: 1", &named(number.to_string())]);
        assert_eq!(refused, 503);
    }
    assert_eq!(uploads.count(), 6);
    assert_tus(&ask(at, &format!("DELETE {second}"), &[TUS], ""), 204);
    create(at, IN, "d", 3);

    let full = server("keep-free = '8E'");
    let fields = [TUS, "Upload-Length: 1", &named("a")];
    assert_tus(&ask(full.address(), "POST /in/", &fields, ""), 507);
}

#[test]
fn scripts_of_an_admitted_origin_may_upload() {
    let server =
        site("upload = [{ path = '/in' }]\n[site.cors]\norigins = ['https://app.example']\n");
    let at = server.address();
    let (app, other) = (
        "Origin: https://app.example",
        "Origin: https://evil.example",
    );
    let asked = "Access-Control-Request-Method: PATCH";
    let preflight = ask(at, "OPTIONS /in/", &[app, asked], "");
    assert_eq!(preflight.status, 204);
    let methods = preflight.field("access-control-allow-methods").unwrap();
    assert!(methods.contains("PATCH") && methods.contains("DELETE"));
    let fields = preflight.field("access-control-allow-headers").unwrap();
    for field in [
        "Tus-Resumable",
        "Upload-Offset",
        "Upload-Metadata",
        "Content-Type",
    ] {
        assert!(fields.contains(field), "{field}");
    }
    let length = "Upload-Length: 3";
    let created = ask(at, "POST /in/", &[TUS, app, length, &named("a")], "");
    assert_tus(&created, 201);
    let shown = created.field("access-control-expose-headers").unwrap();
    for field in [
        "Location",
        "Upload-Offset",
        "Tus-Resumable",
        "Upload-Expires",
    ] {
        assert!(shown.contains(field), "{field}");
    }
    let foreign = ask(at, "POST /in/", &[TUS, other, length, &named("b")], "");
    assert_tus(&foreign, 403);
    let preflight = ask(at, "OPTIONS /in/", &[other, asked], "");
    assert_eq!(preflight.field("access-control-allow-methods"), None);
}

#[test]
fn uploads_go_on_after_a_reload() {
    let server = server("");
    let (at, uploads) = (server.address(), uploads(&server));
    let target = create(at, IN, "a", 9);
    let line = format!("PATCH {target}");
    let fields = [TUS, TUS_TYPE, "Upload-Offset: 0"];
    let mut running = start(at, &line, &fields, (9, b"abc"));
    uploads.await_size(&target, 3);
    server.server().reload(server.options()).unwrap();
    running.send("def");
    uploads.await_size(&target, 6);
    // The workers of before and of now share their turns.
    let head = look(at, &target);
    assert_tus(&head, 204);
    assert_eq!(offset(&head), 6);
    assert!(running.rest().is_empty());
    assert_tus(&patch(at, &target, 6, b"ghi"), 204);
    assert_eq!(file(&server, "a"), b"abcdefghi");
    assert_eq!(id(&target).as_str().len(), 32);
}

#[test]
fn digests_of_rfc_9530_count_for_tus_too() {
    let server = put::server("");
    let wrong = format!("sha-256=:{}=:", "A".repeat(43));
    let tus = "Tus-Resumable: 1.0.0\r\n";
    for (of_creation, of_body) in [("", &*wrong), (&*wrong, "")] {
        let field = |name: &str, value: &str| match value {
            "" => String::new(),
            value => format!("{name}: {value}\r\n"),
        };
        let fields = format!(
            "{tus}Upload-Length: 6\r\nUpload-Metadata: filename dGQz\r\n{}",
            field("Repr-Digest", of_creation)
        );
        let created = server.ask(put::request("POST", "/", &fields, b""));
        assert_eq!(created.status, 201, "{created:?}");
        let target = format!("/{}", created.field("location").unwrap());
        let fields = format!(
            "{tus}Upload-Offset: 0\r\nContent-Type: application/offset+octet-stream\r\n{}",
            field("Content-Digest", of_body)
        );
        let answer = server.ask(put::request("PATCH", &target, &fields, b"abcdef"));
        assert_eq!(answer.status, 400, "{answer:?}");
        assert!(!server.site().join("td3").exists());
    }
}
