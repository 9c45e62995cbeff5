//! Producers whose batches are synced, or not.

use std::time::Duration;

use super::brokers::{BrokerSet, WARMED_UP, wait_until_led};
use super::options::{LogBenchOptions, experiment};
use crate::content;
use crate::document::{Axis, Case, Experiment, Unit};
use crate::error::{Error, Result};
use crate::experiment::ExperimentContext;
use crate::experiment::sample::{self as read, PlayMetric, PlaySample};
use crate::experiment::serving::{IN_CACHE, ServerVariant};
use crate::experiment::sizes::{size_label, sizes_of_cases};
use crate::load::kafka::{BrokerRole, BrokerStream, PreparedTopic, StreamEnd};
use crate::rounds::metric::read_all;

const BATCHES: [u64; 3] = [16 << 10, 64 << 10, 256 << 10];
const CONNECTIONS: usize = 4;

/// Requests that a producer of Kafka has under way on a connection by default.
const WINDOW: usize = 5;

/// Bytes produced in a round, and the time of a round that syncs.
const BYTES_FULL: u64 = 256 << 20;
const BYTES_QUICK: u64 = 16 << 20;
const SPAN_FULL: Duration = Duration::from_millis(1500);
const SPAN_QUICK: Duration = Duration::from_millis(200);

/// The number of rounds before the rounds, in which a virtual machine compiles its code.
const WARM_UPS: usize = 2;

const DURABLE_CONNECTIONS: usize = 8;
const DURABLE_BYTES: usize = 1 << 10;
const DURABLE_PARTITIONS: [i32; 2] = [1, 8];

const METRICS: [PlayMetric; 5] = [
    read::CPU_PER_GIB,
    read::THROUGHPUT,
    read::REQUESTS,
    read::P50,
    read::P99,
];

const METRICS_DURABLE: [PlayMetric; 4] = [read::REQUESTS, read::P50, read::P99, read::CPU_SHARE];

struct ProduceLoad<'a> {
    topic: &'a PreparedTopic,
    connections: usize,
    acks: i16,
    window: usize,
    end: StreamEnd,
}

/// Batches that are written and not synced.
pub(super) fn produce(
    options: &LogBenchOptions,
    setting: &ExperimentContext,
) -> Result<Experiment> {
    let mut described = experiment(
        "produce",
        "Batches that are not synced",
        "Producers with a partition each keep 5 requests under way on a connection, with a batch \
         that was made beforehand, of uncompressed records of 1 KiB, and wait for its being \
         written (acks=1). The kernel syncs when it sees fit. Batches were compared beforehand, \
         and the ends of the partitions are after each round. What was written before is dropped \
         from the page cache before each round: its memory is used again, and no hypervisor has to \
         provide more meanwhile.",
        "A broker copies and checks what it is sent; ours does not look into the records.",
    );
    described.axis = Axis {
        label: "batch size".into(),
        unit: Unit::Bytes,
    };
    let own = [
        ServerVariant::new("underpass, fsync never", &["--fsync", "never"]),
        ServerVariant::plain(),
    ];
    options.measure(described, &own, setting, |brokers| {
        let mut cases = Vec::new();
        for bytes in sizes_of_cases(&options.batches, &BATCHES) {
            let each = setting.scale.pick(BYTES_FULL, BYTES_QUICK);
            let name = format!("produce-{bytes}");
            let filled = CONNECTIONS as u64 * 16 * bytes;
            let topic = PreparedTopic::new(&name, CONNECTIONS as i32, filled, bytes as usize);
            brokers.fill(&topic, &[], &setting.runner)?;
            let load = ProduceLoad {
                topic: &topic,
                connections: CONNECTIONS,
                acks: 1,
                window: WINDOW,
                end: StreamEnd::Requests(each / bytes),
            };
            let label = size_label(bytes);
            let words = format!(
                "{CONNECTIONS} connections, batches of {label}, {} a round",
                size_label(each)
            );
            let case = load.case(brokers, (&METRICS, bytes as f64, label, words), setting)?;
            cases.extend(case);
        }
        Ok(cases)
    })
}

/// Small batches that are synced before they are acknowledged.
pub(super) fn durable(
    options: &LogBenchOptions,
    setting: &ExperimentContext,
) -> Result<Experiment> {
    let mut described = experiment(
        "durable",
        "Batches that are synced",
        "Each of 8 producers sends a batch of 1 KiB and waits until it is on the disk (acks=all; \
         flush.messages of the topic is 1) before it sends the next. Batches were compared \
         beforehand, and the ends of the partitions are after each round.",
        "Producers that wait at the same time may share a sync; the disk takes its time.",
    );
    described.axis = Axis {
        label: "partitions".into(),
        unit: Unit::Count,
    };
    options.measure(described, &[ServerVariant::plain()], setting, |brokers| {
        let mut cases = Vec::new();
        for partitions in DURABLE_PARTITIONS {
            let span = setting.scale.pick(SPAN_FULL, SPAN_QUICK);
            let name = format!("durable-{partitions}");
            let topic = PreparedTopic::new(&name, partitions, 64 << 10, DURABLE_BYTES);
            brokers.fill(&topic, &[("flush.messages", "1")], &setting.runner)?;
            let load = ProduceLoad {
                topic: &topic,
                connections: DURABLE_CONNECTIONS,
                acks: -1,
                window: 1,
                end: StreamEnd::Span(span),
            };
            let label = format!("partitions: {partitions}");
            let words = format!(
                "{DURABLE_CONNECTIONS} connections with one request under way each; requests \
                 begin for {span:?} a round"
            );
            let case = load.case(
                brokers,
                (&METRICS_DURABLE, partitions.into(), label, words),
                setting,
            )?;
            cases.extend(case);
        }
        Ok(cases)
    })
}

impl ProduceLoad<'_> {
    /// `None` if it was stopped before a round was complete.
    fn case(
        &self,
        brokers: &mut BrokerSet,
        (metrics, x, label, load): (&[PlayMetric], f64, String, String),
        setting: &ExperimentContext,
    ) -> Result<Option<Case>> {
        let runner = &setting.runner;
        let weight = setting.scale.pick(SPAN_FULL, SPAN_QUICK).as_millis() as u64;
        for _ in 0..WARM_UPS {
            runner.once_each(brokers, WARMED_UP, 0, |brokers, contender| {
                self.observe(brokers, contender, setting)
            })?;
        }
        let played = runner.play(brokers, weight, |brokers, contender| {
            self.observe(brokers, contender, setting)
        })?;
        Ok(played.map(|played| Case {
            label,
            x,
            load,
            metrics: read_all(metrics, &played),
            notes: brokers.notes(&played),
            ..Case::default()
        }))
    }

    /// Fails if the partitions have not grown by the acknowledged bytes.
    fn observe(
        &self,
        brokers: &BrokerSet,
        contender: usize,
        setting: &ExperimentContext,
    ) -> Result<PlaySample> {
        content::flush_file_system(brokers.data(contender))?;
        // A hypervisor provides memory when it is touched first, which takes many times as long as
        // writing it, and counts as processor time of whoever does.
        for partition in 0..self.topic.partitions {
            brokers.evict(contender, &self.topic.name, partition)?;
        }
        let mut connection = brokers.connect(contender)?;
        let mut end = || {
            Result::Ok(
                wait_until_led(&mut connection, self.topic)?
                    .iter()
                    .sum::<i64>(),
            )
        };
        let before = end()?;
        let stream = BrokerStream {
            connections: self.connections,
            topic: self.topic,
            role: BrokerRole::Produce {
                acks: self.acks,
                window: self.window,
                interval: None,
            },
            end: self.end,
        };
        let stop = setting.runner.stop;
        let sample = brokers.observe(contender, vec![stream], IN_CACHE, stop)?;
        let grown = end()? - before;
        match sample.operations as i64 * self.topic.batch_records {
            acknowledged if acknowledged == grown => Ok(sample),
            acknowledged => Err(Error::Answer(format!(
                "{acknowledged} records are acknowledged, and {grown} are there"
            ))),
        }
    }
}
