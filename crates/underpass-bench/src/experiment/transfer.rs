//! Moving a file once or several times: what `socket` and `copy` share.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use underpass::Mechanism;

use super::ExperimentContext;
use super::sample::{self as read, PlayMetric, PlaySample, notes_of, payload_paths};
use super::sizes::size_label;
use crate::contender::mover::MoverSettings;
use crate::contender::process::{self, CommandSpec};
use crate::contender::role::SubprocessRole;
use crate::contender::worker_process::WorkerProcess;
use crate::content;
use crate::document::{Case, Experiment, PayloadPath, SystemCalls};
use crate::error::{self, Result};
use crate::machine::window::{observe, observe_children};
use crate::machine::{proc, trace};
use crate::rounds::contenders::{ContenderList, ContenderSet};
use crate::rounds::metric::read_all;
use crate::rounds::runner::RoundRunner;

/// Starting a program takes about a millisecond, so fewer starts make a figure.
const PROGRAM_TIMES_MAX: u64 = 40;

/// The largest file that is moved under strace, which makes each call a hundred times slower.
const TRACED_BYTES_MAX: u64 = 64 << 20;

const METRICS: [PlayMetric; 8] = [
    read::CPU_PER_GIB,
    read::THROUGHPUT,
    read::WALL,
    read::USER,
    read::SYSTEM,
    read::CALLS,
    read::ITS_CONTEXT_SWITCHES,
    read::ITS_PAGE_FAULTS,
];

/// The number of moves of a file of this size for one figure: about `sample_bytes` together.
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

    /// So far; `None` for a program, which can't be asked after its end.
    fn storage_read_bytes(&self) -> Result<Option<u64>> {
        let read = self.pid().map(proc::storage_read_bytes).transpose()?;
        Ok(read.flatten())
    }
}

/// The source and the destination of transfers.
pub(crate) trait TransferEnvironment {
    const NAME: &'static str;

    /// Those that come before the metrics of any transfer.
    const METRICS_FIRST: &'static [PlayMetric];

    /// The name of the other side, which may be the bottleneck.
    const OTHER_SIDE: &'static str;

    /// Has a contender move a small file, and compares the bytes that arrive. An error names it.
    fn verify(&self, contender: &mut TransferContender) -> Result<Vec<PayloadPath>>;

    /// Creates the file of a case, where it doesn't exist yet.
    fn prepare(&mut self, size: u64) -> Result<TransferCase>;

    fn transfer(
        &self,
        file: &Path,
        contender: &mut TransferContender,
        times: u64,
    ) -> Result<Vec<PayloadPath>>;

    /// Checks after the measurement that everything arrived, and cleans up.
    fn finish(&self, size: u64, times: u64) -> Result<()>;

    /// Discards leftovers of a failed contender, and replaces files that it may have changed.
    fn recover(&mut self) -> Result<()>;

    /// Set when the user wants to stop.
    fn stop(&self) -> &AtomicBool;
}

pub(crate) struct TransferCase {
    pub(crate) file: PathBuf,
    pub(crate) size: u64,
    /// Number of moves for one figure.
    pub(crate) times: u64,
    /// The same in words.
    pub(crate) load: String,
    /// Of one contender in one round, in milliseconds.
    pub(crate) weight: u64,
}

/// The contenders of an experiment that moves files.
pub(crate) struct TransferSet<E> {
    pub(crate) environment: E,
    contenders: Vec<TransferContender>,
    list: ContenderList,
}

impl<E: TransferEnvironment> TransferSet<E> {
    pub(crate) fn new(environment: E) -> TransferSet<E> {
        TransferSet {
            environment,
            contenders: Vec::new(),
            list: ContenderList::default(),
        }
    }

    pub(crate) fn admit_worker(
        &mut self,
        mut command: CommandSpec,
        processor: Option<usize>,
    ) -> Result<Vec<PayloadPath>> {
        let name = command.name.clone();
        let worker = WorkerProcess::start(&mut command, processor, self.environment.stop());
        let contender = worker.map(|worker| TransferContender {
            command,
            worker: Some(worker),
        });
        self.admit(&name, contender)
    }

    /// Admits a contender that moves a small file unchanged, and notes why another is left out.
    pub(crate) fn admit(
        &mut self,
        name: &str,
        contender: Result<TransferContender>,
    ) -> Result<Vec<PayloadPath>> {
        let tried = contender.and_then(|mut contender| {
            let counts = self.environment.verify(&mut contender)?;
            Ok((contender, counts))
        });
        match tried {
            Ok((contender, counts)) => {
                self.list.admit(name);
                self.contenders.push(contender);
                Ok(counts)
            }
            Err(error) => {
                self.list.reject(name, error)?;
                self.environment.recover()?;
                Ok(Vec::new())
            }
        }
    }

    /// Measures a case for each size, and counts system calls.
    pub(crate) fn play(
        &mut self,
        mut experiment: Experiment,
        sizes: &[u64],
        setting: &ExperimentContext,
    ) -> Result<Experiment> {
        let runner = &setting.runner;
        experiment.rounds = runner.rounds;
        let entries = self.contenders.iter().map(|one| one.command.entry());
        experiment.contenders = entries.collect();
        experiment.notes.extend(self.list.missing());
        for &size in sizes {
            if runner.is_stopped() || self.list.standing().is_empty() {
                break;
            }
            let (variant, label) = (&experiment.variant, size_label(size));
            runner
                .progress
                .begin(&format!("{} {variant}, {label}", E::NAME));
            match self.case(size, runner) {
                Ok(case) => experiment.cases.extend(case),
                Err(error) if experiment.cases.is_empty() => return Err(error),
                Err(error) => {
                    let label = size_label(size);
                    experiment.left_out = vec![label.clone()];
                    let note = format!("{label} was not measured: {error}");
                    experiment.notes.push(note);
                    return Ok(experiment);
                }
            }
        }
        if !runner.is_stopped() {
            self.add_calls(&mut experiment, setting)?;
        }
        experiment.notes.extend(self.list.new_failures());
        experiment.left_out = self.list.left_out();
        Ok(experiment)
    }

    /// Stops all contenders; returns notes on those that had to be killed.
    pub(crate) fn stop(&mut self) -> Vec<String> {
        error::notes(self.contenders.iter_mut().map(TransferContender::stop))
    }

    pub(crate) fn has_programs(&self) -> bool {
        self.contenders.iter().any(|one| one.worker.is_none())
    }

    fn case(&mut self, size: u64, runner: &RoundRunner) -> Result<Option<Case>> {
        let case = self.environment.prepare(size)?;
        let played = runner.play(self, case.weight, |set, contender| {
            set.observe(contender, &case)
        })?;
        Ok(played.map(|played| Case {
            label: size_label(size),
            x: size as f64,
            load: case.load,
            metrics: read_all(E::METRICS_FIRST.iter().chain(&METRICS), &played),
            travelled: payload_paths(&played),
            notes: notes_of(&played, &mut self.list, E::OTHER_SIDE),
            ..Case::default()
        }))
    }

    fn observe(&mut self, contender: usize, case: &TransferCase) -> Result<PlaySample> {
        let environment = &self.environment;
        content::warm(&case.file)?;
        let contender = &mut self.contenders[contender];
        let times = match contender.worker {
            Some(_) => case.times,
            None => case.times.min(PROGRAM_TIMES_MAX),
        };
        let stored = contender.storage_read_bytes()?;
        let pid = contender.pid();
        let work = || environment.transfer(&case.file, contender, times);
        let (paths, window) = match pid {
            Some(pid) => observe(pid, work)?,
            None => observe_children(work)?,
        };
        let stored_now = contender.storage_read_bytes()?;
        environment.finish(case.size, times)?;
        Ok(PlaySample {
            storage_read_bytes: stored_now
                .zip(stored)
                .map(|(now, then)| now.saturating_sub(then)),
            paths,
            ..PlaySample::of(window, times, times * case.size)
        })
    }

    /// Counts the system calls of one more transfer of each worker under strace, for the largest
    /// case that is small enough.
    fn add_calls(
        &mut self,
        experiment: &mut Experiment,
        setting: &ExperimentContext,
    ) -> Result<()> {
        let fits = |case: &&mut Case| case.x as u64 <= TRACED_BYTES_MAX;
        let Some(case) = experiment.cases.iter_mut().rfind(fits) else {
            return Ok(());
        };
        let moved = self.environment.prepare(case.x as u64)?;
        let log = setting.scratch.path().join("calls.log");
        let count = |set: &mut TransferSet<E>, index: usize| {
            let (environment, contender) = (&set.environment, &mut set.contenders[index]);
            let Some(pid) = contender.pid() else {
                return Ok(None);
            };
            let work = || environment.transfer(&moved.file, contender, 1).map(drop);
            let calls = trace::count_calls(pid, &log, work)?;
            environment.finish(moved.size, 1)?;
            Ok(Some(SystemCalls::of(index, 1, calls)))
        };
        setting.runner.count_calls(self, 0, case, count)
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
