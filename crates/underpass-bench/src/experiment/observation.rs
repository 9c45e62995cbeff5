//! What one load on one server cost, and the metrics of it.

use std::sync::atomic::AtomicBool;

use crate::contender::server::ServerProcess;
use crate::document::{Latencies, Unit};
use crate::error::Result;
use crate::load::{ConnectionReuse, LoadClient, LoadStream, RequestTarget, TestFile};
use crate::machine::proc::{self, CpuSource};
use crate::machine::window::{UsageWindow, note_of_bottleneck, observe};
use crate::rounds::interleave::{Played, Sample};
use crate::rounds::metric::{GIB, MetricReader};

/// Share of a load from the page cache that may come from storage.
const FROM_STORAGE_MAX: f64 = 0.001;

/// Less than this may be a part of the server's program that it needs for the first time.
const FROM_STORAGE_MIN: u64 = 256 << 10;

/// Share of cold files that has to come from storage.
const COLD_MIN: f64 = 0.5;

/// The quantiles of a distribution of latencies, as far as there are enough latencies for them.
const QUANTILES: [f64; 10] = [0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 1.0];

pub(crate) struct ServerSample {
    pub(crate) window: UsageWindow,
    pub(crate) residency: FileResidency,
    /// Of the stream whose latencies these are.
    pub(crate) requests: u64,
    /// Of all streams.
    pub(crate) body_bytes: u64,
    /// In ascending order.
    pub(crate) latencies_ns: Vec<u64>,
    /// Peak resident memory of the server's processes since they started.
    pub(crate) peak_resident_bytes: u64,
    /// The largest observed kernel memory in TCP buffers, machine-wide.
    pub(crate) tcp_buffer_bytes: Option<u64>,
    /// What the server's processes read from storage; `None` where the kernel doesn't count it.
    pub(crate) storage_read_bytes: Option<u64>,
    /// Where connections were held during the load.
    pub(crate) held: Option<HeldConnections>,
}

/// What a server needs for connections that are held, and how it performs without them.
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

pub(crate) fn targets_of(
    files: &[TestFile],
    server: &ServerProcess,
    reuse: ConnectionReuse,
) -> Vec<RequestTarget> {
    let address = server.address();
    let targets = files.iter().map(|file| file.target(address, reuse));
    targets.collect()
}

/// Runs these streams on a server. Requests and latencies are those of the first stream, bytes the
/// sum of all. Fails once `stop` is set.
pub(crate) fn observe_streams(
    server: &ServerProcess,
    streams: Vec<LoadStream<'_>>,
    residency: FileResidency,
    stop: &AtomicBool,
) -> Result<ServerSample> {
    let client = LoadClient::connect(server.address(), streams)?;
    let stored = proc::storage_read_bytes(server.pid())?;
    let (mut results, window) = observe(server.pid(), || client.run(stop))?;
    let stored_now = proc::storage_read_bytes(server.pid())?;
    let read = stored_now.zip(stored);
    let body_bytes = results.iter().map(|result| result.body_bytes).sum();
    let first = results.swap_remove(0);
    let mut latencies_ns = first.latencies_ns;
    latencies_ns.sort_unstable();
    Ok(ServerSample {
        window,
        residency,
        requests: first.requests,
        body_bytes,
        latencies_ns,
        peak_resident_bytes: proc::peak_resident_bytes(server.pid())?,
        tcp_buffer_bytes: None,
        storage_read_bytes: read.map(|(now, then)| now.saturating_sub(then)),
        held: None,
    })
}

impl Sample for ServerSample {
    fn is_disturbed(&self) -> bool {
        self.lost_page_cache() || self.window.is_disturbed()
    }
}

impl ServerSample {
    /// Whether files that should be in the page cache were read from storage.
    fn lost_page_cache(&self) -> bool {
        let read = self.storage_read_bytes.unwrap_or(0);
        self.residency == FileResidency::Cached
            && read >= FROM_STORAGE_MIN
            && self.share_from_storage() > FROM_STORAGE_MAX
    }

    /// Whether files that should be read from storage were in the page cache.
    fn was_not_cold(&self) -> bool {
        self.residency == FileResidency::OnDisk
            && self.storage_read_bytes.is_some()
            && self.share_from_storage() < COLD_MIN
    }

    /// Of all bytes; 0 where the kernel doesn't count it.
    fn share_from_storage(&self) -> f64 {
        let read = self.storage_read_bytes.unwrap_or(0);
        read as f64 / self.body_bytes.max(1) as f64
    }

    fn each(&self, count: u64) -> f64 {
        count as f64 / self.requests.max(1) as f64
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

/// The distribution of each contender's latencies in all rounds together.
pub(crate) fn latencies(played: &Played<ServerSample>) -> Vec<Latencies> {
    let of = |contender: usize| {
        let rounds = played.of(contender);
        let all = rounds.iter().flat_map(|one| &one.latencies_ns);
        let mut all: Vec<u64> = all.copied().collect();
        all.sort_unstable();
        let quantiles = QUANTILES.iter();
        (!rounds.is_empty()).then(|| Latencies {
            contender,
            count: all.len() as u64,
            quantiles: quantiles
                .filter_map(|&share| Some((share, quantile(&all, share)?)))
                .collect(),
        })
    };
    (0..played.contenders()).filter_map(of).collect()
}

pub(crate) fn notes_of(name: &str, samples: &[&ServerSample]) -> Vec<String> {
    let rounds = samples.len();
    let count = |is: &dyn Fn(&ServerSample) -> bool| samples.iter().filter(|s| is(s)).count();
    let windows: Vec<&UsageWindow> = samples.iter().map(|sample| &sample.window).collect();
    let coarse = count(&|s| s.window.cpu_source == CpuSource::Ticks);
    let lost = count(&|s| s.lost_page_cache());
    let warm = count(&|s| s.was_not_cold());
    let notes = [
        note_of_bottleneck(name, "the client", &windows),
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileResidency {
    Cached,
    OnDisk,
}

pub(crate) type ServerMetric = MetricReader<ServerSample>;

pub(crate) const CPU_PER_GIB: ServerMetric = ServerMetric::lower(
    "cpu_per_gib",
    "processor time per GiB",
    Unit::SecondsPerGib,
    |s| (s.body_bytes > 0).then(|| s.window.cpu() / (s.body_bytes as f64 / GIB)),
);
pub(crate) const REQUESTS_PER_CPU: ServerMetric = ServerMetric::higher(
    "requests_per_cpu",
    "requests per processor second",
    Unit::PerSecond,
    |s| (s.window.cpu() > 0.0).then(|| s.requests as f64 / s.window.cpu()),
);
pub(crate) const THROUGHPUT: ServerMetric =
    ServerMetric::higher("throughput", "throughput", Unit::BytesPerSecond, |s| {
        Some(s.body_bytes as f64 / s.window.seconds())
    });
pub(crate) const REQUESTS: ServerMetric =
    ServerMetric::higher("requests", "requests per second", Unit::PerSecond, |s| {
        Some(s.requests as f64 / s.window.seconds())
    });
pub(crate) const CPU_SHARE: ServerMetric =
    ServerMetric::neutral("cpu_share", "share of a processor", Unit::Share, |s| {
        Some(s.window.share())
    });
pub(crate) const P50: ServerMetric =
    ServerMetric::lower("p50", "response time, median", Unit::Seconds, |s| {
        s.latency(0.5)
    });
pub(crate) const P90: ServerMetric = ServerMetric::lower(
    "p90",
    "response time, 90th percentile",
    Unit::Seconds,
    |s| s.latency(0.9),
);
pub(crate) const P99: ServerMetric = ServerMetric::lower(
    "p99",
    "response time, 99th percentile",
    Unit::Seconds,
    |s| s.latency(0.99),
);
pub(crate) const WORST: ServerMetric =
    ServerMetric::lower("worst", "response time, worst", Unit::Seconds, |s| {
        s.latency(1.0)
    });
pub(crate) const PEAK_RESIDENT: ServerMetric =
    ServerMetric::lower("peak_resident", "peak resident memory", Unit::Bytes, |s| {
        Some(s.peak_resident_bytes as f64)
    });
pub(crate) const RESIDENT_EACH: ServerMetric = ServerMetric::lower(
    "memory_per_connection",
    "resident memory per connection",
    Unit::Bytes,
    |s| s.held.as_ref().map(HeldConnections::bytes_each),
);
pub(crate) const P99_BEFORE: ServerMetric = ServerMetric::lower(
    "p99_alone",
    "response time without them, 99th percentile",
    Unit::Seconds,
    |s| quantile(&s.held.as_ref()?.latencies_before_ns, 0.99),
);
pub(crate) const TCP_BUFFERS: ServerMetric = ServerMetric::neutral(
    "tcp_buffers",
    "kernel memory in TCP buffers",
    Unit::Bytes,
    |s| s.tcp_buffer_bytes.map(|bytes| bytes as f64),
);
pub(crate) const PAGE_FAULTS: ServerMetric =
    ServerMetric::lower("page_faults", "page faults per request", Unit::Count, |s| {
        Some(s.each(s.window.used.page_faults))
    });
pub(crate) const CONTEXT_SWITCHES: ServerMetric = ServerMetric::lower(
    "context_switches",
    "context switches per request",
    Unit::Count,
    |s| Some(s.each(s.window.used.context_switches)),
);
pub(crate) const STORAGE_READ: ServerMetric =
    ServerMetric::neutral("storage_read", "read from storage", Unit::Bytes, |s| {
        s.storage_read_bytes.map(|bytes| bytes as f64)
    });

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::window::tests::window;

    fn observation(latencies_ms: impl IntoIterator<Item = u64>) -> ServerSample {
        let latencies_ms = latencies_ms.into_iter();
        ServerSample {
            window: window(0.5, 0.25, 0.0, 0.0),
            residency: FileResidency::Cached,
            requests: 1000,
            body_bytes: 2 << 30,
            latencies_ns: latencies_ms.map(|ms| ms * 1_000_000).collect(),
            peak_resident_bytes: 3 << 20,
            tcp_buffer_bytes: None,
            storage_read_bytes: Some(0),
            held: None,
        }
    }

    #[test]
    fn figures_follow_from_bytes_requests_and_seconds() {
        let of = |metric: MetricReader<ServerSample>| (metric.read)(&observation(1..=100));
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
    fn latencies_are_those_of_all_rounds_together() {
        let played = Played {
            rounds: vec![
                vec![Some(observation(1..=10))],
                vec![Some(observation(11..=20))],
            ],
            failures: Vec::new(),
            repeated: 0,
            disturbed: 0,
        };
        let reported = &latencies(&played)[0];
        assert_eq!(reported.count, 20);
        let expected = [(0.0, 0.001), (0.1, 0.002), (0.25, 0.005), (0.5, 0.010)];
        assert_eq!(reported.quantiles[..4], expected);
        let shares: Vec<f64> = reported.quantiles.iter().map(|&(share, _)| share).collect();
        assert_eq!(shares, [0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 1.0]);
    }

    #[test]
    fn a_client_that_was_the_bottleneck_is_named_as_such() {
        let mut bound = observation(1..=10);
        bound.window = window(0.5, 0.99, 0.0, 0.0);
        let notes = notes_of("x", &[&bound, &observation(1..=10)]);
        let note = "the client was the bottleneck with x in 1 of 2 rounds";
        assert_eq!(notes.len(), 1);
        assert!(notes[0].starts_with(note), "{notes:?}");
    }

    #[test]
    fn files_that_are_not_where_they_should_be_are_noted() {
        let mut cold = observation(1..=10);
        cold.storage_read_bytes = Some(2 << 30);
        assert!(notes_of("x", &[&cold])[0].contains("page cache"));
        cold.residency = FileResidency::OnDisk;
        assert!(notes_of("x", &[&cold]).is_empty());
        let mut warm = observation(1..=10);
        warm.body_bytes = 1 << 20;
        warm.storage_read_bytes = Some(FROM_STORAGE_MIN - 1);
        assert!(notes_of("x", &[&warm]).is_empty());
        warm.residency = FileResidency::OnDisk;
        assert!(notes_of("x", &[&warm])[0].contains("not cold"));
    }
}
