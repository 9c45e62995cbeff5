//! What is read off one load on one server.

use std::time::Duration;

use serde::Serialize;

use super::window::Window;

const GIB: f64 = (1_u64 << 30) as f64;
const MIB: f64 = (1_u64 << 20) as f64;

/// One load on one server.
#[derive(Debug, Clone)]
pub(crate) struct Observation {
    pub(crate) window: Window,
    pub(crate) requests: u64,
    pub(crate) body_bytes: u64,
    pub(crate) latency: Latency,
    /// Peak resident memory of the server's processes, in bytes.
    pub(crate) peak_resident_bytes: u64,
    /// Most kernel memory in TCP buffers seen, machine-wide, in bytes.
    pub(crate) tcp_buffer_bytes: u64,
    /// Bytes the server's processes had read from storage, where the kernel tells.
    pub(crate) storage_read_bytes: u64,
}

/// Share of a load from the page cache that may come from storage.
const FROM_STORAGE_MAX: f64 = 0.001;

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Latency {
    pub(crate) p50: Duration,
    pub(crate) p99: Duration,
    pub(crate) max: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Better {
    Lower,
    Higher,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Metric {
    /// The figure of the large case: what a GiB costs the server.
    ServerCpuPerGib,
    /// The same with the client's and the kernel's network threads' time: work that a server
    /// manages to leave to others shows here.
    AllCpuPerGib,
    GibPerSecond,
    RequestsPerSecond,
    /// Requests per second of the server's processor time: what one core would do at most.
    RequestsPerCore,
    LatencyP50,
    LatencyP99,
    LatencyMax,
    PeakResident,
    TcpBuffers,
    StorageRead,
}

impl Observation {
    /// Whether what was to come from the page cache came from storage after all.
    pub(crate) fn lost_page_cache(&self) -> bool {
        self.share_from_storage() > FROM_STORAGE_MAX
    }

    pub(crate) fn share_from_storage(&self) -> f64 {
        self.storage_read_bytes as f64 / self.body_bytes.max(1) as f64
    }
}

impl Metric {
    pub(crate) fn label(self) -> &'static str {
        match self {
            Metric::ServerCpuPerGib => "server CPU s/GiB",
            Metric::AllCpuPerGib => "server+client CPU s/GiB",
            Metric::GibPerSecond => "GiB/s",
            Metric::RequestsPerSecond => "requests/s",
            Metric::RequestsPerCore => "requests/CPU s",
            Metric::LatencyP50 => "p50 µs",
            Metric::LatencyP99 => "p99 µs",
            Metric::LatencyMax => "max µs",
            Metric::PeakResident => "peak resident MiB",
            Metric::TcpBuffers => "kernel TCP buffers MiB",
            Metric::StorageRead => "read from storage MiB",
        }
    }

    pub(crate) fn better(self) -> Better {
        match self {
            Metric::GibPerSecond | Metric::RequestsPerSecond | Metric::RequestsPerCore => {
                Better::Higher
            }
            _ => Better::Lower,
        }
    }

    /// Whether a ratio of this metric means anything, or it only explains the others.
    pub(crate) fn is_compared(self) -> bool {
        !matches!(self, Metric::StorageRead | Metric::TcpBuffers)
    }

    pub(crate) fn of(self, observation: &Observation) -> f64 {
        let o = observation;
        let w = &o.window;
        let all_cpu = w.server_cpu + w.client_busy() + w.network_cpu;
        let microseconds = |latency: Duration| latency.as_secs_f64() * 1e6;
        match self {
            Metric::ServerCpuPerGib => w.server_cpu.as_secs_f64() / (o.body_bytes as f64 / GIB),
            Metric::AllCpuPerGib => all_cpu.as_secs_f64() / (o.body_bytes as f64 / GIB),
            Metric::GibPerSecond => o.body_bytes as f64 / GIB / w.wall.as_secs_f64(),
            Metric::RequestsPerSecond => o.requests as f64 / w.wall.as_secs_f64(),
            Metric::RequestsPerCore => o.requests as f64 / w.server_cpu.as_secs_f64(),
            Metric::LatencyP50 => microseconds(o.latency.p50),
            Metric::LatencyP99 => microseconds(o.latency.p99),
            Metric::LatencyMax => microseconds(o.latency.max),
            Metric::PeakResident => o.peak_resident_bytes as f64 / MIB,
            Metric::TcpBuffers => o.tcp_buffer_bytes as f64 / MIB,
            Metric::StorageRead => o.storage_read_bytes as f64 / MIB,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::window::tests::window;
    use super::*;

    #[test]
    fn figures_follow_from_bytes_requests_and_seconds() {
        let observation = Observation {
            window: window(0.5, 0.25, 0.0, 0.0),
            requests: 1000,
            body_bytes: 2 << 30,
            latency: Latency {
                p50: Duration::from_micros(70),
                ..Latency::default()
            },
            peak_resident_bytes: 3 << 20,
            tcp_buffer_bytes: 0,
            storage_read_bytes: 0,
        };
        assert_eq!(Metric::ServerCpuPerGib.of(&observation), 0.25);
        assert_eq!(Metric::AllCpuPerGib.of(&observation), 0.375);
        assert_eq!(Metric::GibPerSecond.of(&observation), 2.0);
        assert_eq!(Metric::RequestsPerCore.of(&observation), 2000.0);
        assert_eq!(Metric::PeakResident.of(&observation), 3.0);
        assert!((Metric::LatencyP50.of(&observation) - 70.0).abs() < 1e-9);
    }
}
