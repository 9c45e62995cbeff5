//! PUT of a whole file.

use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use underpass_serve::{ServerOptions, serve};
use underpass_testkit::{HttpResponse, assert_private_mounts, content, mount, sha256, wait_until};

use crate::support::Server;

pub(crate) const UPLOADS: &str = ".underpass-uploads";

/// Returns a server that takes files in, with these options in `[[site.upload]]`.
pub(crate) fn server(options: &str) -> Server {
    Server::configured(&format!("[[site.upload]]\nkeep-free = 0\n{options}"))
}

pub(crate) fn request(method: &str, target: &str, fields: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "{method} {target} HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n{fields}\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

pub(crate) fn put(server: &Server, target: &str, fields: &str, body: &[u8]) -> HttpResponse {
    server.ask(request("PUT", target, fields, body))
}

/// Returns the names of partial files and their records.
pub(crate) fn partial_files(server: &Server) -> Vec<String> {
    let Ok(entries) = fs::read_dir(server.site().join(UPLOADS)) else {
        return Vec::new();
    };
    let name = |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
    entries.map(name).collect()
}

/// Asserts that no partial file is left.
pub(crate) fn assert_nothing_partial(server: &Server) {
    wait_until("partial files are removed", || {
        partial_files(server).is_empty()
    });
}

fn hash(path: &Path) -> String {
    sha256(fs::read(path).unwrap())
}

#[test]
fn a_file_is_stored_whole_and_served_at_once() {
    let server = server("");
    for size in [0, 1, 70_000, 5_000_000] {
        let body = content(size as u64, size);
        let target = format!("/new/folder/{size}");
        let stored = put(&server, &target, "", &body);
        assert_eq!(stored.status, 201, "{stored:?}");
        assert_eq!(stored.field("location"), Some(&format!("./{size}")[..]));
        assert_eq!(hash(&server.site().join(&target[1..])), sha256(&body));
        let read = server.get(&target);
        assert_eq!(read.field("etag"), stored.field("etag"));
        assert_eq!(read.sha256(), sha256(&body));
    }
    assert_nothing_partial(&server);
}

#[test]
fn a_connection_goes_on_after_an_upload_and_after_a_refused_one() {
    let server = server("");
    let mut client = server.connect();
    for round in 0..3 {
        client.send(request("PUT", &format!("/{round}"), "", b"content"));
        assert_eq!(client.response().status, 201);
        client.send(request("PUT", "/0", "", b"other"));
        assert_eq!(client.response().status, 409);
        assert_eq!(client.get("/0").body, b"content");
    }
    // A long body that is not wanted is not read.
    client.send(request("PUT", "/0", "", &vec![0; 1 << 20]));
    assert_eq!(client.response().status, 409);
    client.assert_closed();
}

#[test]
fn chunks_of_any_size_make_the_same_file() {
    let server = server("overwrite = true");
    let body = content(7, 300_000);
    for size in [1_000, 4_096, 65_536, 299_999] {
        let mut sent =
            b"PUT /chunked HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
        for chunk in body.chunks(size) {
            sent.extend(format!("{:x};x=y\r\n", chunk.len()).bytes());
            sent.extend(chunk);
            sent.extend(b"\r\n");
        }
        sent.extend(b"0\r\nTrailer: x\r\n\r\n");
        let mut client = server.connect();
        client.send(sent);
        let stored = client.response();
        assert!([201, 204].contains(&stored.status), "{stored:?}");
        assert_eq!(client.get("/chunked").sha256(), sha256(&body));
    }
    let malformed = "PUT /bad HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcX";
    assert_eq!(server.ask(malformed).status, 400);
    let endless = malformed.replace("\r\n3\r\nabcX", "\r\nffffffffffffffff\r\nabc");
    assert_eq!(server.ask(endless).status, 400);
    assert!(!server.site().join("bad").exists());
    assert_nothing_partial(&server);
}

#[test]
fn nothing_is_asked_for_that_would_be_refused() {
    let server = server("file-bytes-max = 10");
    server.write("taken", "content");
    let ask = |target: &str, length: usize, fields: &str| {
        server.ask(format!(
            "PUT {target} HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\
             Expect: 100-continue\r\n{fields}\r\n"
        ))
    };
    for (target, length, fields, status) in [
        ("/taken", 5, "", 409),
        ("/taken", 5, "If-Match: \"other\"\r\n", 412),
        ("/taken", 5, "If-None-Match: *\r\n", 412),
        ("/new", 5, "If-Match: *\r\n", 412),
        ("/new", 11, "", 413),
        ("/new/", 5, "", 400),
        ("/taken/new", 5, "", 409),
        ("/new", 5, "Content-Range: bytes 0-4/10\r\n", 400),
        ("/new", 5, "Content-Digest: sha-256=:x:\r\n", 400),
        ("/.hidden", 5, "", 400),
        ("/new", 5, "Content-Encoding: gzip\r\n", 415),
        ("/a%5Cb", 5, "", 400),
        ("/a%0Ab", 5, "", 400),
        ("/%FF", 5, "", 400),
    ] {
        let answer = ask(target, length, fields);
        assert_eq!(answer.status, status, "{target} {fields} {answer:?}");
    }
    let mut client = server.connect();
    client
        .send("PUT /new HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n");
    assert_eq!(client.response().status, 100);
    client.send("abcde");
    assert_eq!(client.response().status, 201);
    assert_eq!(fs::read(server.site().join("taken")).unwrap(), b"content");
}

#[test]
fn files_are_replaced_only_where_that_is_allowed_and_meant() {
    let server = server("overwrite = true\nmode = \"0640\"");
    let first = put(&server, "/f", "", b"one");
    let tag = first.field("etag").unwrap().to_owned();
    let mode = server
        .site()
        .join("f")
        .metadata()
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o640);
    let second = put(&server, "/f", &format!("If-Match: {tag}\r\n"), b"two");
    assert_eq!((second.status, &second.body[..]), (204, &b""[..]));
    let late = put(&server, "/f", &format!("If-Match: {tag}\r\n"), b"three");
    assert_eq!(late.status, 412);
    assert_eq!(
        put(&server, "/f", "If-None-Match: *\r\n", b"four").status,
        412
    );
    assert_eq!(server.get("/f").body, b"two");
    fs::create_dir(server.site().join("d")).unwrap();
    assert_eq!(put(&server, "/d", "", b"x").status, 409);
    assert_nothing_partial(&server);
}

#[test]
fn a_digest_that_differs_stores_nothing() {
    let server = server("");
    // Of "abc", by RFC 6234.
    let right = "sha-256=:ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=:";
    for (fields, status) in [
        (format!("Content-Digest: {right}\r\n"), 201),
        (format!("Repr-Digest: {right}\r\n"), 201),
        (
            format!(
                "Repr-Digest: {right}\r\nContent-Digest: sha-256=:{}=:\r\n",
                "A".repeat(43)
            ),
            400,
        ),
        ("Content-Digest: unknown=:AAAA:\r\n".to_owned(), 201),
    ] {
        let answer = put(&server, "/f", &fields, b"abc");
        assert_eq!(answer.status, status, "{fields} {answer:?}");
        assert_eq!(server.site().join("f").exists(), status == 201);
        let _ = fs::remove_file(server.site().join("f"));
    }
    assert_nothing_partial(&server);
}

#[test]
fn a_body_that_breaks_off_leaves_nothing() {
    let server = server("");
    for sent in [0, 1, 100_000] {
        let mut client = server.connect();
        let whole = request("PUT", "/f", "", &vec![b'x'; 1 << 20]);
        let head = whole.len() - (1 << 20);
        client.send(&whole[..head + sent]);
        drop(client);
    }
    assert_nothing_partial(&server);
    assert!(!server.site().join("f").exists());
}

#[test]
fn a_file_system_that_is_almost_full_takes_nothing_in() {
    let full = "[[site.upload]]\nkeep-free = \"8EB\"";
    let server = Server::configured(full);
    let answer = put(&server, "/f", "", b"x");
    assert_eq!(answer.status, 507, "{answer:?}");
    let server = self::server("at-once-max = 2");
    let mut busy = server.connect();
    busy.send("PUT /busy HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\na");
    wait_until("the first upload has begun", || {
        partial_files(&server).len() == 1
    });
    let answer = put(&server, "/other", "", b"x");
    assert_eq!(answer.status, 503, "{answer:?}");
    busy.send("b");
    assert_eq!(busy.response().status, 201);
    assert_eq!(put(&server, "/other", "", b"x").status, 201);
}

#[test]
fn no_link_leads_out_and_the_partial_files_are_not_served() {
    let server = Server::configured(
        "hidden = \"shown\"\n[[site.upload]]\nkeep-free = 0\noverwrite = true\ndelete = true",
    );
    let outside = server.outside().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("f"), "secret").unwrap();
    symlink("../outside", server.site().join("out")).unwrap();
    symlink("../outside/f", server.site().join("link")).unwrap();
    for (method, target) in [
        ("PUT", "/out/new"),
        ("PUT", "/out/f"),
        ("PUT", "/link"),
        ("MKCOL", "/out/d"),
        ("DELETE", "/out/f"),
    ] {
        let answer = server.ask(request(method, target, "", b""));
        assert_eq!(answer.status, 403, "{method} {target} {answer:?}");
    }
    for target in ["/../f", "/%2e%2e/f", "/a/..%2f..%2ff"] {
        assert_eq!(put(&server, target, "", b"x").status, 400, "{target}");
    }
    assert_eq!(fs::read(outside.join("f")).unwrap(), b"secret");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);

    let mut busy = server.connect();
    busy.send("PUT /busy HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\na");
    wait_until("the upload has begun", || partial_files(&server).len() == 1);
    let name = partial_files(&server).remove(0);
    for target in [format!("/{UPLOADS}/"), format!("/{UPLOADS}/{name}")] {
        assert_eq!(server.get(&target).status, 404, "{target}");
        for method in ["PUT", "DELETE", "MKCOL"] {
            let answer = server.ask(request(method, &target, "", b""));
            assert!([400, 403].contains(&answer.status), "{method} {answer:?}");
        }
    }
    // As on a file system that does not distinguish letter cases.
    server.write(".Underpass-UPLOADS/f", "secret");
    assert_eq!(server.get("/.Underpass-UPLOADS/f").status, 404);
    let listing = server.get("/?format=json");
    assert!(!listing.text().contains(UPLOADS), "{}", listing.text());
    let archive = server.get("/?download=tar");
    let archive = String::from_utf8_lossy(&archive.body).into_owned();
    assert!(!archive.contains(UPLOADS));
}

#[test]
fn without_uploads_the_server_is_read_only_as_before() {
    let server = Server::start();
    for (method, status) in [("PUT", 405), ("POST", 405), ("PATCH", 405), ("DELETE", 405)] {
        let answer = server.ask(request(method, "/f", "", b"x"));
        assert_eq!(answer.status, status, "{method}");
        assert_eq!(answer.field("allow"), Some("GET, HEAD, OPTIONS"));
    }
    assert_eq!(server.ask(request("MKCOL", "/f", "", b"")).status, 501);
    let text = "[[site]]\nroot = \"/\"\n[[site.upload]]\npath = \"/missing/folder\"";
    let refused = serve(&ServerOptions::parse(text).unwrap());
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("/missing/folder"), "{refused}");
}

#[test]
fn only_the_folder_that_is_configured_takes_files_in() {
    let server = Server::with(|options| {
        let site = &mut options.sites[0];
        fs::create_dir(site.root.join("in")).unwrap();
        let text = "[[site]]\n[[site.upload]]\npath = \"/in\"\nkeep-free = 0";
        let parsed = ServerOptions::parse(text).unwrap();
        site.uploads.clone_from(&parsed.sites[0].uploads);
    });
    assert_eq!(put(&server, "/in/f", "", b"x").status, 201);
    for target in ["/f", "/inner/f", "/in/../f"] {
        assert_eq!(put(&server, target, "", b"x").status, 405, "{target}");
    }
    assert!(server.site().join("in").join(UPLOADS).exists());
}

#[test]
fn pages_of_other_sites_cannot_upload() {
    let server = server("delete = true");
    server.write("f", "content");
    for (fields, status) in [
        ("Origin: http://evil.example\r\n", 403),
        ("Origin: null\r\n", 403),
        ("Sec-Fetch-Site: cross-site\r\n", 403),
        ("Sec-Fetch-Site: same-site\r\n", 403),
        (
            "Sec-Fetch-Site: same-origin\r\nOrigin: http://public.example\r\n",
            201,
        ),
        ("Origin: http://a\r\n", 201),
        ("", 201),
    ] {
        let answer = put(&server, "/new", fields, b"x");
        assert_eq!(answer.status, status, "{fields} {answer:?}");
        let _ = fs::remove_file(server.site().join("new"));
    }
    let removed = server.ask(request(
        "DELETE",
        "/f",
        "Origin: http://evil.example\r\n",
        b"",
    ));
    assert_eq!(removed.status, 403);
}

/// A file system that is too small for a body of known length, and for one of unknown length.
#[test]
#[ignore = "needs root and mounts; run by cargo xtask test"]
fn a_full_file_system_ends_an_upload_and_gets_its_space_back() {
    assert_private_mounts();
    let folder = tempfile::tempdir().unwrap();
    mount(&["-t", "tmpfs", "-o", "size=4m", "none"], folder.path());
    let server = Server::with(|options| {
        let text = "[[site]]\n[[site.upload]]\nkeep-free = 0\noverwrite = true";
        let parsed = ServerOptions::parse(text).unwrap();
        options.sites[0].root = folder.path().to_owned();
        options.sites[0]
            .uploads
            .clone_from(&parsed.sites[0].uploads);
    });
    let body = content(1, 6 << 20);
    assert_eq!(put(&server, "/f", "", &body).status, 507);
    let chunked = |body: &[u8]| {
        let mut client = server.connect();
        client.send("PUT /f HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
        for chunk in body.chunks(100_000) {
            let head = format!("{:x}\r\n", chunk.len());
            client.send([head.as_bytes(), chunk, b"\r\n"].concat());
        }
        client.send("0\r\n\r\n");
        client.response()
    };
    let answer = chunked(&body[..(4 << 20) + (200 << 10)]);
    assert_eq!(answer.status, 507, "{answer:?}");
    let partial = folder.path().join(UPLOADS);
    wait_until("the space is free again", || {
        fs::read_dir(&partial).map_or(0, Iterator::count) == 0
    });
    let answer = chunked(&body[..3 << 20]);
    assert_eq!(answer.status, 201, "{answer:?}");
    assert_eq!(server.get("/f").sha256(), sha256(&body[..3 << 20]));
}

#[test]
fn a_put_without_a_length_empties_nothing() {
    let server = server("overwrite = true");
    server.write("f", "content");
    for request in [
        "PUT /f HTTP/1.1\r\nHost: a\r\n\r\n",
        "PUT /f HTTP/1.0\r\n\r\nother",
    ] {
        assert_eq!(server.ask(request).status, 411, "{request}");
    }
    assert_eq!(server.get("/f").body, b"content");
}

#[test]
fn a_folder_of_partial_files_of_somebody_else_is_named() {
    let server = server("");
    let uploads = server.site().join(UPLOADS);
    fs::create_dir(&uploads).unwrap();
    fs::set_permissions(&uploads, fs::Permissions::from_mode(0o777)).unwrap();
    let answer = put(&server, "/f", "", b"x");
    assert_eq!(answer.status, 500);
    assert!(answer.text().contains(UPLOADS), "{}", answer.text());
    fs::remove_dir(&uploads).unwrap();
    symlink(server.outside(), &uploads).unwrap();
    assert_eq!(put(&server, "/f", "", b"x").status, 500);
    fs::remove_file(&uploads).unwrap();
    fs::write(&uploads, "").unwrap();
    let answer = put(&server, "/f", "", b"x");
    assert_eq!(answer.status, 500);
    assert!(answer.text().contains(UPLOADS), "{}", answer.text());
}

#[test]
fn that_all_origins_may_read_lets_none_upload() {
    for (origins, status) in [("\"*\"", 403), ("\"http://app.example\"", 201)] {
        let site = format!("[site.cors]\norigins = [{origins}]\n[[site.upload]]\nkeep-free = 0");
        let server = Server::configured(&site);
        let answer = put(&server, "/f", "Origin: http://app.example\r\n", b"x");
        assert_eq!(answer.status, status, "{origins} {answer:?}");
    }
}
