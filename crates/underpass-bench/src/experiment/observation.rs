//! What one load on one server came to, and what is read off it.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::contender::server::ServerProcess;
use crate::document::{Better, Latencies, Unit};
use crate::error::Result;
use crate::load::{ConnectionReuse, LoadClient, LoadStream, RequestTarget, TestFile, WaitMode};
use crate::machine::proc::{self, CpuSource};
use crate::machine::window::{UsageWindow, observe};
use crate::rounds::interleave::Played;
use crate::rounds::run::MetricReader;
use crate::stats::Spread;

const GIB: f64 = (1_u64 << 30) as f64;

/// Share of a load from the page cache that may come from storage.
const FROM_STORAGE_MAX: f64 = 0.001;

/// Less than this may be a part of the server's program that it needs for the first time.
const FROM_STORAGE_MIN: u64 = 256 << 10;

/// Share of cold files that has to come from storage.
const COLD_MIN: f64 = 0.5;

/// Where latencies are told, if there were enough of them.
const QUANTILES: [f64; 10] = [0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 1.0];

/// One load on one server.
pub(crate) struct ServerSample {
    pub(crate) window: UsageWindow,
    /// Of the lane whose latencies these are.
    pub(crate) requests: u64,
    /// Of all lanes.
    pub(crate) body_bytes: u64,
    /// In ascending order.
    pub(crate) latencies_ns: Vec<u64>,
    /// Peak resident memory of the server's processes, since they began.
    pub(crate) peak_resident_bytes: u64,
    /// Most kernel memory in TCP buffers seen, machine-wide.
    pub(crate) tcp_buffer_bytes: Option<u64>,
    /// What the server's processes had read from storage, where the kernel tells.
    pub(crate) storage_read_bytes: Option<u64>,
    /// Where connections were held meanwhile.
    pub(crate) held: Option<HeldConnections>,
}

/// What a server keeps for connections that are held, and how it is without them.
pub(crate) struct HeldConnections {
    pub(crate) connections: u64,
    /// Resident memory of its processes before the first of them, and with all.
    pub(crate) before_bytes: u64,
    pub(crate) bytes: u64,
    /// Of requests before there was any of them, in ascending order.
    pub(crate) latencies_before_ns: Vec<u64>,
}

impl HeldConnections {
    /// Resident memory for each, in bytes.
    pub(crate) fn bytes_each(&self) -> f64 {
        self.bytes.saturating_sub(self.before_bytes) as f64 / self.connections.max(1) as f64
    }
}

/// Requests for these files.
pub(crate) fn targets_of(
    specimens: &[TestFile],
    server: &ServerProcess,
    connection: ConnectionReuse,
) -> Vec<RequestTarget> {
    let address = server.address();
    let targets = specimens.iter().map(|s| s.target(address, connection));
    targets.collect()
}

/// Runs these lanes on a server. Requests and latencies are those of the first one, bytes those of
/// all. Broken off with an error once `stop` is set.
pub(crate) fn observe_lanes(
    server: &ServerProcess,
    lanes: Vec<LoadStream<'_>>,
    waiting: WaitMode,
    stop: &AtomicBool,
) -> Result<ServerSample> {
    let mut client = LoadClient::connect(server.address(), lanes, waiting)?;
    let stored = proc::storage_read_bytes(server.pid())?;
    let (mut outcome, mut window) = observe(server.pid(), || client.run(stop))?;
    window.bench_idle = match waiting {
        WaitMode::Spin => outcome.idle,
        WaitMode::Sleep => Duration::ZERO,
    };
    let stored_now = proc::storage_read_bytes(server.pid())?;
    let read = stored_now
        .zip(stored)
        .map(|(now, then)| now.saturating_sub(then));
    let body_bytes = outcome.tallies.iter().map(|tally| tally.body_bytes).sum();
    let first = std::mem::take(&mut outcome.tallies[0]);
    let mut latencies_ns = first.latencies_ns;
    latencies_ns.sort_unstable();
    Ok(ServerSample {
        window,
        requests: first.requests,
        body_bytes,
        latencies_ns,
        peak_resident_bytes: proc::peak_resident_bytes(server.pid())?,
        tcp_buffer_bytes: None,
        storage_read_bytes: read,
        held: None,
    })
}

impl ServerSample {
    /// Whether what was to come from the page cache came from storage after all.
    pub(crate) fn lost_page_cache(&self) -> bool {
        let read = self.storage_read_bytes.unwrap_or(0);
        read >= FROM_STORAGE_MIN && self.share_from_storage() > FROM_STORAGE_MAX
    }

    /// Whether what was to come from storage came from the page cache.
    pub(crate) fn was_not_cold(&self) -> bool {
        self.storage_read_bytes.is_some() && self.share_from_storage() < COLD_MIN
    }

    /// Of all bytes; 0 where the kernel does not tell.
    fn share_from_storage(&self) -> f64 {
        let read = self.storage_read_bytes.unwrap_or(0);
        read as f64 / self.body_bytes.max(1) as f64
    }

    fn wall(&self) -> f64 {
        self.window.wall.as_secs_f64()
    }

    fn cpu(&self) -> f64 {
        self.window.used.cpu.as_secs_f64()
    }

    fn each(&self, count: u64) -> f64 {
        count as f64 / self.requests.max(1) as f64
    }

    /// In seconds; none where so few latencies have no such quantile.
    fn latency(&self, share: f64) -> Option<f64> {
        quantile(&self.latencies_ns, share)
    }
}

/// Of figures in ascending order, in nanoseconds; the quantile in seconds. Each end of it has to
/// have a figure of its own.
fn quantile(sorted_ns: &[u64], share: f64) -> Option<f64> {
    let is_extreme = share == 0.0 || share == 1.0;
    let is_known = is_extreme || sorted_ns.len() as f64 * share.min(1.0 - share) >= 0.999;
    let rank = (share * sorted_ns.len() as f64).ceil() as usize;
    let nanoseconds = sorted_ns.get(rank.max(1) - 1).filter(|_| is_known)?;
    Some(*nanoseconds as f64 / 1e9)
}

/// All rounds of each contender together.
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

/// What to know about one server's figures. `pages` says whether they were to be in memory.
pub(crate) fn notes_of(
    name: &str,
    observations: &[&ServerSample],
    pages: FileResidency,
) -> Vec<String> {
    let rounds = observations.len();
    let count = |is: &dyn Fn(&ServerSample) -> bool| observations.iter().filter(|o| is(o)).count();
    let percent = |share: &dyn Fn(&ServerSample) -> f64| {
        let shares: Vec<f64> = observations.iter().map(|o| share(o)).collect();
        Spread::of(&shares).map_or(0.0, |spread| spread.median * 100.0)
    };
    let mut notes = Vec::new();
    let bound = count(&|o| o.window.is_bench_bound());
    if bound > 0 {
        notes.push(format!(
            "with {name} the client was the bottleneck in {bound} of {rounds} rounds (client \
             {:.0} %, server {:.0} % of a processor): only processor time tells, not throughput",
            percent(&|o| o.window.bench_share()),
            percent(&|o| o.window.share())
        ));
    }
    let coarse = count(&|o| o.window.cpu_source == CpuSource::Ticks);
    if coarse > 0 {
        notes.push(format!(
            "{name}'s processor time is in ticks of 10 ms in {coarse} of {rounds} rounds, since \
             threads came or went"
        ));
    }
    notes.extend(match pages {
        FileResidency::Cached => note_of(count(&|o| o.lost_page_cache()), &|lost| {
            format!(
                "{name} had to read from storage in {lost} of {rounds} rounds: the page cache had \
                 lost some of the files"
            )
        }),
        FileResidency::OnDisk => note_of(count(&|o| o.was_not_cold()), &|warm| {
            format!(
                "{name} had to read less than half of the bytes from storage in {warm} of \
                 {rounds} rounds: the files were not cold"
            )
        }),
    });
    notes
}

fn note_of(count: usize, note: &dyn Fn(usize) -> String) -> Option<String> {
    (count > 0).then(|| note(count))
}

/// Where the files were to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileResidency {
    Cached,
    OnDisk,
}

pub(crate) const CPU_PER_GIB: MetricReader<ServerSample> = MetricReader {
    name: "cpu_per_gib",
    label: "processor time per GiB",
    unit: Unit::SecondsPerGib,
    better: Some(Better::Lower),
    of: |o| (o.body_bytes > 0).then(|| o.cpu() / (o.body_bytes as f64 / GIB)),
};
pub(crate) const REQUESTS_PER_CPU: MetricReader<ServerSample> = MetricReader {
    name: "requests_per_cpu",
    label: "requests per processor second",
    unit: Unit::PerSecond,
    better: Some(Better::Higher),
    of: |o| (o.cpu() > 0.0).then(|| o.requests as f64 / o.cpu()),
};
pub(crate) const THROUGHPUT: MetricReader<ServerSample> = MetricReader {
    name: "throughput",
    label: "throughput",
    unit: Unit::BytesPerSecond,
    better: Some(Better::Higher),
    of: |o| Some(o.body_bytes as f64 / o.wall()),
};
pub(crate) const REQUESTS: MetricReader<ServerSample> = MetricReader {
    name: "requests",
    label: "requests per second",
    unit: Unit::PerSecond,
    better: Some(Better::Higher),
    of: |o| Some(o.requests as f64 / o.wall()),
};
pub(crate) const CPU_SHARE: MetricReader<ServerSample> = MetricReader {
    name: "cpu_share",
    label: "share of a processor",
    unit: Unit::Share,
    better: None,
    of: |o| Some(o.window.share()),
};
pub(crate) const P50: MetricReader<ServerSample> = MetricReader {
    name: "p50",
    label: "time of an answer, median",
    unit: Unit::Seconds,
    better: Some(Better::Lower),
    of: |o| o.latency(0.5),
};
pub(crate) const P90: MetricReader<ServerSample> = MetricReader {
    name: "p90",
    label: "time of an answer, 90th percentile",
    unit: Unit::Seconds,
    better: Some(Better::Lower),
    of: |o| o.latency(0.9),
};
pub(crate) const P99: MetricReader<ServerSample> = MetricReader {
    name: "p99",
    label: "time of an answer, 99th percentile",
    unit: Unit::Seconds,
    better: Some(Better::Lower),
    of: |o| o.latency(0.99),
};
pub(crate) const WORST: MetricReader<ServerSample> = MetricReader {
    name: "worst",
    label: "time of an answer, worst",
    unit: Unit::Seconds,
    better: Some(Better::Lower),
    of: |o| o.latency(1.0),
};
pub(crate) const PEAK_RESIDENT: MetricReader<ServerSample> = MetricReader {
    name: "peak_resident",
    label: "peak resident memory",
    unit: Unit::Bytes,
    better: Some(Better::Lower),
    of: |o| Some(o.peak_resident_bytes as f64),
};
pub(crate) const RESIDENT_EACH: MetricReader<ServerSample> = MetricReader {
    name: "memory_per_connection",
    label: "resident memory per connection",
    unit: Unit::Bytes,
    better: Some(Better::Lower),
    of: |o| o.held.as_ref().map(HeldConnections::bytes_each),
};
pub(crate) const P99_BEFORE: MetricReader<ServerSample> = MetricReader {
    name: "p99_alone",
    label: "time of an answer without them, 99th percentile",
    unit: Unit::Seconds,
    better: Some(Better::Lower),
    of: |o| quantile(&o.held.as_ref()?.latencies_before_ns, 0.99),
};
pub(crate) const TCP_BUFFERS: MetricReader<ServerSample> = MetricReader {
    name: "tcp_buffers",
    label: "kernel memory in TCP buffers",
    unit: Unit::Bytes,
    better: None,
    of: |o| o.tcp_buffer_bytes.map(|bytes| bytes as f64),
};
pub(crate) const PAGE_FAULTS: MetricReader<ServerSample> = MetricReader {
    name: "page_faults",
    label: "page faults per request",
    unit: Unit::Count,
    better: Some(Better::Lower),
    of: |o| Some(o.each(o.window.used.page_faults)),
};
pub(crate) const CONTEXT_SWITCHES: MetricReader<ServerSample> = MetricReader {
    name: "context_switches",
    label: "context switches per request",
    unit: Unit::Count,
    better: Some(Better::Lower),
    of: |o| Some(o.each(o.window.used.context_switches)),
};
pub(crate) const STORAGE_READ: MetricReader<ServerSample> = MetricReader {
    name: "storage_read",
    label: "read from storage",
    unit: Unit::Bytes,
    better: None,
    of: |o| o.storage_read_bytes.map(|bytes| bytes as f64),
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::window::tests::window;

    fn observation(latencies_ms: impl IntoIterator<Item = u64>) -> ServerSample {
        let latencies_ms = latencies_ms.into_iter();
        ServerSample {
            window: window(0.5, 0.25, 0.0, 0.0),
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
        let of = |metric: MetricReader<ServerSample>| (metric.of)(&observation(1..=100));
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
        assert_eq!((RESIDENT_EACH.of)(&held), Some(4096.0));
        assert_eq!((P99_BEFORE.of)(&held), Some(0.099));
        assert_eq!((P99_BEFORE.of)(&observation(1..=10)), None);
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
        let told = &latencies(&played)[0];
        assert_eq!(told.count, 20);
        let expected = [(0.0, 0.001), (0.1, 0.002), (0.25, 0.005), (0.5, 0.010)];
        assert_eq!(told.quantiles[..4], expected);
        let shares: Vec<f64> = told.quantiles.iter().map(|&(share, _)| share).collect();
        assert_eq!(shares, [0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 1.0]);
    }

    #[test]
    fn a_client_that_was_the_bottleneck_is_named_as_such() {
        let mut bound = observation(1..=10);
        bound.window = window(0.5, 0.99, 0.0, 0.0);
        let notes = notes_of("x", &[&bound, &observation(1..=10)], FileResidency::Cached);
        let note = "with x the client was the bottleneck in 1 of 2 rounds";
        assert_eq!(notes.len(), 1);
        assert!(notes[0].starts_with(note), "{notes:?}");
    }

    #[test]
    fn files_that_were_to_be_in_memory_and_were_not_are_told_of() {
        let mut cold = observation(1..=10);
        cold.storage_read_bytes = Some(2 << 30);
        let notes = |pages| notes_of("x", &[&cold], pages);
        assert!(notes(FileResidency::Cached)[0].contains("page cache"));
        assert!(notes(FileResidency::OnDisk).is_empty());
        let mut warm = observation(1..=10);
        warm.body_bytes = 1 << 20;
        warm.storage_read_bytes = Some(FROM_STORAGE_MIN - 1);
        assert!(notes_of("x", &[&warm], FileResidency::Cached).is_empty());
        assert!(notes_of("x", &[&warm], FileResidency::OnDisk)[0].contains("not cold"));
    }
}
