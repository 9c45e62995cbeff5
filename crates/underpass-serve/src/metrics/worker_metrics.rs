//! What one worker counts: plain numbers that only it writes and everybody may read.
//!
//! A count is a load and a store without a lock, on memory that no other worker writes to. Who asks
//! for metrics reads the numbers of all workers and adds them up; they need not be of one moment.

use std::borrow::Cow;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use underpass::{Account, Cause, Mechanism, SendStats};
use underpass_net::Rejected;

use crate::limits::TALLIED_REFUSALS_MAX;
use crate::request::request_line::Method;

/// A number with one writer.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

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
    /// The peer took nothing for too long.
    Stalled,
    /// The peer took less than it has to.
    TooSlow,
    /// The server was stopped.
    Stopped,
    /// The file ended before what was promised of it.
    Truncated,
    /// The file could not be read, or the socket not be written, in another way.
    Failed,
}

impl ExchangeEnd {
    pub(crate) const ALL: [ExchangeEnd; 7] = [
        ExchangeEnd::Complete,
        ExchangeEnd::PeerGone,
        ExchangeEnd::Stalled,
        ExchangeEnd::TooSlow,
        ExchangeEnd::Stopped,
        ExchangeEnd::Truncated,
        ExchangeEnd::Failed,
    ];

    /// The word in logs and metrics.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            ExchangeEnd::Complete => "complete",
            ExchangeEnd::PeerGone => "peer_gone",
            ExchangeEnd::Stalled => "stalled",
            ExchangeEnd::TooSlow => "too_slow",
            ExchangeEnd::Stopped => "stopped",
            ExchangeEnd::Truncated => "truncated",
            ExchangeEnd::Failed => "failed",
        }
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
    pub(crate) const ALL: [SlowClient; 3] = [SlowClient::Idle, SlowClient::Head, SlowClient::Body];

    /// The option that says how late is too late.
    pub(crate) const fn limit(self) -> &'static str {
        match self {
            SlowClient::Idle => "idle-timeout",
            SlowClient::Head => "head-timeout",
            SlowClient::Body => "body-timeout",
        }
    }
}

/// The label of methods that this server does not tell apart.
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

/// How long exchanges took.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    /// Of each class, not cumulated; the last one is for all that is longer.
    pub(crate) counts: [Counter; DURATION_CLASSES.len() + 1],
    pub(crate) nanoseconds: Counter,
}

impl Histogram {
    fn absorb(&self, other: &Histogram) {
        absorb(&self.counts, &other.counts);
        self.nanoseconds.add(other.nanoseconds.value());
    }

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

impl OpenFileMetrics {
    /// Adds what a worker has counted that has ended, and its files are closed with it.
    fn absorb(&self, other: &OpenFileMetrics) {
        self.hits.add(other.hits.value());
        self.misses.add(other.misses.value());
        self.closed.add(other.closed.value() + other.kept.value());
    }
}

/// A mechanism that was refused, for this cause, in so many answers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CountedRefusal {
    pub(crate) mechanism: Mechanism,
    pub(crate) cause: Cause,
    pub(crate) answers: u64,
}

impl CountedRefusal {
    /// Adds it to those that are known, unless it is another kind than `kinds_max` ones.
    pub(crate) fn count_among(self, known: &mut Vec<CountedRefusal>, kinds_max: usize) -> bool {
        let kind = (self.mechanism, self.cause);
        let same = |known: &&mut CountedRefusal| (known.mechanism, known.cause) == kind;
        if let Some(known) = known.iter_mut().find(same) {
            known.answers += self.answers;
        } else if known.len() < kinds_max {
            known.push(self);
        } else {
            return false;
        }
        true
    }
}

/// All that a worker counts.
#[derive(Debug)]
pub(crate) struct WorkerMetrics {
    /// Of each of [`METHODS`].
    pub(crate) methods: [Counter; METHODS.len()],
    /// Of each of [`STATUSES`].
    pub(crate) statuses: Box<[Counter]>,
    /// Of each of [`ExchangeEnd::ALL`].
    pub(crate) ends: [Counter; ExchangeEnd::ALL.len()],
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
    pub(crate) turned_away: [Counter; Rejected::NAMES.len()],
    /// Of each of [`SlowClient::ALL`].
    pub(crate) late: [Counter; SlowClient::ALL.len()],
    /// How often there were as many connections as a worker may have.
    pub(crate) full: Counter,
    pub(crate) durations: Histogram,
    pub(crate) files: OpenFileMetrics,
    /// Locked only where something was refused.
    pub(crate) refusals: Mutex<Vec<CountedRefusal>>,
    /// Answers in which something was refused for which the list had no room.
    pub(crate) refusals_unlisted: Counter,
}

impl Default for WorkerMetrics {
    fn default() -> WorkerMetrics {
        WorkerMetrics {
            methods: Default::default(),
            statuses: STATUSES.map(|_| Counter::default()).collect(),
            ends: Default::default(),
            bytes: Default::default(),
            calls: Default::default(),
            other_bytes: Counter::default(),
            cold_reads: Counter::default(),
            cold_nanoseconds: Counter::default(),
            connections_accepted: Counter::default(),
            connections_ended: Counter::default(),
            turned_away: Default::default(),
            late: Default::default(),
            full: Counter::default(),
            durations: Histogram::default(),
            files: OpenFileMetrics::default(),
            refusals: Mutex::default(),
            refusals_unlisted: Counter::default(),
        }
    }
}

impl WorkerMetrics {
    /// Counts an exchange, whose duration is known only where somebody asked for it.
    pub(crate) fn exchange(
        &self,
        method: Method,
        status: u16,
        end: ExchangeEnd,
        duration: Option<Duration>,
    ) {
        self.methods[class(method)].add(1);
        if let Some(counter) = self.statuses.get(usize::from(status.wrapping_sub(100))) {
            counter.add(1);
        }
        self.ends[end as usize].add(1);
        if let Some(duration) = duration {
            self.durations.note(duration);
        }
    }

    /// Counts what was sent of an answer.
    pub(crate) fn sent(&self, account: &Account, beside: &SendStats) {
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
        if !account.refusals.is_empty() {
            self.refused(account);
        }
    }

    /// Counts a connection that ends since its client was too late.
    pub(crate) fn late(&self, late: SlowClient) {
        self.late[late as usize].add(1);
    }

    fn refused(&self, account: &Account) {
        let Ok(mut known) = self.refusals.lock() else {
            return;
        };
        for refusal in &account.refusals {
            let refused = CountedRefusal {
                mechanism: refusal.mechanism,
                cause: refusal.cause,
                answers: 1,
            };
            if !refused.count_among(&mut known, TALLIED_REFUSALS_MAX) {
                self.refusals_unlisted.add(1);
            }
        }
    }

    /// Adds all that a worker has counted that has ended. Of refusals every kind is kept, or a
    /// count could vanish: there are no more of them than mechanisms and errors of the kernel.
    pub(crate) fn absorb(&self, ended: &WorkerMetrics) {
        absorb(&self.methods, &ended.methods);
        absorb(&self.statuses, &ended.statuses);
        absorb(&self.ends, &ended.ends);
        absorb(&self.turned_away, &ended.turned_away);
        absorb(&self.late, &ended.late);
        absorb(&self.bytes, &ended.bytes);
        absorb(&self.calls, &ended.calls);
        self.other_bytes.add(ended.other_bytes.value());
        self.cold_reads.add(ended.cold_reads.value());
        self.cold_nanoseconds.add(ended.cold_nanoseconds.value());
        self.connections_accepted
            .add(ended.connections_accepted.value());
        self.connections_ended.add(ended.connections_ended.value());
        self.full.add(ended.full.value());
        self.durations.absorb(&ended.durations);
        self.files.absorb(&ended.files);
        self.refusals_unlisted.add(ended.refusals_unlisted.value());
        if let (Ok(mut known), Ok(refusals)) = (self.refusals.lock(), ended.refusals.lock()) {
            for refused in refusals.iter() {
                refused.count_among(&mut known, usize::MAX);
            }
        }
    }
}

fn absorb(counters: &[Counter], ended: &[Counter]) {
    for (counter, ended) in counters.iter().zip(ended) {
        counter.add(ended.value());
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
        tally.exchange(Method::Head, 206, ExchangeEnd::Stalled, None);
        tally.exchange(Method::Connect, 999, ExchangeEnd::Complete, None);
        assert_eq!(tally.methods[1].value() + tally.methods[3].value(), 2);
        assert_eq!(tally.statuses[106].value(), 1);
        let statuses: u64 = tally.statuses.iter().map(Counter::value).sum();
        assert_eq!(statuses, 1, "what is no status is not counted as one");
        assert_eq!(
            tally.ends.each_ref().map(Counter::value),
            [1, 0, 1, 0, 0, 0, 0]
        );
    }
}
