//! Answers requests for metrics and health.

use std::sync::Arc;
use std::time::SystemTime;

use httpdate::fmt_http_date;
use tokio::time::timeout;
use underpass::Piece;
use underpass_net::{Connection, ReadOutcome, ShutdownPhase, WhileDraining};

use crate::http::status::{HttpError, Status};
use crate::https::HttpsState;
use crate::limits::METRICS_TIMEOUT;
use crate::metrics::registry::MetricsRegistry;
use crate::monitor::exposition;
use crate::monitor::process::ProcessFiles;
use crate::request::head::{HeadProgress, HeadScanner, RequestHead};
use crate::request::request_line::HttpTarget;
use crate::request::request_line::Method;

/// What every answer is made of.
#[derive(Debug)]
pub(crate) struct MetricsService {
    registry: Arc<MetricsRegistry>,
    process: ProcessFiles,
    started: SystemTime,
    https: Arc<HttpsState>,
}

impl MetricsService {
    /// A service of a server that starts now. Called before workers are confined, since it opens
    /// files.
    pub(crate) fn new(registry: Arc<MetricsRegistry>, https: Arc<HttpsState>) -> MetricsService {
        MetricsService {
            registry,
            process: ProcessFiles::open(),
            started: SystemTime::now(),
            https,
        }
    }

    /// Serves one connection: one request and its answer. What fails here concerns nobody but the
    /// peer.
    pub(crate) async fn serve(&self, connection: Connection) {
        let _late = timeout(METRICS_TIMEOUT, self.exchange(connection)).await;
    }

    async fn exchange(&self, mut connection: Connection) {
        connection.start_request_deadline(METRICS_TIMEOUT);
        let mut scan = HeadScanner::default();
        let answer = loop {
            match scan.advance(connection.input()) {
                Err(refusal) => break answer_refusal(refusal),
                Ok(HeadProgress::Complete) => break self.answer_head(&scan, &connection),
                Ok(HeadProgress::Partial) => {}
            }
            match connection.fill(WhileDraining::Continues).await {
                Ok(ReadOutcome::Bytes) => {}
                Ok(ReadOutcome::End) | Err(_) => return,
            }
        };
        connection.outbox().push(Piece::Bytes(answer));
        if connection.flush().await.is_ok() {
            connection.close().await;
        }
    }

    fn answer_head(&self, scan: &HeadScanner, connection: &Connection) -> Vec<u8> {
        match scan.parse(connection.input()) {
            Err(refusal) => answer_refusal(refusal),
            Ok(request) => self.answer(&request, connection.server_phase()),
        }
    }

    fn answer(&self, request: &RequestHead<'_>, phase: ShutdownPhase) -> Vec<u8> {
        let method = request.method;
        if !matches!(method, Method::Get | Method::Head) {
            return written(Status::MethodNotAllowed, "only GET and HEAD\n", method);
        }
        let HttpTarget::Path { path, .. } = &request.target else {
            return written(Status::BadRequest, "the target is no path\n", method);
        };
        match path.bytes() {
            b"metrics" => {
                let (process, started) = (&self.process, self.started);
                let text = exposition::text(&self.registry, phase, process, started, &self.https);
                written(Status::Ok, &text, method)
            }
            b"health" | b"ready" => match phase {
                // A server retires when a successor has taken over on the same address.
                ShutdownPhase::Running | ShutdownPhase::Retiring => {
                    written(Status::Ok, "ok\n", method)
                }
                ShutdownPhase::Draining | ShutdownPhase::Now => {
                    written(Status::ServiceUnavailable, "stopping\n", method)
                }
            },
            _ => written(
                Status::NotFound,
                "there are /metrics, /health and /ready\n",
                method,
            ),
        }
    }
}

fn answer_refusal(refusal: HttpError) -> Vec<u8> {
    written(refusal.status, &format!("{refusal}\n"), Method::Unknown)
}

/// The type of the text format, version 0.0.4; the others are plain text as well.
const MEDIA: &str = "text/plain; version=0.0.4; charset=utf-8";

fn written(status: Status, body: &str, method: Method) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 {}\r\nConnection: close\r\nCache-Control: no-store\r\nContent-Type: {MEDIA}\r\n\
         Date: {}\r\nContent-Length: {}\r\n\r\n",
        status.line(),
        fmt_http_date(SystemTime::now()),
        body.len()
    );
    let body = if method == Method::Head { "" } else { body };
    [head.as_bytes(), body.as_bytes()].concat()
}
