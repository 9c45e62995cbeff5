//! Conditional requests that compete for a file.

use std::fs;
use std::thread;

use underpass_testkit::{HttpClient, wait_until};

use crate::client::{IETF_TYPE, ask, start, target};
use crate::put::{partial_files, put, request, server};
use crate::support::Server;

const BODY: &[u8] = b"0123456789";

/// Starts a PUT, and returns when the server has checked its conditions.
fn started(server: &Server, path: &str, condition: &str) -> HttpClient {
    let others = partial_files(server).len();
    let line = format!("PUT {path}");
    let sent = (BODY.len(), &BODY[..5]);
    let client = start(server.address(), &line, &[condition], sent);
    wait_until("the upload begins", || partial_files(server).len() > others);
    client
}

fn finished(mut client: HttpClient) -> u16 {
    client.send(&BODY[5..]);
    client.response().status
}

#[test]
fn of_two_writers_of_a_version_one_is_told() {
    let server = server("overwrite = true");
    let tag = put(&server, "/f", "", b"old");
    let tag = tag.field("etag").unwrap();
    let condition = format!("If-Match: \"x\", {tag}");
    let (first, second) = (
        started(&server, "/f", &condition),
        started(&server, "/f", &condition),
    );
    let any = started(&server, "/f", "If-Match: *");
    assert_eq!(finished(first), 204);
    assert_eq!(finished(second), 412);
    assert_eq!(finished(any), 204);
    let unmodified = "If-Unmodified-Since: Fri, 31 Dec 9999 23:59:59 GMT";
    let late = started(&server, "/f", unmodified);
    assert_eq!(put(&server, "/f", "", b"other").status, 204);
    assert_eq!(finished(late), 412);
    // One that has been removed meanwhile is not made again.
    let late = started(&server, "/f", unmodified);
    fs::remove_file(server.site().join("f")).unwrap();
    assert_eq!(finished(late), 412);
    assert!(!server.site().join("f").exists());
}

#[test]
fn an_upload_of_days_replaces_the_version_that_it_began_with() {
    let server = server("overwrite = true");
    for is_changed in [false, true] {
        let tag = put(&server, "/f", "", b"old");
        let condition = format!("If-Match: {}", tag.field("etag").unwrap());
        let part = "Upload-Complete: ?0";
        let created = ask(server.address(), "PUT /f", &[part, &condition], "new");
        let target = target("/f", &created);
        let expected = if is_changed {
            assert_eq!(put(&server, "/f", "", b"other").status, 204);
            (412, "other")
        } else {
            (204, "new")
        };
        let line = format!("PATCH {target}");
        let end = ["Upload-Complete: ?1", "Upload-Offset: 3", IETF_TYPE];
        let done = ask(server.address(), &line, &end, "");
        let content = fs::read_to_string(server.site().join("f")).unwrap();
        assert_eq!((done.status, &content[..]), expected);
    }
}

#[test]
fn no_change_is_lost_among_many() {
    const EACH: u32 = 20;
    let server = server("overwrite = true\ndelete = true\nsync = \"none\"");
    put(&server, "/n", "", b"0");
    let count = || {
        for _ in 0..EACH {
            loop {
                let now = server.get("/n");
                let tag = now.field("etag").unwrap();
                let number: u32 = String::from_utf8(now.body.clone())
                    .unwrap()
                    .parse()
                    .unwrap();
                let condition = format!("If-Match: {tag}\r\n");
                let next = (number + 1).to_string();
                match put(&server, "/n", &condition, next.as_bytes()).status {
                    204 => break,
                    status => assert_eq!(status, 412),
                }
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(count);
        }
    });
    let all = (3 * EACH).to_string();
    assert_eq!(server.get("/n").body, all.as_bytes());
    let tag = server.get("/n");
    let condition = format!("If-Match: {}\r\n", tag.field("etag").unwrap());
    put(&server, "/n", "", b"newer");
    let removed = server.ask(request("DELETE", "/n", &condition, b""));
    assert_eq!(removed.status, 412);
}
