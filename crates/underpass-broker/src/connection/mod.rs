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

use tokio::time::timeout;
use underpass_net::{Connection, ConnectionError, LogThrottle, ShutdownPhase};

use crate::connection::frame::{FrameError, IdleWait, IncomingFrame, RequestFrame, RequestMemory};
use crate::connection::response_queue::{PendingResponse, RequestOutcome, ResponseQueue};
use crate::counts::WorkerCounts;
use crate::limits::{LAST_ANSWERS_TIMEOUT, REQUESTS_PENDING_MAX};

/// A handler for the requests of a worker's connections.
pub(crate) trait Requests {
    /// Returns the memory limit for requests.
    fn memory(&self) -> &RequestMemory;

    /// Returns the counters.
    fn counts(&self) -> &WorkerCounts;

    /// Returns the log of connections that are closed because of invalid requests.
    fn disconnections(&self) -> &LogThrottle;

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
        let event = next(
            &mut connection,
            &mut incoming,
            &mut responses,
            requests.memory(),
        );
        match event.await {
            Ok(ConnectionEvent::Request(request)) => {
                responses.push(requests.answer(request));
            }
            Ok(ConnectionEvent::RequestOutcome(RequestOutcome::Nothing)) => {}
            Ok(ConnectionEvent::RequestOutcome(RequestOutcome::Close)) => {
                return connection.close().await;
            }
            Ok(ConnectionEvent::RequestOutcome(RequestOutcome::Frame(pieces))) => {
                let outbox = connection.outbox();
                pieces.into_iter().for_each(|piece| outbox.push(piece));
                let flushed = connection.flush().await;
                let outbox = connection.outbox();
                let (records, beside) = (outbox.take_account(), outbox.take_send_stats());
                requests.counts().sent(&records, &beside);
                if flushed.is_err() {
                    return;
                }
            }
            Err(FrameError::Length(length)) => {
                let (peer, why) = (connection.client(), not_a_length(length));
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
        }
    }
}

/// Describes other protocols that start with these bytes.
fn not_a_length(length: i32) -> &'static str {
    match length.to_be_bytes() {
        // A TLS handshake record of any version.
        [22, 3, ..] => {
            ": this is TLS, which this listener does not speak; set security.protocol=PLAINTEXT"
        }
        [b'A'..=b'Z', b'A'..=b'Z', b'A'..=b'Z', b'A'..=b'Z' | b' '] => {
            ": this is HTTP or the like, and not Kafka's protocol"
        }
        _ => "",
    }
}

/// Waits for the next response to send, or the next request.
async fn next(
    connection: &mut Connection,
    incoming: &mut IncomingFrame,
    responses: &mut ResponseQueue,
    memory: &RequestMemory,
) -> Result<ConnectionEvent, FrameError> {
    let count = responses.len();
    let is_ending = connection.phase() > ShutdownPhase::Running && !incoming.has_begun();
    if responses.is_full() || is_ending && count > 0 {
        if count < REQUESTS_PENDING_MAX && !is_ending {
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
    let mut request = pin!(incoming.receive(connection, memory, idle));
    poll_fn(|task| {
        if let std::task::Poll::Ready(response) = responses.poll_next(task) {
            return std::task::Poll::Ready(Ok(ConnectionEvent::RequestOutcome(response)));
        }
        let received = request.as_mut().poll(task);
        received.map(|received| received.map(ConnectionEvent::Request))
    })
    .await
}
