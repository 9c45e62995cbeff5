//! Sends requests to a server, and keeps the relevant parts of its responses.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::SocketAddr;

use percent_encoding::percent_decode_str;

use underpass_testkit::{HttpClient, HttpResponse};

use super::requests::{Asked, Delivery};
use crate::support::digest::resolved;
use crate::support::{PROBE, Probe, find};

/// A server, and its entity-tags.
#[derive(Clone, Debug)]
pub(crate) struct Party {
    address: SocketAddr,
    /// The entity-tag of each file.
    tags: Vec<(&'static str, String)>,
}

/// The result of a request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Seen {
    /// The status, and the state of the connection.
    pub(crate) verdict: String,
    /// All other relevant parts, by name.
    pub(crate) details: BTreeMap<&'static str, String>,
}

impl Party {
    pub(crate) fn new(address: SocketAddr, files: &[&'static str]) -> Party {
        let tag = |file: &str| {
            let mut client = HttpClient::connect(address);
            let answer = client.get(file);
            answer.field("etag").unwrap_or_default().to_owned()
        };
        let tags = files.iter().map(|file| (*file, tag(file))).collect();
        Party { address, tags }
    }

    pub(crate) fn connect(&self) -> HttpClient {
        HttpClient::connect(self.address)
    }

    /// Sends a request on an open connection.
    pub(crate) fn ask(&self, client: &mut HttpClient, asked: &Asked) -> Seen {
        let text = self.fill_in(asked);
        match asked.delivery {
            Delivery::Apart => client.send(&text),
            Delivery::Pipelined => client.send([&text[..], PROBE].concat()),
            Delivery::Split(at) => {
                let (first, rest) = text.split_at(at.min(text.len()));
                client.send(first);
                client.send(rest);
            }
        }
        let mut interim = 0;
        let answer = loop {
            match client.try_response(asked.method) {
                Ok(answer) if answer.status == 100 => interim += 1,
                answer => break answer,
            }
        };
        let Ok(answer) = answer else {
            return Seen {
                verdict: "none closed".into(),
                details: BTreeMap::new(),
            };
        };
        let mut details = self.details(asked, &answer);
        details.insert("interim", interim.to_string());
        let reported = answer.field("connection") == Some("close");
        details.insert("announced", reported.to_string());
        let state = match (reported, asked.delivery) {
            (true, _) => ending(client),
            (false, Delivery::Pipelined) => client.outcome(),
            (false, _) => {
                client.send(PROBE);
                client.outcome()
            }
        };
        Seen {
            verdict: format!("{} {state}", answer.status),
            details,
        }
    }

    /// Inserts this server's entity-tag of the file.
    fn fill_in(&self, asked: &Asked) -> Vec<u8> {
        let mut text = asked.text.clone();
        let tag = self.tag(asked).unwrap_or("\"?\"");
        while let Some(at) = find(&text, b"{tag}") {
            text.splice(at..at + 5, tag.bytes());
        }
        text
    }

    fn tag(&self, asked: &Asked) -> Option<&str> {
        let known = self.tags.iter().find(|(file, _)| *file == asked.file);
        known.map(|(_, tag)| &tag[..])
    }

    fn details(&self, asked: &Asked, answer: &HttpResponse) -> BTreeMap<&'static str, String> {
        let mut details = BTreeMap::new();
        let field = |name: &str| answer.field(name).unwrap_or("none").to_owned();
        details.insert("allow", answer.field("allow").is_some().to_string());
        details.insert("range", field("content-range"));
        if matches!(answer.status, 200 | 206 | 304) {
            let tag = field("etag");
            let is_own = self.tag(asked) == Some(&tag[..]);
            details.insert("tag", is_own.to_string());
            details.insert("date", field("last-modified"));
        }
        if matches!(answer.status, 301..=308) {
            let location = resolved(&asked.text, &field("location"));
            let decoded: Vec<u8> = percent_decode_str(&location).collect();
            details.insert("location", decoded.escape_ascii().to_string());
        }
        if matches!(answer.status, 200 | 206) {
            let (media, parts) = match field("content-type").split_once("; boundary=") {
                Some((media, boundary)) => (media.to_owned(), parts(boundary, &answer.body)),
                None => {
                    details.insert("length", field("content-length"));
                    (field("content-type"), Some(shown(&answer.body)))
                }
            };
            details.insert("type", media);
            if asked.method != "HEAD" {
                details.insert("body", parts.unwrap_or("malformed".into()));
            }
        }
        details
    }
}

/// Reads a connection whose end was announced: no more bytes may follow.
fn ending(client: &mut HttpClient) -> String {
    match client.rest().len() {
        0 => "closed".into(),
        more => format!("closed after {more} bytes more"),
    }
}

/// Returns the parts of a multipart body, each with its fields; `None` if it is malformed.
fn parts(boundary: &str, body: &[u8]) -> Option<String> {
    let opening = format!("\r\n--{boundary}\r\n");
    let closing = format!("\r\n--{boundary}--\r\n");
    let mut rest = body;
    let mut parts = Vec::new();
    while let Some(part) = rest.strip_prefix(opening.as_bytes()) {
        let end = find(part, b"\r\n\r\n")?;
        let head = std::str::from_utf8(&part[..end]).ok()?;
        let (_, range) = head.split_once("Content-Range: bytes ")?;
        let (first, last) = range.split_once('/')?.0.split_once('-')?;
        let length = last.parse::<usize>().ok()? + 1 - first.parse::<usize>().ok()?;
        let (content, after) = part[end + 4..].split_at_checked(length)?;
        parts.push(format!("{} {}", head.replace("\r\n", " "), shown(content)));
        rest = after;
    }
    (rest == closing.as_bytes()).then(|| parts.join(", "))
}

fn shown(content: &[u8]) -> String {
    let mut hasher = DefaultHasher::new();
    content.hash(&mut hasher);
    format!("{} bytes {:016x}", content.len(), hasher.finish())
}
