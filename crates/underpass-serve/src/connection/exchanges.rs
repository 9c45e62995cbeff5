//! The exchanges of a connection: how a request is identified, and how its response is sent and
//! recorded. What a connection does from one request to the next is in [`super::converse`].

use underpass::drive::tokio::Forecast;
use underpass::{Fault, Piece};
use underpass_http::persistence::Persistence;
use underpass_http::request::head::{Expectation, RequestHead};
use underpass_http::request::request_line::Method;
use underpass_http::status::HttpError;
use underpass_net::{Connection, ConnectionError, ShutdownPhase};

use crate::access::permits::Permits;
use crate::answer::writer::{FileTransfer, SentBody, WrittenResponse};
use crate::body::producer::{BodyDelimiter, BodyError, ProducedBody};
use crate::connection::identify::Identified;
use crate::connection::worker::{Answer, HashJob, Worker};
use crate::record::end::ExchangeEnd;
use crate::record::exchange::{BodyLength, Exchange};
use crate::record::explain::{self, Explain};

/// The next step of a connection after an exchange.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum NextStep {
    /// Wait for the next request.
    Request,
    /// Close the connection after everything was delivered.
    Close,
    /// Close the connection; the peer is gone.
    Drop,
    /// Reset the connection, so that the peer notices.
    Reset,
}

/// The exchanges of a connection.
pub(super) struct Exchanges<'c> {
    pub(super) worker: &'c Worker,
    pub(super) connection: Connection,
    pub(super) exchange: Exchange,
    /// The port that requests are redirected to.
    pub(super) https: Option<u16>,
}

impl<'c> Exchanges<'c> {
    /// Returns the permits of a requester, after verifying the password if necessary.
    pub(super) async fn verified(
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

    pub(super) async fn refuse(&mut self, method: Method, error: HttpError) -> NextStep {
        let response = self.worker.refuse(method, error, self.connection.outbox());
        self.send(Persistence::Close, response).await
    }

    pub(super) async fn send_answer(
        &mut self,
        persistence: Persistence,
        answer: Answer<'c>,
    ) -> NextStep {
        match answer {
            Answer::Written(response) => self.send(persistence, response).await,
            Answer::AwaitsHash(job) => Box::pin(self.send_hash(persistence, job)).await,
        }
    }

    /// Waits for a hash, unless the client disconnects, and sends the response with it.
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
    pub(super) async fn send(
        &mut self,
        persistence: Persistence,
        response: WrittenResponse,
    ) -> NextStep {
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

    /// Adds fields to a response, each preceded by a line break.
    fn amend(&mut self, response: &mut WrittenResponse, fields: &str) {
        let at = response.head_bytes as usize;
        let outbox = self.connection.outbox();
        outbox.amend_head(|head| explain::insert(head, at, fields));
        response.head_bytes += fields.len() as u64;
    }

    /// Adds the configured fields to a response and records that it is ready.
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
        let length = match response.body {
            SentBody::Memory | SentBody::File(_) => BodyLength::Queued,
            SentBody::Produced(_) => BodyLength::Unknown,
        };
        let outbox = self.connection.outbox();
        self.exchange
            .ready(response.status, response.head_bytes, length, outbox);
        response.body
    }

    /// Returns the fields that show how the body will be sent, or is `made`, and how the previous
    /// one was sent.
    fn explanation(&mut self, made: Option<&str>) -> String {
        let previous = self.exchange.previous.as_deref();
        let tls = self.exchange.tls.as_deref();
        let tls = tls.zip(self.connection.sealed_by());
        // The length of the fields also affects whether a small body is joined with its head.
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

    pub(super) fn record(&mut self, end: ExchangeEnd) {
        self.worker
            .record(self.connection.outbox(), &mut self.exchange, end);
    }
}

/// Decides whether the connection is kept after a request with a known end.
pub(super) fn persistence(
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

pub(super) fn ended_by(error: &ConnectionError) -> ExchangeEnd {
    match error {
        ConnectionError::PeerGone => ExchangeEnd::PeerGone,
        ConnectionError::TimedOut => ExchangeEnd::Stalled,
        ConnectionError::TooSlow => ExchangeEnd::TooSlow,
        ConnectionError::Stopped => ExchangeEnd::Stopped,
        ConnectionError::Move(error) if error.fault == Fault::Truncated => ExchangeEnd::Truncated,
        _ => ExchangeEnd::Failed,
    }
}

/// Warns of a file that could not be sent, with the offset and the reason.
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
