//! Metrics as text: the exposition format 0.0.4 of Prometheus.

use std::fmt::{Display, Write};
use std::time::SystemTime;

use crate::process::{self, ProcessFiles};

/// The page being written.
#[derive(Debug, Default)]
pub struct MetricsPage {
    text: String,
}

impl MetricsPage {
    /// Starts a family of counters if its name ends with `_total`, and of gauges otherwise. `help`
    /// must contain neither a backslash nor a line end.
    pub fn family(&mut self, name: &str, help: &str) {
        let kind = match name.ends_with("_total") {
            true => "counter",
            false => "gauge",
        };
        self.begin(name, kind, help);
    }

    /// Starts a family of buckets, their sum and their count.
    pub fn histogram(&mut self, name: &str, help: &str) {
        self.begin(name, "histogram", help);
    }

    fn begin(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to memory does not fail.
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// Adds a sample; `labels` are empty or in braces.
    pub fn sample(&mut self, name: &str, labels: &str, value: impl Display) {
        let _ = writeln!(self.text, "{name}{labels} {value}");
    }

    /// Adds a family with one sample.
    pub fn single(&mut self, name: &str, help: &str, value: impl Display) {
        self.family(name, help);
        self.sample(name, "", value);
    }

    /// Adds a family with one sample per value of a label. No value may need
    /// [`escaped`](MetricsPage::escaped).
    pub fn labelled<L: Display, V: Display>(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        samples: impl IntoIterator<Item = (L, V)>,
    ) {
        self.family(name, help);
        for (word, value) in samples {
            self.sample(name, &format!("{{{label}=\"{word}\"}}"), value);
        }
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
        let version = env!("CARGO_PKG_VERSION");
        let help = "1, with the version.";
        self.labelled("underpass_build_info", help, "version", [(version, 1)]);
        self.single(
            "process_start_time_seconds",
            "When the server was started, in seconds since 1970.",
            process::unix_seconds(started),
        );
        let known: [(&str, &str, Option<f64>); 4] = [
            (
                "process_cpu_seconds_total",
                "Processor time of all threads.",
                process::processor_time().map(|time| time.as_secs_f64()),
            ),
            (
                "process_resident_memory_bytes",
                "Resident memory.",
                files.resident_bytes().map(|bytes| bytes as f64),
            ),
            (
                "process_open_fds",
                "Descriptors that are open.",
                files.open_descriptors().map(|count| count as f64),
            ),
            (
                "process_max_fds",
                "Descriptors that may be open.",
                process::descriptors_max().map(|count| count as f64),
            ),
        ];
        for (name, help, value) in known {
            if let Some(value) = value {
                self.single(name, help, value);
            }
        }
    }

    pub(crate) fn into_text(self) -> String {
        self.text
    }
}
