//! Forms: POST of `multipart/form-data` to a folder.

use std::fs;

use super::support::{Probe, Server, State, pattern};
use underpass_testkit::HttpResponse;

const BOUNDARY: &str = "----boundary";

/// Starts a site whose folder `/in` takes files in.
fn server(more: &str) -> Server {
    let server = Server::configured(&format!("[[site.upload]]\npath = '/'\n{more}"));
    server.write("probe", "probe");
    fs::create_dir(server.site().join("in")).unwrap();
    server
}

fn file(name: &str, content: impl AsRef<[u8]>) -> Vec<u8> {
    let head = format!(
        "--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{name}\"\r\n\
         Content-Type: application/octet-stream\r\n\r\n"
    );
    [head.as_bytes(), content.as_ref(), b"\r\n"].concat()
}

fn form(files: &[Vec<u8>]) -> Vec<u8> {
    [files.concat(), format!("--{BOUNDARY}--\r\n").into_bytes()].concat()
}

/// Returns a request with this body and these further fields, one per line.
fn post(target: &str, fields: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "POST {target} HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\
         Content-Type: multipart/form-data; boundary={BOUNDARY}\r\n{fields}\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

fn send(server: &Server, files: &[Vec<u8>]) -> HttpResponse {
    server.ask(post("/in/", "", &form(files)))
}

/// The visible names in `/in`.
fn stored(server: &Server) -> Vec<String> {
    let entries = fs::read_dir(server.site().join("in")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.collect();
    names.sort();
    names
}

/// Asserts that nothing is left of files that were not stored.
fn assert_no_partial_file(server: &Server) {
    let Ok(entries) = fs::read_dir(server.site().join(".underpass-uploads")) else {
        return;
    };
    assert_eq!(entries.count(), 0, "partial files");
}

#[test]
fn files_of_a_form_are_stored_under_their_names() {
    let server = server("");
    let large = pattern(3 << 20);
    let almost = format!("\r\n--{BOUNDARY}").repeat(1)[..10].repeat(50_000);
    let files = [
        file("a.txt", "content"),
        file("empty", ""),
        file("large", &large),
        file("almost", &almost),
        file("\u{e4} %22q%22.txt", "quoted"),
        file("C:\\x\\y", "windows"),
        file("/etc/passwd", "no"),
        file("", ""),
    ];
    let text =
        format!("--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"text\"\r\n\r\nvalue\r\n");
    let body = form(&[&[text.into_bytes()], &files[..]].concat());
    let mut client = server.connect();
    client.send(post("/in/", "", &body));
    let answer = client.response();
    assert_eq!(answer.status, 201, "{}", answer.text());
    let names = [
        "a.txt",
        "empty",
        "large",
        "almost",
        "\u{e4} \"q\".txt",
        "y",
        "passwd",
    ];
    assert_eq!(
        answer.text(),
        format!("201 Created: stored\n{}\n", names.join("\n"))
    );
    assert_eq!(client.state(), State::Open);
    let read = |name: &str| fs::read(server.site().join("in").join(name)).unwrap();
    assert!(read("large") == large && read("almost") == almost.as_bytes());
    assert_eq!(read("a.txt"), b"content");
    assert_eq!(read("empty"), b"");
    assert_eq!(read("\u{e4} \"q\".txt"), b"quoted");
    assert_eq!(read("passwd"), b"no");
    assert_eq!(stored(&server).len(), names.len());
    assert_no_partial_file(&server);
}

#[test]
fn a_form_in_chunks_is_the_same() {
    let server = server("");
    let content = pattern(700_000);
    let body = form(&[file("a", &content), file("b", "b")]);
    let mut request = format!(
        "POST /in HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\
         Content-Type: multipart/form-data; boundary=\"{BOUNDARY}\"\r\n\r\n"
    )
    .into_bytes();
    for chunk in body.chunks(7_001) {
        request.extend(format!("{:x}\r\n", chunk.len()).as_bytes());
        request.extend_from_slice(chunk);
        request.extend(b"\r\n");
    }
    request.extend(b"0\r\n\r\n");
    let mut client = server.connect();
    client.send(request);
    assert_eq!(client.response().text(), "201 Created: stored\na\nb\n");
    assert_eq!(client.state(), State::Open);
    assert!(fs::read(server.site().join("in/a")).unwrap() == content);
}

#[test]
fn a_browser_is_sent_to_the_folder() {
    let server = server("");
    for (number, (target, location)) in [("/in/", "./"), ("/in", "./in/"), ("/", "./")]
        .into_iter()
        .enumerate()
    {
        let body = form(&[file(&format!("f{number}"), "x")]);
        let accept =
            "Accept: text/html,application/xhtml+xml,*/*;q=0.8\r\nSec-Fetch-Site: same-origin\r\n";
        let answer = server.ask(post(target, accept, &body));
        assert_eq!(answer.status, 303, "{target}: {}", answer.text());
        assert_eq!(answer.field("location"), Some(location));
    }
    assert_eq!(stored(&server), ["f0", "f1"]);
}

#[test]
fn a_taken_name_ends_the_form_and_earlier_files_stay() {
    let server = server("");
    server.write("in/taken", "before");
    let answer = send(
        &server,
        &[file("a", "1"), file("taken", "2"), file("z", "3")],
    );
    assert_eq!(
        answer.text(),
        "409 Conflict: the name is taken, and files are not replaced here\n\
         not stored: taken\nstored: a\n"
    );
    assert_eq!(stored(&server), ["a", "taken"]);
    assert_eq!(fs::read(server.site().join("in/taken")).unwrap(), b"before");
    assert_no_partial_file(&server);
    let twice = send(&server, &[file("b", "1"), file("b", "2")]);
    assert_eq!((twice.status, stored(&server).len()), (409, 3));
}

#[test]
fn files_are_replaced_where_that_is_allowed() {
    let server = server("overwrite = true");
    for status in [201, 200] {
        let answer = send(&server, &[file("a", status.to_string())]);
        assert_eq!(answer.status, status, "{}", answer.text());
        assert_eq!(
            fs::read_to_string(server.site().join("in/a")).unwrap(),
            status.to_string()
        );
    }
    let kept = server.ask(post(
        "/in/",
        "If-None-Match: *\r\n",
        &form(&[file("a", "x")]),
    ));
    assert_eq!(kept.status, 412);
    assert_eq!(fs::read(server.site().join("in/a")).unwrap(), b"200");
}

#[test]
fn names_cannot_climb_hide_or_deceive() {
    let server = server("");
    for name in [
        "..",
        ".",
        ".hidden",
        "a/..",
        "x/",
        "C:\\..",
        "a%0Ab",
        "a%0d%0aSet-Cookie: x",
        &"n".repeat(256),
    ] {
        let answer = send(&server, &[file("before", ""), file(name, "x")]);
        assert_eq!(answer.status, 400, "{name:?}: {}", answer.text());
        let lines: Vec<_> = answer.text().lines().map(str::to_owned).collect();
        assert_eq!(lines.len(), 3, "{name:?}: {lines:?}");
        assert!(lines[1].starts_with("not stored: ") && lines[2] == "stored: before");
        fs::remove_file(server.site().join("in/before")).unwrap();
    }
    for name in ["a\0b", "a\u{1}b", "a\u{7f}b", "a\"b"] {
        let answer = send(&server, &[file(name, "x")]);
        assert_eq!(answer.status, 400, "{name:?}: {}", answer.text());
    }
    assert_eq!(stored(&server), [""; 0]);
    assert_no_partial_file(&server);
}

#[test]
fn hostile_bodies_store_nothing() {
    let server = server("");
    let unclosed = file("a", "content");
    let open = format!("--{BOUNDARY}\r\nContent-Disposition: form-data; filename=\"a\"\r\n\r\nx");
    let huge = format!(
        "--{BOUNDARY}\r\nContent-Disposition: form-data; filename=\"{}\"\r\n\r\n",
        "h".repeat(60_000)
    );
    let longer = file("a", format!("x\r\n--{BOUNDARY}longer"));
    for (body, why) in [
        (open.into_bytes(), "without its closing boundary"),
        (b"no form".to_vec(), "does not begin with the boundary"),
        (Vec::new(), "without its closing boundary"),
        (huge.into_bytes(), "too long"),
        (form(&[longer]), "malformed"),
        (form(&[]), "no file"),
        (form(&[file("", "")]), "no file"),
    ] {
        let answer = server.ask(post("/in/", "", &body));
        assert_eq!(answer.status, 400, "{}", answer.text());
        assert!(answer.text().contains(why), "{why}: {}", answer.text());
        assert_eq!(stored(&server), [""; 0], "{why}");
        assert_no_partial_file(&server);
    }
    // The boundary that ends a part belongs to it.
    let answer = server.ask(post("/in/", "", &unclosed));
    assert_eq!(answer.status, 400, "{}", answer.text());
    assert_eq!(stored(&server), [""; 0]);
    assert_no_partial_file(&server);
}

#[test]
fn ten_thousand_parts_are_too_many() {
    let server = server("sync = 'none'");
    let field = format!("--{BOUNDARY}\r\nContent-Disposition: form-data; name=x\r\n\r\n\r\n");
    let body = [field.repeat(10_000).into_bytes(), form(&[])].concat();
    let mut client = server.connect();
    client.send(post("/in/", "", &body));
    assert_eq!(client.response().status, 413);
}

#[test]
fn limits_are_those_of_put() {
    let server = server("file-bytes-max = 1000");
    let answer = send(
        &server,
        &[file("fits", [b'x'; 1000]), file("large", [b'x'; 1001])],
    );
    assert_eq!(answer.status, 413, "{}", answer.text());
    assert!(
        answer.text().ends_with("not stored: large\nstored: fits\n"),
        "{}",
        answer.text()
    );
    assert_eq!(stored(&server), ["fits"]);
    assert_no_partial_file(&server);
    let full = Server::configured("[[site.upload]]\nkeep-free = '8EiB'");
    let answer = full.ask(post("/", "", &form(&[file("a", "x")])));
    assert_eq!(answer.status, 507, "{}", answer.text());
}

#[test]
fn forms_at_once_are_bounded() {
    let server = server("at-once-max = 1");
    let mut busy = server.connect();
    let whole = post("/in/", "", &form(&[file("busy", [b'x'; 1 << 20])]));
    busy.send(&whole[..whole.len() - 10]);
    // It has its place once the file is being received.
    let uploads = server.site().join(".underpass-uploads");
    underpass_testkit::wait_until("a partial file", || {
        fs::read_dir(&uploads).is_ok_and(|entries| entries.count() > 0)
    });
    assert_eq!(send(&server, &[file("second", "x")]).status, 503);
    busy.send(&whole[whole.len() - 10..]);
    assert_eq!(busy.response().status, 201);
}

#[test]
fn a_form_that_is_cut_leaves_nothing() {
    let server = server("");
    let whole = post("/in/", "", &form(&[file("a", pattern(1 << 20))]));
    let mut client = server.connect();
    client.send(&whole[..whole.len() - 100]);
    let uploads = server.site().join(".underpass-uploads");
    underpass_testkit::wait_until("a partial file", || {
        fs::read_dir(&uploads).is_ok_and(|entries| entries.count() > 0)
    });
    drop(client);
    underpass_testkit::wait_until("its end", || {
        fs::read_dir(&uploads).is_ok_and(|entries| entries.count() == 0)
    });
    assert_eq!(stored(&server), [""; 0]);
}

#[test]
fn other_sites_and_other_bodies_are_refused() {
    let server = server("");
    let body = form(&[file("a", "x")]);
    for (fields, status) in [
        ("Sec-Fetch-Site: cross-site\r\n", 403),
        ("Sec-Fetch-Site: same-site\r\n", 403),
        ("Origin: http://evil.example\r\n", 403),
        ("Origin: null\r\n", 403),
        ("Origin: http://a\r\n", 201),
    ] {
        let answer = server.ask(post("/in/", fields, &body));
        assert_eq!(answer.status, status, "{fields}");
    }
    let other = "POST /in/ HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\
                 Content-Type: application/x-www-form-urlencoded\r\n\r\nx";
    assert_eq!(server.ask(other).status, 415);
    let unbounded = "POST /in/ HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\
                     Content-Type: multipart/form-data\r\n\r\n";
    assert_eq!(server.ask(unbounded).status, 400);
    for (target, status) in [("/none/new/", 201), ("/probe", 409), ("/probe/", 409)] {
        let answer = server.ask(post(target, "", &body));
        assert_eq!(answer.status, status, "{target}: {}", answer.text());
    }
    let elsewhere = Server::configured(
        "[[site.upload]]\npath = '/'\n[site.access]\n\
         [[site.access.rule]]\nmethods = ['GET']\nallow = ['everyone']\n\
         [[site.access.rule]]\npaths = ['*.txt']\nallow = ['everyone']\n",
    );
    let answer = elsewhere.ask(post("/", "", &form(&[file("a.txt", "x")])));
    assert_eq!(answer.status, 403, "{}", answer.text());
}

#[test]
fn rules_are_asked_about_each_file() {
    let server = Server::configured(
        "[[site.upload]]\npath = '/'\n[[site.access.rule]]\npaths = ['secret*']\nallow = []\n\
         [[site.access.rule]]\nallow = ['everyone']\n",
    );
    let answer = server.ask(post(
        "/",
        "",
        &form(&[file("a", "x"), file("secret.txt", "x")]),
    ));
    assert_eq!(answer.status, 403, "{}", answer.text());
    assert!(
        answer
            .text()
            .ends_with("not stored: secret.txt\nstored: a\n"),
        "{}",
        answer.text()
    );
    assert!(!server.site().join("secret.txt").exists());
}

#[test]
fn a_form_that_stalls_is_given_up() {
    let server = Server::with(|options| {
        options.connections.stall_timeout = std::time::Duration::from_millis(300);
        options.sites[0].uploads = vec![underpass_serve::UploadOptions::default()];
    });
    let whole = post("/", "", &form(&[file("a", pattern(1 << 20))]));
    let mut client = server.connect();
    client.send(&whole[..whole.len() / 2]);
    assert_eq!(client.response().status, 408);
    assert!(!server.site().join("a").exists());
    assert_no_partial_file(&server);
}
