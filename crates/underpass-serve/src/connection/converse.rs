//! One connection, from its first request to its end.
//!
//! ```text
//!         ┌───────────────────────────── keep-alive ─────────────────────────────┐
//!         ▼                                                                      │
//!  read a head ──► (skip a body) ──► answer into the outbox ──► flush ──► what now?
//!         │                │                                       │             │
//!         └── refused ─────┴───────► answer ──► flush ─────────────┼─► linger ◄──┘ close
//!                                                                  └─► file shrank: reset
//! ```
//!
//! One request is dealt with at a time, and nothing is read while its answer is sent: pipelined
//! requests wait in the socket.

use std::rc::Rc;

use underpass::drive::tokio::Forecast;
use underpass::{Fault, Piece};
use underpass_net::{Connection, ConnectionError, ReadOutcome, ShutdownPhase, WhileDraining};

use crate::answer::explain;
use crate::answer::explain::Explain;
use crate::answer::writer::FileTransfer;
use crate::body::producer::{BodyDelimiter, BodyError, ProducedBody};
use crate::body::producers::{HashJob, HashPurpose};
use crate::connection::exchange::{BodyLength, CpuMeter, Exchange, ObservationLevel};
use crate::connection::request_body::{self, RequestBody, RequestBodyPlan, SkipError};
use crate::connection::service::HttpService;
use crate::connection::worker::{PendingBody, Worker};
use crate::http::digest::FileDigest;
use crate::http::status::{HttpError, Status};
use crate::limits::RequestPlace;
use crate::metrics::worker_metrics::{ExchangeEnd, SlowClient};
use crate::request::head::{
    Expectation, HeadProgress, HeadScanner, Persistence, RequestHead, method_of,
};
use crate::request::request_line::Method;

/// How a connection goes on after an exchange.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum NextStep {
    /// With the next request.
    Request,
    /// It ends; the peer gets what is on its way.
    Close,
    /// It ends; nobody is there.
    Drop,
    /// It ends, and the peer must notice.
    Reset,
}

/// Speaks HTTP/1.1 with one peer until the connection ends.
pub(crate) async fn serve_connection(
    worker: Rc<Worker>,
    service: HttpService,
    mut stream: Connection,
) {
    // Boxed, so that the connections of clients are not larger for it.
    if let HttpService::Metrics(metrics) = service {
        return Box::pin(metrics.serve(stream)).await;
    }
    let meter = Rc::new(CpuMeter::default());
    let mut visit = worker.visit(stream.client().ip(), Rc::clone(&meter));
    let attention = worker.attention();
    let leaving = ConnectionCount(Rc::clone(&worker));
    let next = match attention {
        // Boxed, so that connections that are not measured are not larger for it.
        ObservationLevel::Processor => {
            let exchanges = Box::pin(exchanges(&worker, &mut stream, &mut visit));
            meter.measure(exchanges).await
        }
        _ => exchanges(&worker, &mut stream, &mut visit).await,
    };
    match next {
        NextStep::Close => Box::pin(stream.close()).await,
        NextStep::Reset => stream.abort(),
        NextStep::Request | NextStep::Drop => {}
    }
    drop(leaving);
}

/// A connection's task may be dropped while it waits; it has ended then too.
struct ConnectionCount(Rc<Worker>);

impl Drop for ConnectionCount {
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// All of them; returns how the connection ends.
async fn exchanges(worker: &Worker, stream: &mut Connection, visit: &mut Exchange) -> NextStep {
    let mut requests = 0;
    loop {
        requests += 1;
        let place = worker.limits().place(requests);
        match exchange(worker, stream, visit, place).await {
            // Many requests at once in the buffer must not keep other connections waiting.
            NextStep::Request => tokio::task::consume_budget().await,
            end => return end,
        }
    }
}

/// One request and its answer. What is rare is boxed: a connection is as large as the largest of
/// the waits that it is made of, and most of the time it is idle.
async fn exchange(
    worker: &Worker,
    stream: &mut Connection,
    visit: &mut Exchange,
    place: RequestPlace,
) -> NextStep {
    let scan = match read_head(worker, stream, visit).await {
        Ok(scan) => scan,
        Err(HeadError::Refused(refusal)) => {
            return Box::pin(misread(worker, stream, visit, refusal)).await;
        }
        Err(HeadError::Gone) => return NextStep::Drop,
    };
    match begin(worker, stream, visit, &scan, place) {
        Ok(ExchangeStep::Send(persistence, last, owed)) => {
            match send(worker, stream, visit, persistence, owed).await {
                // Who said so sends nothing that a close could be in the way of (RFC 9112, 9.6).
                NextStep::Close if last == LastRequest::Said && stream.input().is_empty() => {
                    NextStep::Drop
                }
                next => next,
            }
        }
        Ok(ExchangeStep::Skip(body, head)) => {
            let skipped = Box::pin(body.skip(stream, worker.limits())).await;
            let answer = answer_after_body(worker, stream, visit, &scan, &head, skipped, place);
            Box::pin(answer).await
        }
        Err(refusal) => Box::pin(misread(worker, stream, visit, refusal)).await,
    }
}

/// What has to be waited for next.
enum ExchangeStep {
    /// The answer, which is in the outbox.
    Send(Persistence, LastRequest, PendingBody),
    /// The end of a body, before the request with this head is answered.
    Skip(RequestBody, Vec<u8>),
}

/// Whether the client has said that no other request follows.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum LastRequest {
    Said,
    Unsaid,
}

/// Reads a head that is complete and takes it off the input; answers it, unless it has a body that
/// is to be skipped first. Apart from those who wait, so that nobody keeps a request meanwhile.
fn begin(
    worker: &Worker,
    stream: &mut Connection,
    visit: &mut Exchange,
    scan: &HeadScanner,
    place: RequestPlace,
) -> Result<ExchangeStep, HttpError> {
    let (phase, peer) = (stream.phase(), stream.client().ip());
    let (input, outbox) = stream.parts();
    let request = scan.parse(input)?;
    visit.understand(&input[..scan.length()], Some(&request), || worker.words());
    visit.client = worker.client(peer, &request);
    let step = match request_body::plan(&request, worker.limits()) {
        RequestBodyPlan::Nothing => {
            let persistence = persistence(&request, phase, place);
            let last = match request.persistence {
                Persistence::Close => LastRequest::Said,
                Persistence::KeepAlive => LastRequest::Unsaid,
            };
            let owed = worker.answer(request, persistence, outbox);
            ExchangeStep::Send(persistence, last, owed)
        }
        RequestBodyPlan::Leave => {
            let owed = worker.answer(request, Persistence::Close, outbox);
            ExchangeStep::Send(Persistence::Close, LastRequest::Unsaid, owed)
        }
        RequestBodyPlan::Skip(body) => ExchangeStep::Skip(body, input[..scan.length()].to_vec()),
    };
    stream.consume(scan.length());
    Ok(step)
}

/// Why there is no head.
enum HeadError {
    Refused(HttpError),
    Gone,
}

/// Reads until a head is complete. The first byte may take as long as a connection may be idle,
/// the rest has its own deadline, which no trickle extends.
async fn read_head(
    worker: &Worker,
    stream: &mut Connection,
    visit: &mut Exchange,
) -> Result<HeadScanner, HeadError> {
    let mut scan = HeadScanner::within(worker.limits());
    let mut patience = WhileDraining::Ends;
    stream.start_idle_deadline();
    loop {
        if !stream.input().is_empty() {
            visit.begin();
            match scan.advance(stream.input()) {
                Ok(HeadProgress::Complete) => return Ok(scan),
                Ok(HeadProgress::Partial) => {}
                Err(refusal) => return Err(HeadError::Refused(refusal)),
            }
            if patience == WhileDraining::Ends {
                patience = WhileDraining::Continues;
                stream.start_deadline(worker.limits().head_timeout);
            }
        }
        match stream.fill(patience).await {
            Ok(ReadOutcome::Bytes) => {}
            Err(ConnectionError::TimedOut) if patience == WhileDraining::Continues => {
                worker.tally().late(SlowClient::Head);
                return Err(HeadError::Refused(LATE));
            }
            Err(ConnectionError::TimedOut) if stream.phase() < ShutdownPhase::Draining => {
                worker.tally().late(SlowClient::Idle);
                return Err(HeadError::Gone);
            }
            Ok(ReadOutcome::End) | Err(_) => return Err(HeadError::Gone),
        }
    }
}

const LATE: HttpError = HttpError::new(Status::RequestTimeout, "the request did not come in time");

/// Answers a request whose body has been read, or has not.
async fn answer_after_body(
    worker: &Worker,
    stream: &mut Connection,
    visit: &mut Exchange,
    scan: &HeadScanner,
    head: &[u8],
    skipped: Result<(), SkipError>,
    place: RequestPlace,
) -> NextStep {
    let request = match (scan.parse(head), &skipped) {
        (Ok(request), _) => request,
        (Err(refusal), _) => {
            return refuse(worker, stream, visit, method_of(head), refusal).await;
        }
    };
    let persistence = match skipped {
        Ok(()) => persistence(&request, stream.phase(), place),
        Err(SkipError::TooLong) => Persistence::Close,
        Err(SkipError::Refused(refusal)) => {
            if refusal.status == Status::RequestTimeout {
                worker.tally().late(SlowClient::Body);
            }
            return refuse(worker, stream, visit, request.method, refusal).await;
        }
        Err(SkipError::Gone) => return NextStep::Drop,
    };
    let owed = worker.answer(request, persistence, stream.outbox());
    send(worker, stream, visit, persistence, owed).await
}

/// What becomes of the connection after a request whose end is known.
fn persistence(
    request: &RequestHead<'_>,
    phase: ShutdownPhase,
    place: RequestPlace,
) -> Persistence {
    match (request.method, request.expect, phase) {
        (Method::Connect, _, _) | (_, Expectation::Unknown, _) => Persistence::Close,
        (_, _, ShutdownPhase::Retiring | ShutdownPhase::Draining | ShutdownPhase::Now) => {
            Persistence::Close
        }
        _ if place == RequestPlace::Last => Persistence::Close,
        _ => request.persistence,
    }
}

/// Answers what came instead of a head that makes sense.
async fn misread(
    worker: &Worker,
    stream: &mut Connection,
    visit: &mut Exchange,
    refusal: HttpError,
) -> NextStep {
    visit.understand(stream.input(), None, || worker.words());
    let method = method_of(stream.input());
    refuse(worker, stream, visit, method, refusal).await
}

async fn refuse(
    worker: &Worker,
    stream: &mut Connection,
    visit: &mut Exchange,
    method: Method,
    refusal: HttpError,
) -> NextStep {
    worker.refuse(method, refusal, stream.outbox());
    send(
        worker,
        stream,
        visit,
        Persistence::Close,
        PendingBody::Nothing,
    )
    .await
}

/// Sends what is in the outbox and what is owed beside it, and keeps account of it.
async fn send(
    worker: &Worker,
    stream: &mut Connection,
    visit: &mut Exchange,
    persistence: Persistence,
    owed: PendingBody,
) -> NextStep {
    let sending = match owed {
        PendingBody::Nothing => None,
        PendingBody::File(sending) => Some(sending),
        PendingBody::Feed(feeding) => {
            return Box::pin(feed(worker, stream, visit, persistence, feeding)).await;
        }
        PendingBody::Hash(hashing) => {
            return Box::pin(send_hash(worker, stream, visit, persistence, hashing)).await;
        }
    };
    if worker.explain() == Explain::On {
        explain(stream, visit, None);
    }
    visit.ready(stream.outbox(), BodyLength::Known);
    let sent = stream.flush().await;
    worker.record(stream.outbox(), visit, end(&sent));
    match sent {
        Ok(()) => after(persistence),
        Err(ConnectionError::Move(error)) => {
            tell(sending, &error);
            NextStep::Reset
        }
        Err(_) => NextStep::Reset,
    }
}

fn after(persistence: Persistence) -> NextStep {
    match persistence {
        Persistence::KeepAlive => NextStep::Request,
        Persistence::Close => NextStep::Close,
    }
}

/// Makes and sends a body.
async fn feed(
    worker: &Worker,
    stream: &mut Connection,
    visit: &mut Exchange,
    persistence: Persistence,
    mut feeding: ProducedBody,
) -> NextStep {
    if worker.explain() == Explain::On {
        explain(stream, visit, Some(feeding.made()));
    }
    visit.ready(stream.outbox(), BodyLength::Unknown);
    let sent = feeding.send(stream).await;
    worker.record(stream.outbox(), visit, end_of_feed(&sent));
    match sent {
        Ok(()) if feeding.delimiter() == BodyDelimiter::Close => NextStep::Close,
        Ok(()) => after(persistence),
        Err(broken) => {
            if let BodyError::Source(_) | BodyError::Connection(ConnectionError::Move(_)) = &broken
            {
                tracing::warn!("connection closed: {}: {broken}", feeding.what);
            }
            NextStep::Reset
        }
    }
}

async fn send_hash(
    worker: &Worker,
    stream: &mut Connection,
    visit: &mut Exchange,
    persistence: Persistence,
    hashing: HashJob,
) -> NextStep {
    match hash(worker, stream, hashing).await {
        Ok(owed) => Box::pin(send(worker, stream, visit, persistence, owed)).await,
        Err(error) => {
            visit.ready(stream.outbox(), BodyLength::Unknown);
            worker.record(stream.outbox(), visit, end(&Err(error)));
            NextStep::Drop
        }
    }
}

/// Answers with the hash of a file, unless the client goes away before it is known.
async fn hash(
    worker: &Worker,
    stream: &mut Connection,
    hashing: HashJob,
) -> Result<PendingBody, ConnectionError> {
    let digest = match (hashing.occasion.method, &hashing.purpose) {
        // All hashes are of the same length.
        (Method::Head, HashPurpose::Line(..)) => Ok(FileDigest::UNKNOWN),
        _ => stream.unless_peer_closes(worker.hash(&hashing)).await?,
    };
    Ok(worker.answer_hash(hashing, digest, stream.outbox()))
}

/// Adds to the head how the body is planned to leave, or is `made`, and how the one before did.
fn explain(stream: &mut Connection, visit: &Exchange, made: Option<&str>) {
    // What the fields make of a small answer is known only when they are written.
    let longer = |forecast: &Forecast| {
        let planned = explain::planned(forecast);
        explain::fields(Some(&planned), visit.previous()).len() as u64
    };
    let forecast = stream.forecast(0);
    let forecast = forecast.and_then(|forecast| stream.forecast(longer(&forecast)));
    let planned = match stream.outbox().pieces().next() {
        Some(Piece::Joined { .. }) => Some(explain::IN_MEMORY.to_owned()),
        _ => forecast.as_ref().map(explain::planned),
    };
    let planned = planned.or_else(|| made.map(str::to_owned));
    let fields = explain::fields(planned.as_deref(), visit.previous());
    stream
        .outbox()
        .amend_head(|head| explain::insert(head, &fields));
}

/// How it is told in logs and metrics.
fn end(sent: &Result<(), ConnectionError>) -> ExchangeEnd {
    match sent {
        Ok(()) => ExchangeEnd::Complete,
        Err(error) => end_by(error),
    }
}

fn end_of_feed(sent: &Result<(), BodyError>) -> ExchangeEnd {
    match sent {
        Ok(()) => ExchangeEnd::Complete,
        Err(BodyError::Source(_)) => ExchangeEnd::Failed,
        Err(BodyError::Connection(error)) => end_by(error),
    }
}

fn end_by(error: &ConnectionError) -> ExchangeEnd {
    match error {
        ConnectionError::PeerGone => ExchangeEnd::PeerGone,
        ConnectionError::TimedOut => ExchangeEnd::Stalled,
        ConnectionError::TooSlow => ExchangeEnd::TooSlow,
        ConnectionError::Stopped => ExchangeEnd::Stopped,
        ConnectionError::Move(error) if error.fault == Fault::Truncated => ExchangeEnd::Truncated,
        _ => ExchangeEnd::Failed,
    }
}

/// Says which file could not be sent as promised, where it happened and why.
fn tell(sending: Option<FileTransfer>, error: &underpass::Error) {
    let Some(sending) = sending else {
        tracing::debug!("an answer was not sent: {error}");
        return;
    };
    let (path, size) = (&sending.path, sending.size);
    let offset = sending.offset_after(error.moved());
    match error.fault {
        Fault::Truncated => tracing::warn!(
            "connection closed: {path:?} ends at offset {offset} or before, expected {size} bytes"
        ),
        _ => tracing::warn!("connection closed: {path:?} at offset {offset} of {size}: {error}"),
    }
}
