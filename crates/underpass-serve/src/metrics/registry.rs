//! The metrics of all workers of a server.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::log::{AccessLog, LogFormat};
use crate::metrics::worker_metrics::{SiteMetrics, WorkerMetrics};
use crate::record::exchange::ObservationLevel;
use crate::record::explain::Explain;

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

    /// Returns the observation level that the log and the readers of metrics need.
    pub(crate) fn observation(&self, metrics: MetricsUse) -> ObservationLevel {
        match (self.log.as_ref().map(AccessLog::format), metrics) {
            (Some(LogFormat::Json), _) => ObservationLevel::ProcessorTime,
            (Some(LogFormat::Combined), _) => ObservationLevel::RequestText,
            (None, MetricsUse::Read) => ObservationLevel::Durations,
            (None, MetricsUse::Unread) => ObservationLevel::Counts,
        }
    }

    /// Creates metrics for one more worker, with these `sites`.
    pub(crate) fn register(&self, sites: impl Iterator<Item = Arc<str>>) -> Arc<WorkerMetrics> {
        let register = Arc::new(WorkerMetrics {
            sites: sites.map(SiteMetrics::new).collect(),
            ..WorkerMetrics::default()
        });
        if let Ok(mut metrics) = self.metrics.lock() {
            metrics.fold();
            metrics.working.push(Arc::clone(&register));
        }
        register
    }

    /// Returns the sums over all workers, and the number of running workers. Each count is included
    /// once, even while a worker ends.
    pub(crate) fn totals(&self) -> (WorkerMetrics, usize) {
        let mut totals = WorkerMetrics::default();
        let Ok(mut metrics) = self.metrics.lock() else {
            return (totals, 0);
        };
        metrics.fold();
        for each in &metrics.working {
            totals.absorb(each);
        }
        totals.absorb(&metrics.ended);
        (totals, metrics.working.len())
    }

    /// Returns the number of the next connection, from 1.
    pub(crate) fn next_connection(&self) -> u64 {
        self.connections.fetch_add(1, Ordering::Relaxed) + 1
    }
}

/// The metrics of running workers, and the sums of ended ones.
#[derive(Debug, Default)]
struct RegisteredMetrics {
    working: Vec<Arc<WorkerMetrics>>,
    ended: WorkerMetrics,
}

impl RegisteredMetrics {
    /// Adds up the metrics of ended workers, whose files are closed.
    fn fold(&mut self) {
        let ended = &mut self.ended;
        self.working
            .retain_mut(|register| match Arc::get_mut(register) {
                Some(last) => {
                    last.files.closed.add(last.files.kept.value());
                    last.files.kept.set(0);
                    ended.absorb(last);
                    false
                }
                None => true,
            });
    }
}

/// Whether metrics can be read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum MetricsUse {
    Read,
    Unread,
}

#[cfg(test)]
mod tests {
    use std::iter;
    use std::time::Duration;

    use underpass_http::request::request_line::Method;
    use underpass_http::status::Status;

    use super::*;
    use crate::metrics::worker_metrics::Counter;
    use crate::record::end::ExchangeEnd;

    fn answers(registry: &MetricsRegistry) -> u64 {
        let (totals, _) = registry.totals();
        totals.ends.iter().map(Counter::value).sum()
    }

    #[test]
    fn what_ended_workers_counted_stays_in_the_sums_and_takes_no_more_room() {
        let registry = MetricsRegistry::new(None, Explain::Off);
        for generation in 1..=1000_u64 {
            let site = || iter::once(Arc::from(["a", "b"][generation as usize % 2]));
            let metrics = [registry.register(site()), registry.register(site())];
            for register in &metrics {
                register.exchange(
                    Method::Get,
                    Some(Status::Ok),
                    ExchangeEnd::Complete,
                    Some(Duration::ZERO),
                );
                register.files.kept.add(1);
                register.sites[0].exchange(Some(Status::Ok), 10);
            }
            assert_eq!(answers(&registry), 2 * generation);
            let (totals, working) = registry.totals();
            assert_eq!((totals.files.kept.value(), working), (2, 2));
        }
        let (totals, working) = registry.totals();
        assert_eq!(working, 0);
        assert!(registry.metrics.lock().unwrap().working.is_empty());
        assert_eq!(totals.durations.counts[0].value(), 2000);
        let of_site = |site: &SiteMetrics| (site.label.to_string(), site.sent_bytes.value());
        let sites: Vec<_> = totals.sites.iter().map(of_site).collect();
        assert_eq!(sites, [("b".to_owned(), 10_000), ("a".to_owned(), 10_000)]);
        assert_eq!(totals.files.kept.value(), 0, "its files went with a worker");
        assert_eq!(totals.files.closed.value(), 2000);
    }

    #[test]
    fn what_a_worker_counted_is_there_once_before_and_after_its_end() {
        let registry = MetricsRegistry::new(None, Explain::Off);
        let register = registry.register(iter::empty());
        register.exchange(Method::Get, Some(Status::Ok), ExchangeEnd::Complete, None);
        assert_eq!(answers(&registry), 1);
        drop(register);
        assert_eq!(answers(&registry), 1, "by the one that folds");
        assert_eq!(answers(&registry), 1);
    }
}
