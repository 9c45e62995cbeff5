//! The start of a broker, after an orderly end and after SIGKILL, and its memory.

use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use super::brokers::{BrokerSet, wait_until_led};
use super::options::{LogBenchOptions, experiment};
use crate::contender::server::ServerProcess;
use crate::document::{Case, Experiment, Unit};
use crate::error::{Error, Result};
use crate::experiment::ExperimentContext;
use crate::experiment::serving::ServerVariant;
use crate::experiment::sizes::size_label;
use crate::load::kafka::{BrokerLoad, BrokerRole, BrokerStream, PreparedTopic, StreamEnd};
use crate::machine::proc;
use crate::rounds::contenders::ContenderSet;
use crate::rounds::interleave::Sample;
use crate::rounds::metric::{MetricReader, read_all};

const START_BYTES: u64 = 64 << 20;
const RESTART_FULL: u64 = 1 << 30;
const RESTART_QUICK: u64 = 32 << 20;
const RESTART_PARTITIONS: i32 = 100;
const BATCH_BYTES: usize = 16 << 10;
const SLICE_BYTES: i32 = 1 << 20;

/// The time of load before a broker's memory is read, or before it is killed.
const LOAD: Duration = Duration::from_millis(500);

/// About what a play takes, in milliseconds.
const WEIGHT: u64 = 5000;

struct StartSample {
    took: Duration,
    /// After a load; `None` without one.
    resident_bytes: Option<u64>,
}

impl Sample for StartSample {
    fn is_disturbed(&self) -> bool {
        false
    }
}

const METRICS: [MetricReader<StartSample>; 2] = [
    MetricReader::seconds("start", "time to the answer", |s| {
        Some(s.took.as_secs_f64())
    }),
    MetricReader::lower(
        "resident",
        "resident memory after a load",
        Unit::Bytes,
        |s| s.resident_bytes.map(|bytes| bytes as f64),
    ),
];

/// The start after an orderly end.
pub(super) fn start(options: &LogBenchOptions, setting: &ExperimentContext) -> Result<Experiment> {
    let described = experiment(
        "start",
        "A start, and memory",
        "A broker is stopped in order and started again. Its start is timed from the start of the \
         process to the answer to ApiVersions; its memory is read after half a second of a \
         consumer and a producer.",
        "A virtual machine loads and compiles its program at each start.",
    );
    let load = "one partition of 64 MiB".to_owned();
    options.measure(described, &[ServerVariant::plain()], setting, |brokers| {
        let topic = PreparedTopic::new("start", 1, START_BYTES, BATCH_BYTES);
        brokers.fill(&topic, &[], &setting.runner)?;
        case(brokers, (load, setting), |brokers, contender| {
            brokers.end(contender, ServerProcess::stop)?;
            let took = brokers.start(contender)?;
            let address = brokers.broker(contender)?.address();
            let fetch = BrokerStream {
                connections: 1,
                topic: &topic,
                role: BrokerRole::Fetch {
                    slice_bytes: SLICE_BYTES,
                },
                end: StreamEnd::Span(LOAD),
            };
            let streams = vec![fetch, producer(&topic, LOAD)];
            BrokerLoad::connect(address, streams)?.run(setting.runner.stop)?;
            let resident_bytes = Some(proc::resident_bytes(brokers.broker(contender)?.pid())?);
            Ok(StartSample {
                took,
                resident_bytes,
            })
        })
    })
}

/// The start after SIGKILL.
pub(super) fn restart(
    options: &LogBenchOptions,
    setting: &ExperimentContext,
) -> Result<Experiment> {
    let described = experiment(
        "restart",
        "A start after SIGKILL",
        "A broker is killed with SIGKILL under the load of a producer and started again. Its start \
         is timed from the start of the process until Metadata has a leader, and ListOffsets the \
         end, of every partition; no end may be before what the partition was filled with and \
         compared with beforehand.",
        "A broker reads what it does not know to be on the disk, to find where its log ends.",
    );
    let bytes = options.restart_size;
    let bytes = bytes.unwrap_or(setting.scale.pick(RESTART_FULL, RESTART_QUICK));
    let load = format!(
        "{RESTART_PARTITIONS} partitions, {} in all",
        size_label(bytes)
    );
    let own = [
        ServerVariant::plain(),
        ServerVariant::new("underpass, fsync never", &["--fsync", "never"]),
    ];
    options.measure(described, &own, setting, |brokers| {
        let topic = PreparedTopic::new("restart", RESTART_PARTITIONS, bytes, BATCH_BYTES);
        brokers.fill(&topic, &[], &setting.runner)?;
        case(brokers, (load, setting), |brokers, contender| {
            kill_under_load(brokers, contender, &topic, setting)?;
            let start = Instant::now();
            brokers.start(contender)?;
            let ends = wait_until_led(&mut brokers.connect(contender)?, &topic)?;
            let took = start.elapsed();
            if ends.iter().any(|&end| end < topic.end()) {
                return Err(Error::Answer("records are lost".into()));
            }
            Ok(StartSample {
                took,
                resident_bytes: None,
            })
        })
    })
}

fn kill_under_load(
    brokers: &mut BrokerSet,
    contender: usize,
    topic: &PreparedTopic,
    setting: &ExperimentContext,
) -> Result<()> {
    let address = brokers.broker(contender)?.address().clone();
    let mut load = BrokerLoad::connect(&address, vec![producer(topic, 2 * LOAD)])?;
    scope(|scope| {
        let loading = scope.spawn(move || load.run(setting.runner.stop).is_ok());
        sleep(LOAD);
        let is_early = loading.is_finished();
        brokers.end(contender, ServerProcess::kill)?;
        match is_early || loading.join().unwrap_or(true) {
            true => Err(Error::Answer("the load ended before the broker".into())),
            false => Ok(()),
        }
    })
}

/// A producer that takes its time: a record every 2 ms.
fn producer(topic: &PreparedTopic, span: Duration) -> BrokerStream<'_> {
    let interval = Some(Duration::from_millis(2));
    BrokerStream::producer(topic, interval, StreamEnd::Span(span))
}

/// No case if it was stopped before a round was complete.
fn case(
    brokers: &mut BrokerSet,
    (load, setting): (String, &ExperimentContext),
    play: impl FnMut(&mut BrokerSet, usize) -> Result<StartSample>,
) -> Result<Vec<Case>> {
    let played = setting.runner.play(brokers, WEIGHT, play)?;
    let case = played.map(|played| Case {
        label: load.clone(),
        load,
        metrics: read_all(&METRICS, &played),
        notes: [brokers.list().new_failures(), played.notes()].concat(),
        ..Case::default()
    });
    Ok(case.into_iter().collect())
}
