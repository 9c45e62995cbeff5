//! What moving a file once or a few times came to: the ground of `socket` and `copy`.

use underpass::Mechanism;

use crate::contender::mover::MoverSettings;
use crate::contender::process::CommandSpec;
use crate::contender::role::SubprocessRole;
use crate::contender::worker_process::MechanismCounts;
use crate::document::{Better, Case, Experiment, PayloadPath, SystemCalls, Unit};
use crate::error::{Error, ErrorContext as _, Result};
use crate::machine::window::UsageWindow;
use crate::rounds::interleave::Played;
use crate::rounds::lineup::ContenderList;
use crate::rounds::run::{MetricReader, notes_of_rounds};
use crate::stats::Spread;

const GIB: f64 = (1_u64 << 30) as f64;

/// Share of what should come from memory that may come from storage.
const FROM_STORAGE_MAX: f64 = 0.001;

/// A few transfers of one file by one contender.
pub(crate) struct TransferSample {
    pub(crate) window: UsageWindow,
    pub(crate) times: u64,
    /// Of all times together.
    pub(crate) bytes: u64,
    /// Bytes that had to be read from storage meanwhile, where the kernel tells.
    pub(crate) stored_bytes: u64,
    /// From those who tell.
    pub(crate) journeys: Vec<MechanismCounts>,
}

impl TransferSample {
    pub(crate) fn is_disturbed(&self) -> bool {
        self.window.is_disturbed() || self.came_from_storage()
    }

    pub(crate) fn came_from_storage(&self) -> bool {
        self.stored_bytes as f64 > self.bytes as f64 * FROM_STORAGE_MAX
    }

    fn each(&self, seconds: f64) -> f64 {
        seconds / self.times as f64
    }

    fn cpu(&self) -> f64 {
        self.window.used.cpu.as_secs_f64()
    }

    fn user(&self) -> f64 {
        self.window.used.user.as_secs_f64()
    }

    fn wall(&self) -> f64 {
        self.window.wall.as_secs_f64()
    }
}

/// What tells of any transfer.
pub(crate) const METRICS: [MetricReader<TransferSample>; 8] = [
    CPU_PER_GIB,
    THROUGHPUT,
    WALL,
    USER,
    SYSTEM,
    CALLS,
    CONTEXT_SWITCHES,
    PAGE_FAULTS,
];

const CPU_PER_GIB: MetricReader<TransferSample> = MetricReader {
    name: "cpu_per_gib",
    label: "processor time per GiB",
    unit: Unit::SecondsPerGib,
    better: Some(Better::Lower),
    of: |t| Some(t.cpu() / (t.bytes as f64 / GIB)),
};
const THROUGHPUT: MetricReader<TransferSample> = MetricReader {
    name: "throughput",
    label: "throughput",
    unit: Unit::BytesPerSecond,
    better: Some(Better::Higher),
    of: |t| Some(t.bytes as f64 / t.wall()),
};
pub(crate) const OPERATIONS: MetricReader<TransferSample> = MetricReader {
    name: "operations",
    label: "operations per second",
    unit: Unit::PerSecond,
    better: Some(Better::Higher),
    of: |t| Some(t.times as f64 / t.wall()),
};
pub(crate) const CPU_PER_OPERATION: MetricReader<TransferSample> = MetricReader {
    name: "cpu_per_operation",
    label: "processor time of an operation",
    unit: Unit::Seconds,
    better: Some(Better::Lower),
    of: |t| Some(t.each(t.cpu())),
};
const WALL: MetricReader<TransferSample> = MetricReader {
    name: "wall",
    label: "time of a transfer",
    unit: Unit::Seconds,
    better: Some(Better::Lower),
    of: |t| Some(t.each(t.wall())),
};
const USER: MetricReader<TransferSample> = MetricReader {
    name: "user",
    label: "its processor time in user space",
    unit: Unit::Seconds,
    better: Some(Better::Lower),
    of: |t| Some(t.each(t.user())),
};
const SYSTEM: MetricReader<TransferSample> = MetricReader {
    name: "system",
    label: "its processor time in the kernel",
    unit: Unit::Seconds,
    better: Some(Better::Lower),
    of: |t| Some(t.each(t.cpu() - t.user())),
};
const CALLS: MetricReader<TransferSample> = MetricReader {
    name: "calls",
    label: "calls that moved its payload",
    unit: Unit::Count,
    better: Some(Better::Lower),
    of: |t| {
        let calls: u64 = t.journeys.iter().map(|journey| journey.calls).sum();
        (!t.journeys.is_empty()).then(|| t.each(calls as f64))
    },
};
const CONTEXT_SWITCHES: MetricReader<TransferSample> = MetricReader {
    name: "context_switches",
    label: "its context switches",
    unit: Unit::Count,
    better: Some(Better::Lower),
    of: |t| Some(t.each(t.window.used.context_switches as f64)),
};
const PAGE_FAULTS: MetricReader<TransferSample> = MetricReader {
    name: "page_faults",
    label: "its page faults",
    unit: Unit::Count,
    better: Some(Better::Lower),
    of: |t| Some(t.each(t.window.used.page_faults as f64)),
};

/// How often a file of that size is moved for one figure: until it is about so many bytes.
pub(crate) fn times(size: u64, sample_bytes: u64, times_max: u64) -> u64 {
    (sample_bytes / size.max(1)).clamp(1, times_max)
}

/// A process of this program that moves as it is told.
pub(crate) fn mover(name: &str, settings: MoverSettings) -> Result<CommandSpec> {
    let program = std::env::current_exe().context(|| "finding this program".into())?;
    let mut command = vec![program.into_os_string()];
    command.extend(SubprocessRole::Mover(settings).arguments());
    Ok(CommandSpec {
        name: name.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        command,
        environment: Vec::new(),
    })
}

/// A mover that may use one mechanism, with calls of so many bytes.
pub(crate) fn only(mechanism: Mechanism, call_bytes: Option<u64>) -> MoverSettings {
    MoverSettings {
        only: Some(mechanism),
        call_bytes,
        ..MoverSettings::default()
    }
}

/// How payload travelled in all rounds together.
pub(crate) fn travelled(played: &Played<TransferSample>) -> Vec<PayloadPath> {
    let mut sums: Vec<PayloadPath> = Vec::new();
    for contender in 0..played.contenders() {
        let transfers = played.of(contender).into_iter();
        for journey in transfers.flat_map(|transfer| &transfer.journeys) {
            let mechanism = journey.mechanism.name();
            let known = sums
                .iter_mut()
                .find(|sum| sum.contender == contender && sum.mechanism == mechanism);
            match known {
                Some(sum) => {
                    sum.bytes += journey.bytes;
                    sum.calls += journey.calls;
                    sum.refusals += journey.refusals;
                }
                None => sums.push(PayloadPath {
                    contender,
                    mechanism: mechanism.to_owned(),
                    bytes: journey.bytes,
                    calls: journey.calls,
                    refusals: journey.refusals,
                }),
            }
        }
    }
    sums
}

/// The largest file that is moved under strace: each call takes a hundred times longer there.
const TRACED_BYTES_MAX: u64 = 64 << 20;

/// Adds system calls, counted in one more transfer of a size that `count` is told, to the case of
/// that size, whose notes it is given. Where they can't be counted, a note says why.
pub(crate) fn add_calls(
    experiment: &mut Experiment,
    count: impl FnOnce(u64, &mut Vec<String>) -> Result<Vec<SystemCalls>>,
) -> Result<()> {
    let fits = |case: &&mut Case| case.x as u64 <= TRACED_BYTES_MAX;
    let Some(case) = experiment.cases.iter_mut().rfind(fits) else {
        return Ok(());
    };
    match count(case.x as u64, &mut case.notes) {
        Ok(calls) => case.calls = calls,
        Err(Error::Setting(why)) => {
            let note = format!("system calls were not counted: {why}");
            experiment.notes.push(note);
        }
        Err(error) => return Err(error),
    }
    Ok(())
}

/// What has to be said of the rounds of a case.
pub(crate) fn notes(
    lineup: &ContenderList,
    other_side: &str,
    played: &Played<TransferSample>,
) -> Vec<String> {
    let mut notes = notes_of_rounds(played);
    for contender in 0..played.contenders() {
        let name = lineup.name(contender);
        notes.extend(notes_of(name, other_side, &played.of(contender)));
    }
    notes
}

/// What has to be said of the rounds of one contender.
fn notes_of(name: &str, other_side: &str, transfers: &[&TransferSample]) -> Vec<String> {
    let count = |is: &dyn Fn(&TransferSample) -> bool| transfers.iter().filter(|t| is(t)).count();
    let rounds = transfers.len();
    let mut notes = Vec::new();
    let bound = count(&|t| t.window.is_bench_bound());
    if bound > 0 {
        let shares: Vec<f64> = transfers.iter().map(|t| t.window.bench_share()).collect();
        let share = Spread::of(&shares).map_or(0.0, |spread| spread.median * 100.0);
        notes.push(format!(
            "with {name} {other_side} was the bottleneck in {bound} of {rounds} rounds \
             ({share:.0} % of a processor): only processor time tells, not throughput"
        ));
    }
    let cold = count(&|t| t.came_from_storage());
    if cold > 0 {
        notes.push(format!(
            "{name} had to read from storage in {cold} of {rounds} rounds: the cache was cold"
        ));
    }
    notes
}
