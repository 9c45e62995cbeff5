//! One peer's connection, as far as the log and the metrics tell of it.
//!
//! ```text
//!  begin ──► understand ──► ready ──► (flush) ──► end
//!  first     the head is    the answer            a line, and counts
//!  byte      there          is in the outbox
//! ```
//!
//! How much is done at each step depends on who listens: without log and metrics the clock is not
//! read and nothing is written down.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::net::IpAddr;
use std::pin::pin;
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime};

use rustix::time::{ClockId, clock_gettime};
use underpass::{Account, Outbox, Piece, SendStats};

use crate::log::{LogRecord, RequestText};
use crate::metrics::worker_metrics::ExchangeEnd;
use crate::request::head::RequestHead;
use crate::request::request_line::Method;

/// How closely exchanges are watched.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum ObservationLevel {
    /// They are counted.
    Counts,
    /// Their duration is measured too.
    Durations,
    /// What was said is written down too.
    Words,
    /// The processor's time is measured too, by calls of their own.
    Processor,
}

/// A connection and the exchange that goes on there.
#[derive(Debug)]
pub(crate) struct Exchange {
    /// Counted over all workers, from 1 on.
    number: u64,
    /// Whom the request is from.
    pub(crate) client: Option<IpAddr>,
    attention: ObservationLevel,
    meter: Rc<CpuMeter>,
    /// Requests up to now.
    requests: u64,
    exchange: ExchangeInProgress,
    /// What was measured of the answer before, where somebody wants to know.
    previous: Option<Box<Account>>,
}

/// Whether it is known how long a body is before it has been sent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum BodyLength {
    /// All of it is in the outbox.
    Known,
    /// It is made while it is sent.
    Unknown,
}

/// What is known of the exchange that goes on.
#[derive(Debug, Default)]
struct ExchangeInProgress {
    start: Option<ExchangeStart>,
    method: Option<Method>,
    said: RequestText,
    status: u16,
    /// Sent before the answer, to ask for a body.
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

impl Exchange {
    pub(crate) fn new(
        number: u64,
        client: Option<IpAddr>,
        attention: ObservationLevel,
        meter: Rc<CpuMeter>,
    ) -> Exchange {
        Exchange {
            number,
            client,
            attention,
            meter,
            requests: 0,
            exchange: ExchangeInProgress::default(),
            previous: None,
        }
    }

    /// A byte of a request is there.
    pub(crate) fn begin(&mut self) {
        if self.attention < ObservationLevel::Durations || self.exchange.start.is_some() {
            return;
        }
        self.exchange.start = Some(ExchangeStart {
            time: SystemTime::now(),
            at: Instant::now(),
            processor: match self.attention {
                ObservationLevel::Processor => self.meter.spent(),
                _ => Duration::ZERO,
            },
        });
    }

    /// The head is there, and was understood if there is a request. `spare` is room to write into.
    pub(crate) fn understand(
        &mut self,
        head: &[u8],
        request: Option<&RequestHead<'_>>,
        spare: impl FnOnce() -> Vec<u8>,
    ) {
        self.exchange.method = request.map(|request| request.method);
        if self.attention >= ObservationLevel::Words {
            self.exchange.said = RequestText::new(spare());
            self.exchange.said.take_down(head, request);
        }
    }

    /// The answer is in the outbox, and nothing of it has been sent.
    pub(crate) fn ready(&mut self, outbox: &mut Outbox, length: BodyLength) {
        let exchange = &mut self.exchange;
        self.requests += 1;
        let Some(Piece::Bytes(head) | Piece::Joined { bytes: head, .. }) = outbox.pieces().next()
        else {
            return;
        };
        exchange.status = status_of(head);
        if self.attention < ObservationLevel::Words {
            return;
        }
        let head_bytes = head_bytes(head);
        exchange.head_bytes = head_bytes;
        exchange.promised = match length {
            BodyLength::Known => Some(owed(outbox) - head_bytes),
            BodyLength::Unknown => None,
        };
        exchange.ready = elapsed(exchange.start);
        exchange.bytes_before = outbox.take_send_stats().bytes;
    }

    /// Bytes that were sent before the answer and count for no part of it.
    pub(crate) fn bytes_before(&self) -> u64 {
        self.exchange.bytes_before
    }

    /// What is counted of the exchange: method, status and duration.
    pub(crate) fn counts(&self) -> (Method, u16, Option<Duration>) {
        let exchange = &self.exchange;
        (
            exchange.method.unwrap_or(Method::Unknown),
            exchange.status,
            exchange.start.map(|start| start.at.elapsed()),
        )
    }

    /// The exchange that has ended so, for the log.
    pub(crate) fn record<'r>(
        &'r self,
        account: &'r Account,
        beside: SendStats,
        duration: Option<Duration>,
        end: ExchangeEnd,
    ) -> LogRecord<'r> {
        let exchange = &self.exchange;
        let start = exchange.start;
        let taken = beside.bytes + account.bytes();
        LogRecord {
            time: start.map_or_else(SystemTime::now, |start| start.time),
            client: self.client,
            said: &exchange.said,
            status: exchange.status,
            sent: taken.saturating_sub(exchange.head_bytes),
            promised: exchange.promised,
            account,
            beside,
            duration: duration.unwrap_or_default(),
            ready: exchange.ready,
            processor: match self.attention {
                ObservationLevel::Processor => {
                    let before = start.map_or(Duration::ZERO, |start| start.processor);
                    Some(self.meter.spent().saturating_sub(before))
                }
                _ => None,
            },
            connection: self.number,
            request: self.requests,
            end,
        }
    }

    /// Keeps what was measured for the next answer to tell.
    pub(crate) fn remember(&mut self, account: &Account) {
        self.previous = Some(Box::new(account.clone()));
    }

    /// What was measured of the answer before on this connection.
    pub(crate) fn previous(&self) -> Option<&Account> {
        self.previous.as_deref()
    }

    /// The exchange is over. Returns the room that was written into.
    pub(crate) fn end(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.exchange).said.into_spare()
    }
}

/// The status in a head of our own.
fn status_of(head: &[u8]) -> u16 {
    let digits = head.get(9..12).unwrap_or_default();
    let add = |number: u16, digit: &u8| number * 10 + u16::from(digit.wrapping_sub(b'0') % 10);
    digits.iter().fold(0, add)
}

/// Where the body begins in a piece that begins with a head.
fn head_bytes(piece: &[u8]) -> u64 {
    let end = piece.windows(4).position(|four| four == b"\r\n\r\n");
    end.map_or(piece.len(), |end| end + 4) as u64
}

fn owed(outbox: &Outbox) -> u64 {
    let length = |piece: &Piece| match piece {
        Piece::Bytes(bytes) | Piece::Joined { bytes, .. } => bytes.len() as u64,
        Piece::Range(range) => range.len,
    };
    outbox.pieces().map(length).sum()
}

fn elapsed(start: Option<ExchangeStart>) -> Duration {
    start.map_or(Duration::ZERO, |start| start.at.elapsed())
}

/// Measures the processor time of a thread while it is busy with one task of many.
#[derive(Debug, Default)]
pub(crate) struct CpuMeter {
    /// In polls that are over.
    spent: Cell<Duration>,
    /// When the one that goes on began.
    since: Cell<Duration>,
}

impl CpuMeter {
    /// Runs a task, measuring each of its polls: two system calls.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_tells_its_status_and_where_it_ends() {
        let piece = b"HTTP/1.1 206 Partial Content\r\nDate: x\r\n\r\nbody";
        assert_eq!(status_of(piece), 206);
        assert_eq!(head_bytes(piece), piece.len() as u64 - 4);
        assert_eq!(status_of(b"HTTP"), 0);
    }
}
