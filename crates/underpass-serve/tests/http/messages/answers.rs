//! Responses: raw bytes in; status, fields, body and the state of the connection out.
//!
//! Every row is a request on a separate connection. Its response is checked completely and compared
//! as one line, which `support::digest` writes. The rows follow RFC 9110 and 9112; where those
//! leave a choice, the row is this server's.

use underpass_serve::SiteOptions;
use underpass_serve::rules::HostName;
use underpass_testkit::{HttpClient, HttpResponse};

use crate::support::digest::digest;
use crate::support::rows::{self, Row, site};
use crate::support::{DATE, Probe, Server, State};

/// Runs rows, each on a separate connection.
fn run(rows: Vec<Row>) {
    let (server, file) = rows::site();
    let tag = server.get("/f.txt").field("etag").unwrap().to_owned();
    for (request, expected) in rows {
        let request = rows::fill_in(&request, &tag);
        let mut client = server.connect();
        client.send(request.as_bytes());
        let method = request.trim_start().split(' ').next().unwrap();
        let answer = match client.try_response(method) {
            Ok(answer) => answer,
            Err(error) => panic!("{request:?}: {error}"),
        };
        check_connection(&request, &answer, &expected);
        let line = format!("{} {}", digest(&request, &answer, &file), client.state());
        assert_eq!(line, expected, "{request:?}");
    }
}

/// Checks that a response is marked `Connection: close` exactly if the connection ends.
fn check_connection(request: &str, answer: &HttpResponse, expected: &str) {
    let says = answer.field("connection");
    match (expected.ends_with(" closed"), says) {
        (true, says) => assert_eq!(says, Some("close"), "{request:?}"),
        (false, says) => assert_ne!(says, Some("close"), "{request:?}"),
    }
}

#[test]
fn conditional_requests() {
    run(rows::conditional_requests());
}

#[test]
fn conditions_count_only_where_there_is_something() {
    run(rows::conditions_count_only_where_there_is_something());
}

#[test]
fn ranges_of_a_known_state() {
    run(rows::ranges_of_a_known_state());
}

#[test]
fn single_ranges() {
    run(rows::single_ranges());
}

#[test]
fn several_ranges() {
    run(rows::several_ranges());
}

#[test]
fn targets_hosts_and_versions() {
    run(rows::targets_hosts_and_versions());
}

#[test]
fn sizes_of_heads() {
    run(rows::sizes_of_heads());
}

#[test]
fn lengths_and_codings() {
    run(rows::lengths_and_codings());
}

#[test]
fn long_bodies_end_the_connection() {
    run(rows::long_bodies_end_the_connection());
}

#[test]
fn fields_and_line_ends() {
    run(rows::fields_and_line_ends());
}

#[test]
fn paths() {
    run(rows::paths());
}

#[test]
fn expectations() {
    run(rows::expectations());
    let (server, file) = site();
    let mut client = server.connect();
    client.send(
        "GET /f.txt HTTP/1.1\r\nHost: a\r\nExpect: 100-Continue\r\nContent-Length: 5\r\n\r\n",
    );
    assert_eq!(client.response().status, 100);
    client.send("hello");
    assert_eq!(digest("GET", &client.response(), &file), "200 whole");
    assert_eq!(client.state(), State::Open);
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let (server, file) = site();
    let mut client = server.connect();
    let request = |target: &str| format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n");
    let body = "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello";
    let targets = ["/f.txt", "/dir/", "/none", "/f.txt"];
    let mut pipeline = targets.map(request).concat();
    pipeline.push_str(body);
    client.send(pipeline.repeat(20));
    for _ in 0..20 {
        let line = |client: &mut HttpClient| digest("GET", &client.response(), &file);
        assert_eq!(line(&mut client), "200 whole");
        assert_eq!(line(&mut client), "200 \"index\"");
        assert_eq!(line(&mut client), "404");
        assert_eq!(line(&mut client), "200 whole");
        assert_eq!(line(&mut client), "405 allow");
    }
    assert_eq!(client.state(), State::Open);
}

#[test]
fn what_follows_a_close_is_not_answered() {
    let (server, file) = site();
    let mut client = server.connect();
    let close = "GET /f.txt HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    client.send(close.repeat(3));
    assert_eq!(digest("GET", &client.response(), &file), "200 whole");
    assert_eq!(client.state(), State::Closed);
}

#[test]
fn a_request_byte_by_byte_is_the_same_request() {
    let (server, file) = site();
    let mut client = server.connect();
    let request = "GET /f.txt HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
                   5;e\r\nhello\r\n0\r\nT: x\r\n\r\n";
    for byte in request.bytes() {
        client.send([byte]);
    }
    assert_eq!(digest("GET", &client.response(), &file), "200 whole");
    assert_eq!(client.state(), State::Open);
}

#[test]
fn head_is_get_without_its_body() {
    let (server, _) = site();
    for target in ["/f.txt", "/dir/", "/dir", "/none", "/bare/", "/empty.txt"] {
        let get = server.get(target);
        let mut client = server.connect();
        let head = client.ask_head(target);
        let without_date = |answer: &HttpResponse| {
            let lines = answer
                .head
                .lines()
                .filter(|line| !line.starts_with("Date: "));
            lines.map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(without_date(&head), without_date(&get));
        assert_eq!(client.state(), State::Open);
    }
}

#[test]
fn an_answer_to_unread_input_arrives() {
    let (server, _) = site();
    let mut client = server.connect();
    client.send("GET /f.txt HTTP/1.1\r\nHost: a\r\nContent-Length: 200000\r\n\r\n");
    client.send(vec![b'b'; 200_000]);
    assert_eq!(client.response().status, 200);
    assert_eq!(client.state(), State::Closed);
}

#[test]
fn a_refusal_of_unread_input_arrives() {
    let (server, _) = site();
    for start in [
        "GET / HTTP/1.1\r\nA : b\r\n\r\n",
        "G(T ",
        "GET / HTTP/2.0\r\n",
    ] {
        let mut client = server.connect();
        client.send([start.as_bytes(), &[b'b'; 200_000]].concat());
        assert!(
            matches!(client.response().status, 400 | 414 | 505),
            "{start:?}"
        );
        assert_eq!(client.state(), State::Closed);
    }
}

#[test]
fn a_name_that_no_site_has_is_answered_by_the_first() {
    let other = tempfile::tempdir().unwrap();
    std::fs::write(other.path().join("who"), "second").unwrap();
    let server = Server::with(|options| {
        let second = SiteOptions {
            names: vec![HostName::parse("Second.example").unwrap()],
            ..SiteOptions::of(other.path())
        };
        options.sites.push(second);
    });
    server.write("who", "first");
    for (target, host, who) in [
        ("/who", "second.EXAMPLE", "second"),
        ("/who", "second.example:8080", "second"),
        ("http://second.example/who", "first", "second"),
        ("/who", "first", "first"),
        ("/who", "xsecond.example", "first"),
        ("/who", "[::1]:80", "first"),
        ("http://first/who", "second.example", "first"),
    ] {
        let answer = server.ask(format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        assert_eq!(answer.body, who.as_bytes(), "{target} {host}");
    }
    let without = server.ask("GET /who HTTP/1.0\r\n\r\n");
    assert_eq!(without.body, b"first");
}

#[test]
fn a_file_that_just_changed_has_no_date() {
    let (server, _) = site();
    std::fs::write(server.site().join("young"), "young").unwrap();
    let answer = server.get("/young");
    assert_eq!(answer.field("last-modified"), None);
    assert!(answer.field("etag").unwrap().starts_with('"'));
    assert_eq!(server.get("/f.txt").field("last-modified"), Some(DATE));
}
