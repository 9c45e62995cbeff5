//! All metrics as text, in Prometheus' exposition format 0.0.4.
//!
//! Names start with `underpass_`, except for those of the process, which all Prometheus client
//! libraries share. Samples of events that never happened (a status, a refusal) are omitted; all
//! others are present from the first scrape, at 0.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use underpass::Mechanism;
use underpass_monitor::{MetricsPage, MetricsSource};
use underpass_net::{
    AlertDirection, CertificateFacts, HandshakeError, HandshakeKind, OffloadOutcome, Rejected,
    SealedBy, ShutdownPhase,
};

use crate::access::verifier::LoginOutcome;
use crate::https::{HttpsState, ReloadCounts};
use crate::log::AccessLog;
use crate::metrics::registry::MetricsRegistry;
use crate::metrics::worker_metrics::{
    DURATION_CLASSES, METHODS, STATUSES, SiteMetrics, SlowClient, WorkerMetrics,
};
use crate::record::end::{ExchangeEnd, cause_name};

/// The sources of the server's metrics.
pub(crate) struct ServerCounts {
    pub(crate) registry: Arc<MetricsRegistry>,
    pub(crate) https: Arc<HttpsState>,
}

impl MetricsSource for ServerCounts {
    fn write(&self, page: &mut MetricsPage, phase: ShutdownPhase) {
        let (totals, workers) = self.registry.totals();
        requests(page, &totals);
        sites(page, &totals);
        durations(page, &totals);
        bytes(page, &totals);
        refusals(page, &totals);
        disk(page, &totals);
        connections(page, &totals);
        tls(page, &totals, &self.https);
        logins(page, &totals);
        expiry(page, &self.https.certificates());
        offloading(page, &self.https.offloads());
        running(page, phase, workers);
        files(page, &totals);
        if let Some(log) = &self.registry.log {
            lines(page, log);
        }
    }
}

fn requests(page: &mut MetricsPage, totals: &WorkerMetrics) {
    let name = "underpass_requests_total";
    let methods = METHODS.into_iter().zip(&totals.methods);
    page.labelled(name, "Requests answered, by method.", "method", methods);
    let name = "underpass_responses_total";
    page.family(name, "Answers, by status.");
    for (number, status) in STATUSES.enumerate() {
        let value = totals.statuses.by_number(number).value();
        if value > 0 {
            let class = status / 100;
            let labels = format!("{{code=\"{status}\",class=\"{class}xx\"}}");
            page.sample(name, &labels, value);
        }
    }
    let name = "underpass_responses_ended_total";
    let ends = ExchangeEnd::NAMES.into_iter().zip(&totals.ends);
    page.labelled(name, "Answers, by how they ended.", "end", ends);
}

fn sites(page: &mut MetricsPage, totals: &WorkerMetrics) {
    let labels = |site: &SiteMetrics| format!("site=\"{}\"", MetricsPage::escaped(&site.label));
    let name = "underpass_site_responses_total";
    let help = "Answers to valid requests, by site and class of status.";
    page.family(name, help);
    for site in &totals.sites {
        for (class, count) in SiteMetrics::CLASSES.into_iter().zip(&site.classes) {
            let labels = format!("{{{},class=\"{class}\"}}", labels(site));
            page.sample(name, &labels, count.value());
        }
    }
    let name = "underpass_site_sent_bytes_total";
    let help = "Bytes sent for valid requests, heads included, by site.";
    page.family(name, help);
    for site in &totals.sites {
        page.sample(
            name,
            &format!("{{{}}}", labels(site)),
            site.sent_bytes.value(),
        );
    }
}

fn durations(page: &mut MetricsPage, totals: &WorkerMetrics) {
    let name = "underpass_request_duration_seconds";
    let help = "From the first byte of a request until its answer was handed to the kernel.";
    page.histogram(name, help);
    let bucket = format!("{name}_bucket");
    let mut count = 0;
    for (number, upper) in DURATION_CLASSES.iter().enumerate() {
        count += totals.durations.counts[number].value();
        let labels = format!("{{le=\"{}\"}}", upper.as_secs_f64());
        page.sample(&bucket, &labels, count);
    }
    count += totals.durations.counts[DURATION_CLASSES.len()].value();
    page.sample(&bucket, "{le=\"+Inf\"}", count);
    let nanoseconds = totals.durations.nanoseconds.value();
    page.sample(&format!("{name}_sum"), "", seconds(nanoseconds));
    page.sample(&format!("{name}_count"), "", count);
}

fn bytes(page: &mut MetricsPage, totals: &WorkerMetrics) {
    let bytes = "Bytes of files that the kernel took for sending, by mechanism.";
    let calls = "System calls made to move bytes of files, by mechanism.";
    for (name, help, counts) in [
        ("underpass_body_bytes_total", bytes, &totals.bytes),
        ("underpass_body_calls_total", calls, &totals.calls),
        (
            "underpass_received_bytes_total",
            "Bytes of uploads that were written to files, by mechanism.",
            &totals.received_bytes,
        ),
        (
            "underpass_received_calls_total",
            "System calls made to move bytes of uploads, by mechanism.",
            &totals.received_calls,
        ),
    ] {
        let mechanisms = Mechanism::ALL.into_iter().zip(counts);
        page.labelled(name, help, "mechanism", mechanisms);
    }
    page.single(
        "underpass_other_bytes_total",
        "Bytes sent that are not of files as they lie there: heads, and what is made.",
        totals.other_bytes.value(),
    );
}

fn refusals(page: &mut MetricsPage, totals: &WorkerMetrics) {
    let name = "underpass_refusals_total";
    let help = "Answers in which the kernel refused a mechanism, by mechanism and cause.";
    page.family(name, help);
    for refused in totals.refusals.lock().iter().flat_map(|list| list.iter()) {
        let refusal = refused.refusal;
        let (mechanism, cause) = (refusal.mechanism, cause_name(refusal.cause));
        let labels = format!("{{mechanism=\"{mechanism}\",cause=\"{cause}\"}}");
        page.sample(name, &labels, refused.answers);
    }
    page.single(
        "underpass_refusals_unlisted_total",
        "Refusals beyond the kinds that are listed.",
        totals.refusals_unlisted.value(),
    );
}

fn disk(page: &mut MetricsPage, totals: &WorkerMetrics) {
    page.single(
        "underpass_cold_reads_total",
        "Ranges of files that were not in the page cache and had to be waited for.",
        totals.cold_reads.value(),
    );
    page.single(
        "underpass_cold_read_seconds_total",
        "Time answers waited for such ranges, with the wait for a thread that reads.",
        seconds(totals.cold_nanoseconds.value()),
    );
}

fn logins(page: &mut MetricsPage, totals: &WorkerMetrics) {
    let name = "underpass_logins_total";
    let help = "Passwords that were not remembered, by what became of them.";
    let outcomes = LoginOutcome::NAMES.into_iter().zip(&totals.logins);
    page.labelled(name, help, "outcome", outcomes);
}

fn tls(page: &mut MetricsPage, totals: &WorkerMetrics, https: &HttpsState) {
    let name = "underpass_tls_handshakes_total";
    let help = "TLS handshakes, by how they ended.";
    let complete = HandshakeKind::ALL.map(HandshakeKind::name);
    let complete = complete.into_iter().zip(&totals.handshakes);
    let failed = HandshakeError::NAMES.into_iter();
    let failed = failed.zip(&totals.handshakes_failed);
    page.labelled(name, help, "outcome", complete.chain(failed));
    let connections = "Encrypted connections, by who has encrypted something on them.";
    let bytes = "Bytes sent on encrypted connections, before encryption, by who encrypts them.";
    // Every connection starts with encryption in user space.
    let all = totals.handshakes.iter().map(|count| count.value()).sum();
    let taken = https.offloads().into_iter();
    let taken = taken.filter(|(outcome, _)| *outcome == OffloadOutcome::Kernel);
    let taken = taken.map(|(_, count)| count).sum();
    let sealed_bytes = totals.sealed_bytes.each_ref().map(|count| count.value());
    for (name, help, counts) in [
        ("underpass_tls_connections_total", connections, [all, taken]),
        ("underpass_tls_sent_bytes_total", bytes, sealed_bytes),
    ] {
        let sealers = SealedBy::ALL.map(SealedBy::name).into_iter().zip(counts);
        page.labelled(name, help, "sealer", sealers);
    }
    let name = "underpass_tls_alerts_total";
    page.family(name, "TLS alerts, by direction and description.");
    for direction in AlertDirection::ALL {
        let of = https
            .shared
            .alerts
            .of(direction)
            .filter(|(_, count)| *count > 0);
        for (description, count) in of {
            let direction = direction.name();
            let labels = format!("{{direction=\"{direction}\",description=\"{description}\"}}");
            page.sample(name, &labels, count);
        }
    }
    let name = "underpass_tls_unannounced_ends_total";
    let help = "Connections that clients have ended without close_notify.";
    let unannounced_ends = &https.shared.unannounced_ends;
    page.single(name, help, unannounced_ends.load(Ordering::Relaxed));
    let name = "underpass_tls_reloads_total";
    let help = "Times that the files of certificates were read again, by what came of it.";
    let reloads = ReloadCounts::NAMES.into_iter().zip(https.reloads.values());
    page.labelled(name, help, "outcome", reloads);
}

/// Writes the expiry times of certificates. File names are escaped.
fn expiry(page: &mut MetricsPage, certificates: &[CertificateFacts]) {
    let name = "underpass_tls_certificate_expiry_timestamp_seconds";
    if certificates.is_empty() {
        return;
    }
    page.family(name, "When a certificate expires, by its file.");
    for certificate in certificates {
        let expiry = certificate.not_after.duration_since(SystemTime::UNIX_EPOCH);
        let file = MetricsPage::escaped(&certificate.files.cert.display().to_string());
        let labels = format!("{{file=\"{file}\"}}");
        page.sample(name, &labels, expiry.unwrap_or_default().as_secs());
    }
}

/// Writes the outcomes of kernel TLS, if it is enabled.
fn offloading(page: &mut MetricsPage, offloads: &[(OffloadOutcome, u64)]) {
    let name = "underpass_tls_offloads_total";
    if offloads.is_empty() {
        return;
    }
    let help = "Connections that kernel TLS could have taken over, by what became of that.";
    let outcomes = offloads.iter();
    let outcomes = outcomes.map(|(outcome, count)| (outcome.name(), count));
    page.labelled(name, help, "outcome", outcomes);
}

fn connections(page: &mut MetricsPage, totals: &WorkerMetrics) {
    let accepted = totals.connections_accepted.value();
    let ended = totals.connections_ended.value();
    page.single(
        "underpass_connections_accepted_total",
        "Connections taken.",
        accepted,
    );
    page.single(
        "underpass_connections_open",
        "Connections open.",
        accepted.saturating_sub(ended),
    );
    let name = "underpass_connections_turned_away_total";
    let help = "Connections closed before a request was read, by reason.";
    let reasons = Rejected::NAMES.into_iter().zip(&totals.rejected);
    page.labelled(name, help, "reason", reasons);
    let name = "underpass_connections_timed_out_total";
    let help = "Connections ended since the client was too slow, by the option that says so.";
    let while_sending = [
        ("stall-timeout", &totals.ends[ExchangeEnd::Stalled as usize]),
        ("rate-min", &totals.ends[ExchangeEnd::TooSlow as usize]),
    ];
    let slow_clients = SlowClient::LIMITS.into_iter().zip(&totals.slow_clients);
    page.labelled(name, help, "limit", slow_clients.chain(while_sending));
    page.single(
        "underpass_connections_max_reached_total",
        "Times that a worker had as many connections as it may have, and others waited.",
        totals.full.value(),
    );
    page.single(
        "underpass_connections_evicted_total",
        "Connections closed while they waited for a request, to make room for others.",
        totals.evicted.value(),
    );
}

fn running(page: &mut MetricsPage, phase: ShutdownPhase, workers: usize) {
    let name = "underpass_phase";
    let phases = [
        (ShutdownPhase::Running, "running"),
        (ShutdownPhase::Draining, "draining"),
        (ShutdownPhase::Now, "now"),
    ];
    let phases = phases.map(|(each, word)| (word, u8::from(each == phase)));
    page.labelled(name, "1 for the phase the server is in.", "phase", phases);
    page.single(
        "underpass_workers",
        "Workers that run, those of earlier configurations included.",
        workers,
    );
}

fn files(page: &mut MetricsPage, totals: &WorkerMetrics) {
    page.single(
        "underpass_open_files",
        "Files kept open for the next request.",
        totals.files.kept.value(),
    );
    let name = "underpass_open_file_lookups_total";
    let help = "Names looked up, by whether the file was kept open.";
    let (hits, misses) = (&totals.files.hits, &totals.files.misses);
    page.labelled(name, help, "result", [("hit", hits), ("miss", misses)]);
    page.single(
        "underpass_open_files_closed_total",
        "Files not kept any longer: too old, deleted, replaced, or given up.",
        totals.files.closed.value(),
    );
}

fn lines(page: &mut MetricsPage, log: &AccessLog) {
    let counters = &log.buffers.counters;
    let name = "underpass_log_lines_total";
    let help = "Lines of the access log, by what became of them.";
    let outcomes = [
        ("written", &counters.written_lines),
        ("dropped", &counters.dropped_lines),
        ("failed", &counters.failed_lines),
    ];
    let outcomes = outcomes.map(|(outcome, lines)| (outcome, lines.load(Ordering::Relaxed)));
    page.labelled(name, help, "outcome", outcomes);
    page.single(
        "underpass_log_written_bytes_total",
        "Bytes of the access log that were written.",
        counters.written_bytes.load(Ordering::Relaxed),
    );
    page.single(
        "underpass_log_queued_bytes",
        "Bytes of the access log that wait to be written.",
        log.buffers.queued(),
    );
}

fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}
