//! What is recorded of one connection's exchanges, for log and metrics.
//!
//! ```text
//!  begin ──► understand ──► ready ──► (flush) ──► end
//!  first     the head is    the head of the       a line, and counts
//!  byte      complete       response is written
//! ```
//!
//! The observation level decides how much is recorded: without log and metrics the clock is not
//! read and no text is kept.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::net::IpAddr;
use std::pin::pin;
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime};

use rustix::time::{ClockId, clock_gettime};
use underpass::{Account, Outbox, Piece, SendStats};

use crate::answer::writer::WrittenResponse;
use crate::http::status::Status;
use crate::log::{LogRecord, RequestText};
use crate::metrics::registry::ObservationLevel;
use crate::metrics::worker_metrics::ExchangeEnd;
use crate::request::head::RequestHead;
use crate::request::request_line::Method;

/// A connection and the exchange in progress on it.
#[derive(Debug)]
pub(crate) struct Exchange {
    /// The number of the connection, counted over all workers from 1.
    connection: u64,
    /// The client that sent the request.
    pub(crate) client: Option<IpAddr>,
    level: ObservationLevel,
    meter: Rc<CpuMeter>,
    /// Exchanges on this connection that have ended.
    requests: u64,
    current: ExchangeInProgress,
    /// The account of the previous response, where responses explain themselves.
    previous: Option<Box<Account>>,
}

#[derive(Debug, Default)]
struct ExchangeInProgress {
    start: Option<ExchangeStart>,
    method: Option<Method>,
    text: RequestText,
    status: Option<Status>,
    /// Sent before the response, to ask for a body.
    bytes_before: u64,
    head_bytes: u64,
    promised: Option<u64>,
    ready: Duration,
}

#[derive(Clone, Copy, Debug)]
struct ExchangeStart {
    time: SystemTime,
    at: Instant,
    processor: Duration,
}

/// Whether the length of a body is known before it is sent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum BodyLength {
    /// All of it is in the outbox.
    Known,
    /// It is produced while it is sent.
    Unknown,
}

impl Exchange {
    pub(crate) fn new(
        connection: u64,
        client: Option<IpAddr>,
        level: ObservationLevel,
        meter: Rc<CpuMeter>,
    ) -> Exchange {
        Exchange {
            connection,
            client,
            level,
            meter,
            requests: 0,
            current: ExchangeInProgress::default(),
            previous: None,
        }
    }

    /// The first byte of a request is there.
    pub(crate) fn begin(&mut self) {
        if self.level < ObservationLevel::Durations || self.current.start.is_some() {
            return;
        }
        self.current.start = Some(ExchangeStart {
            time: SystemTime::now(),
            at: Instant::now(),
            processor: match self.level {
                ObservationLevel::ProcessorTime => self.meter.spent(),
                _ => Duration::ZERO,
            },
        });
    }

    /// The head is complete; `request` is its meaning, if it is valid. `buffer` is reused.
    pub(crate) fn understand(
        &mut self,
        head: &[u8],
        request: Option<&RequestHead<'_>>,
        buffer: impl FnOnce() -> Vec<u8>,
    ) {
        self.current.method = request.map(|request| request.method);
        if self.level >= ObservationLevel::RequestText {
            self.current.text = RequestText::new(buffer());
            self.current.text.copy_from(head, request);
        }
    }

    /// The response is in the outbox, and nothing of it has been sent.
    pub(crate) fn ready(
        &mut self,
        response: &WrittenResponse,
        outbox: &mut Outbox,
        length: BodyLength,
    ) {
        let current = &mut self.current;
        current.status = Some(response.status);
        if self.level < ObservationLevel::RequestText {
            return;
        }
        current.head_bytes = response.head_bytes;
        current.promised = match length {
            BodyLength::Known => Some(queued(outbox) - response.head_bytes),
            BodyLength::Unknown => None,
        };
        current.ready = elapsed(current.start);
        current.bytes_before = outbox.take_send_stats().bytes;
    }

    /// Bytes that were sent before the response and count for no part of it.
    pub(crate) fn bytes_before(&self) -> u64 {
        self.current.bytes_before
    }

    pub(crate) fn method(&self) -> Method {
        self.current.method.unwrap_or(Method::Unknown)
    }

    /// The status of the response, if there was one.
    pub(crate) fn status(&self) -> Option<Status> {
        self.current.status
    }

    /// The time since the first byte of the request, where durations are observed.
    pub(crate) fn duration(&self) -> Option<Duration> {
        self.current.start.map(|start| start.at.elapsed())
    }

    /// The record of the exchange, which has ended, for the log.
    pub(crate) fn record<'r>(
        &'r self,
        account: &'r Account,
        beside: SendStats,
        duration: Option<Duration>,
        end: ExchangeEnd,
    ) -> LogRecord<'r> {
        let current = &self.current;
        let taken = beside.bytes + account.bytes();
        LogRecord {
            time: current
                .start
                .map_or_else(SystemTime::now, |start| start.time),
            client: self.client,
            text: &current.text,
            status: current.status.map_or(0, Status::code),
            sent: taken.saturating_sub(current.head_bytes),
            promised: current.promised,
            account,
            beside,
            duration: duration.unwrap_or_default(),
            ready: current.ready,
            processor: match self.level {
                ObservationLevel::ProcessorTime => {
                    let before = current
                        .start
                        .map_or(Duration::ZERO, |start| start.processor);
                    Some(self.meter.spent().saturating_sub(before))
                }
                _ => None,
            },
            connection: self.connection,
            request: self.requests + 1,
            end,
        }
    }

    /// Keeps the account of this response for the next one.
    pub(crate) fn remember(&mut self, account: &Account) {
        self.previous = Some(Box::new(account.clone()));
    }

    /// The account of the previous response on this connection.
    pub(crate) fn previous(&self) -> Option<&Account> {
        self.previous.as_deref()
    }

    /// Ends the exchange. Returns the buffer for the next one.
    pub(crate) fn end(&mut self) -> Vec<u8> {
        self.requests += 1;
        std::mem::take(&mut self.current).text.into_buffer()
    }
}

fn queued(outbox: &Outbox) -> u64 {
    let length = |piece: &Piece| match piece {
        Piece::Bytes(bytes) | Piece::Joined { bytes, .. } => bytes.len() as u64,
        Piece::Range(range) => range.len,
    };
    outbox.pieces().map(length).sum()
}

fn elapsed(start: Option<ExchangeStart>) -> Duration {
    start.map_or(Duration::ZERO, |start| start.at.elapsed())
}

/// Measures the processor time of a thread while it polls one task of many.
#[derive(Debug, Default)]
pub(crate) struct CpuMeter {
    /// In completed polls.
    spent: Cell<Duration>,
    /// When the current poll began.
    since: Cell<Duration>,
}

impl CpuMeter {
    /// Runs a task, and measures each of its polls by two system calls.
    pub(crate) async fn measure<T>(&self, task: impl Future<Output = T>) -> T {
        let mut task = pin!(task);
        poll_fn(|waker| {
            self.since.set(thread_time());
            let polled = task.as_mut().poll(waker);
            self.spent.set(self.spent());
            polled
        })
        .await
    }

    /// Up to now, within a poll.
    fn spent(&self) -> Duration {
        self.spent.get() + thread_time().saturating_sub(self.since.get())
    }
}

fn thread_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}
