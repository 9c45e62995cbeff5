//! Records the exchanges of a connection, for log and metrics.
//!
//! ```text
//!  begin ──► understand ──► ready ──► (flush) ──► end
//!  first     the head is    the head of the       a line, and counts
//!  byte      complete       response is written
//! ```
//!
//! The observation level decides how much is recorded: without log and metrics the clock is not
//! read and no text is stored.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant, SystemTime};

use rustix::time::{ClockId, clock_gettime};
use underpass::{Account, Outbox, Piece, SendStats};
use underpass_http::request::head::RequestHead;
use underpass_http::request::request_line::Method;
use underpass_http::scheme::Scheme;
use underpass_http::status::Status;
use underpass_net::{Connection, TlsInfo};

use crate::access::forwarded::ClientPlace;
use crate::access::grantee::Asker;
use crate::access::links::redacted;
use crate::access::permits::Permits;
use crate::record::end::ExchangeEnd;
use crate::record::explain::PreviousResponse;

/// The level of detail that is recorded. Each level includes those before it.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum ObservationLevel {
    /// The number of exchanges.
    Counts,
    /// The duration of exchanges.
    Durations,
    /// Parts of the request.
    RequestText,
    /// The processor time of exchanges, which costs system calls.
    ProcessorTime,
}

/// Whether the length of a body is known before it is sent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum BodyLength {
    /// The whole body is in the outbox.
    Queued,
    /// The body is produced while it is sent.
    Unknown,
}

/// A connection and the exchange in progress on it.
#[derive(Debug)]
pub(crate) struct Exchange {
    /// The number of the connection, counted over all workers from 1.
    pub(crate) connection: u64,
    /// The client that sent the request.
    pub(crate) client: ClientPlace,
    /// The protocol of that client, as reported by a trusted proxy.
    pub(crate) scheme: Scheme,
    /// The TLS parameters, if the connection is encrypted.
    pub(crate) tls: Option<Rc<TlsInfo>>,
    level: ObservationLevel,
    /// The meter of the connection's task, at the level of processor time.
    meter: Option<Rc<CpuMeter>>,
    /// The number of completed exchanges on this connection.
    requests: u64,
    /// `None` before the first byte of a request. Boxed, and lent by the worker: most connections
    /// are idle most of the time.
    current: Option<Box<ExchangeInProgress>>,
    /// The previous response on the connection, if responses show how they are sent.
    pub(crate) previous: Option<Box<PreviousResponse>>,
}

/// The record of one exchange.
#[derive(Debug, Default)]
pub(crate) struct ExchangeInProgress {
    start: Option<ExchangeStart>,
    method: Option<Method>,
    /// The index of the site that the request is for.
    site: Option<usize>,
    /// The parts of the request for the log.
    text: RequestText,
    status: Option<Status>,
    /// The requester, if the site is restricted.
    asker: Option<Arc<Asker>>,
    /// Bytes sent before the response, to ask for a body.
    bytes_before: u64,
    /// How the body of the request was received into a file.
    received: Account,
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

/// A completed exchange, and the bytes sent for it.
#[derive(Debug)]
pub(crate) struct EndedExchange<'e> {
    pub(crate) exchange: &'e Exchange,
    pub(crate) account: &'e Account,
    pub(crate) beside: SendStats,
    pub(crate) duration: Option<Duration>,
    pub(crate) end: ExchangeEnd,
}

impl Exchange {
    /// Creates the record of the connection with this `number`, without an exchange.
    pub(crate) fn new(number: u64, connection: &Connection, level: ObservationLevel) -> Exchange {
        Exchange {
            connection: number,
            client: ClientPlace::of(connection.client().ip()),
            scheme: Scheme::Http,
            tls: connection.tls().cloned(),
            level,
            meter: (level == ObservationLevel::ProcessorTime).then(Rc::default),
            requests: 0,
            current: None,
            previous: None,
        }
    }

    /// Returns the meter for the connection's task.
    pub(crate) fn meter(&self) -> Option<Rc<CpuMeter>> {
        self.meter.clone()
    }

    /// Notes the first byte of a request, in a record taken from `spare`.
    pub(crate) fn begin(&mut self, spare: &RefCell<Option<Box<ExchangeInProgress>>>) {
        if self.current.is_some() {
            return;
        }
        let mut current = spare.take().unwrap_or_default();
        if self.level >= ObservationLevel::Durations {
            current.start = Some(ExchangeStart {
                time: SystemTime::now(),
                at: Instant::now(),
                processor: self
                    .meter
                    .as_ref()
                    .map_or(Duration::ZERO, |meter| meter.spent()),
            });
        }
        self.current = Some(current);
    }

    fn current(&mut self) -> &mut ExchangeInProgress {
        self.current.get_or_insert_default()
    }

    /// Notes the complete head; `request` is its parsed form, if it is valid.
    pub(crate) fn understand(&mut self, head: &[u8], request: Option<&RequestHead<'_>>) {
        let has_text = self.level >= ObservationLevel::RequestText;
        let current = self.current();
        current.method = request.map(|request| request.method);
        if has_text {
            current.text.copy(head, request);
        }
    }

    /// Notes the site that the request is for.
    pub(crate) fn reaches(&mut self, site: usize) {
        self.current().site = Some(site);
    }

    /// Notes the requester.
    pub(crate) fn identified(&mut self, permits: Option<&Permits>) {
        self.current().asker = permits.map(|permits| Arc::clone(&permits.asker));
    }

    /// Returns the `Set-Cookie` field that the response sets, preceded by a line break.
    pub(crate) fn cookie(&self) -> Option<Arc<str>> {
        self.current.as_ref()?.asker.as_ref()?.cookie.clone()
    }

    /// Returns how the body of the request was received into a file.
    pub(crate) fn received_account(&self) -> &Account {
        static NOTHING: LazyLock<Account> = LazyLock::new(Account::default);
        self.current
            .as_ref()
            .map_or(&NOTHING, |current| &current.received)
    }

    /// Notes how the body of the request was received into a file.
    pub(crate) fn received(&mut self, account: Account) {
        self.current().received = account;
    }

    /// Notes that a response is in the outbox and nothing of it has been sent.
    pub(crate) fn ready(
        &mut self,
        status: Status,
        head_bytes: u64,
        length: BodyLength,
        outbox: &mut Outbox,
    ) {
        let current = self.current();
        current.status = Some(status);
        current.head_bytes = head_bytes;
        if self.level < ObservationLevel::RequestText {
            return;
        }
        let ready = self.duration().unwrap_or_default();
        let current = self.current();
        current.promised = match length {
            BodyLength::Queued => Some(queued(outbox) - head_bytes),
            BodyLength::Unknown => None,
        };
        current.ready = ready;
        current.bytes_before = outbox.take_send_stats().bytes;
    }

    /// Returns the number of bytes sent before the response, which are not part of it.
    pub(crate) fn bytes_before(&self) -> u64 {
        self.current
            .as_ref()
            .map_or(0, |current| current.bytes_before)
    }

    pub(crate) fn method(&self) -> Method {
        let method = self.current.as_ref().and_then(|current| current.method);
        method.unwrap_or(Method::Unknown)
    }

    /// Returns the index of the site that the request is for, if it is valid.
    pub(crate) fn site(&self) -> Option<usize> {
        self.current.as_ref()?.site
    }

    /// Returns the number of the exchange on its connection, from 1.
    pub(crate) fn number(&self) -> u64 {
        self.requests + 1
    }

    /// Returns the status of the response, if any.
    pub(crate) fn status(&self) -> Option<Status> {
        self.current.as_ref()?.status
    }

    /// Returns the time since the first byte of the request, if durations are observed.
    pub(crate) fn duration(&self) -> Option<Duration> {
        self.start().map(|start| start.at.elapsed())
    }

    fn start(&self) -> Option<ExchangeStart> {
        self.current.as_ref()?.start
    }

    /// Ends the exchange and returns its record to `spare`.
    pub(crate) fn end(&mut self, spare: &RefCell<Option<Box<ExchangeInProgress>>>) {
        self.requests += 1;
        if let Some(mut ended) = self.current.take() {
            let text = std::mem::take(&mut ended.text).emptied();
            *ended = ExchangeInProgress {
                text,
                ..ExchangeInProgress::default()
            };
            spare.replace(Some(ended));
        }
    }
}

impl EndedExchange<'_> {
    /// Returns the time at which the first byte of the request was seen.
    pub(crate) fn time(&self) -> SystemTime {
        let start = self.exchange.start();
        start.map_or_else(SystemTime::now, |start| start.time)
    }

    /// Returns a part of the request, if it was sent.
    pub(crate) fn part(&self, part: RequestPart) -> Option<&[u8]> {
        self.exchange.current.as_ref()?.text.part(part)
    }

    /// Returns the requester, if anything is known about it.
    pub(crate) fn asker(&self) -> Option<&Asker> {
        let asker = self.exchange.current.as_ref()?.asker.as_deref();
        asker.filter(|asker| asker.is_known())
    }

    /// Returns the status of the response. Without a response it is 499, as in nginx, if the client
    /// left or was too slow, and 0 otherwise.
    pub(crate) fn status(&self) -> u16 {
        const CLIENT_GONE: u16 = 499;
        let unanswered = match self.end {
            ExchangeEnd::PeerGone | ExchangeEnd::Stalled | ExchangeEnd::TooSlow => CLIENT_GONE,
            _ => 0,
        };
        self.exchange.status().map_or(unanswered, Status::code)
    }

    /// Returns the number of body bytes that the kernel accepted.
    pub(crate) fn sent(&self) -> u64 {
        let taken = self.beside.bytes + self.account.bytes();
        let current = self.exchange.current.as_ref();
        taken.saturating_sub(current.map_or(0, |current| current.head_bytes))
    }

    /// Returns how the body of the request was received into a file.
    pub(crate) fn received(&self) -> &Account {
        self.exchange.received_account()
    }

    /// Returns the length of the body, if known before it is sent.
    pub(crate) fn promised(&self) -> Option<u64> {
        self.exchange.current.as_ref()?.promised
    }

    /// Returns the time from the first byte of the request until the response was ready to be sent.
    pub(crate) fn ready(&self) -> Duration {
        let current = self.exchange.current.as_ref();
        current.map_or(Duration::ZERO, |current| current.ready)
    }

    /// Returns the processor time of the worker's thread, if measured.
    pub(crate) fn processor(&self) -> Option<Duration> {
        let meter = self.exchange.meter.as_ref()?;
        let before = self.exchange.start().map(|start| start.processor);
        Some(meter.spent().saturating_sub(before.unwrap_or_default()))
    }
}

fn queued(outbox: &Outbox) -> u64 {
    outbox.pieces().map(Piece::len).sum()
}

/// The logged parts of a request, in one reused buffer.
#[derive(Debug, Default)]
struct RequestText {
    bytes: Vec<u8>,
    /// The end of each part in `bytes`, which is the start of the next.
    ends: [usize; PARTS],
    there: [bool; PARTS],
}

const PARTS: usize = 6;

/// The parts of a request, in their order.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RequestPart {
    Method,
    Target,
    /// `HTTP/1.1`.
    Version,
    Host,
    Referer,
    Agent,
}

impl RequestText {
    /// Clears all parts and keeps the buffer.
    fn emptied(self) -> RequestText {
        let mut bytes = self.bytes;
        bytes.clear();
        RequestText {
            bytes,
            ..RequestText::default()
        }
    }

    /// Copies the parts of a head, even if it is incomplete or invalid.
    fn copy(&mut self, head: &[u8], request: Option<&RequestHead<'_>>) {
        self.bytes.clear();
        let [method, target, version] = split_line(first_line(head));
        let fields = request.map(|request| &request.fields);
        let parts = [
            method,
            target,
            version,
            request.and_then(|request| request.authority),
            fields.and_then(|fields| fields.referer.as_deref()),
            fields.and_then(|fields| fields.user_agent.as_deref()),
        ];
        for (number, part) in parts.into_iter().enumerate() {
            self.there[number] = part.is_some();
            // Readers of the log must not gain the access that a link grants.
            let part = part.unwrap_or_default();
            self.bytes.extend_from_slice(&redacted(part));
            self.ends[number] = self.bytes.len();
        }
    }

    /// Returns a part, if it was sent.
    fn part(&self, part: RequestPart) -> Option<&[u8]> {
        let number = part as usize;
        let start = number.checked_sub(1).map_or(0, |before| self.ends[before]);
        self.there[number].then(|| &self.bytes[start..self.ends[number]])
    }
}

/// Returns the first line that is not empty, complete or not.
fn first_line(head: &[u8]) -> &[u8] {
    let start = head.iter().position(|byte| !b"\r\n".contains(byte));
    let line = &head[start.unwrap_or(head.len())..];
    let end = line.iter().position(|byte| b"\r\n".contains(byte));
    &line[..end.unwrap_or(line.len())]
}

/// Splits a request line into method, target and version. A malformed line is returned as the
/// method, so that it appears in the log.
fn split_line(line: &[u8]) -> [Option<&[u8]>; 3] {
    if line.is_empty() {
        return [None; 3];
    }
    let mut parts = line.split(|&byte| byte == b' ');
    match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some(method), Some(target), Some(version), None) if version.starts_with(b"HTTP/") => {
            [Some(method), Some(target), Some(version)]
        }
        _ => [Some(line), None, None],
    }
}

/// A meter of a thread's processor time while it polls one task of many.
#[derive(Debug, Default)]
pub(crate) struct CpuMeter {
    /// The time spent in completed polls.
    spent: Cell<Duration>,
    /// The start of the current poll.
    since: Cell<Duration>,
}

impl CpuMeter {
    /// Runs a task, and measures each of its polls with two system calls.
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

    /// Returns the time spent until now; called within a poll.
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
    fn a_line_that_is_none_is_reported_as_it_came() {
        let parts = |head: &'static [u8]| split_line(first_line(head));
        let whole = [Some(&b"GET"[..]), Some(b"/a"), Some(b"HTTP/1.1")];
        assert_eq!(parts(b"\r\n\r\nGET /a HTTP/1.1\r\nHost: b\r\n"), whole);
        assert_eq!(
            parts(b"GET /a b HTTP/1.1\r\n"),
            [Some(&b"GET /a b HTTP/1.1"[..]), None, None]
        );
        assert_eq!(
            parts(b"\x16\x03\x01"),
            [Some(&b"\x16\x03\x01"[..]), None, None]
        );
        assert_eq!(parts(b"\r\n"), [None; 3]);
    }

    #[test]
    fn parts_are_found_again_and_the_room_is_used_again() {
        let mut said = RequestText::default();
        said.copy(b"GET /a-long-path HTTP/1.1\r\n\r\n", None);
        let room = said.bytes.capacity();
        let mut said = said.emptied();
        assert_eq!(said.part(RequestPart::Method), None);
        said.copy(b"HEAD /x HTTP/1.0\r\n\r\n", None);
        assert_eq!(said.part(RequestPart::Method), Some(&b"HEAD"[..]));
        assert_eq!(said.part(RequestPart::Version), Some(&b"HTTP/1.0"[..]));
        assert_eq!(said.part(RequestPart::Agent), None);
        assert_eq!(said.bytes.capacity(), room);
    }
}
