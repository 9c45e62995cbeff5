//! New records while a consumer reads old ones that are not in memory.

use std::time::Duration;

use super::brokers::wait_until_led;
use super::options::{LogBenchOptions, experiment};
use crate::document::{Case, Experiment};
use crate::error::Result;
use crate::experiment::ExperimentContext;
use crate::experiment::sample::{self as read, FileResidency, PlayMetric};
use crate::experiment::serving::ServerVariant;
use crate::experiment::sizes::size_label;
use crate::load::kafka::{BrokerRole, BrokerStream, PreparedTopic, StreamEnd};
use crate::rounds::metric::read_all;

const SIZE_FULL: u64 = 256 << 20;
const SIZE_QUICK: u64 = 16 << 20;
const COLD_BATCH_BYTES: usize = 16 << 10;
const SLICE_BYTES: i32 = 1 << 20;

/// Often enough for a 99th percentile, seldom enough that an unhindered broker has no queue.
const INTERVAL: Duration = Duration::from_millis(5);

/// A broker that stalls a part of its threads stalls a part of these.
const CONSUMERS: usize = 6;
const HOT_BYTES: usize = 1 << 10;

const METRICS: [PlayMetric; 5] = [
    read::P99,
    read::P50,
    read::WORST,
    read::STORAGE_READ,
    read::CPU_SHARE,
];

pub(super) fn replay(options: &LogBenchOptions, setting: &ExperimentContext) -> Result<Experiment> {
    let bytes = setting.scale.pick(SIZE_FULL, SIZE_QUICK);
    let limit = options.disk_mib.map_or(String::new(), |mib| {
        format!(", from a disk that delivers at most {mib} MiB per second")
    });
    let described = experiment(
        "replay",
        "New records beside a consumer of old ones",
        "A record is produced every 5 ms, and consumers wait for it, while another consumer \
         fetches a partition from its beginning that was dropped from the page cache. A record is \
         timed from when it was due to be produced until a consumer has it. Both topics were \
         compared with what was produced beforehand.",
        "A sendfile of pages that are not in memory blocks the thread and with it all clients of \
         that thread.",
    );
    options.measure(described, &[ServerVariant::plain()], setting, |brokers| {
        let runner = &setting.runner;
        let cold = PreparedTopic::new("cold", 1, bytes, COLD_BATCH_BYTES);
        let hot = PreparedTopic::new("hot", 1, HOT_BYTES as u64, HOT_BYTES);
        for topic in [&cold, &hot] {
            brokers.fill(topic, &[], runner)?;
        }
        let played = runner.play(brokers, bytes >> 17, |brokers, contender| {
            let from = wait_until_led(&mut brokers.connect(contender)?, &hot)?;
            brokers.evict(contender, "cold", 0)?;
            let stream = |connections, topic, role, end| BrokerStream {
                connections,
                topic,
                role,
                end,
            };
            let follow = BrokerRole::Follow {
                producer: 1,
                from: from[0],
            };
            let produce = BrokerRole::Produce {
                acks: 1,
                window: 1000,
                interval: Some(INTERVAL),
            };
            let fetch = BrokerRole::Fetch {
                slice_bytes: SLICE_BYTES,
            };
            let streams = vec![
                stream(CONSUMERS, &hot, follow, StreamEnd::WithOthers),
                stream(1, &hot, produce, StreamEnd::WithOthers),
                stream(1, &cold, fetch, StreamEnd::Topic),
            ];
            brokers.observe(contender, streams, FileResidency::OnDisk, runner.stop)
        })?;
        let case = played.map(|played| Case {
            label: format!("{CONSUMERS} consumers"),
            x: CONSUMERS as f64,
            load: format!(
                "a record of 1 KiB every {INTERVAL:?} to {CONSUMERS} consumers, beside one of {} \
                 that are not in memory{limit}",
                size_label(bytes)
            ),
            metrics: read_all(&METRICS, &played),
            notes: brokers.notes(&played),
            ..Case::default()
        });
        Ok(case.into_iter().collect())
    })
}
