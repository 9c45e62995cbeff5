//! The metrics of a broker for operators (`underpass_monitor`).

use std::sync::Weak;

use underpass::Mechanism;
use underpass_monitor::{MetricsPage, MetricsSource};
use underpass_net::ShutdownPhase;

use crate::broker::Broker;
use crate::counts::WorkerCounts;
use crate::protocol::apis::APIS;

/// The number of lag samples: a page stays below two MiB, whatever clients commit.
const LAGS_MAX: usize = 10_000;

/// The source of the metrics.
pub(crate) struct BrokerMetrics(pub(crate) Weak<Broker>);

impl MetricsSource for BrokerMetrics {
    fn write(&self, page: &mut MetricsPage, _phase: ShutdownPhase) {
        let Some(broker) = self.0.upgrade() else {
            return;
        };
        let (totals, workers) = broker.counts.totals();
        requests(page, &totals);
        sent(page, &totals);
        connections(page, &totals, workers);
        disk(page, &broker);
        compaction(page, &broker);
        topics(page, &broker);
        lags(page, &broker);
    }
}

fn requests(page: &mut MetricsPage, totals: &WorkerCounts) {
    let name = "underpass_broker_requests_total";
    let apis = APIS.iter().map(|api| api.name).zip(totals.requests());
    page.labelled(name, "Requests, by their kind.", "api", apis);
    page.single(
        "underpass_broker_request_bytes_total",
        "Bytes of requests, records in them included.",
        totals.request_bytes(),
    );
}

fn sent(page: &mut MetricsPage, totals: &WorkerCounts) {
    let bytes = "Bytes of records that the kernel took for sending, by mechanism.";
    let calls = "System calls made to move records to consumers, by mechanism.";
    for (name, help, counts) in [
        ("underpass_body_bytes_total", bytes, totals.record_bytes()),
        ("underpass_body_calls_total", calls, totals.record_calls()),
    ] {
        let mechanisms = Mechanism::ALL.into_iter().zip(counts);
        page.labelled(name, help, "mechanism", mechanisms);
    }
    page.single(
        "underpass_other_bytes_total",
        "Bytes sent that are no records.",
        totals.other_bytes(),
    );
}

fn connections(page: &mut MetricsPage, totals: &WorkerCounts, workers: usize) {
    let (accepted, ended) = totals.connections();
    page.single(
        "underpass_connections_accepted_total",
        "Connections of clients.",
        accepted,
    );
    page.single(
        "underpass_connections_open",
        "Connections of clients that are open.",
        accepted.saturating_sub(ended),
    );
    page.single(
        "underpass_workers",
        "Workers that run, those of earlier configurations included.",
        workers,
    );
}

fn disk(page: &mut MetricsPage, broker: &Broker) {
    let log = &broker.log;
    let syncs = log.syncs();
    page.single(
        "underpass_broker_syncs_total",
        "Times that a partition was synced.",
        syncs.count,
    );
    page.single(
        "underpass_broker_sync_seconds_total",
        "Time that this took.",
        syncs.time.as_secs_f64(),
    );
    page.single(
        "underpass_broker_queued_bytes",
        "Bytes of records that wait to be written.",
        log.queued_bytes(),
    );
    let offsets = log.partitions().into_iter().map(|log| log.offsets());
    let unsynced = offsets.map(|offsets| (offsets.end - offsets.synced).unsigned_abs());
    page.single(
        "underpass_broker_unsynced_records",
        "Records that are written, and would be lost with the machine.",
        unsynced.sum::<u64>(),
    );
    page.single(
        "underpass_broker_offline",
        "1 since a sync has failed: nothing is appended until a restart.",
        u8::from(log.is_offline()),
    );
}

fn compaction(page: &mut MetricsPage, broker: &Broker) {
    let stats = broker.log.cleaner_stats();
    page.single(
        "underpass_broker_compactions_total",
        "Times that a partition was compacted.",
        stats.passes,
    );
    page.single(
        "underpass_broker_compaction_seconds_total",
        "Time that this took.",
        stats.time.as_secs_f64(),
    );
    let bytes = [("before", stats.bytes_before), ("after", stats.bytes_after)];
    let name = "underpass_broker_compacted_bytes_total";
    let help = "Bytes of the segments that were compacted, before and after.";
    page.labelled(name, help, "when", bytes);
    page.single(
        "underpass_broker_compaction_removed_records_total",
        "Records removed by compaction.",
        stats.removed_records,
    );
    page.single(
        "underpass_broker_uncompactable_partitions",
        "Partitions whose compaction has failed, and is tried again later or at the next start.",
        stats.failed_partitions,
    );
}

fn topics(page: &mut MetricsPage, broker: &Broker) {
    let present = broker.topics.present();
    page.single(
        "underpass_broker_partitions",
        "Partitions of all topics.",
        broker.log.partitions().len(),
    );
    let name = "underpass_broker_topic_bytes";
    page.family(name, "Bytes of the segments of a topic.");
    for topic in present.all() {
        let bytes = topic.partitions.iter().map(|log| log.size()).sum::<u64>();
        let labels = format!("{{topic=\"{}\"}}", MetricsPage::escaped(&topic.name));
        page.sample(name, &labels, bytes);
    }
}

/// Writes the lags of groups behind the latest records.
fn lags(page: &mut MetricsPage, broker: &Broker) {
    let topics = broker.topics.present();
    let name = "underpass_broker_group_lag_records";
    let help = "Records that consumers may read behind the committed offset of a group.";
    page.family(name, help);
    let mut unlisted = 0_u64;
    broker.groups.event(|coordinator, _| {
        let mut listed = 0;
        for (group, topic, partition, committed) in coordinator.all_offsets() {
            let log = topics.named(topic).and_then(|of| of.partition(partition));
            let Some(log) = log else { continue };
            if listed == LAGS_MAX {
                unlisted += 1;
                continue;
            }
            listed += 1;
            let (group, topic) = (MetricsPage::escaped(group), MetricsPage::escaped(topic));
            let labels =
                format!("{{group=\"{group}\",topic=\"{topic}\",partition=\"{partition}\"}}");
            let lag = log.offsets().high_watermark - committed.offset;
            page.sample(name, &labels, lag.max(0));
        }
    });
    page.single(
        "underpass_broker_group_lags_unlisted",
        "Committed offsets beyond those whose lag is listed.",
        unlisted,
    );
}
