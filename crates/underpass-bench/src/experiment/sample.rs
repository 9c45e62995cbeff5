//! The cost of one play of a contender, a load on a server or transfers of files, and its metrics.

use crate::document::{PayloadPath, Unit};
use crate::machine::proc::CpuSource;
use crate::machine::window::{UsageWindow, note_of_bottleneck};
use crate::rounds::contenders::ContenderList;
use crate::rounds::interleave::{Played, Sample};
use crate::rounds::metric::{GIB, MetricReader};

/// Share of what should come from the page cache that may come from storage.
const FROM_STORAGE_MAX: f64 = 0.001;

/// Share of cold files that has to come from storage.
const COLD_MIN: f64 = 0.5;

#[derive(Clone)]
pub(crate) struct PlaySample {
    pub(crate) window: UsageWindow,
    pub(crate) residency: FileResidency,
    /// Requests of the stream whose latencies these are, or transfers.
    pub(crate) operations: u64,
    /// Regular files in one transfer.
    pub(crate) files: u64,
    /// Bytes of body of all streams, or of all transfers together; 0 where moving bytes is not the
    /// point.
    pub(crate) bytes: u64,
    /// In ascending order: of whole responses, and of their heads.
    pub(crate) latencies_ns: Vec<u64>,
    pub(crate) heads_ns: Vec<u64>,
    /// Peak resident memory of the contender's processes since they started.
    pub(crate) peak_resident_bytes: Option<u64>,
    /// The largest observed kernel memory in TCP buffers, machine-wide.
    pub(crate) tcp_buffer_bytes: Option<u64>,
    /// Bytes that its processes read from storage; `None` if the kernel doesn't count them.
    pub(crate) storage_read_bytes: Option<u64>,
    /// By mechanism, from workers that count.
    pub(crate) paths: Vec<PayloadPath>,
    pub(crate) held: Option<HeldConnections>,
}

/// The memory of a server with held connections, and its latencies without them.
#[derive(Clone)]
pub(crate) struct HeldConnections {
    pub(crate) connections: u64,
    /// Resident memory of its processes before the first of them, and with all.
    pub(crate) before_bytes: u64,
    pub(crate) bytes: u64,
    /// Of requests before the first of them, in ascending order.
    pub(crate) latencies_before_ns: Vec<u64>,
}

impl HeldConnections {
    /// Resident memory per connection, in bytes.
    pub(crate) fn bytes_each(&self) -> f64 {
        self.bytes.saturating_sub(self.before_bytes) as f64 / self.connections.max(1) as f64
    }
}

impl Sample for PlaySample {
    fn is_disturbed(&self) -> bool {
        self.lost_page_cache() || self.window.is_disturbed()
    }
}

impl PlaySample {
    /// A load or transfers of files in the page cache, of which nothing else is known yet.
    pub(crate) fn of(window: UsageWindow, operations: u64, bytes: u64) -> PlaySample {
        PlaySample {
            window,
            residency: FileResidency::Cached { aside_bytes: 0 },
            operations,
            files: 1,
            bytes,
            latencies_ns: Vec::new(),
            heads_ns: Vec::new(),
            peak_resident_bytes: None,
            tcp_buffer_bytes: None,
            storage_read_bytes: None,
            paths: Vec::new(),
            held: None,
        }
    }

    /// Whether files that should be in the page cache were read from storage.
    fn lost_page_cache(&self) -> bool {
        let read = self.storage_read_bytes.unwrap_or(0);
        match self.residency {
            FileResidency::Cached { aside_bytes } => {
                read > aside_bytes && read as f64 > self.bytes as f64 * FROM_STORAGE_MAX
            }
            FileResidency::OnDisk => false,
        }
    }

    /// Whether files that should be read from storage were in the page cache.
    fn was_not_cold(&self) -> bool {
        let read = self
            .storage_read_bytes
            .filter(|_| self.residency == FileResidency::OnDisk);
        read.is_some_and(|read| (read as f64) < self.bytes as f64 * COLD_MIN)
    }

    /// For each operation.
    fn each(&self, value: f64) -> Option<f64> {
        Some(value / self.operations.max(1) as f64)
    }

    /// In seconds; `None` where there are too few latencies for this quantile.
    fn latency(&self, share: f64) -> Option<f64> {
        quantile(&self.latencies_ns, share)
    }
}

/// The quantile, in seconds, of latencies in ascending order, in nanoseconds. There must be a
/// latency on each side of it.
fn quantile(sorted_ns: &[u64], share: f64) -> Option<f64> {
    let is_extreme = share == 0.0 || share == 1.0;
    let is_known = is_extreme || sorted_ns.len() as f64 * share.min(1.0 - share) >= 0.999;
    let rank = (share * sorted_ns.len() as f64).ceil() as usize;
    let nanoseconds = sorted_ns.get(rank.max(1) - 1).filter(|_| is_known)?;
    Some(*nanoseconds as f64 / 1e9)
}

/// The notes of each contender's rounds and of all of them together. `other_side` may be the
/// bottleneck.
pub(crate) fn notes_of(
    played: &Played<PlaySample>,
    list: &mut ContenderList,
    other_side: &str,
) -> Vec<String> {
    let new = list.new_failures();
    let of = |contender| notes_of_one(list.name(contender), other_side, &played.of(contender));
    let notes = (0..played.contenders()).flat_map(of);
    new.into_iter().chain(played.notes()).chain(notes).collect()
}

fn notes_of_one(name: &str, other_side: &str, samples: &[&PlaySample]) -> Vec<String> {
    let rounds = samples.len();
    let count = |is: &dyn Fn(&PlaySample) -> bool| samples.iter().filter(|s| is(s)).count();
    let windows: Vec<&UsageWindow> = samples.iter().map(|sample| &sample.window).collect();
    let coarse = count(&|s| s.window.cpu_source == CpuSource::Ticks);
    let lost = count(&|s| s.lost_page_cache());
    let warm = count(&|s| s.was_not_cold());
    let notes = [
        note_of_bottleneck(name, other_side, &windows),
        (coarse > 0).then(|| {
            format!(
                "the processor time of {name} is in ticks of 10 ms in {coarse} of {rounds} rounds, \
                 because threads started or ended"
            )
        }),
        (lost > 0).then(|| {
            format!(
                "{name} read from storage in {lost} of {rounds} rounds: the page cache had lost \
                 some of the files"
            )
        }),
        (warm > 0).then(|| {
            format!(
                "{name} read less than half of the bytes from storage in {warm} of {rounds} \
                 rounds: the files were not cold"
            )
        }),
    ];
    notes.into_iter().flatten().collect()
}

/// Bytes that each mechanism moved in all rounds together.
pub(crate) fn payload_paths(played: &Played<PlaySample>) -> Vec<PayloadPath> {
    let mut sums: Vec<PayloadPath> = Vec::new();
    for contender in 0..played.contenders() {
        let samples = played.of(contender).into_iter();
        for path in samples.flat_map(|sample| &sample.paths) {
            let is_same = |sum: &&mut PayloadPath| {
                (sum.contender, &sum.mechanism) == (contender, &path.mechanism)
            };
            match sums.iter_mut().find(is_same) {
                Some(sum) => {
                    sum.bytes += path.bytes;
                    sum.calls += path.calls;
                    sum.refusals += path.refusals;
                }
                None => sums.push(PayloadPath {
                    contender,
                    ..path.clone()
                }),
            }
        }
    }
    sums
}

/// The required place of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileResidency {
    /// In the page cache. This much may be read from storage nevertheless.
    Cached {
        aside_bytes: u64,
    },
    OnDisk,
}

pub(crate) type PlayMetric = MetricReader<PlaySample>;

pub(crate) const CPU_PER_GIB: PlayMetric = PlayMetric::lower(
    "cpu_per_gib",
    "processor time per GiB",
    Unit::SecondsPerGib,
    |s| (s.bytes > 0).then(|| s.window.cpu() / (s.bytes as f64 / GIB)),
);
pub(crate) const THROUGHPUT: PlayMetric =
    PlayMetric::higher("throughput", "throughput", Unit::BytesPerSecond, |s| {
        Some(s.bytes as f64 / s.window.seconds())
    });
pub(crate) const CPU_SHARE: PlayMetric =
    PlayMetric::neutral("cpu_share", "share of a processor", Unit::Share, |s| {
        Some(s.window.share())
    });
pub(crate) const PEAK_RESIDENT: PlayMetric =
    PlayMetric::lower("peak_resident", "peak resident memory", Unit::Bytes, |s| {
        s.peak_resident_bytes.map(|bytes| bytes as f64)
    });
pub(crate) const PAGE_FAULTS: PlayMetric =
    PlayMetric::lower("page_faults", "page faults per request", Unit::Count, |s| {
        s.each(s.window.used.page_faults as f64)
    });
pub(crate) const CONTEXT_SWITCHES: PlayMetric = PlayMetric::lower(
    "context_switches",
    "context switches per request",
    Unit::Count,
    |s| s.each(s.window.used.context_switches as f64),
);

// Of loads on servers.

pub(crate) const REQUESTS_PER_CPU: PlayMetric = PlayMetric::higher(
    "requests_per_cpu",
    "requests per processor second",
    Unit::PerSecond,
    |s| (s.window.cpu() > 0.0).then(|| s.operations as f64 / s.window.cpu()),
);
pub(crate) const REQUESTS: PlayMetric =
    PlayMetric::higher("requests", "requests per second", Unit::PerSecond, |s| {
        Some(s.operations as f64 / s.window.seconds())
    });
pub(crate) const P50: PlayMetric =
    PlayMetric::seconds("p50", "median response time", |s| s.latency(0.5));
pub(crate) const HEAD: PlayMetric =
    PlayMetric::seconds("head", "median time to the head of a response", |s| {
        quantile(&s.heads_ns, 0.5)
    });
pub(crate) const P90: PlayMetric =
    PlayMetric::seconds("p90", "90th percentile of the response time", |s| {
        s.latency(0.9)
    });
pub(crate) const P99: PlayMetric =
    PlayMetric::seconds("p99", "99th percentile of the response time", |s| {
        s.latency(0.99)
    });
pub(crate) const WORST: PlayMetric =
    PlayMetric::seconds("worst", "worst response time", |s| s.latency(1.0));
pub(crate) const P99_BEFORE: PlayMetric = PlayMetric::seconds(
    "p99_alone",
    "99th percentile of the response time without them",
    |s| quantile(&s.held.as_ref()?.latencies_before_ns, 0.99),
);
pub(crate) const RESIDENT_EACH: PlayMetric = PlayMetric::lower(
    "memory_per_connection",
    "resident memory per connection",
    Unit::Bytes,
    |s| s.held.as_ref().map(HeldConnections::bytes_each),
);
pub(crate) const TCP_BUFFERS: PlayMetric = PlayMetric::neutral(
    "tcp_buffers",
    "kernel memory in TCP buffers",
    Unit::Bytes,
    |s| s.tcp_buffer_bytes.map(|bytes| bytes as f64),
);
pub(crate) const STORAGE_READ: PlayMetric =
    PlayMetric::neutral("storage_read", "read from storage", Unit::Bytes, |s| {
        s.storage_read_bytes.map(|bytes| bytes as f64)
    });

// Of transfers.

pub(crate) const TRANSFERS: PlayMetric = PlayMetric {
    name: "operations",
    label: "operations per second",
    ..REQUESTS
};
pub(crate) const WALL: PlayMetric =
    PlayMetric::seconds("wall", "time of a transfer", |s| s.each(s.window.seconds()));
pub(crate) const CPU: PlayMetric =
    PlayMetric::seconds("cpu", "its processor time", |s| s.each(s.window.cpu()));
pub(crate) const CPU_PER_TRANSFER: PlayMetric = PlayMetric {
    name: "cpu_per_operation",
    label: "processor time per operation",
    ..CPU
};
pub(crate) const CPU_PER_THOUSAND_FILES: PlayMetric = PlayMetric::seconds(
    "cpu_per_thousand_files",
    "processor time per 1,000 files",
    |s| (s.files > 1).then(|| s.window.cpu() * 1000.0 / s.files as f64),
);
pub(crate) const USER: PlayMetric =
    PlayMetric::seconds("user", "its processor time in user space", |s| {
        s.each(s.window.user())
    });
pub(crate) const SYSTEM: PlayMetric =
    PlayMetric::seconds("system", "its processor time in the kernel", |s| {
        s.each(s.window.cpu() - s.window.user())
    });
pub(crate) const CALLS: PlayMetric =
    PlayMetric::lower("calls", "calls that moved its payload", Unit::Count, |s| {
        let calls: u64 = s.paths.iter().map(|path| path.calls).sum();
        s.each(calls as f64).filter(|_| !s.paths.is_empty())
    });
pub(crate) const ITS_CONTEXT_SWITCHES: PlayMetric = PlayMetric {
    label: "its context switches",
    ..CONTEXT_SWITCHES
};
pub(crate) const ITS_PAGE_FAULTS: PlayMetric = PlayMetric {
    label: "its page faults",
    ..PAGE_FAULTS
};
#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::window::tests::window;

    const ASIDE: u64 = 256 << 10;

    fn observation(latencies_ms: impl IntoIterator<Item = u64>) -> PlaySample {
        let latencies_ms = latencies_ms.into_iter();
        PlaySample {
            residency: FileResidency::Cached { aside_bytes: ASIDE },
            latencies_ns: latencies_ms.map(|ms| ms * 1_000_000).collect(),
            storage_read_bytes: Some(0),
            ..PlaySample::of(window(0.5, 0.25, 0.0, 0.0), 1000, 2 << 30)
        }
    }

    #[test]
    fn figures_follow_from_bytes_requests_and_seconds() {
        let of = |metric: PlayMetric| (metric.read)(&observation(1..=100));
        assert_eq!(of(CPU_PER_GIB), Some(0.25));
        assert_eq!(of(THROUGHPUT), Some((2_u64 << 30) as f64));
        assert_eq!(of(REQUESTS), Some(1000.0));
        assert_eq!(of(REQUESTS_PER_CPU), Some(2000.0));
        assert_eq!(of(CPU_SHARE), Some(0.5));
        assert_eq!(of(P50), Some(0.050));
        assert_eq!(of(P99), Some(0.099));
        assert_eq!(of(WORST), Some(0.100));
        assert_eq!(of(TCP_BUFFERS), None);
    }

    #[test]
    fn memory_of_connections_is_what_came_with_them() {
        let mut held = observation(1..=10);
        held.held = Some(HeldConnections {
            connections: 100,
            before_bytes: 1 << 20,
            bytes: (1 << 20) + 100 * 4096,
            latencies_before_ns: (1..=100).map(|ms| ms * 1_000_000).collect(),
        });
        assert_eq!((RESIDENT_EACH.read)(&held), Some(4096.0));
        assert_eq!((P99_BEFORE.read)(&held), Some(0.099));
        assert_eq!((P99_BEFORE.read)(&observation(1..=10)), None);
    }

    #[test]
    fn a_quantile_needs_a_figure_beyond_it() {
        let few = observation(1..=30);
        assert_eq!(few.latency(0.9), Some(0.027));
        assert_eq!(few.latency(0.99), None);
        assert_eq!(few.latency(0.0), Some(0.001));
        assert_eq!(few.latency(1.0), Some(0.030));
        assert_eq!(observation([]).latency(1.0), None);
    }

    #[test]
    fn a_client_that_was_the_bottleneck_is_named_as_such() {
        let mut bound = observation(1..=10);
        bound.window = window(0.5, 0.99, 0.0, 0.0);
        let notes = notes_of_one("x", "the client", &[&bound, &observation(1..=10)]);
        let note = "the client was the bottleneck with x in 1 of 2 rounds";
        assert_eq!(notes.len(), 1);
        assert!(notes[0].starts_with(note), "{notes:?}");
    }

    #[test]
    fn files_that_are_not_where_they_should_be_are_noted() {
        let mut cold = observation(1..=10);
        cold.storage_read_bytes = Some(2 << 30);
        assert!(notes_of_one("x", "the client", &[&cold])[0].contains("page cache"));
        cold.residency = FileResidency::OnDisk;
        assert!(notes_of_one("x", "the client", &[&cold]).is_empty());
        let mut warm = observation(1..=10);
        warm.bytes = 1 << 20;
        warm.storage_read_bytes = Some(ASIDE);
        assert!(notes_of_one("x", "the client", &[&warm]).is_empty());
        warm.residency = FileResidency::OnDisk;
        assert!(notes_of_one("x", "the client", &[&warm])[0].contains("not cold"));
    }
}
