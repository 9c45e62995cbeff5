//! One connection, from its first request to its end.
//!
//! ```text
//!         ┌───────────────────────────── keep-alive ─────────────────────────────┐
//!         ▼                                                                      │
//!  wait ──► read a head ──► (skip a body) ──► response into the outbox ──► flush ──► what now?
//!         │                │                                       │             │
//!         └── invalid ─────┴───────► response ──► flush ───────────┼─► linger ◄──┘ close
//!                                                                  └─► file shrank: reset
//! ```
//!
//! Requests are answered one at a time, and nothing is read while a response is sent: pipelined
//! requests wait in the socket.

use std::rc::Rc;

use underpass::drive::tokio::Forecast;
use underpass::{Fault, Piece};
use underpass_net::{
    Arrival, Connection, ConnectionError, ReadOutcome, ShutdownPhase, WhileDraining,
};

use crate::access::permits::Permits;
use crate::answer::explain::{self, Explain};
use crate::answer::writer::{FileTransfer, SentBody, WrittenResponse};
use crate::body::producer::{BodyDelimiter, BodyError, ProducedBody};
use crate::connection::exchange::Exchange;
use crate::connection::identify::Identified;
use crate::connection::request_body::{RequestBody, SkipError};
use crate::connection::worker::{Answer, AnswerTerms, HashJob, Worker};
use crate::http::status::{HttpError, Status};
use crate::metrics::worker_metrics::{ExchangeEnd, SlowClient};
use crate::request::Scheme;
use crate::request::forwarded::sender;
use crate::request::head::{
    Expectation, Framing, HeadProgress, HeadScanner, Persistence, RequestHead, method_of,
};
use crate::request::request_line::Method;

/// How a connection goes on after an exchange.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum NextStep {
    /// With the next request.
    Request,
    /// It is closed after everything was delivered.
    Close,
    /// It is closed; the peer is gone.
    Drop,
    /// It is reset, so that the peer notices.
    Reset,
}

/// Serves a connection until it ends. With `https`, a port, requests are redirected there.
pub(crate) async fn serve_connection(
    worker: Rc<Worker>,
    connection: Connection,
    https: Option<u16>,
) {
    let open = OpenConnection(Rc::clone(&worker));
    let mut exchanges = Exchanges {
        worker: &worker,
        exchange: worker.connected(&connection),
        connection,
        https,
    };
    let next = match exchanges.exchange.meter() {
        None => exchanges.run().await,
        // Boxed, so that connections that are not measured are not larger for it.
        Some(meter) => Box::pin(meter.measure(exchanges.run())).await,
    };
    let connection = exchanges.connection;
    match next {
        NextStep::Close => Box::pin(connection.close()).await,
        NextStep::Reset => connection.abort(),
        NextStep::Request | NextStep::Drop => connection.end(),
    }
    drop(open);
}

/// Counts the end of a connection, also where its task is dropped while it waits.
struct OpenConnection(Rc<Worker>);

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.metrics.connections_ended.add(1);
    }
}

/// The exchanges of a connection.
struct Exchanges<'c> {
    worker: &'c Worker,
    connection: Connection,
    exchange: Exchange,
    /// The port that requests are redirected to.
    https: Option<u16>,
}

/// What has to be waited for next.
enum ExchangeStep<'w> {
    /// The response to this request.
    Send(Persistence, LastRequest, Answer<'w>),
    /// The end of a body to skip, or a descriptor, before the request with this head is answered.
    Postpone(Option<RequestBody>, Vec<u8>),
}

/// Whether the client has announced that no other request follows.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum LastRequest {
    Announced,
    Open,
}

/// Why there is no head.
enum HeadError {
    Invalid(HttpError),
    Gone,
}

const HEAD_TIMED_OUT: HttpError = HttpError::new(
    Status::RequestTimeout,
    "the request head was not received in time",
);

impl<'c> Exchanges<'c> {
    /// Returns how the connection ends. What a request needs is boxed: a connection is as large as
    /// the largest of the waits that it is made of, and most of the time it waits for a request.
    async fn run(&mut self) -> NextStep {
        loop {
            if let Some(end) = self.await_request().await {
                return end;
            }
            match Box::pin(self.answer_arrived()).await {
                NextStep::Request => {}
                end => return end,
            }
        }
    }

    /// Waits for the first byte of a request, which may take as long as a connection may be idle.
    /// Returns how the connection ends if there is none.
    async fn await_request(&mut self) -> Option<NextStep> {
        if !self.connection.input().is_empty() {
            // It came with what was read before.
            self.worker.read_file_events();
            return None;
        }
        self.connection.start_idle_deadline();
        match self.connection.fill(WhileDraining::Ends).await {
            Ok(ReadOutcome::Bytes(arrival)) => {
                self.note_arrival(arrival);
                return None;
            }
            // What comes behind close_notify would destroy what has not been read.
            Ok(ReadOutcome::End) if self.exchange.tls.is_some() => return Some(NextStep::Close),
            Ok(ReadOutcome::End) => return Some(NextStep::Drop),
            Err(ConnectionError::TimedOut) if self.connection.phase() < ShutdownPhase::Draining => {
                self.worker.metrics.late(SlowClient::Idle);
            }
            Err(_) => {}
        }
        self.connection.limit_undelivered();
        Some(NextStep::Drop)
    }

    /// What the event loop has not reported may be younger than what it has reported of files.
    fn note_arrival(&self, arrival: Arrival) {
        if arrival == Arrival::AtOnce {
            self.worker.read_file_events();
        }
    }

    /// Answers the request that has begun, and those that have arrived behind it.
    async fn answer_arrived(&mut self) -> NextStep {
        loop {
            match self.exchange().await {
                NextStep::Request => {}
                end => return end,
            }
            // Many requests at once in the buffer must not keep other connections waiting.
            tokio::task::consume_budget().await;
            if self.connection.input().is_empty() {
                return NextStep::Request;
            }
            self.worker.read_file_events();
        }
    }

    /// One request and its response.
    async fn exchange(&mut self) -> NextStep {
        let head = match self.read_head().await {
            Ok(head) => head,
            Err(HeadError::Invalid(error)) => return Box::pin(self.refuse_head(error)).await,
            Err(HeadError::Gone) => return NextStep::Drop,
        };
        match self.begin(&head) {
            Ok(ExchangeStep::Send(persistence, last, answer)) => {
                let is_short =
                    matches!(&answer, Answer::Written(it) if matches!(it.body, SentBody::Memory));
                let next = self.send_answer(persistence, answer).await;
                // No request follows (RFC 9112, section 9.6) whose arrival at a closed socket would
                // destroy what has not been read; messages of TLS can, and stray bytes in time.
                let nothing_follows = last == LastRequest::Announced
                    && is_short
                    && self.exchange.tls.is_none()
                    && self.connection.input().is_empty();
                match next {
                    NextStep::Close if nothing_follows => NextStep::Drop,
                    next => next,
                }
            }
            Ok(ExchangeStep::Postpone(body, bytes)) => {
                Box::pin(self.answer_later(&head, &bytes, body)).await
            }
            Err(error) => Box::pin(self.refuse_head(error)).await,
        }
    }

    /// Reads until a head is complete, of which there is something. The rest has a deadline, which
    /// single bytes do not extend.
    async fn read_head(&mut self) -> Result<HeadScanner, HeadError> {
        let worker = self.worker;
        let scheme = match self.connection.tls() {
            Some(_) => Scheme::Https,
            None => Scheme::Http,
        };
        let mut scanner = HeadScanner::within(&worker.shared.limits, scheme);
        let mut has_deadline = false;
        loop {
            self.exchange.begin(&worker.spare_exchange);
            match scanner.advance(self.connection.input()) {
                Ok(HeadProgress::Complete) => return Ok(scanner),
                Ok(HeadProgress::Partial) => {}
                Err(error) => return Err(HeadError::Invalid(error)),
            }
            if !std::mem::replace(&mut has_deadline, true) {
                let head_timeout = worker.shared.limits.head_timeout;
                self.connection.start_request_deadline(head_timeout);
            }
            match self.connection.fill(WhileDraining::Continues).await {
                Ok(ReadOutcome::Bytes(arrival)) => self.note_arrival(arrival),
                Err(ConnectionError::TimedOut) => {
                    worker.metrics.late(SlowClient::Head);
                    return Err(HeadError::Invalid(HEAD_TIMED_OUT));
                }
                Ok(ReadOutcome::End) | Err(_) => return Err(HeadError::Gone),
            }
        }
    }

    /// Takes a complete head off the input and answers it, unless it has a body that is to be
    /// skipped first. Not part of an `async fn`, so that no connection keeps a request while it
    /// waits.
    fn begin(&mut self, head: &HeadScanner) -> Result<ExchangeStep<'c>, HttpError> {
        let worker = self.worker;
        let (phase, peer) = (self.connection.phase(), self.connection.client().ip());
        let (input, outbox, room) = self.connection.parts();
        let bytes = &input[..head.length()];
        let request = head.parse(input)?;
        self.exchange.understand(bytes, Some(&request));
        let site = worker.site_of(request.authority);
        self.exchange.reaches(site);
        (self.exchange.client, self.exchange.scheme) =
            sender(peer, &request.fields, &worker.shared.proxies);
        let identified = worker.identify((&request, site), &self.exchange, self.https);
        let is_empty = request.framing == Framing::Empty;
        let (persistence, last) = match (is_empty, request.persistence) {
            (true, Persistence::Close) => (Persistence::Close, LastRequest::Announced),
            (true, Persistence::KeepAlive) => {
                let persistence = persistence(&request, phase, &self.exchange, worker);
                (persistence, LastRequest::Open)
            }
            (false, _) => (Persistence::Close, LastRequest::Open),
        };
        let body = (!is_empty)
            .then(|| RequestBody::to_skip(&request))
            .flatten();
        let answer = match (body.is_some(), identified) {
            (true, _) | (_, Identified::Unverified(_)) => None,
            (false, Identified::Known(permits)) => {
                self.exchange.identified(permits.as_ref());
                let terms = AnswerTerms {
                    site,
                    permits: permits.as_ref(),
                    persistence,
                    https: self.https,
                    attempt: 1,
                };
                worker.answer(request, terms, outbox, room)
            }
        };
        let step = match answer {
            Some(answer) => ExchangeStep::Send(persistence, last, answer),
            None => ExchangeStep::Postpone(body, bytes.to_vec()),
        };
        self.connection.consume(head.length());
        Ok(step)
    }

    /// Skips the body of a request, if it has one to skip, verifies its password, if it has one to
    /// verify, and answers it; where descriptors are short, as soon as there is one, within limits.
    async fn answer_later(
        &mut self,
        head: &HeadScanner,
        bytes: &[u8],
        body: Option<RequestBody>,
    ) -> NextStep {
        let worker = self.worker;
        let is_skipped = body.is_some();
        let skipped = match body {
            Some(body) => body.skip(&mut self.connection, &worker.shared.limits).await,
            None => Ok(()),
        };
        let permits = match head.parse(bytes) {
            Ok(request) => {
                let site = worker.site_of(request.authority);
                let identified = worker.identify((&request, site), &self.exchange, self.https);
                self.verified(identified).await
            }
            Err(error) => return self.refuse(method_of(bytes), error).await,
        };
        let permits = match permits {
            Ok(permits) => permits,
            Err(error) => {
                self.record(ended_by(&error));
                return NextStep::Drop;
            }
        };
        let mut attempt = 0;
        loop {
            attempt += 1;
            let request = match head.parse(bytes) {
                Ok(request) => request,
                Err(error) => return self.refuse(method_of(bytes), error).await,
            };
            let is_over = is_skipped || request.framing == Framing::Empty;
            let persistence = match &skipped {
                Ok(()) if is_over => {
                    persistence(&request, self.connection.phase(), &self.exchange, worker)
                }
                Ok(()) | Err(SkipError::TooLong) => Persistence::Close,
                Err(SkipError::Invalid(error)) => {
                    if error.status == Status::RequestTimeout {
                        worker.metrics.late(SlowClient::Body);
                    }
                    return self.refuse(request.method, *error).await;
                }
                Err(SkipError::Gone) => return NextStep::Drop,
            };
            let terms = AnswerTerms {
                site: worker.site_of(request.authority),
                permits: permits.as_ref(),
                persistence,
                https: self.https,
                attempt,
            };
            let (_, outbox, room) = self.connection.parts();
            match worker.answer(request, terms, outbox, room) {
                Some(answer) => return self.send_answer(persistence, answer).await,
                None => {
                    worker.close_kept_files();
                    let evicted = self.connection.free_descriptors().await;
                    worker.metrics.evicted.add(evicted);
                }
            }
        }
    }

    /// What the sender of a request may read, once its password is verified.
    async fn verified(
        &mut self,
        identified: Identified,
    ) -> Result<Option<Permits>, ConnectionError> {
        let permits = match identified {
            Identified::Known(permits) => permits,
            Identified::Unverified(login) => {
                let verified = self.worker.verify(*login);
                self.connection.unless_peer_closes(verified).await?
            }
        };
        self.exchange.identified(permits.as_ref());
        Ok(permits)
    }

    /// Answers a head that is invalid or incomplete.
    async fn refuse_head(&mut self, error: HttpError) -> NextStep {
        let input = self.connection.input();
        self.exchange.understand(input, None);
        let method = method_of(input);
        self.refuse(method, error).await
    }

    async fn refuse(&mut self, method: Method, error: HttpError) -> NextStep {
        let response = self.worker.refuse(method, error, self.connection.outbox());
        self.send(Persistence::Close, response).await
    }

    async fn send_answer(&mut self, persistence: Persistence, answer: Answer<'c>) -> NextStep {
        match answer {
            Answer::Written(response) => self.send(persistence, response).await,
            Answer::AwaitsHash(job) => Box::pin(self.send_hash(persistence, job)).await,
        }
    }

    /// Waits for a hash, unless the client goes away, and sends the response with it.
    async fn send_hash(&mut self, persistence: Persistence, job: Box<HashJob<'c>>) -> NextStep {
        match self
            .connection
            .unless_peer_closes(self.worker.hash(&job))
            .await
        {
            Ok(digest) => {
                let outbox = self.connection.outbox();
                let response = self.worker.answer_hash(*job, digest, outbox);
                self.send(persistence, response).await
            }
            Err(error) => {
                self.record(ended_by(&error));
                NextStep::Drop
            }
        }
    }

    /// Sends a response, and records the exchange.
    async fn send(&mut self, persistence: Persistence, response: WrittenResponse) -> NextStep {
        let transfer = match self.ready(response) {
            SentBody::Memory => None,
            SentBody::File(transfer) => Some(transfer),
            SentBody::Produced(body) => {
                return Box::pin(self.send_produced(persistence, body)).await;
            }
        };
        if persistence == Persistence::Close {
            self.connection.end_follows();
        }
        let sent = self.connection.flush().await;
        self.record(
            sent.as_ref()
                .map_or_else(ended_by, |()| ExchangeEnd::Complete),
        );
        match sent {
            Ok(()) => after(persistence),
            Err(error) => {
                if let ConnectionError::Move(error) = &error {
                    warn(transfer, error);
                }
                NextStep::Reset
            }
        }
    }

    async fn send_produced(
        &mut self,
        persistence: Persistence,
        mut body: ProducedBody,
    ) -> NextStep {
        let what = std::mem::take(&mut body.what);
        let sent = body
            .send(&mut self.connection, &self.worker.producers.turns)
            .await;
        self.record(match &sent {
            Ok(_) => ExchangeEnd::Complete,
            Err(BodyError::Source(_)) => ExchangeEnd::Failed,
            Err(BodyError::Connection(error)) => ended_by(error),
        });
        match sent {
            Ok(BodyDelimiter::Close) => NextStep::Close,
            Ok(BodyDelimiter::LastChunk) => after(persistence),
            Err(error) => {
                if let BodyError::Source(_) | BodyError::Connection(ConnectionError::Move(_)) =
                    &error
                {
                    tracing::warn!("connection closed: {what}: {error}");
                }
                NextStep::Reset
            }
        }
    }

    /// Adds fields to a response, each behind a line end.
    fn amend(&mut self, response: &mut WrittenResponse, fields: &str) {
        let at = response.head_bytes as usize;
        let outbox = self.connection.outbox();
        outbox.amend_head(|head| explain::insert(head, at, fields));
        response.head_bytes += fields.len() as u64;
    }

    /// Completes the response where that is asked for, and records that it is ready.
    fn ready(&mut self, mut response: WrittenResponse) -> SentBody {
        let worker = self.worker;
        if let (Some(field), Some(_)) = (&worker.shared.hsts, &self.exchange.tls) {
            self.amend(&mut response, field);
        }
        if response.status.code() < 400
            && let Some(cookie) = self.exchange.cookie()
        {
            self.amend(&mut response, &cookie);
        }
        if worker.shared.registry.explain == Explain::On {
            let made = match &response.body {
                SentBody::Produced(body) => Some(body.made()),
                SentBody::Memory | SentBody::File(_) => None,
            };
            let fields = self.explanation(made);
            self.amend(&mut response, &fields);
        }
        self.exchange.ready(&response, self.connection.outbox());
        response.body
    }

    /// The fields that tell how the body is planned to leave, or is `made`, and how the previous
    /// one left.
    fn explanation(&mut self, made: Option<&str>) -> String {
        let previous = self.exchange.previous.as_deref();
        let tls = self.exchange.tls.as_deref();
        let tls = tls.zip(self.connection.sealed_by());
        // The length of the fields decides too whether a small body leaves with its head.
        let length = |forecast: &Forecast| {
            let planned = explain::planned(forecast);
            explain::fields(Some(&planned), previous, tls).len() as u64
        };
        let forecast = self.connection.forecast(0);
        let forecast = forecast.and_then(|forecast| self.connection.forecast(length(&forecast)));
        let mut pieces = self.connection.outbox().pieces();
        let planned = match pieces.any(|piece| matches!(piece, Piece::Content(_))) {
            true => Some(explain::IN_MEMORY.to_owned()),
            false => forecast.as_ref().map(explain::planned),
        };
        let planned = planned.or_else(|| made.map(str::to_owned));
        explain::fields(planned.as_deref(), previous, tls)
    }

    fn record(&mut self, end: ExchangeEnd) {
        self.worker
            .record(self.connection.outbox(), &mut self.exchange, end);
    }
}

/// What becomes of the connection after a request whose end is known.
fn persistence(
    request: &RequestHead<'_>,
    phase: ShutdownPhase,
    exchange: &Exchange,
    worker: &Worker,
) -> Persistence {
    let requests_max = worker.shared.limits.per_connection_max;
    match (request.method, request.expect, phase) {
        (Method::Connect, _, _) | (_, Expectation::Unknown, _) => Persistence::Close,
        (_, _, ShutdownPhase::Retiring | ShutdownPhase::Draining | ShutdownPhase::Now) => {
            Persistence::Close
        }
        _ if requests_max.is_some_and(|max| exchange.number() >= max.get()) => Persistence::Close,
        _ => request.persistence,
    }
}

fn after(persistence: Persistence) -> NextStep {
    match persistence {
        Persistence::KeepAlive => NextStep::Request,
        Persistence::Close => NextStep::Close,
    }
}

fn ended_by(error: &ConnectionError) -> ExchangeEnd {
    match error {
        ConnectionError::PeerGone => ExchangeEnd::PeerGone,
        ConnectionError::TimedOut => ExchangeEnd::Stalled,
        ConnectionError::TooSlow => ExchangeEnd::TooSlow,
        ConnectionError::Stopped => ExchangeEnd::Stopped,
        ConnectionError::Move(error) if error.fault == Fault::Truncated => ExchangeEnd::Truncated,
        _ => ExchangeEnd::Failed,
    }
}

/// Warns which file could not be sent, where and why.
fn warn(transfer: Option<FileTransfer>, error: &underpass::Error) {
    let Some(transfer) = transfer else {
        tracing::debug!("response not sent: {error}");
        return;
    };
    let (path, size) = (&transfer.path, transfer.size);
    let offset = transfer.offset_after(error.moved());
    match error.fault {
        Fault::Truncated => tracing::warn!(
            "connection closed: {path:?} ends at offset {offset} or before, expected {size} bytes"
        ),
        _ => tracing::warn!("connection closed: {path:?} at offset {offset} of {size}: {error}"),
    }
}
