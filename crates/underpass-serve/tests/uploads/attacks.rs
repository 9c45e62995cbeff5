//! What other servers fell for.

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use rustix::fs::{CWD, RenameFlags, renameat_with};
use underpass_serve::password_line;
use underpass_testkit::content;

use crate::client::{
    IETF_TYPE, TUS, TUS_TYPE, Uploads, ask, create, id, look, named, offset, pair, patch, server,
    site, target,
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

#[test]
fn partial_files_are_not_served_where_hidden_names_are_shown() {
    let server =
        site("hidden = 'shown'\nupload = [{ path = '/in', overwrite = true, delete = true }]");
    let at = server.address();
    server.write("in/.shown", "shown");
    assert_eq!(server.get("/in/.shown").body, b"shown");
    let target = create(at, "/in/", "a", 6);
    assert_eq!(patch(at, &target, 0, b"secret").status, 204);
    let target = create(at, "/in/", "b", 9);
    assert_eq!(patch(at, &target, 0, b"secret").status, 204);
    let id = id(&target);
    for path in [
        "/in/.underpass-uploads".to_owned(),
        "/in/.underpass-uploads/".to_owned(),
        format!("/in/.underpass-uploads/{id}"),
        format!("/in/.underpass-uploads/{id}.json"),
        format!("/in/%2eunderpass-uploads/{id}"),
        format!("/in%2F.underpass-uploads%2F{id}"),
        format!("/in/x/../.underpass-uploads/{id}"),
        format!("/in//.underpass-uploads//{id}"),
    ] {
        assert_eq!(server.get(&path).status, 404, "{path}");
        for method in ["PUT", "DELETE", "MKCOL", "COPY", "MOVE"] {
            let answer = ask(
                at,
                &format!("{method} {path}"),
                &["Destination: /in/got"],
                "x",
            );
            assert!(
                (400..500).contains(&answer.status),
                "{method} {path}: {}",
                answer.head
            );
        }
    }
    for path in ["/in/?format=json", "/in/?download=tar", "/?download=tar"] {
        let shown = server.get(path).body;
        for secret in [&b".underpass-uploads"[..], id.as_str().as_bytes()] {
            assert!(
                !shown.windows(secret.len()).any(|part| part == secret),
                "{path}"
            );
        }
    }
    assert_eq!(offset(&look(at, &target)), 6);
}

/// A folder of the path is a folder at one moment, and a link that leads out at the next.
#[test]
fn parents_that_become_links_lead_nothing_out() {
    let server = server("overwrite = true, delete = true");
    let at = server.address();
    let inside = server.site().join("in");
    fs::create_dir(inside.join("d")).unwrap();
    std::os::unix::fs::symlink(server.outside(), inside.join("l")).unwrap();
    fs::write(server.outside().join("kept"), "kept").unwrap();
    let before = fs::read_dir(server.outside()).unwrap().count();
    let left = AtomicUsize::new(300);
    thread::scope(|scope| {
        scope.spawn(|| {
            while left.load(Ordering::Relaxed) > 0 {
                let (d, l) = (inside.join("d"), inside.join("l"));
                renameat_with(CWD, d, CWD, l, RenameFlags::EXCHANGE).unwrap();
            }
        });
        let mut stored = 0;
        while left.fetch_sub(1, Ordering::Relaxed) > 1 {
            let answer = ask(at, "PUT /in/d/e/f", &[], "content");
            assert!(
                [201, 204, 403, 404, 409].contains(&answer.status),
                "{}",
                answer.head
            );
            stored += usize::from(answer.status < 300);
            for (line, field) in [
                ("MKCOL /in/d/made", ""),
                ("COPY /in/d/e/f", "Destination: /in/d/copy"),
                ("MOVE /in/d/copy", "Destination: /in/d/moved"),
                ("DELETE /in/d/kept", ""),
                ("DELETE /in/d/e", ""),
            ] {
                let answer = ask(at, line, &[field], "");
                assert!(answer.status < 500, "{line}: {}", answer.head);
            }
        }
        assert!(stored > 0);
    });
    assert_eq!(fs::read(server.outside().join("kept")).unwrap(), b"kept");
    assert_eq!(fs::read_dir(server.outside()).unwrap().count(), before);
}

#[test]
fn names_in_another_normal_form_are_judged_by_the_same_rule() {
    let files = tempfile::tempdir().unwrap();
    let users = files.path().join("users");
    fs::write(&users, password_line("anna", b"anna").unwrap()).unwrap();
    let server = site(&format!(
        "upload = [{{ path = '/in' }}]\n[site.access]\nusers = '{}'\n\
         [[site.access.rule]]\npaths = ['/in/caf\u{e9}']\nallow = ['user:anna']\n\
         [[site.access.rule]]\npaths = ['/in']\nmethods = ['PUT']\nallow = ['everyone']\n",
        users.display()
    ));
    let at = server.address();
    for (path, status) in [
        ("/in/cafe/f", 201),
        ("/in/caf%C3%A9/f", 401),
        ("/in/cafe%CC%81/f", 401),
        ("/in/x/../cafe%CC%81/f", 401),
    ] {
        assert_eq!(
            ask(at, &format!("PUT {path}"), &[], "x").status,
            status,
            "{path}"
        );
    }
    for name in ["caf\u{e9}/f", "cafe\u{301}/f"] {
        let field = format!("Upload-Metadata: {}", pair("relativePath", name));
        let created = ask(at, "POST /in/", &[TUS, "Upload-Length: 1", &field], "");
        assert_eq!(created.status, 401, "{name}");
    }
}

#[test]
fn names_do_not_deceive_readers() {
    let server = site("upload = [{ path = '/in', delete = true }]\n");
    let at = server.address();
    let (encoded, name) = ("x%E2%80%AEgpj.exe", "x\u{202e}gpj.exe");
    let put = |path: &str| ask(at, &format!("PUT {path}"), &["Content-Length: 0"], "").status;
    assert_eq!(put(&format!("/in/{encoded}")), 400);
    assert_eq!(put(&format!("/in/{encoded}/a")), 400);
    assert_eq!(put("/in/a%E2%80%A8b"), 400);
    let created = ask(
        at,
        "POST /in/",
        &[TUS, "Upload-Length: 1", &named(name)],
        "",
    );
    assert_eq!(created.status, 400);
    let part = ["Upload-Complete: ?0"];
    let created = ask(at, &format!("PUT /in/{encoded}"), &part, "");
    assert_eq!(created.status, 400);
    let form = format!(
        "--B\r\nContent-Disposition: form-data; name=f; filename=\"{name}\"\r\n\r\nx\r\n--B--\r\n"
    );
    let boundary = ["Content-Type: multipart/form-data; boundary=B"];
    assert_eq!(ask(at, "POST /in/", &boundary, form).status, 400);
    assert_eq!(
        ask(at, &format!("MKCOL /in/{encoded}"), &[], "").status,
        400
    );
    let to = format!("Destination: /in/{encoded}");
    assert_eq!(put("/in/a"), 201);
    for method in ["COPY", "MOVE"] {
        assert_eq!(ask(at, &format!("{method} /in/a"), &[&to], "").status, 400);
    }
    // Marks of a direction are in names of honest people.
    assert_eq!(put("/in/%E2%80%8Fa"), 201);
    // Somebody else has made it: it can be removed.
    fs::write(server.site().join("in").join(name), "").unwrap();
    let removed = ask(at, &format!("DELETE /in/{encoded}"), &[], "");
    assert_eq!(removed.status, 204);
}
