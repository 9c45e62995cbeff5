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
//! Requests are served one at a time, and nothing is read while a response is sent: pipelined
//! requests wait in the socket.

use std::rc::Rc;

use underpass_http::body::framing::Framing;
use underpass_http::persistence::Persistence;
use underpass_http::request::head::{HeadProgress, HeadScanner, method_of};
use underpass_http::scheme::Scheme;
use underpass_http::status::{HttpError, Status};
use underpass_net::{
    Arrival, Connection, ConnectionError, ReadOutcome, ShutdownPhase, WhileDraining,
};

use crate::access::forwarded::sender;
use crate::answer::writer::SentBody;
use crate::connection::exchanges::{Exchanges, NextStep, ended_by, persistence};
use crate::connection::identify::Identified;
use crate::connection::request_body::{RequestBody, SkipError};
use crate::connection::upload::is_change;
use crate::connection::worker::{Answer, AnswerTerms, Worker};
use crate::metrics::worker_metrics::SlowClient;

/// Serves a connection until it ends. With `https`, a port, redirects requests there.
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
        // Boxed, so that connections without measurement are not enlarged by it.
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

/// Counts the end of a connection, even if its task is dropped while it waits.
struct OpenConnection(Rc<Worker>);

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.metrics.connections_ended.add(1);
    }
}

/// The next step of an exchange.
enum ExchangeStep<'w> {
    /// Send the response to this request.
    Send(Persistence, LastRequest, Answer<'w>),
    /// Wait for the end of a body to skip, a password, or a descriptor; the bytes are the head.
    Postpone(Option<Box<RequestBody>>, Vec<u8>),
    /// The request with this head changes what is served.
    Change(Vec<u8>),
}

/// Whether the client has announced that no other request follows.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum LastRequest {
    Announced,
    Open,
}

/// The reason why no head was read.
enum HeadError {
    Invalid(HttpError),
    Gone,
}

const HEAD_TIMED_OUT: HttpError = HttpError::new(
    Status::RequestTimeout,
    "the request head was not received in time",
);

impl<'c> Exchanges<'c> {
    /// Returns how the connection ends. The state of a request is boxed: a connection is as large
    /// as its largest wait, and most of the time it waits for a request.
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

    /// Waits for the first byte of a request, limited by the idle timeout. Returns how the
    /// connection ends if none arrives.
    async fn await_request(&mut self) -> Option<NextStep> {
        if !self.connection.input().is_empty() {
            // The request arrived together with earlier data.
            self.worker.read_file_events();
            return None;
        }
        self.connection.start_idle_deadline();
        match self.connection.fill(WhileDraining::Ends).await {
            Ok(ReadOutcome::Bytes(arrival)) => {
                self.note_arrival(arrival);
                return None;
            }
            // Data after close_notify would cause a reset that destroys undelivered data.
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

    /// Reads file events if the event loop did not report the data: they may be older than it.
    fn note_arrival(&self, arrival: Arrival) {
        if arrival == Arrival::AtOnce {
            self.worker.read_file_events();
        }
    }

    /// Serves the request that has started, and pipelined ones that have already arrived.
    async fn answer_arrived(&mut self) -> NextStep {
        loop {
            match self.exchange().await {
                NextStep::Request => {}
                end => return end,
            }
            // Many pipelined requests in the buffer must not keep other connections waiting.
            tokio::task::consume_budget().await;
            if self.connection.input().is_empty() {
                return NextStep::Request;
            }
            self.worker.read_file_events();
        }
    }

    /// Serves one request.
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
                // A request arriving at the closed socket would destroy undelivered data, but none
                // follows (RFC 9112, section 9.6). TLS messages and stray bytes would do so too.
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
            Ok(ExchangeStep::Change(bytes)) => Box::pin(self.change(&head, &bytes)).await,
            Err(error) => Box::pin(self.refuse_head(error)).await,
        }
    }

    /// Reads until a head is complete; its first bytes have arrived. The rest has a deadline, which
    /// single bytes do not extend.
    async fn read_head(&mut self) -> Result<HeadScanner, HeadError> {
        let worker = self.worker;
        let scheme = match self.connection.tls() {
            Some(_) => Scheme::Https,
            None => Scheme::Http,
        };
        let mut scanner = HeadScanner::within(worker.shared.limits.head(), scheme);
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

    /// Takes a complete head off the input and responds, unless a body has to be skipped or a
    /// password verified first. Not an `async fn`, so that no connection holds a request while it
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
        if is_change(&request, &worker.shared.sites.all[site], self.https) {
            let change = ExchangeStep::Change(bytes.to_vec());
            self.connection.consume(head.length());
            return Ok(change);
        }
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
            None => ExchangeStep::Postpone(body.map(Box::new), bytes.to_vec()),
        };
        self.connection.consume(head.length());
        Ok(step)
    }

    /// Skips the body of a request and verifies its password, if any, and responds; if descriptors
    /// are short, as soon as one is free, within limits.
    async fn answer_later(
        &mut self,
        head: &HeadScanner,
        bytes: &[u8],
        body: Option<Box<RequestBody>>,
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

    /// Responds to an invalid or incomplete head.
    async fn refuse_head(&mut self, error: HttpError) -> NextStep {
        let input = self.connection.input();
        self.exchange.understand(input, None);
        let method = method_of(input);
        self.refuse(method, error).await
    }
}
