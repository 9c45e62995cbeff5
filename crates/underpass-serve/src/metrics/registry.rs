//! The metrics of all workers of a server.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::answer::explain::Explain;
use crate::log::{AccessLog, LogFormat};
use crate::metrics::worker_metrics::WorkerMetrics;

/// How much of exchanges is recorded. Each level includes those before it.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum ObservationLevel {
    /// How many there are.
    Counts,
    /// How long they take.
    Durations,
    /// What clients sent.
    RequestText,
    /// The processor time they use, which takes system calls.
    ProcessorTime,
}

/// The metrics of all workers, and the log.
#[derive(Debug)]
pub(crate) struct MetricsRegistry {
    metrics: Mutex<RegisteredMetrics>,
    connections: AtomicU64,
    pub(crate) log: Option<AccessLog>,
    pub(crate) explain: Explain,
}

impl MetricsRegistry {
    pub(crate) fn new(log: Option<AccessLog>, explain: Explain) -> MetricsRegistry {
        MetricsRegistry {
            metrics: Mutex::default(),
            connections: AtomicU64::new(0),
            log,
            explain,
        }
    }

    /// How much of exchanges the log and the readers of metrics need.
    pub(crate) fn observation(&self, metrics: MetricsUse) -> ObservationLevel {
        match (self.log.as_ref().map(AccessLog::format), metrics) {
            (Some(LogFormat::Json), _) => ObservationLevel::ProcessorTime,
            (Some(LogFormat::Combined), _) => ObservationLevel::RequestText,
            (None, MetricsUse::Read) => ObservationLevel::Durations,
            (None, MetricsUse::Unread) => ObservationLevel::Counts,
        }
    }

    /// Metrics for one more worker.
    pub(crate) fn register(&self) -> Arc<WorkerMetrics> {
        let register = Arc::new(WorkerMetrics::default());
        if let Ok(mut metrics) = self.metrics.lock() {
            metrics.fold();
            metrics.working.push(Arc::clone(&register));
        }
        register
    }

    /// The current metrics of all workers.
    pub(crate) fn counts(&self) -> MetricsSnapshot {
        let Ok(mut metrics) = self.metrics.lock() else {
            return MetricsSnapshot::default();
        };
        metrics.fold();
        let mut all = metrics.working.clone();
        all.push(Arc::clone(&metrics.ended));
        MetricsSnapshot {
            working: metrics.working.len(),
            all,
        }
    }

    /// The number of a connection, from 1 on.
    pub(crate) fn next_connection(&self) -> u64 {
        self.connections.fetch_add(1, Ordering::Relaxed) + 1
    }
}

/// The metrics of running workers, and the sums of those that have ended.
#[derive(Debug, Default)]
struct RegisteredMetrics {
    working: Vec<Arc<WorkerMetrics>>,
    ended: Arc<WorkerMetrics>,
}

impl RegisteredMetrics {
    /// Adds up the metrics of workers that have ended. Metrics that a worker or a reader still
    /// holds are left alone, so that a reader counts each number once.
    fn fold(&mut self) {
        let ended = &self.ended;
        self.working
            .retain_mut(|register| match Arc::get_mut(register) {
                Some(last) => {
                    ended.absorb(last);
                    false
                }
                None => true,
            });
    }
}

/// The metrics of all workers, to be added up.
#[derive(Debug, Default)]
pub(crate) struct MetricsSnapshot {
    pub(crate) all: Vec<Arc<WorkerMetrics>>,
    /// How many workers run.
    pub(crate) working: usize,
}

/// Whether anybody can ask for metrics.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum MetricsUse {
    Read,
    Unread,
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::http::status::Status;
    use crate::metrics::worker_metrics::{Counter, ExchangeEnd};
    use crate::request::request_line::Method;

    fn answers(counts: &MetricsSnapshot) -> u64 {
        let ends = counts.all.iter().flat_map(|register| &register.ends);
        ends.map(Counter::value).sum()
    }

    #[test]
    fn what_ended_workers_counted_stays_in_the_sums_and_takes_no_more_room() {
        let registry = MetricsRegistry::new(None, Explain::Off);
        for generation in 1..=1000 {
            let metrics = [registry.register(), registry.register()];
            for register in &metrics {
                register.exchange(
                    Method::Get,
                    Some(Status::Ok),
                    ExchangeEnd::Complete,
                    Some(Duration::ZERO),
                );
                register.files.kept.add(1);
            }
            let counts = registry.counts();
            assert_eq!(answers(&counts), 2 * generation);
            assert_eq!((counts.working, counts.all.len()), (2, 3));
        }
        let counts = registry.counts();
        assert_eq!((counts.working, counts.all.len()), (0, 1));
        let [ended] = &counts.all[..] else {
            panic!("{counts:?}");
        };
        assert_eq!(ended.durations.counts[0].value(), 2000);
        assert_eq!(ended.files.kept.value(), 0, "its files went with a worker");
        assert_eq!(ended.files.closed.value(), 2000);
    }

    #[test]
    fn who_reads_while_a_worker_ends_has_its_counts_once() {
        let registry = MetricsRegistry::new(None, Explain::Off);
        let register = registry.register();
        register.exchange(Method::Get, Some(Status::Ok), ExchangeEnd::Complete, None);
        let counts = registry.counts();
        drop(register);
        assert_eq!(answers(&registry.counts()), 1, "as another reader has it");
        assert_eq!(answers(&counts), 1);
        drop(counts);
        assert_eq!(answers(&registry.counts()), 1);
    }
}
