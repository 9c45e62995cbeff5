//! The actions of clients, drawn at random.

use std::io::{self, Write};
use std::net::{Shutdown, SocketAddr};
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::net::sockopt::{set_socket_linger, set_socket_recv_buffer_size};
use underpass_testkit::{HttpClient, HttpResponse, SeededRandom};

use super::Tally;
use super::site::{LOGS, Name, PAGES, Site};

/// A client that connects again and again.
pub(crate) struct Visitor<'s> {
    random: SeededRandom,
    address: SocketAddr,
    site: &'s Site,
    tally: &'s Tally,
}

/// The reason why a visit ended early.
enum Broken {
    /// The connection ended or hangs.
    Connection(io::Error),
    /// A response was wrong.
    Wrong(String),
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Broken {
        Broken::Connection(error)
    }
}

type Visit = Result<(), Broken>;

impl<'s> Visitor<'s> {
    pub(crate) fn new(
        random: SeededRandom,
        address: SocketAddr,
        site: &'s Site,
        tally: &'s Tally,
    ) -> Visitor<'s> {
        Visitor {
            random,
            address,
            site,
            tally,
        }
    }

    /// Runs one connection, from its start to its end.
    pub(crate) fn visit(&mut self) {
        let name = match self.random.below(10) {
            0..=5 => Name::Page(self.random.below(PAGES)),
            6..=8 => Name::Log(self.random.below(LOGS)),
            _ => Name::Guest,
        };
        match self.act(name) {
            Ok(()) => {}
            // Only a file that is cut short may end its download early.
            Err(Broken::Connection(error)) if matches!(name, Name::Log(_)) && !is_hang(&error) => {
                self.tally.cut.fetch_add(1, Ordering::Relaxed);
            }
            Err(Broken::Connection(error)) => self.tally.fail(format!("{name:?}: {error}")),
            Err(Broken::Wrong(what)) => self.tally.fail(format!("{name:?}: {what}")),
        }
    }

    fn act(&mut self, name: Name) -> Visit {
        let mut client = HttpClient::connect(self.address);
        match self.random.below(12) {
            0..=3 => self.keep_alive(&mut client, name),
            4 => self.pipeline(&mut client, name),
            5 => self.revalidate(&mut client, name),
            6 => self.read_slowly(&mut client, name),
            7 => self.send_a_body(&mut client, name),
            8 => self.half_close(client, name),
            9 => self.vanish_while_asking(client),
            _ => self.vanish_while_reading(client, name),
        }
    }

    fn keep_alive(&mut self, client: &mut HttpClient, name: Name) -> Visit {
        for _ in 0..=self.random.below(10) {
            let range = self.range();
            client
                .socket
                .write_all(request("GET", name, &range).as_bytes())?;
            self.answer(client, name)?;
        }
        Ok(())
    }

    fn pipeline(&mut self, client: &mut HttpClient, name: Name) -> Visit {
        let count = 2 + self.random.below(8) as usize;
        client
            .socket
            .write_all(request("GET", name, "").repeat(count).as_bytes())?;
        for _ in 0..count {
            self.answer(client, name)?;
        }
        Ok(())
    }

    /// Sends HEAD, and the same with its entity-tag: the response is a 304, or shows a new state.
    fn revalidate(&mut self, client: &mut HttpClient, name: Name) -> Visit {
        client
            .socket
            .write_all(request("HEAD", name, "").as_bytes())?;
        let head = self.head(client)?;
        let Some(tag) = head.field("etag") else {
            return Ok(());
        };
        let field = format!("If-None-Match: {tag}\r\n");
        client
            .socket
            .write_all(request("GET", name, &field).as_bytes())?;
        let head = self.head(client)?;
        match head.status {
            304 if head.field("etag") == Some(tag) => Ok(()),
            304 => Err(Broken::Wrong(format!("304 for another tag than {tag}"))),
            _ => self.body(client, name, &head),
        }
    }

    fn read_slowly(&mut self, client: &mut HttpClient, name: Name) -> Visit {
        set_socket_recv_buffer_size(&client.socket, 32 << 10).map_err(io::Error::from)?;
        client
            .socket
            .write_all(request("GET", name, "").as_bytes())?;
        let head = self.head(client)?;
        if head.status != 200 {
            return self.body(client, name, &head);
        }
        let mut body = Vec::new();
        while body.len() < length(&head) {
            let count = (length(&head) - body.len()).min(128 << 10);
            body.extend(client.read_exact(count)?);
            std::thread::sleep(Duration::from_millis(self.random.below(8)));
        }
        self.compare(name, length(&head), 0, &body)
    }

    fn send_a_body(&mut self, client: &mut HttpClient, name: Name) -> Visit {
        let length = self.random.below(60_000) as usize;
        let field = format!("Content-Length: {length}\r\n");
        client
            .socket
            .write_all(request("GET", name, &field).as_bytes())?;
        client.socket.write_all(&vec![b'b'; length])?;
        self.answer(client, name)?;
        client
            .socket
            .write_all(request("GET", name, "").as_bytes())?;
        self.answer(client, name)
    }

    fn half_close(&mut self, mut client: HttpClient, name: Name) -> Visit {
        client
            .socket
            .write_all(request("GET", name, "").as_bytes())?;
        client.socket.shutdown(Shutdown::Write)?;
        self.answer(&mut client, name)
    }

    fn vanish_while_asking(&mut self, mut client: HttpClient) -> Visit {
        let request = request("GET", Name::Page(0), "Transfer-Encoding: chunked\r\n") + "5\r\nhel";
        let count = self.random.below(request.len() as u64) as usize;
        client.socket.write_all(&request.as_bytes()[..count])?;
        self.leave(client)
    }

    fn vanish_while_reading(&mut self, mut client: HttpClient, name: Name) -> Visit {
        let range = self.range();
        client
            .socket
            .write_all(request("GET", name, &range).as_bytes())?;
        let head = self.head(&mut client)?;
        let length = length(&head) as u64;
        if length > 0 {
            client.read_exact(self.random.below(length) as usize)?;
        }
        self.leave(client)
    }

    /// Stalls for a while, and closes in a random way.
    fn leave(&mut self, client: HttpClient) -> Visit {
        self.tally.left.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(self.random.below(150)));
        if self.random.below(2) == 0 {
            set_socket_linger(&client.socket, Some(Duration::ZERO)).map_err(io::Error::from)?;
        }
        Ok(())
    }

    fn range(&mut self) -> String {
        let (first, more) = (self.random.below(90_000), self.random.below(50_000));
        match self.random.below(6) {
            0 => format!("Range: bytes={first}-{}\r\n", first + more),
            1 => format!("Range: bytes=-{}\r\n", 1 + more),
            2 => {
                let other = first + more + 2;
                let last = other + self.random.below(50_000);
                format!(
                    "Range: bytes={first}-{},{other}-{last},0-0\r\n",
                    first + more
                )
            }
            _ => String::new(),
        }
    }

    fn head(&self, client: &mut HttpClient) -> Result<HttpResponse, Broken> {
        let head = client.try_response("HEAD")?;
        self.tally.answers.fetch_add(1, Ordering::Relaxed);
        Ok(head)
    }

    fn answer(&self, client: &mut HttpClient, name: Name) -> Visit {
        let head = self.head(client)?;
        self.body(client, name, &head)
    }

    /// Reads a body and compares it with its head.
    fn body(&self, client: &mut HttpClient, name: Name, head: &HttpResponse) -> Visit {
        if head.status == 304 {
            return Ok(());
        }
        let body = client.read_exact(length(head))?;
        let media = head.field("content-type").unwrap_or_default();
        match (head.status, media.split_once("boundary=")) {
            (200, _) => self.compare(name, body.len(), 0, &body),
            (206, None) => {
                let range = head.field("content-range").unwrap_or_default();
                self.compare_range(name, range, &body)
            }
            (206, Some((_, boundary))) => self.compare_parts(name, boundary, &body),
            (404, _) if name == Name::Guest => Ok(()),
            (416, _) => Ok(()),
            (status, _) => Err(Broken::Wrong(format!("status {status}"))),
        }
    }

    fn compare_parts(&self, name: Name, boundary: &str, body: &[u8]) -> Visit {
        let wrong = || Broken::Wrong("a malformed body of parts".into());
        let opening = format!("\r\n--{boundary}\r\n");
        let mut rest = body;
        while let Some(part) = rest.strip_prefix(opening.as_bytes()) {
            let end = part
                .windows(4)
                .position(|four| four == b"\r\n\r\n")
                .ok_or_else(wrong)?;
            let head = String::from_utf8_lossy(&part[..end]).into_owned();
            let (_, range) = head.split_once("Content-Range: ").ok_or_else(wrong)?;
            let (first, last, _) = parse_range(range).ok_or_else(wrong)?;
            let content = part[end + 4..].get(..last + 1 - first).ok_or_else(wrong)?;
            self.compare_range(name, range, content)?;
            rest = &part[end + 4 + content.len()..];
        }
        match rest == format!("\r\n--{boundary}--\r\n").as_bytes() {
            true => Ok(()),
            false => Err(wrong()),
        }
    }

    fn compare_range(&self, name: Name, range: &str, bytes: &[u8]) -> Visit {
        match parse_range(range) {
            Some((first, last, size)) if last + 1 - first == bytes.len() => {
                self.compare(name, size, first, bytes)
            }
            _ => Err(Broken::Wrong(format!("{} bytes of {range:?}", bytes.len()))),
        }
    }

    fn compare(&self, name: Name, size: usize, offset: usize, bytes: &[u8]) -> Visit {
        self.tally.bodies.fetch_add(1, Ordering::Relaxed);
        self.tally
            .bytes
            .fetch_add(bytes.len() as u64, Ordering::Relaxed);
        match self.site.had(name, size, offset, bytes) {
            true => Ok(()),
            false => Err(Broken::Wrong(format!(
                "{} bytes at {offset} of {size} that the file never had",
                bytes.len()
            ))),
        }
    }
}

/// Returns the length of the following body, which is 0 if the head has none.
fn length(head: &HttpResponse) -> usize {
    head.length().unwrap_or(0)
}

fn request(method: &str, name: Name, fields: &str) -> String {
    format!(
        "{method} /{} HTTP/1.1\r\nHost: soak\r\n{fields}\r\n",
        name.path()
    )
}

/// Parses `bytes 0-9/1000` into first, last, size.
fn parse_range(range: &str) -> Option<(usize, usize, usize)> {
    let (span, size) = range.strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = span.split_once('-')?;
    let (first, last) = (first.parse().ok()?, last.parse().ok()?);
    (first <= last).then_some((first, last, size.parse().ok()?))
}

fn is_hang(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    )
}

#[test]
#[ignore = "needs a minute; run by cargo xtask test"]
fn ranges_are_read() {
    assert_eq!(parse_range("bytes 0-9/1000"), Some((0, 9, 1000)));
    for wrong in ["bytes 9-0/1000", "bytes */1000", "0-9/1000"] {
        assert_eq!(parse_range(wrong), None);
    }
}
