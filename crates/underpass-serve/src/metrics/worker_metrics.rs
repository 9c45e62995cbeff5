//! The metrics of one worker: numbers with one writer and any number of readers.
//!
//! Counting is a load and a store without a lock, on memory that no other worker writes to. A
//! scrape adds up the numbers of all workers, which need not be from the same moment.

use std::fmt;
use std::ops::AddAssign;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use underpass::{Account, Mechanism, Refusal, SendStats};
use underpass_http::request::request_line::Method;
use underpass_http::status::Status;
use underpass_net::{HandshakeError, HandshakeKind, Rejected, SealedBy};

use crate::access::verifier::LoginOutcome;
use crate::limits::TALLIED_REFUSALS_MAX;
use crate::record::end::ExchangeEnd;
use crate::record::explain::travelled;

/// A counter with one writer.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl fmt::Display for Counter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value().fmt(f)
    }
}

impl Counter {
    /// Adds `more`. Only one thread may call this: concurrent calls could lose counts.
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

/// The part of an exchange that a client sent too late, so that its connection ends.
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
    /// The options with the time limits, in the order of the variants.
    pub(crate) const LIMITS: [&str; 3] = ["idle-timeout", "head-timeout", "body-timeout"];
}

/// Labels of methods.
pub(crate) const METHODS: [&str; 4] = ["GET", "HEAD", "OPTIONS", "other"];

/// The range of statuses: three digits, the first one from 1 to 5.
pub(crate) const STATUSES: std::ops::Range<u16> = 100..600;

/// The upper bounds of the duration buckets: from a hot small file to a long download.
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
    /// Returns the counter of a status.
    pub(crate) fn of(&self, status: Status) -> &Counter {
        self.by_number(usize::from(status.code() - STATUSES.start))
    }

    /// Returns the counter with this index in [`STATUSES`].
    pub(crate) fn by_number(&self, number: usize) -> &Counter {
        &self.0[number]
    }
}

/// The durations of exchanges.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    /// Exchanges per bucket, not cumulative; the last one is for all that are longer.
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

/// The metrics of the cache of open files.
#[derive(Debug, Default)]
pub(crate) struct OpenFileMetrics {
    /// Files open at present.
    pub(crate) kept: Counter,
    pub(crate) hits: Counter,
    pub(crate) misses: Counter,
    /// Files that were closed: too old, deleted, replaced, or evicted.
    pub(crate) closed: Counter,
}

/// The metrics of one site.
#[derive(Debug)]
pub(crate) struct SiteMetrics {
    /// The name of the site, the same in all workers.
    pub(crate) label: Arc<str>,
    /// Responses, by the first digit of their status.
    pub(crate) classes: [Counter; SiteMetrics::CLASSES.len()],
    pub(crate) sent_bytes: Counter,
}

impl SiteMetrics {
    /// Labels of status classes.
    pub(crate) const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

    pub(crate) fn new(label: Arc<str>) -> SiteMetrics {
        SiteMetrics {
            label,
            classes: Default::default(),
            sent_bytes: Counter::default(),
        }
    }

    /// Counts a response, and all bytes sent for the request.
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
    /// The first refusal of its kind.
    pub(crate) refusal: Refusal,
    pub(crate) answers: u64,
}

/// The result of counting a refusal.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum AddedRefusal {
    /// The first of its kind.
    New,
    Known,
    /// The list is full.
    No,
}

impl CountedRefusal {
    /// Adds the refusal to `list`, which has at most `kinds_max` kinds (mechanism and cause).
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

/// The summary of a server's work.
#[derive(Clone, Debug, Default)]
pub struct ServeSummary {
    /// Responses, error responses included.
    pub requests: u64,
    /// Bytes sent from files, by mechanism.
    pub account: Account,
    /// Bytes sent from memory: heads, listings, compressed bodies.
    pub memory_bytes: u64,
}

impl fmt::Display for ServeSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&travelled(&self.account, self.memory_bytes))
    }
}

/// Adds the work of another worker.
impl AddAssign<&ServeSummary> for ServeSummary {
    fn add_assign(&mut self, other: &ServeSummary) {
        self.requests += other.requests;
        self.account.add(&other.account);
        self.memory_bytes += other.memory_bytes;
    }
}

/// The metrics of a worker.
#[derive(Debug, Default)]
pub(crate) struct WorkerMetrics {
    /// Exchanges for each of [`METHODS`].
    pub(crate) methods: [Counter; METHODS.len()],
    /// Responses for each of [`STATUSES`].
    pub(crate) statuses: StatusCounters,
    /// Exchanges for each of [`ExchangeEnd::NAMES`].
    pub(crate) ends: [Counter; ExchangeEnd::NAMES.len()],
    /// Bytes and calls for each of [`Mechanism::ALL`].
    pub(crate) bytes: [Counter; Mechanism::ALL.len()],
    pub(crate) calls: [Counter; Mechanism::ALL.len()],
    /// The same of bodies that were received into files.
    pub(crate) received_bytes: [Counter; Mechanism::ALL.len()],
    pub(crate) received_calls: [Counter; Mechanism::ALL.len()],
    /// Bytes not from files: heads, and bodies that explain a status.
    pub(crate) other_bytes: Counter,
    pub(crate) cold_reads: Counter,
    pub(crate) cold_nanoseconds: Counter,
    pub(crate) connections_accepted: Counter,
    pub(crate) connections_ended: Counter,
    /// Connections for each of [`Rejected::NAMES`].
    pub(crate) rejected: [Counter; Rejected::NAMES.len()],
    /// Completed TLS handshakes, for each of [`HandshakeKind::ALL`].
    pub(crate) handshakes: [Counter; HandshakeKind::ALL.len()],
    /// Bytes before encryption, for each of [`SealedBy::ALL`].
    pub(crate) sealed_bytes: [Counter; SealedBy::ALL.len()],
    /// Failed TLS handshakes, for each of [`HandshakeError::NAMES`].
    pub(crate) handshakes_failed: [Counter; HandshakeError::NAMES.len()],
    /// Login attempts, for each of [`LoginOutcome::NAMES`].
    pub(crate) logins: [Counter; LoginOutcome::NAMES.len()],
    /// Connections for each of [`SlowClient::LIMITS`].
    pub(crate) slow_clients: [Counter; SlowClient::LIMITS.len()],
    /// Number of times the worker reached its connection limit.
    pub(crate) full: Counter,
    /// Idle connections closed to make room for others.
    pub(crate) evicted: Counter,
    pub(crate) durations: Histogram,
    pub(crate) files: OpenFileMetrics,
    /// The metrics of each site, in their order; in sums, of all sites that ever existed.
    pub(crate) sites: Vec<SiteMetrics>,
    /// Locked only when a mechanism was refused.
    pub(crate) refusals: Mutex<Vec<CountedRefusal>>,
    /// Refusals of kinds that did not fit into the list.
    pub(crate) refusals_unlisted: Counter,
}

impl WorkerMetrics {
    /// Counts an exchange, with its duration if that is observed.
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

    /// Counts the bytes sent for a response. Returns refusals that are the first of their kind.
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

    /// Counts the bytes received into files for a request. Returns refusals as
    /// [`sent`](Self::sent) does.
    pub(crate) fn received(&self, account: &Account) -> Vec<Refusal> {
        for (number, mechanism) in Mechanism::ALL.into_iter().enumerate() {
            let tally = account.of(mechanism);
            self.received_bytes[number].add(tally.bytes);
            self.received_calls[number].add(tally.calls);
        }
        match account.refusals.is_empty() {
            true => Vec::new(),
            false => self.refused(account),
        }
    }

    /// Counts a connection that ends because its client was too late.
    pub(crate) fn late(&self, late: SlowClient) {
        self.slow_clients[late as usize].add(1);
    }

    /// Counts refusals, and returns those that are the first of their kind.
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

    /// Returns the number of responses, and the bytes sent.
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

    /// Adds the metrics of another worker. Every kind of refusal is kept, or a count could vanish:
    /// their number is bounded by that of mechanisms and errors.
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

    /// Returns all counters.
    fn counters(&self) -> impl Iterator<Item = &Counter> {
        let lists: [&[Counter]; 14] = [
            &self.methods,
            &self.statuses.0,
            &self.ends,
            &self.bytes,
            &self.calls,
            &self.received_bytes,
            &self.received_calls,
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
