//! nginx must send the same bytes as this server. Known differences are listed here with their
//! reasons; a difference that is not listed, or that is listed but gone, is a failure.
//!
//! Compared are status, received parts of the file, redirect target and state of the connection.
//! Reasons name the clause that decides, or say that it is this server's choice.

use std::collections::HashSet;
use std::fmt::Write;
use std::net::SocketAddr;

use underpass_testkit::HttpClient;

use crate::differences::DIFFERENCES;
use crate::nginx::Nginx;
use crate::support::digest::sketch;
use crate::support::{PROBE, Probe, rows};

/// Returns a server's response to a request, as one line.
fn ask(address: SocketAddr, request: &str, file: &[u8]) -> String {
    let mut client = HttpClient::connect(address);
    let tag = {
        client.send("GET /f.txt HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        client.response().field("etag").unwrap().to_owned()
    };
    let request = rows::fill_in(request, &tag);
    let method = request.trim_start().split(' ').next().unwrap();
    let mut client = HttpClient::connect(address);
    client.send(&request);
    match client.try_response(method) {
        Ok(answer) => {
            client.send(PROBE);
            format!("{} {}", sketch(&request, &answer, file), client.outcome())
        }
        Err(_) => "no answer".to_owned(),
    }
}

#[test]
#[ignore = "needs nginx-light; run by cargo xtask test"]
fn every_difference_from_nginx_is_intended() {
    let (server, file) = rows::site();
    let home = tempfile::tempdir().unwrap();
    let nginx = Nginx::start(&server.site(), home.path(), "");
    let mut complaints = String::new();
    let mut unseen: HashSet<&str> = HashSet::from_iter(differences().map(|(request, ..)| request));
    for (request, _) in rows::all() {
        let theirs = shown(&ask(nginx.address, &request, &file));
        let ours = shown(&ask(server.address(), &request, &file));
        let request = shown(&request);
        unseen.remove(&request[..]);
        let listed = differences().find(|(listed, ..)| *listed == request);
        match listed {
            None if theirs == ours => {}
            Some((_, listed, _)) if listed == theirs && theirs != ours => {}
            _ => writeln!(
                complaints,
                "{request}\n    nginx: {theirs}\n    ours:  {ours}"
            )
            .unwrap(),
        }
    }
    for request in unseen {
        writeln!(complaints, "{request}\n    is listed and never asked").unwrap();
    }
    assert!(complaints.is_empty(), "not as listed:\n{complaints}");
}

/// Returns the listed differences: request, nginx's response, and the reason.
fn differences() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    DIFFERENCES.iter().flat_map(|(reason, rows)| {
        let row = |(request, theirs): &(&'static str, &'static str)| (*request, *theirs, *reason);
        rows.iter().map(row)
    })
}

/// Shortens a request to one line, without the usual start of a request.
fn shown(text: &str) -> String {
    const USUAL: &str = "GET /f.txt HTTP/1.1\r\nHost: a\r\n";
    const SHOWN_CHARS_MAX: usize = 64;
    let usual = text.strip_prefix(USUAL);
    let escaped: String = usual
        .map_or(text.to_owned(), |rest| format!("… {rest}"))
        .chars()
        .map(|char| match char {
            '\r' => "\\r".into(),
            '\n' => "\\n".into(),
            '"' => "'".into(),
            char if char.is_control() => format!("\\x{:02x}", char as u32),
            char => char.to_string(),
        })
        .collect();
    match escaped.char_indices().nth(SHOWN_CHARS_MAX) {
        None => escaped,
        Some((end, _)) => format!("{}… {} bytes", &escaped[..end], text.len()),
    }
}
