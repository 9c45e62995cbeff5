//! Consumers of records that are in the page cache.

use std::time::Duration;

use super::brokers::{BrokerSet, WARMED_UP};
use super::options::{LogBenchOptions, experiment};
use crate::document::{Axis, Case, Experiment, Unit};
use crate::error::Result;
use crate::experiment::ExperimentContext;
use crate::experiment::sample::{self as read, PlayMetric};
use crate::experiment::serving::{IN_CACHE, ServerVariant};
use crate::experiment::sizes::size_label;
use crate::load::kafka::{BrokerRole, BrokerStream, PreparedTopic, StreamEnd};
use crate::rounds::metric::read_all;

const SIZE_FULL: u64 = 1 << 30;
const SIZE_QUICK: u64 = 32 << 20;
const BATCH_BYTES: usize = 16 << 10;

/// Bytes that consumers request of a partition by default.
const SLICE_BYTES: i32 = 1 << 20;

const CONSUMERS: [usize; 2] = [1, 16];

/// The time within a round in which requests start.
const SPAN_FULL: Duration = Duration::from_millis(1500);
const SPAN_QUICK: Duration = Duration::from_millis(120);

/// The time of load before the rounds, in which a virtual machine compiles its code.
const WARM_UP_FULL: Duration = Duration::from_secs(5);

const PARTITIONS_FULL: i32 = 1000;
const PARTITIONS_QUICK: i32 = 100;
const SMALL_BYTES: usize = 1 << 10;
const SMALL_BATCHES: u64 = 16;

const METRICS: [PlayMetric; 5] = [
    read::CPU_PER_GIB,
    read::THROUGHPUT,
    read::P50,
    read::P99,
    read::PEAK_RESIDENT,
];

/// One consumer, and many of the same data.
pub(super) fn fetch(options: &LogBenchOptions, setting: &ExperimentContext) -> Result<Experiment> {
    let bytes = options
        .size
        .unwrap_or(setting.scale.pick(SIZE_FULL, SIZE_QUICK));
    let mut described = experiment(
        "fetch",
        "Records to consumers",
        "Consumers fetch a partition that is in the page cache from its beginning to its end, \
         again and again, 1 MiB in each request. A broker has one processor, the client another. \
         All records were compared with what was produced beforehand, and are counted to their \
         last byte and discarded while measuring.",
        "Processor time is what the broker costs and does not depend on how fast the client is; \
         throughput and response times do.",
    );
    described.axis = Axis {
        label: "consumers".into(),
        unit: Unit::Count,
    };
    options.measure(described, &[ServerVariant::plain()], setting, |brokers| {
        let topic = PreparedTopic::new("fetch", 1, bytes, BATCH_BYTES);
        brokers.fill(&topic, &[], &setting.runner)?;
        let cases = CONSUMERS.iter().map(|&consumers| {
            let load = format!(
                "{consumers} connections, each sends the next request at once; a partition of {}",
                size_label(bytes)
            );
            let words = (format!("consumers: {consumers}"), load);
            case(brokers, (&topic, SLICE_BYTES), consumers, words, setting)
        });
        cases.filter_map(Result::transpose).collect()
    })
}

/// Slices of many partitions in one request.
pub(super) fn small(options: &LogBenchOptions, setting: &ExperimentContext) -> Result<Experiment> {
    let usual = setting.scale.pick(PARTITIONS_FULL, PARTITIONS_QUICK);
    let partitions = options.partitions.unwrap_or(usual);
    let described = experiment(
        "small",
        "A slice of 1 KiB of every partition in one request",
        "A consumer fetches 1 KiB, a batch of one record, of every partition of a topic in each \
         request. All records were compared with what was produced beforehand.",
        "What a broker does for each partition costs more than the bytes.",
    );
    options.measure(described, &[ServerVariant::plain()], setting, |brokers| {
        let bytes = SMALL_BATCHES * SMALL_BYTES as u64 * partitions as u64;
        let topic = PreparedTopic::new("small", partitions, bytes, SMALL_BYTES);
        brokers.fill(&topic, &[], &setting.runner)?;
        let words = (
            format!("partitions: {partitions}"),
            format!("one connection, which sends the next request for {partitions} slices at once"),
        );
        let slice = (&topic, SMALL_BYTES as i32);
        Ok(case(brokers, slice, 1, words, setting)?
            .into_iter()
            .collect())
    })
}

/// `None` if it was stopped before a round was complete.
fn case(
    brokers: &mut BrokerSet,
    (topic, slice_bytes): (&PreparedTopic, i32),
    consumers: usize,
    (label, load): (String, String),
    setting: &ExperimentContext,
) -> Result<Option<Case>> {
    let (runner, scale) = (&setting.runner, setting.scale);
    let observe = |brokers: &mut BrokerSet, contender, span| {
        let stream = BrokerStream {
            connections: consumers,
            topic,
            role: BrokerRole::Fetch { slice_bytes },
            end: StreamEnd::Span(span),
        };
        brokers.observe(contender, vec![stream], IN_CACHE, runner.stop)
    };
    let span = scale.pick(SPAN_FULL, SPAN_QUICK);
    let warm_up = scale.pick(WARM_UP_FULL, SPAN_QUICK);
    let weight = span.as_millis() as u64;
    runner.once_each(brokers, WARMED_UP, 0, |brokers, contender| {
        observe(brokers, contender, warm_up)
    })?;
    let played = runner.play(brokers, weight, |brokers, contender| {
        observe(brokers, contender, span)
    })?;
    Ok(played.map(|played| Case {
        label,
        x: consumers as f64,
        load: format!("{load}; requests begin for {span:?} a round"),
        metrics: read_all(&METRICS, &played),
        notes: brokers.notes(&played),
        ..Case::default()
    }))
}
