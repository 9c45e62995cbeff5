//! Moving a file once or several times: what `socket` and `copy` share, and the metrics of `tree`.

use std::path::Path;

use underpass::Mechanism;

use super::sizes::size_label;
use super::{ExperimentContext, TRACED};
use crate::contender::mover::MoverSettings;
use crate::contender::process::{self, CommandSpec};
use crate::contender::role::SubprocessRole;
use crate::contender::worker_process::WorkerProcess;
use crate::content;
use crate::document::{Case, Contender, Experiment, PayloadPath, SystemCalls, Unit};
use crate::error::{self, Error, Result};
use crate::machine::window::{UsageWindow, note_of_bottleneck, observe, observe_children};
use crate::machine::{proc, trace};
use crate::rounds::contenders::{ContenderList, ContenderSet};
use crate::rounds::interleave::{Played, Sample};
use crate::rounds::metric::{GIB, MetricReader, read_all};
use crate::rounds::runner::RoundRunner;

/// Share of what should come from memory that may come from storage.
const FROM_STORAGE_MAX: f64 = 0.001;

/// The largest file that is moved under strace, which makes each call a hundred times slower.
const TRACED_BYTES_MAX: u64 = 64 << 20;

/// Several transfers of the same data by one contender.
#[derive(Clone)]
pub(crate) struct TransferSample {
    pub(crate) window: UsageWindow,
    pub(crate) times: u64,
    /// Regular files in one transfer.
    pub(crate) files: u64,
    /// Of all times together; 0 where moving bytes is not the point.
    pub(crate) bytes: u64,
    /// Bytes that had to be read from storage, where the kernel counts them.
    pub(crate) stored_bytes: u64,
    /// By mechanism, from contenders that count.
    pub(crate) paths: Vec<PayloadPath>,
    pub(crate) peak_resident_bytes: Option<u64>,
}

impl Sample for TransferSample {
    fn is_disturbed(&self) -> bool {
        self.window.is_disturbed() || self.came_from_storage()
    }
}

impl TransferSample {
    fn came_from_storage(&self) -> bool {
        self.stored_bytes as f64 > self.bytes as f64 * FROM_STORAGE_MAX
    }

    fn each(&self, value: f64) -> Option<f64> {
        Some(value / self.times as f64)
    }
}

pub(crate) type TransferMetric = MetricReader<TransferSample>;

pub(crate) const CPU_PER_GIB: TransferMetric = TransferMetric::lower(
    "cpu_per_gib",
    "processor time per GiB",
    Unit::SecondsPerGib,
    |t| (t.bytes > 0).then(|| t.window.cpu() / (t.bytes as f64 / GIB)),
);
pub(crate) const THROUGHPUT: TransferMetric =
    TransferMetric::higher("throughput", "throughput", Unit::BytesPerSecond, |t| {
        Some(t.bytes as f64 / t.window.seconds())
    });
pub(crate) const OPERATIONS: TransferMetric = TransferMetric::higher(
    "operations",
    "operations per second",
    Unit::PerSecond,
    |t| Some(t.times as f64 / t.window.seconds()),
);
pub(crate) const CPU_PER_OPERATION: TransferMetric = TransferMetric::lower(
    "cpu_per_operation",
    "processor time per operation",
    Unit::Seconds,
    |t| t.each(t.window.cpu()),
);
pub(crate) const WALL: TransferMetric =
    TransferMetric::lower("wall", "time of a transfer", Unit::Seconds, |t| {
        t.each(t.window.seconds())
    });
pub(crate) const CPU: TransferMetric =
    TransferMetric::lower("cpu", "its processor time", Unit::Seconds, |t| {
        t.each(t.window.cpu())
    });
pub(crate) const CPU_PER_THOUSAND_FILES: TransferMetric = TransferMetric::lower(
    "cpu_per_thousand_files",
    "processor time per 1,000 files",
    Unit::Seconds,
    |t| (t.files > 1).then(|| t.window.cpu() * 1000.0 / t.files as f64),
);
pub(crate) const PEAK_RESIDENT: TransferMetric =
    TransferMetric::lower("peak_resident", "peak resident memory", Unit::Bytes, |t| {
        Some(t.peak_resident_bytes? as f64)
    });
pub(crate) const USER: TransferMetric = TransferMetric::lower(
    "user",
    "its processor time in user space",
    Unit::Seconds,
    |t| t.each(t.window.user()),
);
pub(crate) const SYSTEM: TransferMetric = TransferMetric::lower(
    "system",
    "its processor time in the kernel",
    Unit::Seconds,
    |t| t.each(t.window.cpu() - t.window.user()),
);
pub(crate) const CALLS: TransferMetric =
    TransferMetric::lower("calls", "calls that moved its payload", Unit::Count, |t| {
        let calls: u64 = t.paths.iter().map(|path| path.calls).sum();
        t.each(calls as f64).filter(|_| !t.paths.is_empty())
    });
pub(crate) const CONTEXT_SWITCHES: TransferMetric = TransferMetric::lower(
    "context_switches",
    "its context switches",
    Unit::Count,
    |t| t.each(t.window.used.context_switches as f64),
);
pub(crate) const PAGE_FAULTS: TransferMetric =
    TransferMetric::lower("page_faults", "its page faults", Unit::Count, |t| {
        t.each(t.window.used.page_faults as f64)
    });

/// The metrics of any transfer of a file.
pub(crate) const METRICS: [TransferMetric; 8] = [
    CPU_PER_GIB,
    THROUGHPUT,
    WALL,
    USER,
    SYSTEM,
    CALLS,
    CONTEXT_SWITCHES,
    PAGE_FAULTS,
];

/// How often a file of that size is moved for one figure: until it is about `sample_bytes`.
pub(crate) fn times(size: u64, sample_bytes: u64, times_max: u64) -> u64 {
    (sample_bytes / size.max(1)).clamp(1, times_max)
}

/// This program as a worker that moves files.
pub(crate) fn mover(name: &str, settings: MoverSettings) -> Result<CommandSpec> {
    let mut command = vec![process::own_program()?];
    command.extend(SubprocessRole::Mover(settings).arguments());
    Ok(CommandSpec {
        name: name.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        command,
    })
}

pub(crate) fn mover_with(mechanism: Mechanism) -> Result<CommandSpec> {
    let only = MoverSettings {
        only: Some(mechanism),
        ..MoverSettings::default()
    };
    mover(mechanism.name(), only)
}

/// A mover with read/write for each size of its buffer.
pub(crate) fn read_writers(buffers: &[u64]) -> impl Iterator<Item = Result<CommandSpec>> {
    buffers.iter().map(|&buffer| {
        let settings = MoverSettings {
            only: Some(Mechanism::ReadWrite),
            call_bytes: Some(buffer),
            ..MoverSettings::default()
        };
        mover(&format!("read/write {} KiB", buffer >> 10), settings)
    })
}

pub(crate) struct TransferContender {
    pub(crate) command: CommandSpec,
    /// The process that takes jobs; `None` for a program that is started for each transfer.
    pub(crate) worker: Option<WorkerProcess>,
}

impl TransferContender {
    fn stop(&mut self) -> Result<()> {
        self.worker.as_mut().map_or(Ok(()), WorkerProcess::stop)
    }

    fn pid(&self) -> Option<u32> {
        self.worker.as_ref().map(WorkerProcess::pid)
    }

    /// So far; 0 for a program, which can't be asked after its end.
    fn storage_read_bytes(&self) -> Result<u64> {
        let read = self.pid().map(proc::storage_read_bytes).transpose()?;
        Ok(read.flatten().unwrap_or(0))
    }

    fn entry(&self) -> Contender {
        let mut entry = self.command.entry();
        if let Some(worker) = &self.worker {
            worker.version().clone_into(&mut entry.version);
        }
        entry
    }
}

/// Where files are moved from and to.
pub(crate) trait TransferEnvironment {
    const NAME: &'static str;

    /// Who else may be the bottleneck.
    const OTHER_SIDE: &'static str;

    /// Has a contender move a small file, and compares the bytes that arrive. An error names it.
    fn verify(&self, contender: &mut TransferContender) -> Result<Vec<PayloadPath>>;

    /// Creates the file of a case, where it doesn't exist yet, and makes it the current one.
    fn prepare(&mut self, size: u64) -> Result<()>;

    fn file(&self) -> &Path;

    /// How often the current file is moved for one figure.
    fn times(&self, contender: &TransferContender) -> u64;

    fn transfer(&self, contender: &mut TransferContender, times: u64) -> Result<Vec<PayloadPath>>;

    /// Checks after the measurement that everything arrived, and cleans up.
    fn finish(&self, times: u64) -> Result<()>;

    /// Discards what a failed contender has left behind.
    fn recover(&mut self) -> Result<()>;

    /// How often a file of this size is moved, in words.
    fn load(&self, size: u64) -> String;

    /// Of one contender in one round, in milliseconds.
    fn weight(&self, size: u64) -> u64;
}

/// The contenders of an experiment that moves files.
pub(crate) struct TransferSet<E> {
    pub(crate) environment: E,
    contenders: Vec<TransferContender>,
    list: ContenderList,
    left_out: Vec<String>,
}

impl<E: TransferEnvironment> TransferSet<E> {
    pub(crate) fn new(environment: E) -> TransferSet<E> {
        TransferSet {
            environment,
            contenders: Vec::new(),
            list: ContenderList::default(),
            left_out: Vec::new(),
        }
    }

    pub(crate) fn admit_worker(
        &mut self,
        command: CommandSpec,
        processor: Option<usize>,
    ) -> Result<Vec<PayloadPath>> {
        let worker = WorkerProcess::start(&command, processor);
        self.admit(worker.map(|worker| TransferContender {
            command,
            worker: Some(worker),
        }))
    }

    /// Admits a contender that moves a small file unchanged, and notes why another is left out.
    pub(crate) fn admit(
        &mut self,
        contender: Result<TransferContender>,
    ) -> Result<Vec<PayloadPath>> {
        let tried = contender.and_then(|mut contender| {
            let counts = self.environment.verify(&mut contender)?;
            Ok((contender, counts))
        });
        match tried {
            Ok((contender, counts)) => {
                self.contenders.push(contender);
                Ok(counts)
            }
            Err(Error::Contender(why) | Error::Answer(why)) => {
                self.left_out.push(format!("not measured: {why}"));
                self.environment.recover()?;
                Ok(Vec::new())
            }
            Err(error) => Err(error),
        }
    }

    /// Measures a case for each size, and counts system calls.
    pub(crate) fn play(
        &mut self,
        mut experiment: Experiment,
        sizes: &[u64],
        metrics: &[TransferMetric],
        (setting, runner): (&ExperimentContext, &RoundRunner),
    ) -> Result<Experiment> {
        if self.list.len() == 0 {
            let names = self.contenders.iter().map(|one| one.command.name.clone());
            self.list = ContenderList::of(names);
        }
        experiment.rounds = runner.rounds;
        experiment.contenders = self
            .contenders
            .iter()
            .map(TransferContender::entry)
            .collect();
        let notes = self.left_out.iter().chain(self.list.failures());
        experiment.notes.extend(notes.cloned());
        for &size in sizes {
            if runner.is_stopped() || self.contenders.is_empty() {
                break;
            }
            let (variant, label) = (&experiment.variant, size_label(size));
            runner
                .progress
                .begin(&format!("{} {variant}, {label}", E::NAME));
            experiment.cases.extend(self.case(size, metrics, runner)?);
        }
        if !runner.is_stopped() {
            self.add_calls(&mut experiment, setting, runner)?;
        }
        Ok(experiment)
    }

    /// Stops all contenders; returns the first error.
    pub(crate) fn stop(&mut self) -> Result<()> {
        error::all(self.contenders.iter_mut().map(TransferContender::stop))
    }

    pub(crate) fn has_programs(&self) -> bool {
        self.contenders.iter().any(|one| one.worker.is_none())
    }

    fn case(
        &mut self,
        size: u64,
        metrics: &[TransferMetric],
        runner: &RoundRunner,
    ) -> Result<Option<Case>> {
        self.environment.prepare(size)?;
        let weight = self.environment.weight(size);
        let played = runner.play(self, weight, |set, contender| set.observe(contender, size))?;
        Ok(played.map(|played| Case {
            label: size_label(size),
            x: size as f64,
            load: self.environment.load(size),
            metrics: read_all(metrics, &played),
            travelled: payload_paths(&played),
            notes: self.notes(&played),
            ..Case::default()
        }))
    }

    fn observe(&mut self, contender: usize, size: u64) -> Result<TransferSample> {
        let environment = &self.environment;
        content::warm(environment.file())?;
        let contender = &mut self.contenders[contender];
        let times = environment.times(contender);
        let stored = contender.storage_read_bytes()?;
        let pid = contender.pid();
        let work = || environment.transfer(contender, times);
        let (paths, window) = match pid {
            Some(pid) => observe(pid, work)?,
            None => observe_children(work)?,
        };
        let stored_bytes = contender.storage_read_bytes()?.saturating_sub(stored);
        environment.finish(times)?;
        Ok(TransferSample {
            window,
            times,
            files: 1,
            bytes: times * size,
            stored_bytes,
            paths,
            peak_resident_bytes: None,
        })
    }

    /// Counts the system calls of one more transfer of each worker under strace, for the largest
    /// case that is small enough. Where that is not possible, a note says why.
    fn add_calls(
        &mut self,
        experiment: &mut Experiment,
        setting: &ExperimentContext,
        runner: &RoundRunner,
    ) -> Result<()> {
        let fits = |case: &&mut Case| case.x as u64 <= TRACED_BYTES_MAX;
        let Some(case) = experiment.cases.iter_mut().rfind(fits) else {
            return Ok(());
        };
        self.environment.prepare(case.x as u64)?;
        let log = setting.scratch.path().join("calls.log");
        let count = |set: &mut TransferSet<E>, index: usize| {
            let (environment, contender) = (&set.environment, &mut set.contenders[index]);
            let Some(pid) = contender.pid() else {
                return Ok(None);
            };
            let work = || environment.transfer(contender, 1).map(drop);
            let calls = trace::count_calls(pid, &log, work)?;
            environment.finish(1)?;
            Ok(Some(SystemCalls::of(index, 1, calls)))
        };
        match runner.once_each(self, TRACED, 0, &mut case.notes, count) {
            Ok(calls) => case.calls = calls.into_iter().flatten().collect(),
            Err(Error::Setting(why)) => {
                let note = format!("system calls were not counted: {why}");
                experiment.notes.push(note);
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn notes(&self, played: &Played<TransferSample>) -> Vec<String> {
        let mut notes = played.notes();
        for contender in 0..played.contenders() {
            let name = self.list.name(contender);
            notes.extend(notes_of(name, E::OTHER_SIDE, &played.of(contender)));
        }
        notes
    }
}

impl<E: TransferEnvironment> ContenderSet for TransferSet<E> {
    fn list(&mut self) -> &mut ContenderList {
        &mut self.list
    }

    fn dismiss(&mut self, contender: usize) -> Result<()> {
        let _ = self.contenders[contender].stop();
        self.environment.recover()
    }
}

/// How many bytes each mechanism moved in all rounds together.
fn payload_paths(played: &Played<TransferSample>) -> Vec<PayloadPath> {
    let mut sums: Vec<PayloadPath> = Vec::new();
    for contender in 0..played.contenders() {
        let first = sums.len();
        let samples = played.of(contender).into_iter();
        for path in samples.flat_map(|sample| &sample.paths) {
            let mut own = sums[first..].iter_mut();
            match own.find(|sum| sum.mechanism == path.mechanism) {
                Some(sum) => {
                    sum.bytes += path.bytes;
                    sum.calls += path.calls;
                    sum.refusals += path.refusals;
                }
                None => sums.push(PayloadPath {
                    contender,
                    ..path.clone()
                }),
            }
        }
    }
    sums
}

fn notes_of(name: &str, other_side: &str, samples: &[&TransferSample]) -> Vec<String> {
    let windows: Vec<&UsageWindow> = samples.iter().map(|sample| &sample.window).collect();
    let cold = samples
        .iter()
        .filter(|sample| sample.came_from_storage())
        .count();
    let note_of_cold = (cold > 0).then(|| {
        let rounds = samples.len();
        format!("{name} read from storage in {cold} of {rounds} rounds: the cache was cold")
    });
    let bottleneck = note_of_bottleneck(name, other_side, &windows);
    bottleneck.into_iter().chain(note_of_cold).collect()
}
