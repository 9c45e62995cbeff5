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
use crate::answer::reply::Sending;
use crate::body::feed::{Broken, Delimiter, Feeding};
use crate::body::workshop::{Hashing, Purpose};
use crate::connection::request_body::{self, Body, Plan, Unskipped};
use crate::connection::visit::{Attention, BodyLength, Meter, Visit};
use crate::connection::worker::{Owed, Worker};
use crate::http::status::{Refusal, Status};
use crate::limits::Place;
use crate::metrics::tally::{End, Late};
use crate::options::Explain;
use crate::request::head::{Expect, Persistence, Progress, Request, Scan, method_of};
use crate::request::request_line::Method;
use crate::site::digest::Digest;

/// How a connection goes on after an exchange.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Next {
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
pub(crate) async fn serve_connection(worker: Rc<Worker>, mut stream: Connection) {
    let meter = Rc::new(Meter::default());
    let mut visit = worker.visit(stream.client().ip(), Rc::clone(&meter));
    let attention = worker.attention();
    let leaving = Leaving(Rc::clone(&worker));
    let next = match attention {
        // Boxed, so that connections that are not measured are not larger for it.
        Attention::Processor => {
            let exchanges = Box::pin(exchanges(&worker, &mut stream, &mut visit));
            meter.measure(exchanges).await
        }
        _ => exchanges(&worker, &mut stream, &mut visit).await,
    };
    match next {
        Next::Close => Box::pin(stream.close()).await,
        Next::Reset => stream.abort(),
        Next::Request | Next::Drop => {}
    }
    drop(leaving);
}

/// A connection's task may be dropped while it waits; it has ended then too.
struct Leaving(Rc<Worker>);

impl Drop for Leaving {
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// All of them; returns how the connection ends.
async fn exchanges(worker: &Worker, stream: &mut Connection, visit: &mut Visit) -> Next {
    let mut requests = 0;
    loop {
        requests += 1;
        let place = worker.limits.place(requests);
        match exchange(worker, stream, visit, place).await {
            // Many requests at once in the buffer must not keep other connections waiting.
            Next::Request => tokio::task::consume_budget().await,
            end => return end,
        }
    }
}

/// One request and its answer. What is rare is boxed: a connection is as large as the largest of
/// the waits that it is made of, and most of the time it is idle.
async fn exchange(
    worker: &Worker,
    stream: &mut Connection,
    visit: &mut Visit,
    place: Place,
) -> Next {
    let scan = match read_head(worker, stream, visit).await {
        Ok(scan) => scan,
        Err(Unread::Refused(refusal)) => {
            return Box::pin(misread(worker, stream, visit, refusal)).await;
        }
        Err(Unread::Gone) => return Next::Drop,
    };
    match begin(worker, stream, visit, &scan, place) {
        Ok(Step::Send(persistence, last, owed)) => {
            match send(worker, stream, visit, persistence, owed).await {
                // Who said so sends nothing that a close could be in the way of (RFC 9112, 9.6).
                Next::Close if last == Last::Said && stream.input().is_empty() => Next::Drop,
                next => next,
            }
        }
        Ok(Step::Skip(body, head)) => {
            let skipped = Box::pin(body.skip(stream, &worker.limits)).await;
            let answer = answer_after_body(worker, stream, visit, &scan, &head, skipped, place);
            Box::pin(answer).await
        }
        Err(refusal) => Box::pin(misread(worker, stream, visit, refusal)).await,
    }
}

/// What has to be waited for next.
enum Step {
    /// The answer, which is in the outbox.
    Send(Persistence, Last, Owed),
    /// The end of a body, before the request with this head is answered.
    Skip(Body, Vec<u8>),
}

/// Whether the client has said that no other request follows.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Last {
    Said,
    Unsaid,
}

/// Reads a head that is complete and takes it off the input; answers it, unless it has a body that
/// is to be skipped first. Apart from those who wait, so that nobody keeps a request meanwhile.
fn begin(
    worker: &Worker,
    stream: &mut Connection,
    visit: &mut Visit,
    scan: &Scan,
    place: Place,
) -> Result<Step, Refusal> {
    let (phase, peer) = (stream.phase(), stream.client().ip());
    let (input, outbox) = stream.parts();
    let request = scan.parse(input)?;
    visit.understand(&input[..scan.length()], Some(&request), || worker.words());
    visit.client = worker.client(peer, &request);
    let step = match request_body::plan(&request, &worker.limits) {
        Plan::Nothing => {
            let persistence = persistence(&request, phase, place);
            let last = match request.persistence {
                Persistence::Close => Last::Said,
                Persistence::KeepAlive => Last::Unsaid,
            };
            let owed = worker.answer(request, persistence, outbox);
            Step::Send(persistence, last, owed)
        }
        Plan::Leave => {
            let owed = worker.answer(request, Persistence::Close, outbox);
            Step::Send(Persistence::Close, Last::Unsaid, owed)
        }
        Plan::Skip(body) => Step::Skip(body, input[..scan.length()].to_vec()),
    };
    stream.consume(scan.length());
    Ok(step)
}

/// Why there is no head.
enum Unread {
    Refused(Refusal),
    Gone,
}

/// Reads until a head is complete. The first byte may take as long as a connection may be idle,
/// the rest has its own deadline, which no trickle extends.
async fn read_head(
    worker: &Worker,
    stream: &mut Connection,
    visit: &mut Visit,
) -> Result<Scan, Unread> {
    let mut scan = Scan::within(&worker.limits);
    let mut patience = WhileDraining::Ends;
    stream.start_idle_deadline();
    loop {
        if !stream.input().is_empty() {
            visit.begin();
            match scan.advance(stream.input()) {
                Ok(Progress::Complete) => return Ok(scan),
                Ok(Progress::Partial) => {}
                Err(refusal) => return Err(Unread::Refused(refusal)),
            }
            if patience == WhileDraining::Ends {
                patience = WhileDraining::Continues;
                stream.start_deadline(worker.limits.head_timeout);
            }
        }
        match stream.fill(patience).await {
            Ok(ReadOutcome::Bytes) => {}
            Err(ConnectionError::TimedOut) if patience == WhileDraining::Continues => {
                worker.tally().late(Late::Head);
                return Err(Unread::Refused(LATE));
            }
            Err(ConnectionError::TimedOut) if stream.phase() < ShutdownPhase::Draining => {
                worker.tally().late(Late::Idle);
                return Err(Unread::Gone);
            }
            Ok(ReadOutcome::End) | Err(_) => return Err(Unread::Gone),
        }
    }
}

const LATE: Refusal = Refusal::new(Status::RequestTimeout, "the request did not come in time");

/// Answers a request whose body has been read, or has not.
async fn answer_after_body(
    worker: &Worker,
    stream: &mut Connection,
    visit: &mut Visit,
    scan: &Scan,
    head: &[u8],
    skipped: Result<(), Unskipped>,
    place: Place,
) -> Next {
    let request = match (scan.parse(head), &skipped) {
        (Ok(request), _) => request,
        (Err(refusal), _) => {
            return refuse(worker, stream, visit, method_of(head), refusal).await;
        }
    };
    let persistence = match skipped {
        Ok(()) => persistence(&request, stream.phase(), place),
        Err(Unskipped::TooLong) => Persistence::Close,
        Err(Unskipped::Refused(refusal)) => {
            if refusal.status == Status::RequestTimeout {
                worker.tally().late(Late::Body);
            }
            return refuse(worker, stream, visit, request.method, refusal).await;
        }
        Err(Unskipped::Gone) => return Next::Drop,
    };
    let owed = worker.answer(request, persistence, stream.outbox());
    send(worker, stream, visit, persistence, owed).await
}

/// What becomes of the connection after a request whose end is known.
fn persistence(request: &Request<'_>, phase: ShutdownPhase, place: Place) -> Persistence {
    match (request.method, request.expect, phase) {
        (Method::Connect, _, _) | (_, Expect::Unknown, _) => Persistence::Close,
        (_, _, ShutdownPhase::Retiring | ShutdownPhase::Draining | ShutdownPhase::Now) => {
            Persistence::Close
        }
        _ if place == Place::Last => Persistence::Close,
        _ => request.persistence,
    }
}

/// Answers what came instead of a head that makes sense.
async fn misread(
    worker: &Worker,
    stream: &mut Connection,
    visit: &mut Visit,
    refusal: Refusal,
) -> Next {
    visit.understand(stream.input(), None, || worker.words());
    let method = method_of(stream.input());
    refuse(worker, stream, visit, method, refusal).await
}

async fn refuse(
    worker: &Worker,
    stream: &mut Connection,
    visit: &mut Visit,
    method: Method,
    refusal: Refusal,
) -> Next {
    worker.refuse(method, refusal, stream.outbox());
    send(worker, stream, visit, Persistence::Close, Owed::Nothing).await
}

/// Sends what is in the outbox and what is owed beside it, and keeps account of it.
async fn send(
    worker: &Worker,
    stream: &mut Connection,
    visit: &mut Visit,
    persistence: Persistence,
    owed: Owed,
) -> Next {
    let sending = match owed {
        Owed::Nothing => None,
        Owed::File(sending) => Some(sending),
        Owed::Feed(feeding) => {
            return Box::pin(feed(worker, stream, visit, persistence, feeding)).await;
        }
        Owed::Hash(hashing) => {
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
            Next::Reset
        }
        Err(_) => Next::Reset,
    }
}

fn after(persistence: Persistence) -> Next {
    match persistence {
        Persistence::KeepAlive => Next::Request,
        Persistence::Close => Next::Close,
    }
}

/// Makes and sends a body.
async fn feed(
    worker: &Worker,
    stream: &mut Connection,
    visit: &mut Visit,
    persistence: Persistence,
    mut feeding: Feeding,
) -> Next {
    if worker.explain() == Explain::On {
        explain(stream, visit, Some(feeding.made()));
    }
    visit.ready(stream.outbox(), BodyLength::Unknown);
    let sent = feeding.send(stream).await;
    worker.record(stream.outbox(), visit, end_of_feed(&sent));
    match sent {
        Ok(()) if feeding.delimiter() == Delimiter::Close => Next::Close,
        Ok(()) => after(persistence),
        Err(broken) => {
            if let Broken::Source(_) | Broken::Connection(ConnectionError::Move(_)) = &broken {
                tracing::warn!("connection closed: {}: {broken}", feeding.what);
            }
            Next::Reset
        }
    }
}

async fn send_hash(
    worker: &Worker,
    stream: &mut Connection,
    visit: &mut Visit,
    persistence: Persistence,
    hashing: Hashing,
) -> Next {
    match hash(worker, stream, hashing).await {
        Ok(owed) => Box::pin(send(worker, stream, visit, persistence, owed)).await,
        Err(error) => {
            visit.ready(stream.outbox(), BodyLength::Unknown);
            worker.record(stream.outbox(), visit, end(&Err(error)));
            Next::Drop
        }
    }
}

/// Answers with the hash of a file, unless the client goes away before it is known.
async fn hash(
    worker: &Worker,
    stream: &mut Connection,
    hashing: Hashing,
) -> Result<Owed, ConnectionError> {
    let digest = match (hashing.occasion.method, &hashing.purpose) {
        // All hashes are of the same length.
        (Method::Head, Purpose::Line(..)) => Ok(Digest::UNKNOWN),
        _ => stream.unless_peer_closes(worker.hash(&hashing)).await?,
    };
    Ok(worker.answer_hash(hashing, digest, stream.outbox()))
}

/// Adds to the head how the body is planned to leave, or is `made`, and how the one before did.
fn explain(stream: &mut Connection, visit: &Visit, made: Option<&str>) {
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
fn end(sent: &Result<(), ConnectionError>) -> End {
    match sent {
        Ok(()) => End::Complete,
        Err(error) => end_by(error),
    }
}

fn end_of_feed(sent: &Result<(), Broken>) -> End {
    match sent {
        Ok(()) => End::Complete,
        Err(Broken::Source(_)) => End::Failed,
        Err(Broken::Connection(error)) => end_by(error),
    }
}

fn end_by(error: &ConnectionError) -> End {
    match error {
        ConnectionError::PeerGone => End::PeerGone,
        ConnectionError::TimedOut => End::Stalled,
        ConnectionError::TooSlow => End::TooSlow,
        ConnectionError::Stopped => End::Stopped,
        ConnectionError::Move(error) if error.fault == Fault::Truncated => End::Truncated,
        _ => End::Failed,
    }
}

/// Says which file could not be sent as promised, where it happened and why.
fn tell(sending: Option<Sending>, error: &underpass::Error) {
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
