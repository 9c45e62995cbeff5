//! A connection: requests are read in order, processed concurrently, and answered in order.
//!
//! ```text
//!  socket ─► frame ─► request ─► [ pending │ pending │ ready ] ─► outbox ─► socket
//! ```

pub(crate) mod frame;
pub(crate) mod response_queue;
pub(crate) mod unsupported;
pub(crate) mod waiters;

use std::future::poll_fn;
use std::mem;
use std::pin::pin;
use std::rc::Rc;

use tokio::time::{Instant, timeout, timeout_at};
use underpass::Piece;
use underpass_net::{Connection, ConnectionError, LogThrottle, ShutdownPhase};

use crate::connection::frame::{FrameError, IdleWait, IncomingFrame, RequestFrame, RequestMemory};
use crate::connection::response_queue::{PendingResponse, RequestOutcome, ResponseQueue};
use crate::counts::WorkerCounts;
use crate::limits::{FrameLimits, LAST_ANSWERS_TIMEOUT};

/// A handler for the requests of a worker's connections.
pub(crate) trait Requests {
    /// Returns the memory limit for requests.
    fn memory(&self) -> &RequestMemory;

    /// Returns the counters.
    fn counts(&self) -> &WorkerCounts;

    /// Returns the log of connections that are closed because of invalid requests.
    fn disconnections(&self) -> &LogThrottle;

    /// Returns the end of the time for the client's login, unless it is done.
    fn login_deadline(&self) -> Option<Instant>;

    /// Starts to answer a request.
    fn answer(self: &Rc<Self>, request: RequestFrame) -> PendingResponse;
}

enum ConnectionEvent {
    Request(RequestFrame),
    RequestOutcome(RequestOutcome),
}

/// Serves a connection until it ends.
pub(crate) async fn serve<R: Requests>(requests: Rc<R>, mut connection: Connection) {
    let mut incoming = IncomingFrame::default();
    let mut responses = ResponseQueue::default();
    let mut is_draining = false;
    loop {
        let deadline = requests.login_deadline();
        let limits = match deadline {
            Some(_) => FrameLimits::BEFORE_LOGIN,
            None => FrameLimits::USUAL,
        };
        let limited = (requests.memory(), limits);
        let event = next(&mut connection, &mut incoming, &mut responses, limited);
        match in_time(event, deadline).await {
            Ok(ConnectionEvent::Request(request)) => {
                responses.push(requests.answer(request));
            }
            Ok(ConnectionEvent::RequestOutcome(RequestOutcome::Nothing)) => {}
            Ok(ConnectionEvent::RequestOutcome(RequestOutcome::Close)) => {
                return connection.close().await;
            }
            Ok(ConnectionEvent::RequestOutcome(RequestOutcome::Frame(pieces))) => {
                let sent = send(&mut connection, pieces, requests.counts()).await;
                if sent.is_err() {
                    return;
                }
            }
            Ok(ConnectionEvent::RequestOutcome(RequestOutcome::LastFrame(pieces))) => {
                if send(&mut connection, pieces, requests.counts())
                    .await
                    .is_ok()
                {
                    connection.close().await;
                }
                return;
            }
            Err(FrameError::Length(length)) => {
                let (peer, why) = (connection.client(), not_a_length(length, limits));
                requests.disconnections().warn(format_args!(
                    "{peer}: {length} is not the length of a request{why}"
                ));
                return connection.close().await;
            }
            // The server stops: earlier requests are answered first.
            Err(FrameError::Connection(ConnectionError::Stopped))
                if responses.len() > 0 && !mem::replace(&mut is_draining, true) => {}
            // All requests are answered, or the client is gone.
            Err(FrameError::Connection(_)) => {
                connection.limit_undelivered();
                return connection.end();
            }
            Err(FrameError::End) => return connection.end(),
            Err(FrameError::Login) => {
                let peer = connection.client();
                let log = requests.disconnections();
                log.warn(format_args!("{peer}: the client has not logged in in time"));
                return connection.end();
            }
        }
    }
}

/// Waits for an event until the end of the time for the login, if there is one.
async fn in_time(
    event: impl Future<Output = Result<ConnectionEvent, FrameError>>,
    deadline: Option<Instant>,
) -> Result<ConnectionEvent, FrameError> {
    match deadline {
        None => event.await,
        Some(deadline) => {
            let in_time = timeout_at(deadline, event).await;
            in_time.unwrap_or(Err(FrameError::Login))
        }
    }
}

/// Sends a response.
async fn send(
    connection: &mut Connection,
    pieces: Vec<Piece>,
    counts: &WorkerCounts,
) -> Result<(), ConnectionError> {
    let outbox = connection.outbox();
    pieces.into_iter().for_each(|piece| outbox.push(piece));
    let flushed = connection.flush().await;
    let outbox = connection.outbox();
    let (records, beside) = (outbox.take_account(), outbox.take_send_stats());
    counts.sent(&records, &beside);
    flushed
}

/// Describes other protocols that start with these bytes.
fn not_a_length(length: i32, limits: FrameLimits) -> &'static str {
    match length.to_be_bytes() {
        // A TLS handshake record of any version.
        [22, 3, ..] => {
            ": this is TLS, which this listener does not speak; set security.protocol=PLAINTEXT"
        }
        [b'A'..=b'Z', b'A'..=b'Z', b'A'..=b'Z', b'A'..=b'Z' | b' '] => {
            ": this is HTTP or the like, and not Kafka's protocol"
        }
        _ if limits == FrameLimits::BEFORE_LOGIN && length > 0 => ", before the client logs in",
        _ => "",
    }
}

/// Waits for the next response to send, or the next request.
async fn next(
    connection: &mut Connection,
    incoming: &mut IncomingFrame,
    responses: &mut ResponseQueue,
    (memory, limits): (&RequestMemory, FrameLimits),
) -> Result<ConnectionEvent, FrameError> {
    let count = responses.len();
    let is_ending = connection.phase() > ShutdownPhase::Running && !incoming.has_begun();
    let is_full = responses.is_full() || count >= limits.pending;
    if is_full || is_ending && count > 0 {
        if count < limits.pending && !is_ending {
            let peer = connection.client();
            tracing::debug!("{peer}: much waits for an earlier answer: no further request is read");
        }
        let response = poll_fn(|task| responses.poll_next(task));
        let response = connection.unless_peer_closes(response);
        let response = match is_ending {
            true => timeout(LAST_ANSWERS_TIMEOUT, response).await,
            false => Ok(response.await),
        };
        return response
            .unwrap_or(Err(ConnectionError::Stopped))
            .map(ConnectionEvent::RequestOutcome)
            .map_err(FrameError::Connection);
    }
    if is_ending {
        return Err(FrameError::Connection(ConnectionError::Stopped));
    }
    let idle = match count {
        0 => IdleWait::Idle,
        _ => IdleWait::Busy,
    };
    let mut request = pin!(incoming.receive(connection, (memory, limits), idle));
    poll_fn(|task| {
        if let std::task::Poll::Ready(response) = responses.poll_next(task) {
            return std::task::Poll::Ready(Ok(ConnectionEvent::RequestOutcome(response)));
        }
        let received = request.as_mut().poll(task);
        received.map(|received| received.map(ConnectionEvent::Request))
    })
    .await
}
