//! What one worker counts: numbers with one writer and any number of readers.
//!
//! Counting is a load and a store without a lock, on memory that no other worker writes to. A
//! scrape adds up the numbers of all workers, which need not be of one moment.

use std::borrow::Cow;
use std::fmt;
use std::ops::AddAssign;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use underpass::{Account, Cause, Mechanism, Refusal, SendStats};
use underpass_net::{HandshakeError, HandshakeKind, Rejected, SealedBy};

use crate::access::verifier::LoginOutcome;
use crate::answer::explain::travelled;
use crate::http::status::Status;
use crate::limits::TALLIED_REFUSALS_MAX;
use crate::request::request_line::Method;

/// A number with one writer.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl fmt::Display for Counter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value().fmt(f)
    }
}

impl Counter {
    /// Counts `more`. Of two threads that do so at once one may be lost: it has one writer.
    pub(crate) fn add(&self, more: u64) {
        self.set(self.value().wrapping_add(more));
    }

    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    pub(crate) fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// How an exchange ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ExchangeEnd {
    /// All of the answer was handed to the kernel.
    Complete,
    /// The peer closed or reset the connection, or acknowledged nothing for too long.
    PeerGone,
    /// The client reads nothing for too long.
    Stalled,
    /// The client reads slower than `rate-min`.
    TooSlow,
    /// The server was stopped.
    Stopped,
    /// The file ended before what was promised of it.
    Truncated,
    /// The file could not be read, or the socket not be written, in another way.
    Failed,
}

impl ExchangeEnd {
    /// The words in logs and metrics, in the order of the variants.
    pub(crate) const NAMES: [&str; 7] = [
        "complete",
        "peer_gone",
        "stalled",
        "too_slow",
        "stopped",
        "truncated",
        "failed",
    ];

    pub(crate) const fn name(self) -> &'static str {
        ExchangeEnd::NAMES[self as usize]
    }
}

/// What a client was too late with: its connection ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum SlowClient {
    /// The next request.
    Idle,
    /// The rest of a head.
    Head,
    /// The rest of a body.
    Body,
}

impl SlowClient {
    /// The options that say how late is too late, in the order of the variants.
    pub(crate) const LIMITS: [&str; 3] = ["idle-timeout", "head-timeout", "body-timeout"];
}

/// Labels of methods.
pub(crate) const METHODS: [&str; 4] = ["GET", "HEAD", "OPTIONS", "other"];

/// Statuses have three digits, the first one from 1 to 5.
pub(crate) const STATUSES: std::ops::Range<u16> = 100..600;

/// The upper ends of the classes of durations: from a hot small file to a long download.
pub(crate) const DURATION_CLASSES: [Duration; 16] = [
    Duration::from_micros(50),
    Duration::from_micros(100),
    Duration::from_micros(250),
    Duration::from_micros(500),
    Duration::from_millis(1),
    Duration::from_micros(2_500),
    Duration::from_millis(5),
    Duration::from_millis(10),
    Duration::from_millis(50),
    Duration::from_millis(250),
    Duration::from_secs(1),
    Duration::from_secs(5),
    Duration::from_secs(30),
    Duration::from_secs(120),
    Duration::from_secs(600),
    Duration::from_secs(3600),
];

/// A counter for each of [`STATUSES`].
#[derive(Debug)]
pub(crate) struct StatusCounters(Box<[Counter]>);

impl Default for StatusCounters {
    fn default() -> StatusCounters {
        StatusCounters(STATUSES.map(|_| Counter::default()).collect())
    }
}

impl StatusCounters {
    /// The counter of a status.
    pub(crate) fn of(&self, status: Status) -> &Counter {
        self.by_number(usize::from(status.code() - STATUSES.start))
    }

    /// The counter with this place in [`STATUSES`].
    pub(crate) fn by_number(&self, number: usize) -> &Counter {
        &self.0[number]
    }
}

/// How long exchanges took.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    /// Of each class, not cumulated; the last one is for all that is longer.
    pub(crate) counts: [Counter; DURATION_CLASSES.len() + 1],
    pub(crate) nanoseconds: Counter,
}

impl Histogram {
    fn note(&self, duration: Duration) {
        let class = DURATION_CLASSES.partition_point(|&upper| upper < duration);
        self.counts[class].add(1);
        self.nanoseconds.add(nanoseconds(duration));
    }
}

/// What happened to the files that are kept open.
#[derive(Debug, Default)]
pub(crate) struct OpenFileMetrics {
    /// Files open at this moment.
    pub(crate) kept: Counter,
    pub(crate) hits: Counter,
    pub(crate) misses: Counter,
    /// Files that were closed: too old, deleted, replaced, or given up.
    pub(crate) closed: Counter,
}

/// Counts of one site.
#[derive(Debug)]
pub(crate) struct SiteMetrics {
    /// The name of the site, the same in all workers.
    pub(crate) label: Arc<str>,
    /// Answers, by the first digit of their status.
    pub(crate) classes: [Counter; SiteMetrics::CLASSES.len()],
    pub(crate) sent_bytes: Counter,
}

impl SiteMetrics {
    /// Labels of classes of statuses.
    pub(crate) const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

    pub(crate) fn new(label: Arc<str>) -> SiteMetrics {
        SiteMetrics {
            label,
            classes: Default::default(),
            sent_bytes: Counter::default(),
        }
    }

    /// Counts an answer, and all bytes that were sent for the request.
    pub(crate) fn exchange(&self, status: Option<Status>, sent_bytes: u64) {
        if let Some(status) = status {
            self.classes[usize::from(status.code() / 100 - 1)].add(1);
        }
        self.sent_bytes.add(sent_bytes);
    }

    fn absorb(&self, other: &SiteMetrics) {
        for (counter, other) in self.classes.iter().zip(&other.classes) {
            counter.add(other.value());
        }
        self.sent_bytes.add(other.sent_bytes.value());
    }
}

/// A refusal of a mechanism, and the number of responses with it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CountedRefusal {
    /// The first of its kind.
    pub(crate) refusal: Refusal,
    pub(crate) answers: u64,
}

/// Whether a refusal could be counted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum AddedRefusal {
    /// It is the first of its kind.
    New,
    Known,
    /// The list is full.
    No,
}

impl CountedRefusal {
    /// Adds it to `list`, which has at most `kinds_max` kinds (mechanism and cause).
    pub(crate) fn add_to(self, list: &mut Vec<CountedRefusal>, kinds_max: usize) -> AddedRefusal {
        let kind = |counted: &CountedRefusal| (counted.refusal.mechanism, counted.refusal.cause);
        if let Some(known) = list.iter_mut().find(|known| kind(known) == kind(&self)) {
            known.answers += self.answers;
            return AddedRefusal::Known;
        }
        if list.len() >= kinds_max {
            return AddedRefusal::No;
        }
        list.push(self);
        AddedRefusal::New
    }
}

/// What a server has done.
#[derive(Clone, Debug, Default)]
pub struct ServeSummary {
    /// Responses, error responses included.
    pub requests: u64,
    /// What was sent of files, by mechanism.
    pub account: Account,
    /// What was sent from memory: heads, listings, compressed bodies.
    pub memory_bytes: u64,
}

impl fmt::Display for ServeSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&travelled(&self.account, self.memory_bytes))
    }
}

/// Adds what another worker has done.
impl AddAssign<&ServeSummary> for ServeSummary {
    fn add_assign(&mut self, other: &ServeSummary) {
        self.requests += other.requests;
        self.account.add(&other.account);
        self.memory_bytes += other.memory_bytes;
    }
}

/// All that a worker counts.
#[derive(Debug, Default)]
pub(crate) struct WorkerMetrics {
    /// Of each of [`METHODS`].
    pub(crate) methods: [Counter; METHODS.len()],
    /// Of each of [`STATUSES`].
    pub(crate) statuses: StatusCounters,
    /// Of each of [`ExchangeEnd::NAMES`].
    pub(crate) ends: [Counter; ExchangeEnd::NAMES.len()],
    /// Of each of [`Mechanism::ALL`].
    pub(crate) bytes: [Counter; Mechanism::ALL.len()],
    pub(crate) calls: [Counter; Mechanism::ALL.len()],
    /// Bytes that were not content of files: heads, and bodies that explain a status.
    pub(crate) other_bytes: Counter,
    pub(crate) cold_reads: Counter,
    pub(crate) cold_nanoseconds: Counter,
    pub(crate) connections_accepted: Counter,
    pub(crate) connections_ended: Counter,
    /// Of each of [`Rejected::NAMES`].
    pub(crate) rejected: [Counter; Rejected::NAMES.len()],
    /// TLS handshakes that were complete, of each of [`HandshakeKind::ALL`].
    pub(crate) handshakes: [Counter; HandshakeKind::ALL.len()],
    /// Bytes before they were encrypted, of each of [`SealedBy::ALL`].
    pub(crate) sealed_bytes: [Counter; SealedBy::ALL.len()],
    /// TLS handshakes that failed, of each of [`HandshakeError::NAMES`].
    pub(crate) handshakes_failed: [Counter; HandshakeError::NAMES.len()],
    /// Passwords that were verified or not, of each of [`LoginOutcome::NAMES`].
    pub(crate) logins: [Counter; LoginOutcome::NAMES.len()],
    /// Of each of [`SlowClient::LIMITS`].
    pub(crate) slow_clients: [Counter; SlowClient::LIMITS.len()],
    /// How often there were as many connections as a worker may have.
    pub(crate) full: Counter,
    /// Connections closed while they waited for a request, to make room for others.
    pub(crate) evicted: Counter,
    pub(crate) durations: Histogram,
    pub(crate) files: OpenFileMetrics,
    /// Of each site, in their order; in sums, of all sites that there were.
    pub(crate) sites: Vec<SiteMetrics>,
    /// Locked only where something was refused.
    pub(crate) refusals: Mutex<Vec<CountedRefusal>>,
    /// Answers in which something was refused for which the list had no room.
    pub(crate) refusals_unlisted: Counter,
}

impl WorkerMetrics {
    /// Counts an exchange, with its duration where that is observed.
    pub(crate) fn exchange(
        &self,
        method: Method,
        status: Option<Status>,
        end: ExchangeEnd,
        duration: Option<Duration>,
    ) {
        self.methods[class(method)].add(1);
        if let Some(status) = status {
            self.statuses.of(status).add(1);
        }
        self.ends[end as usize].add(1);
        if let Some(duration) = duration {
            self.durations.note(duration);
        }
    }

    /// Counts what was sent of a response. Returns refusals that are the first of their kind.
    pub(crate) fn sent(&self, account: &Account, beside: &SendStats) -> Vec<Refusal> {
        for (number, mechanism) in Mechanism::ALL.into_iter().enumerate() {
            let tally = account.of(mechanism);
            if tally.calls > 0 {
                self.bytes[number].add(tally.bytes);
                self.calls[number].add(tally.calls);
            }
        }
        self.other_bytes.add(beside.bytes);
        if beside.cold_reads > 0 {
            self.cold_reads.add(beside.cold_reads);
            self.cold_nanoseconds.add(nanoseconds(beside.cold_time));
        }
        match account.refusals.is_empty() {
            true => Vec::new(),
            false => self.refused(account),
        }
    }

    /// Counts a connection that ends since its client was too late.
    pub(crate) fn late(&self, late: SlowClient) {
        self.slow_clients[late as usize].add(1);
    }

    /// Returns the refusals that are the first of their kind.
    fn refused(&self, account: &Account) -> Vec<Refusal> {
        let Ok(mut list) = self.refusals.lock() else {
            return Vec::new();
        };
        let mut new = Vec::new();
        for &refusal in &account.refusals {
            let counted = CountedRefusal {
                refusal,
                answers: 1,
            };
            match counted.add_to(&mut list, TALLIED_REFUSALS_MAX) {
                AddedRefusal::New => new.push(refusal),
                AddedRefusal::Known => {}
                AddedRefusal::No => self.refusals_unlisted.add(1),
            }
        }
        new
    }

    /// All responses, and what was sent of files.
    pub(crate) fn summary(&self) -> ServeSummary {
        let mut account = Account::default();
        for (number, mechanism) in Mechanism::ALL.into_iter().enumerate() {
            let (bytes, calls) = (self.bytes[number].value(), self.calls[number].value());
            account.record(mechanism, bytes, calls);
        }
        if let Ok(list) = self.refusals.lock() {
            account.refusals = list.iter().map(|counted| counted.refusal).collect();
        }
        account.refusals_unlisted = self.refusals_unlisted.value();
        ServeSummary {
            requests: self.ends.iter().map(Counter::value).sum(),
            account,
            memory_bytes: self.other_bytes.value(),
        }
    }

    /// Adds what a worker has counted. Every kind of refusal is kept, or a count could vanish:
    /// there are only as many as mechanisms and errors.
    pub(crate) fn absorb(&mut self, other: &WorkerMetrics) {
        for (counter, other) in self.counters().zip(other.counters()) {
            counter.add(other.value());
        }
        for site in &other.sites {
            let known = self.sites.iter().position(|one| one.label == site.label);
            let known = known.unwrap_or_else(|| {
                self.sites.push(SiteMetrics::new(Arc::clone(&site.label)));
                self.sites.len() - 1
            });
            self.sites[known].absorb(site);
        }
        if let (Ok(mut list), Ok(refusals)) = (self.refusals.lock(), other.refusals.lock()) {
            for counted in refusals.iter() {
                counted.add_to(&mut list, usize::MAX);
            }
        }
    }

    /// All counters.
    fn counters(&self) -> impl Iterator<Item = &Counter> {
        let lists: [&[Counter]; 12] = [
            &self.methods,
            &self.statuses.0,
            &self.ends,
            &self.bytes,
            &self.calls,
            &self.rejected,
            &self.handshakes,
            &self.handshakes_failed,
            &self.sealed_bytes,
            &self.logins,
            &self.slow_clients,
            &self.durations.counts,
        ];
        let single = [
            &self.other_bytes,
            &self.cold_reads,
            &self.cold_nanoseconds,
            &self.connections_accepted,
            &self.connections_ended,
            &self.full,
            &self.evicted,
            &self.durations.nanoseconds,
            &self.files.kept,
            &self.files.hits,
            &self.files.misses,
            &self.files.closed,
            &self.refusals_unlisted,
        ];
        lists.into_iter().flatten().chain(single)
    }
}

/// The word for a cause in logs and metrics.
pub(crate) fn cause_name(cause: Cause) -> Cow<'static, str> {
    match cause {
        Cause::Errno(errno) => underpass::errno::name(errno),
        Cause::SaidNothing => "said_nothing".into(),
    }
}

fn class(method: Method) -> usize {
    match method {
        Method::Get => 0,
        Method::Head => 1,
        Method::Options => 2,
        _ => 3,
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_counts_in_the_class_whose_upper_end_it_does_not_pass() {
        let histogram = Histogram::default();
        for duration in [
            Duration::ZERO,
            Duration::from_micros(50),
            Duration::from_micros(51),
            Duration::from_secs(4000),
        ] {
            histogram.note(duration);
        }
        assert_eq!(histogram.counts[0].value(), 2);
        assert_eq!(histogram.counts[1].value(), 1);
        assert_eq!(histogram.counts[DURATION_CLASSES.len()].value(), 1);
        assert_eq!(histogram.nanoseconds.value(), 101_000 + 4_000_000_000_000);
    }

    #[test]
    fn an_exchange_counts_once_by_each_of_its_sides() {
        let tally = WorkerMetrics::default();
        tally.exchange(
            Method::Head,
            Some(Status::PartialContent),
            ExchangeEnd::Stalled,
            None,
        );
        tally.exchange(Method::Connect, None, ExchangeEnd::Complete, None);
        assert_eq!(tally.methods[1].value() + tally.methods[3].value(), 2);
        assert_eq!(tally.statuses.of(Status::PartialContent).value(), 1);
        let statuses: u64 = tally.statuses.0.iter().map(Counter::value).sum();
        assert_eq!(statuses, 1, "an exchange without a response has no status");
        assert_eq!(
            tally.ends.each_ref().map(Counter::value),
            [1, 0, 1, 0, 0, 0, 0]
        );
    }
}
