//! Hashes of bodies, sent on request with them (RFC 9530).

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use sha2::{Digest, Sha256};
use underpass_testkit::{HttpClient, HttpResponse, wait_for, wait_until};

use crate::support::{Probe, Server, State, find, make_old, pattern};

const WANT: &str = "Want-Repr-Digest: sha-256=5";

fn site(options: &str) -> Server {
    let server = Server::configured(&format!("hashes = true\n{options}"));
    server.write("probe", "probe");
    server.write("f.txt", pattern(300_000));
    server
}

/// Returns the hash in a response's `Repr-Digest`, as bytes.
fn reported(answer: &HttpResponse) -> Option<Vec<u8>> {
    let field = answer.field("repr-digest")?;
    let encoded = field.strip_prefix("sha-256=:").unwrap();
    let encoded = encoded.strip_suffix(':').unwrap();
    Some(unbase64(encoded))
}

/// Decodes base64 with another program.
fn unbase64(encoded: &str) -> Vec<u8> {
    let mut command = Command::new("base64");
    command
        .arg("-d")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(encoded.as_bytes()).unwrap();
    drop(input);
    child.wait_with_output().unwrap().stdout
}

fn hash(content: impl AsRef<[u8]>) -> Option<Vec<u8>> {
    Some(Sha256::digest(content).to_vec())
}

#[test]
fn the_hash_is_that_of_the_whole_file_whatever_is_sent_of_it() {
    let server = site("");
    let mut client = server.connect();
    for (method, fields, status) in [
        ("GET", "", 200),
        ("GET", "", 200),
        ("HEAD", "", 200),
        ("GET", "Range: bytes=10-19\r\n", 206),
        ("GET", "Range: bytes=10-19,100-109\r\n", 206),
        ("HEAD", "Range: bytes=10-19\r\n", 200),
    ] {
        client.send(format!(
            "{method} /f.txt HTTP/1.1\r\nHost: a\r\n{WANT}\r\n{fields}\r\n"
        ));
        let answer = client.try_response(method).unwrap();
        assert_eq!(answer.status, status, "{method} {fields}");
        assert_eq!(
            reported(&answer),
            hash(pattern(300_000)),
            "{method} {fields}"
        );
        match (method, fields) {
            ("GET", "") => assert!(answer.body == pattern(300_000), "another body"),
            ("GET", _) => assert!(find(&answer.body, &pattern(20)[10..20]).is_some()),
            _ => {}
        }
        let length = answer.field("content-length").unwrap();
        assert_eq!(length == "300000", status == 200);
    }
    assert_eq!(client.state(), State::Open);
    // The hashed content is still sent by splice.
    let account = server.stop().account.to_string();
    assert!(account.contains("600000 bytes by splice"), "{account}");
}

#[test]
fn sha256sum_computes_the_same() {
    let server = site("");
    let output = Command::new("sha256sum")
        .arg(server.site().join("f.txt"))
        .output();
    let line = String::from_utf8(output.unwrap().stdout).unwrap();
    let answer = server.get_with("/f.txt", WANT);
    let hex: String = reported(&answer)
        .unwrap()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    assert_eq!(line.split(' ').next(), Some(&hex[..]));
}

#[test]
fn only_a_request_for_a_digest_has_one() {
    let server = site("");
    let off = Server::start();
    off.write("f.txt", pattern(300_000));
    assert_eq!(off.get_with("/f.txt", WANT).field("repr-digest"), None);
    for (field, wanted) in [
        ("sha-256=10", true),
        ("sha-512=10, sha-256=1;x", true),
        ("sha-512=3\r\nWant-Repr-Digest: sha-256=3", true),
        ("sha-256=0", false),
        ("sha-512=10", false),
        ("sha-256", false),
        ("sha-256=1,,", false),
        ("sha-256=5\r\nWant-Repr-Digest: %", false),
    ] {
        let answer = server.get_with("/f.txt", &format!("Want-Repr-Digest: {field}"));
        assert_eq!(answer.status, 200, "{field}");
        assert_eq!(reported(&answer).is_some(), wanted, "{field}");
        assert!(answer.body == pattern(300_000), "{field}");
    }
    assert_eq!(server.get("/f.txt").field("repr-digest"), None);
}

#[test]
fn what_is_no_content_of_the_file_has_none() {
    let server = site("error-pages = {404 = '/f.txt'}\ncompress = ['gzip']");
    let tag = server.get("/f.txt").field("etag").unwrap().to_owned();
    for (target, fields, status) in [
        ("/f.txt", format!("If-None-Match: {tag}"), 304),
        ("/f.txt", "If-Match: \"x\"".to_owned(), 412),
        ("/f.txt", "Range: bytes=300000-".to_owned(), 416),
        ("/none", "Accept: */*".to_owned(), 404),
        ("/f.txt?hash=sha256", "Accept: */*".to_owned(), 200),
        ("/f.txt", "Accept-Encoding: gzip".to_owned(), 200),
        ("/", "Accept: */*".to_owned(), 200),
    ] {
        let answer = server.get_with(target, &format!("{WANT}\r\n{fields}"));
        assert_eq!(answer.status, status, "{target} {fields}");
        assert_eq!(answer.field("repr-digest"), None, "{target} {fields}");
    }
    // A client that prefers the plain file gets it, with its hash.
    let fields = format!("{WANT}\r\nAccept-Encoding: gzip;q=0.5, identity");
    assert_eq!(
        reported(&server.get_with("/f.txt", &fields)),
        hash(pattern(300_000))
    );
}

#[test]
fn a_copy_in_a_coding_has_a_hash_of_its_own() {
    let server = site("precompressed = ['gzip']");
    server.write("f.txt.gz", "a copy");
    let copy = server.get_with("/f.txt", &format!("{WANT}\r\nAccept-Encoding: gzip"));
    assert_eq!(copy.field("content-encoding"), Some("gzip"));
    assert_eq!(
        (reported(&copy), &copy.body[..]),
        (hash("a copy"), &b"a copy"[..])
    );
    let plain = server.get_with("/f.txt", WANT);
    assert_eq!(reported(&plain), hash(pattern(300_000)));
}

#[test]
fn a_hash_follows_its_file() {
    let server = site("");
    let path = server.site().join("f.txt");
    for content in ["one", "two", "", "three"] {
        fs::write(&path, content).unwrap();
        let answer = server.get_with("/f.txt", WANT);
        assert_eq!(
            (reported(&answer), &answer.body[..]),
            (hash(content), content.as_bytes())
        );
        make_old(&path);
        for _ in ["computed", "remembered", "from memory"] {
            let answer = server.get_with("/f.txt", WANT);
            assert_eq!(
                (reported(&answer), &answer.body[..]),
                (hash(content), content.as_bytes())
            );
        }
    }
    // Another file with the same size and date.
    let other = server.site().join("other");
    fs::write(&other, "THREE").unwrap();
    make_old(&other);
    fs::rename(&other, &path).unwrap();
    assert_eq!(reported(&server.get_with("/f.txt", WANT)), hash("THREE"));
}

/// Two files are hashed at a time and 64 requests wait; later ones are answered without a hash.
#[test]
fn beyond_the_bounds_the_file_comes_without() {
    let server = site("");
    let huge = fs::File::create(server.site().join("huge")).unwrap();
    huge.set_len(1 << 40).unwrap();
    const LARGE: usize = 1_500_000;
    server.write("large", pattern(LARGE));
    let ask = |target: &str| {
        let mut client = HttpClient::connect(server.address());
        client.send(format!(
            "GET {target} HTTP/1.1\r\nHost: a\r\n{WANT}\r\n\r\n"
        ));
        client
    };
    const BOUND: usize = 66;
    let waiting: Vec<HttpClient> = (0..BOUND).map(|_| ask("/huge")).collect();
    // A late request that is queued before some of the earlier ones waits for ever. With one more
    // than there are slots, at least one is answered.
    let mut late: Vec<HttpClient> = (0..=BOUND).map(|_| ask("/large")).collect();
    let answered = wait_for("answer", || {
        late.iter().position(|client| {
            client.socket.set_nonblocking(true).unwrap();
            let there = client.socket.peek(&mut [0]).is_ok();
            client.socket.set_nonblocking(false).unwrap();
            there
        })
    });
    let answer = late[answered].response();
    assert_eq!((answer.status, reported(&answer)), (200, None));
    assert!(answer.body == pattern(LARGE), "another body");
    // Small files have a separate queue.
    let small = server.get_with("/f.txt", WANT);
    assert_eq!(reported(&small), hash(pattern(300_000)));
    // A client that disconnects frees its slot.
    drop((waiting, late));
    wait_until("room", || {
        reported(&server.get_with("/large", WANT)).is_some()
    });
}
