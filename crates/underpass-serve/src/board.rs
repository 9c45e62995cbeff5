//! What all workers of a server tell of, in one place for those who ask.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::watch;

use crate::log::{Log, LogFormat};
use crate::options::Explain;
use crate::tally::Tally;
use crate::visit::Attention;

/// The counts of all workers, and the log.
#[derive(Debug)]
pub(crate) struct Board {
    tallies: Mutex<Vec<Arc<Tally>>>,
    connections: AtomicU64,
    pub(crate) log: Option<Log>,
    pub(crate) attention: Attention,
    pub(crate) explain: Explain,
}

impl Board {
    /// One that watches as closely as its log, and those who read metrics, need.
    pub(crate) fn new(log: Option<Log>, metrics: Metrics, explain: Explain) -> Board {
        let attention = match (log.as_ref().map(Log::format), metrics) {
            (Some(LogFormat::Json), _) => Attention::Processor,
            (Some(LogFormat::Combined), _) => Attention::Words,
            (None, Metrics::Read) => Attention::Durations,
            (None, Metrics::Unread) => Attention::Counts,
        };
        Board {
            tallies: Mutex::default(),
            connections: AtomicU64::new(0),
            log,
            attention,
            explain,
        }
    }

    /// What one more worker counts with.
    pub(crate) fn tally(&self) -> Arc<Tally> {
        let tally = Arc::new(Tally::default());
        if let Ok(mut tallies) = self.tallies.lock() {
            tallies.push(Arc::clone(&tally));
        }
        tally
    }

    /// Those of all workers up to now.
    pub(crate) fn tallies(&self) -> Vec<Arc<Tally>> {
        let tallies = self.tallies.lock();
        tallies.map_or_else(|_| Vec::new(), |tallies| tallies.clone())
    }

    /// The number of a connection, from 1 on.
    pub(crate) fn next_connection(&self) -> u64 {
        self.connections.fetch_add(1, Ordering::Relaxed) + 1
    }
}

/// Whether anybody can ask for metrics.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Metrics {
    Read,
    Unread,
}

/// Held by everybody who works for a server; when the last one is gone, who watches notices.
#[derive(Clone, Debug)]
pub(crate) struct Presence(Arc<watch::Sender<()>>);

impl Presence {
    pub(crate) fn new() -> Presence {
        Presence(Arc::new(watch::Sender::new(())))
    }

    /// Waits, without being present, until nobody is.
    pub(crate) fn absence(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut watched = self.0.subscribe();
        async move { while watched.changed().await.is_ok() {} }
    }
}
