//! Serves requests for metrics and health.

use std::fmt;
use std::time::{Duration, SystemTime};

use httpdate::fmt_http_date;
use tokio::time::timeout;
use underpass::Piece;
use underpass_net::{Connection, ReadOutcome, ShutdownPhase, WhileDraining};

use crate::page::MetricsPage;
use crate::process::ProcessFiles;

/// The time limit of a connection, from its first byte to its last.
const METRICS_TIMEOUT: Duration = Duration::from_secs(5);

/// The maximum number of connections to the status address: a scraper, a health check and a person.
pub const METRICS_CONNECTIONS_MAX: usize = 16;

/// The largest head of a request, in bytes: more than any scraper or browser sends.
const HEAD_BYTES_MAX: usize = 16 << 10;

/// The maximum number of fields of a request; they are ignored.
const FIELDS_MAX: usize = 64;

/// The source of metrics.
pub trait MetricsSource: Send + Sync {
    /// Writes all metrics, except those of the process.
    fn write(&self, page: &mut MetricsPage, phase: ShutdownPhase);
}

/// The metrics service: the source of metrics, and the files of the process.
pub struct MetricsService {
    source: Box<dyn MetricsSource>,
    process: ProcessFiles,
    started: SystemTime,
}

/// A parsed request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct MonitorRequest<'a> {
    is_head: bool,
    path: &'a str,
}

/// The reason why a request is rejected.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum BadRequest {
    /// It has not arrived completely.
    Partial,
    Refused(&'static str, &'static str),
}

impl fmt::Debug for MetricsService {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("MetricsService").finish_non_exhaustive()
    }
}

impl MetricsService {
    /// Creates the service at the start of a server. Must be called before workers are confined,
    /// since it opens files.
    pub fn new(source: Box<dyn MetricsSource>) -> MetricsService {
        MetricsService {
            source,
            process: ProcessFiles::open(),
            started: SystemTime::now(),
        }
    }

    /// Serves one connection: one request and its response. Errors concern only the peer.
    pub async fn serve(&self, connection: Connection) {
        let _late = timeout(METRICS_TIMEOUT, self.exchange(connection)).await;
    }

    async fn exchange(&self, mut connection: Connection) {
        connection.start_request_deadline(METRICS_TIMEOUT);
        let answer = loop {
            match MonitorRequest::parse(connection.input()) {
                Ok(request) => break self.answer(request, connection.server_phase()),
                Err(BadRequest::Refused(status, why)) => break written(status, why, false),
                Err(BadRequest::Partial) => {}
            }
            match connection.fill(WhileDraining::Continues).await {
                Ok(ReadOutcome::Bytes(_)) => {}
                Ok(ReadOutcome::End) | Err(_) => return,
            }
        };
        connection.outbox().push(Piece::Bytes(answer));
        if connection.flush().await.is_ok() {
            connection.close().await;
        }
    }

    fn answer(&self, request: MonitorRequest<'_>, phase: ShutdownPhase) -> Vec<u8> {
        let is_head = request.is_head;
        match request.path {
            "/metrics" => {
                let mut page = MetricsPage::default();
                self.source.write(&mut page, phase);
                page.about_process(&self.process, self.started);
                written(OK, &page.into_text(), is_head)
            }
            "/health" | "/ready" => match phase {
                // A server retires when a successor has taken over its address.
                ShutdownPhase::Running | ShutdownPhase::Retiring => written(OK, "ok\n", is_head),
                ShutdownPhase::Draining | ShutdownPhase::Now => {
                    written("503 Service Unavailable", "stopping\n", is_head)
                }
            },
            _ => {
                let known = "there are /metrics, /health and /ready\n";
                written("404 Not Found", known, is_head)
            }
        }
    }
}

impl MonitorRequest<'_> {
    fn parse(input: &[u8]) -> Result<MonitorRequest<'_>, BadRequest> {
        let refused = |status, why| Err(BadRequest::Refused(status, why));
        let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
        let mut head = httparse::Request::new(&mut fields);
        match head.parse(input) {
            Ok(status) if status.is_complete() => {}
            Ok(_) if input.len() < HEAD_BYTES_MAX => return Err(BadRequest::Partial),
            Ok(_) if !input.contains(&b'\n') => {
                return refused("414 URI Too Long", "the target is too long\n");
            }
            Ok(_) | Err(httparse::Error::TooManyHeaders) => {
                let status = "431 Request Header Fields Too Large";
                return refused(status, "the head of the request is too large\n");
            }
            Err(_) => return refused("400 Bad Request", "this is no request of HTTP\n"),
        }
        let is_head = match head.method {
            Some("GET") => false,
            Some("HEAD") => true,
            _ => return refused("405 Method Not Allowed", "only GET and HEAD\n"),
        };
        let is_host = |field: &httparse::Header<'_>| field.name.eq_ignore_ascii_case("host");
        if head.version == Some(1) && !head.headers.iter().any(is_host) {
            return refused("400 Bad Request", "there is no Host (RFC 9112, 3.2)\n");
        }
        // The query that a scraper adds to the path is ignored.
        let path = head.path.and_then(|target| target.split('?').next());
        match path {
            Some(path) if path.starts_with('/') => Ok(MonitorRequest { is_head, path }),
            _ => refused("400 Bad Request", "the target is no path\n"),
        }
    }
}

const OK: &str = "200 OK";

/// The type of the text format, version 0.0.4; other responses are plain text as well.
const MEDIA: &str = "text/plain; version=0.0.4; charset=utf-8";

fn written(status: &str, body: &str, is_head: bool) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 {status}\r\nConnection: close\r\nCache-Control: no-store\r\n\
         Content-Type: {MEDIA}\r\nDate: {}\r\nContent-Length: {}\r\n\r\n",
        fmt_http_date(SystemTime::now()),
        body.len()
    );
    let body = if is_head { "" } else { body };
    [head.as_bytes(), body.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_read_once_it_is_complete() {
        let whole = b"GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\n\r\n";
        for end in 0..whole.len() {
            let part = MonitorRequest::parse(&whole[..end]);
            assert_eq!(part, Err(BadRequest::Partial), "{end}");
        }
        let request = MonitorRequest::parse(whole).unwrap();
        assert_eq!((request.is_head, request.path), (false, "/metrics"));
        assert!(
            MonitorRequest::parse(b"HEAD / HTTP/1.0\r\n\r\n")
                .unwrap()
                .is_head
        );
    }

    #[test]
    fn what_is_no_request_is_refused() {
        let many = format!(
            "GET / HTTP/1.1\r\n{}\r\n",
            "a: b\r\n".repeat(FIELDS_MAX + 1)
        );
        let long = format!("GET /{}", "a".repeat(HEAD_BYTES_MAX));
        for (head, status) in [
            ("POST /metrics HTTP/1.1\r\n\r\n", "405"),
            ("GET http://a/metrics HTTP/1.1\r\n\r\n", "400"),
            ("\x16\x03\x01\x02\0\x01", "400"),
            ("GET /metrics HTTP/1.1\r\n\r\n", "400"),
            (&many, "431"),
            (&long, "414"),
        ] {
            let refused = MonitorRequest::parse(head.as_bytes());
            let Err(BadRequest::Refused(with, _)) = refused else {
                panic!("{refused:?}");
            };
            assert!(with.starts_with(status), "{with}");
        }
    }
}
