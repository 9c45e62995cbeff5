//! Metrics as text: the exposition format 0.0.4 of Prometheus.

use std::fmt::{Display, Write};
use std::time::SystemTime;

use crate::process::{self, ProcessFiles};

/// The type of a metric family.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum MetricKind {
    /// It only grows.
    Counter,
    /// It goes up and down.
    Gauge,
    /// Counts per bucket.
    Histogram,
}

impl MetricKind {
    fn name(self) -> &'static str {
        match self {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        }
    }
}

/// The page being written.
#[derive(Debug, Default)]
pub struct MetricsPage {
    text: String,
}

impl MetricsPage {
    /// Starts a family. `help` must contain neither a backslash nor a line end.
    pub fn family(&mut self, name: &str, kind: MetricKind, help: &str) {
        // Writing to memory does not fail.
        let _ = writeln!(
            self.text,
            "# HELP {name} {help}\n# TYPE {name} {}",
            kind.name()
        );
    }

    /// Adds a sample; `labels` are empty or in braces.
    pub fn sample(&mut self, name: &str, labels: &str, value: impl Display) {
        let _ = writeln!(self.text, "{name}{labels} {value}");
    }

    /// Adds a family with one sample.
    pub fn single(&mut self, name: &str, kind: MetricKind, help: &str, value: impl Display) {
        self.family(name, kind, help);
        self.sample(name, "", value);
    }

    /// Escapes the value of a label, for use between its quotes.
    pub fn escaped(value: &str) -> String {
        value
            .replace('\\', "\\\\")
            .replace('"', "\\\"")
            .replace('\n', "\\n")
    }

    /// Adds the metrics of the process, as reported by the kernel.
    pub(crate) fn about_process(&mut self, files: &ProcessFiles, started: SystemTime) {
        self.family(
            "underpass_build_info",
            MetricKind::Gauge,
            "1, with the version.",
        );
        let labels = concat!("{version=\"", env!("CARGO_PKG_VERSION"), "\"}");
        self.sample("underpass_build_info", labels, 1);
        self.single(
            "process_start_time_seconds",
            MetricKind::Gauge,
            "When the server was started, in seconds since 1970.",
            process::unix_seconds(started),
        );
        let known: [(&str, MetricKind, &str, Option<f64>); 4] = [
            (
                "process_cpu_seconds_total",
                MetricKind::Counter,
                "Processor time of all threads.",
                process::processor_time().map(|time| time.as_secs_f64()),
            ),
            (
                "process_resident_memory_bytes",
                MetricKind::Gauge,
                "Resident memory.",
                files.resident_bytes().map(|bytes| bytes as f64),
            ),
            (
                "process_open_fds",
                MetricKind::Gauge,
                "Descriptors that are open.",
                files.open_descriptors().map(|count| count as f64),
            ),
            (
                "process_max_fds",
                MetricKind::Gauge,
                "Descriptors that may be open.",
                process::descriptors_max().map(|count| count as f64),
            ),
        ];
        for (name, kind, help, value) in known {
            if let Some(value) = value {
                self.single(name, kind, help, value);
            }
        }
    }

    pub(crate) fn into_text(self) -> String {
        self.text
    }
}
