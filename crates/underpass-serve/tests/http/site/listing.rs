//! Listings of folders as a page and as JSON, and hashes of files.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;

use serde_json::Value;
use sha2::{Digest, Sha256};
use underpass_testkit::{HttpClient, HttpResponse, sha256};

use crate::support::{Probe, Server, State, pattern};

/// Starts a site with files of every kind.
fn site() -> Server {
    let server = Server::start();
    server.write("probe", "probe");
    server.write("d/a2", "22");
    server.write("d/a10", "4444");
    server.write("d/B", "1");
    server.write("d/.hidden", "hidden");
    server.write("d/sub/f", "f");
    server.write("d/<i>&\"'#:?%", "odd");
    server.write("outside", "outside");
    let folder = server.site().join("d");
    fs::write(folder.join(OsStr::from_bytes(b"\xff.bin")), "no text").unwrap();
    fs::write(server.outside().join("secret"), "secret").unwrap();
    symlink("../outside", folder.join("link")).unwrap();
    symlink("../../secret", folder.join("leads-out")).unwrap();
    symlink("nowhere", folder.join("dangling")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        folder.join("fifo"),
        rustix::fs::FileType::Fifo,
        0o644.into(),
        0,
    )
    .unwrap();
    server
}

fn json(server: &Server, target: &str) -> Value {
    let answer = server.get(target);
    assert_eq!(answer.field("content-type"), Some("application/json"));
    serde_json::from_slice(&answer.body).unwrap()
}

fn names(listing: &Value) -> Vec<&str> {
    let entries = listing["entries"].as_array().unwrap();
    entries
        .iter()
        .map(|entry| entry["name"].as_str().unwrap())
        .collect()
}

fn page(server: &Server, target: &str) -> String {
    let answer = server.get(target);
    assert_eq!(answer.status, 200);
    assert_eq!(
        answer.field("content-type"),
        Some("text/html; charset=utf-8")
    );
    String::from_utf8(answer.body).unwrap()
}

#[test]
fn a_listing_names_what_can_be_requested_and_nothing_else() {
    let server = site();
    let listing = json(&server, "/d/?format=json");
    let odd = "<i>&\"'#:?%";
    assert_eq!(
        names(&listing),
        ["sub", odd, "a2", "a10", "B", "link", "\u{fffd}.bin"]
    );
    assert_eq!(listing["path"], "/d/");
    assert_eq!(listing["sorted"], true);
    assert_eq!(
        (&listing["folders"], &listing["files"], &listing["bytes"]),
        (&1.into(), &6.into(), &(3 + 2 + 4 + 1 + 7 + 7).into())
    );
    let entry = |name: &str| {
        let mut entries = listing["entries"].as_array().unwrap().iter();
        entries.find(|entry| entry["name"] == name).unwrap()
    };
    assert_eq!(entry("sub")["type"], "folder");
    assert_eq!(entry("sub").get("size"), None);
    assert_eq!(entry("a2")["type"], "file");
    assert_eq!(entry("a2")["modified"], "1994-11-06T08:49:37.123456789Z");
    assert_eq!(entry("link")["size"], 7, "a link is what it leads to");
    assert_eq!(entry("\u{fffd}.bin")["encoded_name"], "%FF.bin");
    assert_eq!(entry("a2").get("encoded_name"), None);
}

#[test]
fn every_link_of_a_page_leads_somewhere() {
    let server = site();
    let page = page(&server, "/d/");
    let links: Vec<_> = page
        .split("href=\"./")
        .skip(1)
        .map(|rest| rest.split('"').next().unwrap())
        .collect();
    assert_eq!(links.len(), 7, "{page}");
    for link in links {
        assert_eq!(server.get(&format!("/d/{link}")).status, 200, "{link}");
    }
    for never in [
        "/.hidden",
        ">.hidden",
        "leads-out",
        "dangling",
        "fifo",
        "<i>&\"",
    ] {
        assert!(!page.contains(never), "{never}");
    }
}

#[test]
fn it_is_sorted_and_searched_as_the_query_asks() {
    let server = site();
    for (query, expected) in [
        ("sort=size&order=desc&search=a", "a10 a2"),
        ("search=A", "a2 a10"),
        ("search=%2e", "\u{fffd}.bin"),
        ("search=<I>%26", "<i>&\"'#:?%"),
        ("search=nothing", ""),
    ] {
        let listing = json(&server, &format!("/d/?format=json&{query}"));
        assert_eq!(names(&listing).join(" "), expected, "{query}");
    }
    let html = page(&server, "/d/?sort=size&order=desc&search=%22%3E%3Cx");
    assert!(html.contains("value=\"&quot;&gt;&lt;x\""), "{html}");
    assert!(!html.contains("\"><x"), "{html}");
    let html = page(&server, "/d/?sort=size&order=desc");
    assert!(html.contains("aria-sort=\"descending\"><a href=\"?sort=size&amp;order=asc\""));
    assert_eq!(html.matches(" aria-sort=").count(), 1);
}

#[test]
fn a_page_allows_nothing_that_is_not_its_own() {
    let server = site();
    let answer = server.get("/d/");
    let policy = answer.field("content-security-policy").unwrap();
    assert!(policy.starts_with("default-src 'none'; "), "{policy}");
    assert!(!policy.contains("unsafe"), "{policy}");
    let html = String::from_utf8(answer.body.clone()).unwrap();
    for (directive, element) in [("style-src", "style"), ("script-src", "script")] {
        let (_, rest) = html.split_once(&format!("<{element}>")).unwrap();
        let (content, _) = rest.split_once("</").unwrap();
        let hash = base64(&Sha256::digest(content));
        assert!(
            policy.contains(&format!("{directive} 'sha256-{hash}'")),
            "{policy} lacks {hash}"
        );
    }
    for (field, value) in [
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("vary", "Accept"),
        ("transfer-encoding", "chunked"),
    ] {
        assert_eq!(answer.field(field), Some(value));
    }
    for outside in [
        "http:", "https:", "src=", "style=", "onclick", "@import", "url(",
    ] {
        assert!(!html.contains(outside), "{outside}");
    }
}

/// Encodes base64 slowly, independently of the server.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bits: String = bytes.iter().map(|byte| format!("{byte:08b}")).collect();
    let mut text = String::new();
    for six in bits.as_bytes().chunks(6) {
        let digit = std::str::from_utf8(six).unwrap();
        let digit = usize::from_str_radix(&format!("{digit:0<6}"), 2).unwrap();
        text.push(DIGITS[digit].into());
    }
    while !text.len().is_multiple_of(4) {
        text.push('=');
    }
    text
}

#[test]
fn json_is_for_those_who_prefer_it() {
    let server = site();
    let kind = |accept: &str| {
        let answer = server.ask(format!(
            "GET /d/ HTTP/1.1\r\nHost: a\r\nAccept: {accept}\r\n\r\n"
        ));
        assert_eq!(answer.field("vary"), Some("Accept"));
        answer.field("content-type").unwrap().to_owned()
    };
    assert_eq!(kind("application/json"), "application/json");
    assert_eq!(kind("text/html, */*;q=0.8"), "text/html; charset=utf-8");
    assert_eq!(
        kind("text/html;q=0.5, application/json"),
        "application/json"
    );
}

#[test]
fn head_is_answered_as_get_without_a_body() {
    let server = site();
    for target in [
        "/d/",
        "/d/?format=json",
        "/d/?download=tar",
        "/d/?download=tar.zst",
    ] {
        let mut client = server.connect();
        let head = client.ask_head(target);
        let undated = |answer: &HttpResponse| {
            let lines = answer.head.lines();
            let kept = lines.filter(|line| !line.starts_with("Date: "));
            kept.collect::<Vec<_>>().join("\n")
        };
        assert_eq!(undated(&head), undated(&server.get(target)));
        assert_eq!(client.state(), State::Open);
    }
}

#[test]
fn an_old_client_gets_the_body_to_the_end_of_the_connection() {
    let server = site();
    let new = server.get("/d/?format=json").body;
    for extra in ["", "Connection: keep-alive\r\n"] {
        let mut client = server.connect();
        client.send(format!("GET /d/?format=json HTTP/1.0\r\n{extra}\r\n"));
        let answer = client.response();
        assert_eq!(answer.field("transfer-encoding"), None);
        assert_eq!(answer.field("connection"), Some("close"));
        assert_eq!(answer.body, new);
    }
}

#[test]
fn requests_behind_a_listing_are_answered() {
    let server = site();
    let mut client = server.connect();
    let one = "GET /d/?format=json HTTP/1.1\r\nHost: a\r\n\r\n";
    client.send(one.repeat(3));
    let first = client.response().body;
    assert_eq!(client.response().body, first);
    assert_eq!(client.response().body, first);
    assert_eq!(client.state(), State::Open);
}

#[test]
fn what_is_turned_off_is_not_there() {
    let server = Server::with(|options| {
        options.sites[0].listing = false;
    });
    server.write("d/f", "f");
    for target in ["/d/", "/", "/d/?format=json", "/d/?download=tar"] {
        assert_eq!(server.get(target).status, 403, "{target}");
    }
    assert_eq!(server.get("/d/f?hash=sha256").body, b"f");
    let archives_off = Server::configured("archives = false");
    let html = String::from_utf8(archives_off.get("/").body).unwrap();
    assert!(!html.contains("download"), "{html}");
    assert_eq!(archives_off.get("/?download=tar").status, 403);
    let archives_only = Server::configured("listing = false\narchives = true");
    assert_eq!(archives_only.get("/").status, 403);
    assert_eq!(archives_only.get("/?download=tar").status, 200);
}

#[test]
fn a_folder_without_its_slash_keeps_its_query() {
    let server = site();
    let answer = server.get("/d?sort=size&format=json");
    assert_eq!(answer.status, 301);
    assert_eq!(answer.field("location"), Some("d/?sort=size&format=json"));
}

#[test]
fn an_index_is_sent_instead_of_a_listing() {
    let server = site();
    server.write("d/index.html", "index");
    assert_eq!(server.get("/d/").body, b"index");
    assert_eq!(server.get("/d/?download=tar").status, 200);
    for hidden in ["/.git/?download=tar", "/d/.x/"] {
        server.write(".git/f", "f");
        server.write("d/.x/f", "f");
        assert_eq!(server.get(hidden).status, 404, "{hidden}");
    }
}

fn hashing() -> Server {
    let server = Server::with(|options| options.sites[0].hashes = true);
    server.write("probe", "probe");
    server
}

#[test]
fn a_hash_is_a_line_as_sha256sum_writes_it() {
    let server = hashing();
    let content = pattern(3 << 20);
    server.write("d/a \\b", &content);
    let file = server.get("/d/a%20%5Cb");
    let line = |hash: &str| format!("\\{hash}  a \\\\b\n").into_bytes();
    for _ in ["computed", "remembered"] {
        let answer = server.get("/d/a%20%5Cb?hash=sha256");
        assert_eq!(answer.body, line(&sha256(&content)));
        assert_eq!(
            answer.field("content-type"),
            Some("text/plain; charset=utf-8")
        );
        for field in ["etag", "last-modified"] {
            assert_eq!(answer.field(field), file.field(field));
        }
    }
    let answer = server.get("/d/a%20%5Cb?hash=blake3");
    assert_eq!(answer.body, line(blake3::hash(&content).to_hex().as_str()));
    assert_eq!(server.get("/d/a%20%5Cb?hash=md5").body, content);
    assert_eq!(server.get("/none?hash=sha256").status, 404);
    let mut client = server.connect();
    client.send("HEAD /d/a%20%5Cb?hash=blake3 HTTP/1.1\r\nHost: a\r\n\r\n");
    let head = client.head();
    assert_eq!(
        head.field("content-length"),
        Some(&answer.body.len().to_string()[..])
    );
    assert_eq!(client.state(), State::Open);
}

#[test]
fn a_hash_follows_its_file() {
    let server = hashing();
    for content in ["one", "two", "three"] {
        server.write("f", content);
        let answer = server.get("/f?hash=sha256");
        let expected = format!("{}  f\n", sha256(content));
        assert_eq!(answer.body, expected.into_bytes());
    }
}

/// Hashing a sparse file takes minutes, and the server serves other clients meanwhile.
#[test]
fn hashing_stops_when_the_client_goes_away() {
    let server = hashing();
    server.write("small", "small");
    let huge = fs::File::create(server.site().join("huge")).unwrap();
    huge.set_len(1 << 40).unwrap();
    let ask = |target: &str| {
        let mut client = server.connect();
        client.ask(target);
        client
    };
    // More than may be hashed at the same time.
    let gone: Vec<HttpClient> = (0..8).map(|_| ask("/huge?hash=blake3")).collect();
    assert_eq!(server.get("/probe").body, b"probe");
    let mut waiting = ask("/small?hash=sha256");
    drop(gone);
    assert!(waiting.response().body.ends_with(b"  small\n"));
}
