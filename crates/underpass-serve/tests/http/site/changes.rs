//! Files that change while they are sent: the client gets the announced body, or the connection
//! ends visibly.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;

use underpass_testkit::{HttpClient, HttpResponse, wait_until};

use crate::support::digest::sketch;
use crate::support::{Probe, Server, State, make_old, pattern};

/// Far more than the buffers of both sockets hold.
const SIZE: usize = 24 << 20;
const GET: &str = "GET /f HTTP/1.1\r\nHost: a\r\n\r\n";

fn content() -> Vec<u8> {
    pattern(1 << 20).repeat(SIZE >> 20)
}

/// Returns a server and a client that has read the head of a response and nothing more.
fn stalled() -> (Server, HttpClient, HttpResponse) {
    let server = Server::start();
    server.write("probe", "probe");
    server.write("f", content());
    let mut client = HttpClient::connect_slow(server.address());
    client.send(GET);
    let head = client.head();
    assert_eq!(head.field("content-length"), Some(&SIZE.to_string()[..]));
    (server, client, head)
}

/// Reads the rest of a body, which must be complete.
fn complete(mut client: HttpClient) {
    let body = client.read_exact(SIZE).unwrap();
    assert!(body == content(), "the body is another");
    assert_eq!(client.state(), State::Open);
}

#[test]
fn a_file_that_shrinks_ends_the_connection() {
    let (server, mut client, _) = stalled();
    let file = OpenOptions::new()
        .write(true)
        .open(server.site().join("f"))
        .unwrap();
    file.set_len(SIZE as u64 / 2).unwrap();
    let body = client.rest();
    assert!(body.len() < SIZE, "nothing was missing");
    assert!(content().starts_with(&body[..body.len().min(SIZE / 2)]));
}

/// A popular file is neither opened nor checked for each request, but every change is visible
/// immediately.
#[test]
fn whatever_happens_to_a_popular_file_shows_at_once() {
    let server = Server::start();
    let path = server.site().join("f");
    let beside = server.outside().join("other-name");
    for round in 0..50u8 {
        // The first requests of a connection are read before the event loop reports them.
        let mut client = server.connect();
        let mut get = |expected: Option<&[u8]>| {
            client.send(GET);
            let answer = client.response();
            match expected {
                Some(content) => {
                    assert!(answer.status == 200 && answer.body == content, "{answer:?}");
                }
                None => assert_eq!(answer.status, 404),
            }
        };
        server.write("f", vec![round; 1000]);
        (0..4).for_each(|_| get(Some(&[round; 1000])));
        // In place, with the same size and date.
        fs::write(&path, [b'x'; 1000]).unwrap();
        make_old(&path);
        (0..4).for_each(|_| get(Some(&[b'x'; 1000])));
        // Through another hard link.
        fs::hard_link(&path, &beside).unwrap();
        fs::write(&beside, [b'y'; 10]).unwrap();
        make_old(&path);
        (0..4).for_each(|_| get(Some(&[b'y'; 10])));
        fs::remove_file(&beside).unwrap();
        // Replaced, then deleted.
        server.write("new", [b'z'; 20]);
        fs::rename(server.site().join("new"), &path).unwrap();
        (0..4).for_each(|_| get(Some(&[b'z'; 20])));
        fs::remove_file(&path).unwrap();
        get(None);
    }
}

#[test]
fn a_file_that_shrinks_before_its_second_range_ends_the_connection() {
    let server = Server::start();
    server.write("f", content());
    let mut client = HttpClient::connect_slow(server.address());
    let last = SIZE - 10;
    client.send(format!(
        "GET /f HTTP/1.1\r\nHost: a\r\nRange: bytes=0-{},{last}-\r\n\r\n",
        SIZE / 2
    ));
    let head = client.head();
    assert_eq!(head.status, 206);
    let promised: usize = head.field("content-length").unwrap().parse().unwrap();
    let file = OpenOptions::new()
        .write(true)
        .open(server.site().join("f"))
        .unwrap();
    file.set_len(last as u64).unwrap();
    assert!(client.rest().len() < promised);
}

#[test]
fn a_file_that_grows_is_sent_as_it_was() {
    let (server, client, _) = stalled();
    let mut file = OpenOptions::new()
        .append(true)
        .open(server.site().join("f"))
        .unwrap();
    file.write_all(b"more").unwrap();
    drop(file);
    complete_then_probe_length(client, &server, SIZE + 4);
}

fn complete_then_probe_length(client: HttpClient, server: &Server, length: usize) {
    complete(client);
    let mut client = server.connect();
    client.send("HEAD /f HTTP/1.1\r\nHost: a\r\n\r\n");
    let head = client.head();
    assert_eq!(head.field("content-length"), Some(&length.to_string()[..]));
}

#[test]
fn a_file_replaced_by_rename_is_sent_to_its_end() {
    let (server, client, old) = stalled();
    server.write("new", "new");
    fs::rename(server.site().join("new"), server.site().join("f")).unwrap();
    complete(client);
    let new = server.get("/f");
    assert_eq!(new.body, b"new");
    assert_ne!(new.field("etag"), old.field("etag"));
}

#[test]
fn a_file_that_is_unlinked_is_sent_to_its_end() {
    let (server, client, _) = stalled();
    fs::remove_file(server.site().join("f")).unwrap();
    complete(client);
    assert_eq!(server.get("/f").status, 404);
}

/// Kinds of requests for a file: all of it, a range, several ranges; each larger than sockets hold.
const FORMS: [(&str, &str); 3] = [
    ("", "200 whole"),
    (
        "Range: bytes=1000000-22000000\r\n",
        "206 1000000-22000000/25165824",
    ),
    (
        "Range: bytes=0-11999999,13000000-\r\n",
        "206 parts 0-11999999/25165824 13000000-25165823/25165824",
    ),
];

/// Returns a server and a client that has sent such a request and read only the head.
fn stalled_by(form: &str) -> (Server, HttpClient, HttpResponse) {
    let server = Server::start();
    server.write("probe", "probe");
    server.write("f.txt", content());
    let mut client = HttpClient::connect_slow(server.address());
    client.send(format!("GET /f.txt HTTP/1.1\r\nHost: a\r\n{form}\r\n"));
    let head = client.head();
    (server, client, head)
}

#[test]
fn what_was_promised_is_sent_though_the_file_grows_or_its_name_goes() {
    type Change = fn(&Server);
    let changes: [(&str, Change); 3] = [
        ("grows", |server| {
            let path = server.site().join("f.txt");
            let mut file = OpenOptions::new().append(true).open(path).unwrap();
            file.write_all(&[b'm'; 100_000]).unwrap();
        }),
        ("is replaced", |server| {
            server.write("new", "new");
            fs::rename(server.site().join("new"), server.site().join("f.txt")).unwrap();
        }),
        ("is unlinked", |server| {
            fs::remove_file(server.site().join("f.txt")).unwrap();
        }),
    ];
    for (form, expected) in FORMS {
        for (what, change) in changes {
            let (server, mut client, mut answer) = stalled_by(form);
            change(&server);
            let length = answer.field("content-length").unwrap().parse().unwrap();
            answer.body = client.read_exact(length).unwrap();
            let come = sketch("GET", &answer, &content());
            assert!(
                come == expected,
                "{form:?} of a file that {what}: {:.99}",
                come
            );
            assert_eq!(
                client.state(),
                State::Open,
                "{form:?} of a file that {what}"
            );
        }
    }
}

#[test]
fn a_file_cut_short_ends_the_connection_whatever_was_asked_of_it() {
    for (form, _) in FORMS {
        for length in [SIZE - 1, SIZE / 3] {
            let (server, mut client, answer) = stalled_by(form);
            let promised: usize = answer.field("content-length").unwrap().parse().unwrap();
            let path = server.site().join("f.txt");
            let file = OpenOptions::new().write(true).open(path).unwrap();
            file.set_len(length as u64).unwrap();
            // A range that ends before the new end is complete.
            let is_whole = form.contains("22000000") && length > 22_000_000;
            match client.read_exact(promised) {
                Ok(_) => assert!(is_whole, "{form:?}: nothing was missing of {length} bytes"),
                Err(_) => assert!(!is_whole, "{form:?}: {length} bytes are enough"),
            }
        }
    }
}

#[test]
fn a_file_overwritten_in_place_keeps_its_length_and_has_no_third_content() {
    let (server, mut client, _) = stalled();
    let path = server.site().join("f");
    let mut file = OpenOptions::new().write(true).open(path).unwrap();
    let other: Vec<u8> = content().iter().map(|byte| !byte).collect();
    file.write_all(&other).unwrap();
    let body = client.read_exact(SIZE).unwrap();
    let old = content();
    let is_either = |at: usize| body[at] == old[at] || body[at] == other[at];
    assert!((0..SIZE).all(is_either), "bytes of neither");
    assert_eq!(client.state(), State::Open);
}

#[test]
fn any_change_changes_the_tag() {
    let server = Server::start();
    let path = server.site().join("f");
    let tag = || server.get("/f").field("etag").unwrap().to_owned();
    server.write("f", "one");
    let first = tag();
    assert_eq!(tag(), first);
    fs::write(&path, "two").unwrap();
    let written = tag();
    assert_ne!(written, first, "written in place");
    make_old(&path);
    assert_eq!(tag(), first, "the recipe is time, size and inode");
    server.write("g", "one");
    fs::rename(server.site().join("g"), &path).unwrap();
    assert_ne!(
        tag(),
        first,
        "replaced by rename, with the same time and size"
    );
}

#[test]
fn what_no_look_at_the_open_file_shows_is_seen_soon() {
    let server = Server::start();
    let site = server.site();
    server.write("v1/f", "one");
    server.write("v2/f", "two");
    server.write("f", "one");
    symlink("v1", site.join("current")).unwrap();
    assert_eq!(server.get("/current/f").body, b"one");
    assert_eq!(server.get("/f").body, b"one");
    symlink("v2", site.join("next")).unwrap();
    fs::rename(site.join("next"), site.join("current")).unwrap();
    fs::hard_link(site.join("f"), site.join("another-name")).unwrap();
    fs::rename(site.join("v2/f"), site.join("f")).unwrap();
    fs::write(site.join("v2/f"), "two").unwrap();
    for target in ["/current/f", "/f"] {
        wait_until("open file", || server.get(target).body == b"two");
    }
}

#[test]
fn a_deleted_file_is_closed_without_a_request() {
    let server = Server::start();
    server.write("f", "f");
    let path = server.site().join("f");
    let is_open = || {
        let descriptors = fs::read_dir("/proc/self/fd").unwrap();
        descriptors
            .filter_map(|entry| fs::read_link(entry.unwrap().path()).ok())
            .any(|link| {
                link.as_os_str()
                    .as_bytes()
                    .starts_with(path.as_os_str().as_bytes())
            })
    };
    wait_until("open file", || server.get("/f").status == 200 && is_open());
    fs::remove_file(&path).unwrap();
    wait_until("closed file", || !is_open());
}

#[test]
fn a_download_goes_on_where_it_was_cut_if_the_file_is_the_same() {
    let (server, mut client, head) = stalled();
    let tag = head.field("etag").unwrap().to_owned();
    let mut body = client.read_exact(SIZE / 3).unwrap();
    drop(client);
    let resume = |tag: &str, from: usize| {
        server.ask(format!(
            "GET /f HTTP/1.1\r\nHost: a\r\nRange: bytes={from}-\r\nIf-Range: {tag}\r\n\r\n"
        ))
    };
    let rest = resume(&tag, body.len());
    assert_eq!(rest.status, 206);
    body.extend_from_slice(&rest.body);
    assert!(body == content(), "the body is another");
    server.write("f", "new");
    assert_eq!(resume(&tag, 1).body, b"new");
}
