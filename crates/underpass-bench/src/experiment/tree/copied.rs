//! What a copy came to.

use crate::document::{Better, Unit};
use crate::machine::window::UsageWindow;
use crate::rounds::run::MetricReader;

const GIB: f64 = (1_u64 << 30) as f64;

/// A copy by one contender.
#[derive(Clone, Debug)]
pub(super) struct CopySample {
    pub(super) window: UsageWindow,
    pub(super) files: u64,
    /// What had to be moved; none where that is not the point.
    pub(super) bytes: Option<u64>,
    pub(super) peak_resident_bytes: Option<u64>,
}

impl CopySample {
    fn cpu(&self) -> f64 {
        self.window.used.cpu.as_secs_f64()
    }

    fn user(&self) -> f64 {
        self.window.used.user.as_secs_f64()
    }
}

pub(super) const METRICS: [MetricReader<CopySample>; 9] = [
    MetricReader {
        name: "wall",
        label: "time of a copy",
        unit: Unit::Seconds,
        better: Some(Better::Lower),
        of: |copied| Some(copied.window.wall.as_secs_f64()),
    },
    MetricReader {
        name: "cpu",
        label: "its processor time",
        unit: Unit::Seconds,
        better: Some(Better::Lower),
        of: |copied| Some(copied.cpu()),
    },
    MetricReader {
        name: "cpu_per_thousand_files",
        label: "processor time per 1,000 files",
        unit: Unit::Seconds,
        better: Some(Better::Lower),
        of: |copied| (copied.files > 1).then(|| copied.cpu() * 1000.0 / copied.files as f64),
    },
    MetricReader {
        name: "cpu_per_gib",
        label: "processor time per GiB",
        unit: Unit::SecondsPerGib,
        better: Some(Better::Lower),
        of: |copied| Some(copied.cpu() / (copied.bytes? as f64 / GIB)),
    },
    MetricReader {
        name: "peak_resident",
        label: "peak resident memory",
        unit: Unit::Bytes,
        better: Some(Better::Lower),
        of: |copied| Some(copied.peak_resident_bytes? as f64),
    },
    MetricReader {
        name: "user",
        label: "its processor time in user space",
        unit: Unit::Seconds,
        better: Some(Better::Lower),
        of: |copied| Some(copied.user()),
    },
    MetricReader {
        name: "system",
        label: "its processor time in the kernel",
        unit: Unit::Seconds,
        better: Some(Better::Lower),
        of: |copied| Some(copied.cpu() - copied.user()),
    },
    MetricReader {
        name: "context_switches",
        label: "its context switches",
        unit: Unit::Count,
        better: Some(Better::Lower),
        of: |copied| Some(copied.window.used.context_switches as f64),
    },
    MetricReader {
        name: "page_faults",
        label: "its page faults",
        unit: Unit::Count,
        better: Some(Better::Lower),
        of: |copied| Some(copied.window.used.page_faults as f64),
    },
];
