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

use underpass::Fault;
use underpass_net::{Filled, Patience, Phase, Stream, StreamError};

use crate::body::{self, Plan, Unskipped};
use crate::head::{Expect, Persistence, Progress, Request, Scan};
use crate::limits::Place;
use crate::reply::Sending;
use crate::request_line::Method;
use crate::status::{Refusal, Status};
use crate::worker::Worker;

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
pub(crate) async fn converse(worker: Rc<Worker>, mut stream: Stream) {
    let mut requests = 0;
    loop {
        requests += 1;
        let place = worker.limits.place(requests);
        match exchange(&worker, &mut stream, place).await {
            // Many requests at once in the buffer must not keep other connections waiting.
            Next::Request => tokio::task::consume_budget().await,
            Next::Close => return stream.close().await,
            Next::Drop => return,
            Next::Reset => return stream.abort(),
        }
    }
}

/// One request and its answer.
async fn exchange(worker: &Worker, stream: &mut Stream, place: Place) -> Next {
    let scan = match read_head(worker, stream).await {
        Ok(scan) => scan,
        Err(Unread::Refused(refusal)) => return refuse(worker, stream, refusal).await,
        Err(Unread::Gone) => return Next::Drop,
    };
    let phase = stream.phase();
    let (input, outbox) = stream.parts();
    let request = match scan.parse(input) {
        Ok(request) => request,
        Err(refusal) => return refuse(worker, stream, refusal).await,
    };
    match body::plan(&request, &worker.limits) {
        Plan::Nothing => {
            let persistence = persistence(&request, phase, place);
            let sending = worker.answer(request, persistence, outbox);
            stream.consume(scan.length());
            send(worker, stream, persistence, sending).await
        }
        Plan::Leave => {
            let sending = worker.answer(request, Persistence::Close, outbox);
            stream.consume(scan.length());
            send(worker, stream, Persistence::Close, sending).await
        }
        Plan::Skip(body) => {
            let head = input[..scan.length()].to_vec();
            stream.consume(scan.length());
            let skipped = body.skip(stream, &worker.limits).await;
            answer_after_body(worker, stream, &scan, &head, skipped, place).await
        }
    }
}

/// Why there is no head.
enum Unread {
    Refused(Refusal),
    Gone,
}

/// Reads until a head is complete. The first byte may take as long as a connection may be idle,
/// the rest has its own deadline, which no trickle extends.
async fn read_head(worker: &Worker, stream: &mut Stream) -> Result<Scan, Unread> {
    let mut scan = Scan::within(&worker.limits);
    let mut patience = Patience::Idle;
    stream.expect_when_idle();
    loop {
        if !stream.input().is_empty() {
            match scan.advance(stream.input()) {
                Ok(Progress::Complete) => return Ok(scan),
                Ok(Progress::Partial) => {}
                Err(refusal) => return Err(Unread::Refused(refusal)),
            }
            if patience == Patience::Idle {
                patience = Patience::Busy;
                stream.expect_within(worker.limits.head_timeout);
            }
        }
        match stream.fill(patience).await {
            Ok(Filled::Bytes) => {}
            Err(StreamError::TimedOut) if patience == Patience::Busy => {
                return Err(Unread::Refused(LATE));
            }
            Ok(Filled::End) | Err(_) => return Err(Unread::Gone),
        }
    }
}

const LATE: Refusal = Refusal::new(Status::RequestTimeout, "the request did not come in time");

/// Answers a request whose body has been read, or has not.
async fn answer_after_body(
    worker: &Worker,
    stream: &mut Stream,
    scan: &Scan,
    head: &[u8],
    skipped: Result<(), Unskipped>,
    place: Place,
) -> Next {
    let request = match (scan.parse(head), &skipped) {
        (Ok(request), _) => request,
        (Err(refusal), _) => return refuse(worker, stream, refusal).await,
    };
    let persistence = match skipped {
        Ok(()) => persistence(&request, stream.phase(), place),
        Err(Unskipped::TooLong) => Persistence::Close,
        Err(Unskipped::Refused(refusal)) => return refuse(worker, stream, refusal).await,
        Err(Unskipped::Gone) => return Next::Drop,
    };
    let sending = worker.answer(request, persistence, stream.outbox());
    send(worker, stream, persistence, sending).await
}

/// What becomes of the connection after a request whose end is known.
fn persistence(request: &Request<'_>, phase: Phase, place: Place) -> Persistence {
    match (request.method, request.expect, phase) {
        (Method::Connect, _, _) | (_, Expect::Unknown, _) => Persistence::Close,
        (_, _, Phase::Draining | Phase::Now) => Persistence::Close,
        _ if place == Place::Last => Persistence::Close,
        _ => request.persistence,
    }
}

async fn refuse(worker: &Worker, stream: &mut Stream, refusal: Refusal) -> Next {
    worker.refuse(refusal, stream.outbox());
    send(worker, stream, Persistence::Close, None).await
}

/// Sends what is in the outbox and keeps account of it.
async fn send(
    worker: &Worker,
    stream: &mut Stream,
    persistence: Persistence,
    sending: Option<Sending>,
) -> Next {
    let sent = stream.flush().await;
    worker.record(stream.outbox());
    match sent {
        Ok(()) => match persistence {
            Persistence::KeepAlive => Next::Request,
            Persistence::Close => Next::Close,
        },
        Err(StreamError::Move(error)) => {
            tell(sending, &error);
            Next::Reset
        }
        Err(_) => Next::Reset,
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
