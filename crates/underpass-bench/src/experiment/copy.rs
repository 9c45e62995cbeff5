//! `bench copy`: a file to a file, by size, by every mechanism that can, wherever it is wanted.

use std::path::{Path, PathBuf};
use std::thread;

use underpass::{Cloning, Mechanism, limits};

use super::transfer::{self, TransferSample};
use super::{ExperimentContext, RunScale, TRACED, size_label, sizes_of_cases};
use crate::contender::mover::MoverSettings;
use crate::contender::named::NamedCommand;
use crate::contender::process::{self, CommandSpec, Processors};
use crate::contender::scratch::Scratch;
use crate::contender::worker_process::{MechanismCounts, WorkerProcess};
use crate::content;
use crate::document::{Axis, Case, Contender, Experiment, SystemCalls, Unit};
use crate::error::{self, Error, ErrorContext as _, Result};
use crate::machine::file_system;
use crate::machine::proc;
use crate::machine::trace;
use crate::machine::window::{observe, observe_children};
use crate::rounds::interleave::Played;
use crate::rounds::lineup::{ContenderList, ContenderSet};
use crate::rounds::run::{MetricReader, RoundRunner, Workload, read_off};

/// From 10 KiB to 1 GiB, each ten times the one before, as near as powers of two allow.
const SIZES: &[u64] = &[10 << 10, 100 << 10, 1 << 20, 10 << 20, 100 << 20, 1 << 30];
const SIZES_QUICK: &[u64] = &[10 << 10, 1 << 20, 100 << 20];

/// Smaller files are copied several times for one figure, until it is about so many bytes, or so
/// many times.
const SAMPLE_BYTES: u64 = 64 << 20;
const TIMES_MAX: u64 = 500;

/// Starting a program takes about a millisecond, so fewer of those make a figure.
const PROGRAM_TIMES_MAX: u64 = 40;

/// What read/write is tried with. The largest is the mover's own.
const BUFFERS: [u64; 3] = [limits::BUFFER_BYTES as u64, 64 << 10, 8 << 10];

/// What to copy, and where.
#[derive(Clone, Debug, Default)]
pub struct FileCopyOptions {
    /// In bytes; from 10 KiB to 1 GiB if empty.
    pub sizes: Vec<u64>,
    /// The folders to copy in, an experiment each; that of temporary files if empty.
    pub folders: Vec<PathBuf>,
    /// Other porters: each COMMAND keeps the contract of porters.
    pub peers: Vec<NamedCommand>,
    /// Programs that copy `{from}` to `{to}` once and end.
    pub programs: Vec<NamedCommand>,
}

/// What tells most about copies, before what tells of all transfers.
const METRICS_FIRST: [MetricReader<TransferSample>; 2] =
    [transfer::OPERATIONS, transfer::CPU_PER_OPERATION];

/// About how many milliseconds all of it takes.
pub(crate) fn weight(options: &FileCopyOptions, scale: RunScale, rounds: usize) -> u64 {
    let contenders = 5 + BUFFERS.len() + options.peers.len() + options.programs.len();
    let sizes = options.sizes(scale);
    let all: u64 = sizes.iter().map(|&size| weight_of(size)).sum();
    all * contenders as u64 * (rounds as u64 + 1) * options.folders.len().max(1) as u64
}

fn weight_of(size: u64) -> u64 {
    20 + times(size) / 20 + times(size) * size / (1 << 20)
}

fn times(size: u64) -> u64 {
    transfer::times(size, SAMPLE_BYTES, TIMES_MAX)
}

/// Copies by all contenders; an experiment for each folder.
pub(crate) fn run(
    options: &FileCopyOptions,
    ground: &ExperimentContext,
    run: &RoundRunner,
) -> Result<Vec<Experiment>> {
    if options.folders.is_empty() {
        let folder = ground.scratch.subdirectory("copy")?;
        return Ok(vec![run_in(&folder, options, ground, run)?]);
    }
    let mut experiments = Vec::new();
    for folder in &options.folders {
        let scratch = Scratch::create(folder)?;
        let experiment = run_in(scratch.path(), options, ground, run);
        scratch.finish()?;
        let mut experiment = experiment?;
        let namesakes = experiments
            .iter()
            .filter(|earlier: &&Experiment| earlier.variant.starts_with(&experiment.variant));
        if let count @ 1.. = namesakes.count() {
            experiment.variant += &format!(", folder {}", count + 1);
        }
        experiments.push(experiment);
    }
    Ok(experiments)
}

fn run_in(
    folder: &Path,
    options: &FileCopyOptions,
    ground: &ExperimentContext,
    run: &RoundRunner,
) -> Result<Experiment> {
    let mut bench = CopyContenders {
        place: CopyPaths {
            from: folder.join("from"),
            to: folder.join("to"),
            seats: ground.seats,
        },
        entrants: Vec::new(),
        lineup: ContenderList::default(),
    };
    let left_out = bench.admit_all(options)?;
    let names = bench.entrants.iter().map(|e| e.program.name.clone());
    bench.lineup = ContenderList::of(names);
    let mut experiment = describe(&bench, folder, run.rounds);
    experiment.notes.extend(left_out);
    for size in options.sizes(ground.scale) {
        if run.is_stopped() || bench.entrants.is_empty() {
            break;
        }
        let place = &experiment.variant;
        let what = format!("copy {place}, {}", size_label(size));
        run.progress.begin(&what);
        experiment.cases.extend(bench.case(size, run)?);
    }
    if !run.is_stopped() {
        let count = |size, notes: &mut _| bench.count_calls(size, ground, run, notes);
        transfer::add_calls(&mut experiment, count)?;
    }
    let stopped = bench.entrants.iter_mut().map(CopyContender::stop);
    error::all(stopped)?;
    Ok(experiment)
}

struct CopyContenders {
    place: CopyPaths,
    entrants: Vec<CopyContender>,
    lineup: ContenderList,
}

/// What is copied where, and on which processor.
struct CopyPaths {
    from: PathBuf,
    to: PathBuf,
    seats: Processors,
}

/// One of those measured.
struct CopyContender {
    program: CommandSpec,
    doer: CopyMethod,
}

/// How it is had to copy.
enum CopyMethod {
    /// It goes on and does as it is told.
    WorkerProcess(WorkerProcess),
    /// It is started anew for each copy.
    CommandSpec,
}

impl CopyContender {
    fn stop(&mut self) -> Result<()> {
        match &mut self.doer {
            CopyMethod::WorkerProcess(porter) => porter.stop(),
            CopyMethod::CommandSpec => Ok(()),
        }
    }

    fn version(&self) -> &str {
        match &self.doer {
            CopyMethod::WorkerProcess(porter) => porter.version(),
            CopyMethod::CommandSpec => &self.program.version,
        }
    }

    fn pid(&self) -> Option<u32> {
        match &self.doer {
            CopyMethod::WorkerProcess(porter) => Some(porter.pid()),
            CopyMethod::CommandSpec => None,
        }
    }

    /// So far; 0 of what is started anew each time, since nobody can ask it afterwards.
    fn storage_read_bytes(&self) -> Result<u64> {
        let read = self.pid().map(proc::storage_read_bytes).transpose()?;
        Ok(read.flatten().unwrap_or(0))
    }

    fn times(&self, size: u64) -> u64 {
        match self.doer {
            CopyMethod::WorkerProcess(_) => times(size),
            CopyMethod::CommandSpec => times(size).min(PROGRAM_TIMES_MAX),
        }
    }
}

impl CopyContenders {
    /// Lets those in that copy a small file as it is; says why of the others.
    fn admit_all(&mut self, options: &FileCopyOptions) -> Result<Vec<String>> {
        let mut left_out = Vec::new();
        let own = transfer::mover("underpass", MoverSettings::default())?;
        let journeys = self.admit_porter(own, &mut left_out)?;
        let shares_blocks = journeys
            .iter()
            .any(|journey| journey.mechanism == Mechanism::Clone && journey.bytes > 0);
        for program in movers(shares_blocks)? {
            self.admit_porter(program, &mut left_out)?;
        }
        for peer in &options.peers {
            self.admit_porter(peer.program(&[]), &mut left_out)?;
        }
        let CopyPaths { from, to, .. } = &self.place;
        let (from, to) = (from.to_string_lossy(), to.to_string_lossy());
        let places = [("{from}", &*from), ("{to}", &*to)];
        let programs = options.programs.iter();
        let programs: Vec<CommandSpec> = programs.map(|named| named.program(&places)).collect();
        for mut program in programs {
            program.version = process::version_of(&program);
            let doer = CopyMethod::CommandSpec;
            self.admit(Ok(CopyContender { program, doer }), &mut left_out)?;
        }
        Ok(left_out)
    }

    fn admit_porter(
        &mut self,
        program: CommandSpec,
        left_out: &mut Vec<String>,
    ) -> Result<Vec<MechanismCounts>> {
        let porter = WorkerProcess::start(&program, self.place.seats.contender);
        let entrant = porter.map(|porter| CopyContender {
            program,
            doer: CopyMethod::WorkerProcess(porter),
        });
        self.admit(entrant, left_out)
    }

    fn admit(
        &mut self,
        entrant: Result<CopyContender>,
        left_out: &mut Vec<String>,
    ) -> Result<Vec<MechanismCounts>> {
        let tried = entrant.and_then(|mut entrant| {
            let journeys = self.place.verify(&mut entrant)?;
            Ok((entrant, journeys))
        });
        match tried {
            Ok((entrant, journeys)) => {
                self.entrants.push(entrant);
                Ok(journeys)
            }
            Err(Error::Contender(why) | Error::Answer(why)) => {
                left_out.push(format!("not measured: {why}"));
                Ok(Vec::new())
            }
            Err(error) => Err(error),
        }
    }

    fn case(&mut self, size: u64, run: &RoundRunner) -> Result<Option<Case>> {
        content::make(&self.place.from, size, 1)?;
        content::flush_to_disk(&self.place.from)?;
        let mut copying = CopyWorkload { bench: self, size };
        let played = run.play(&mut copying, weight_of(size))?;
        remove(&self.place.to)?;
        Ok((!played.rounds.is_empty()).then(|| self.told(size, &played)))
    }

    /// In one more copy each, under strace; programs that are started anew are left out.
    fn count_calls(
        &mut self,
        size: u64,
        ground: &ExperimentContext,
        run: &RoundRunner,
        notes: &mut Vec<String>,
    ) -> Result<Vec<SystemCalls>> {
        content::make(&self.place.from, size, 1)?;
        let log = ground.scratch.path().join("calls.log");
        let mut copying = CopyWorkload { bench: self, size };
        let count = |copying: &mut CopyWorkload, contender: usize| {
            let CopyContenders {
                place, entrants, ..
            } = &mut *copying.bench;
            let entrant = &mut entrants[contender];
            let Some(pid) = entrant.pid() else {
                return Ok(None);
            };
            let copy = || place.copy(entrant, 1).map(drop);
            let calls = trace::count_calls(pid, &log, copy)?;
            Ok(Some(SystemCalls::of(contender, 1, calls)))
        };
        let all = run.once_each(&mut copying, TRACED, 0, notes, count)?;
        remove(&self.place.to)?;
        Ok(all.into_iter().flatten().collect())
    }

    fn told(&self, size: u64, played: &Played<TransferSample>) -> Case {
        Case {
            label: size_label(size),
            x: size as f64,
            load: format!("copied {} times for each figure", times(size)),
            metrics: read_off(METRICS_FIRST.iter().chain(&transfer::METRICS), played),
            travelled: transfer::travelled(played),
            notes: transfer::notes(&self.lineup, "the bench", played),
            ..Case::default()
        }
    }
}

impl ContenderSet for CopyContenders {
    fn lineup(&mut self) -> &mut ContenderList {
        &mut self.lineup
    }

    fn dismiss(&mut self, contender: usize) -> Result<()> {
        let _ = self.entrants[contender].stop();
        Ok(())
    }
}

/// A case on the stage.
struct CopyWorkload<'b> {
    bench: &'b mut CopyContenders,
    size: u64,
}

impl Workload for CopyWorkload<'_> {
    type Sample = TransferSample;
    type ContenderSet = CopyContenders;

    fn contenders(&mut self) -> &mut CopyContenders {
        self.bench
    }

    fn play(&mut self, contender: usize) -> Result<TransferSample> {
        let CopyContenders {
            place, entrants, ..
        } = &mut *self.bench;
        content::warm(&place.from)?;
        place.observe(&mut entrants[contender], self.size)
    }

    fn is_disturbed(&self, transfer: &TransferSample) -> bool {
        transfer.is_disturbed()
    }
}

impl CopyPaths {
    fn verify(&self, entrant: &mut CopyContender) -> Result<Vec<MechanismCounts>> {
        let sha256 = content::make(&self.from, (3 << 20) + 17, 0)?;
        let journeys = self.copy(entrant, 1)?;
        let name = &entrant.program.name;
        match self
            .to
            .exists()
            .then(|| content::hash(&self.to))
            .transpose()?
        {
            Some(copied) if copied == sha256 => {}
            Some(_) => return Err(Error::Answer(format!("{name}: the copy has other bytes"))),
            None => return Err(Error::Answer(format!("{name}: there is no copy"))),
        }
        Ok(journeys)
    }

    /// Copies so many times, each time into a new file.
    fn copy(&self, entrant: &mut CopyContender, times: u64) -> Result<Vec<MechanismCounts>> {
        match &mut entrant.doer {
            CopyMethod::WorkerProcess(porter) => {
                let (from, to) = (self.from.to_string_lossy(), self.to.to_string_lossy());
                Ok(porter
                    .job(&["copy", &from, &to, &times.to_string()])?
                    .journeys)
            }
            CopyMethod::CommandSpec => {
                let program = &entrant.program;
                let run_all = || (0..times).try_for_each(|_| self.run_once(program));
                let done = thread::scope(|scope| scope.spawn(run_all).join());
                done.unwrap_or_else(|_| Err(Error::Contender("a thread failed".into())))?;
                Ok(Vec::new())
            }
        }
    }

    /// Runs a program to its end. What this thread starts is on the processor it is on itself.
    fn run_once(&self, program: &CommandSpec) -> Result<()> {
        if let Some(processor) = self.seats.contender {
            process::bind_to(processor)?;
        }
        remove(&self.to)?;
        process::run_to_its_end(program)
    }

    fn observe(&self, entrant: &mut CopyContender, size: u64) -> Result<TransferSample> {
        let times = entrant.times(size);
        let stored = entrant.storage_read_bytes()?;
        let (journeys, window) = match entrant.pid() {
            Some(pid) => observe(pid, || self.copy(entrant, times))?,
            None => observe_children(|| self.copy(entrant, times))?,
        };
        let stored_bytes = entrant.storage_read_bytes()?.saturating_sub(stored);
        let copied = std::fs::metadata(&self.to).context(|| "looking at the copy".into())?;
        if copied.len() != size {
            let what = format!("the copy has {} bytes of {size}", copied.len());
            return Err(Error::Answer(what));
        }
        // What is not written to disk yet never has to be.
        remove(&self.to)?;
        Ok(TransferSample {
            window,
            times,
            bytes: times * size,
            stored_bytes,
            journeys,
        })
    }
}

impl FileCopyOptions {
    fn sizes(&self, scale: RunScale) -> Vec<u64> {
        sizes_of_cases(&self.sizes, scale.pick(SIZES, SIZES_QUICK))
    }
}

/// One of each mechanism, and where blocks can be shared also what comes first without that.
fn movers(shares_blocks: bool) -> Result<Vec<CommandSpec>> {
    let mut movers = Vec::new();
    if shares_blocks {
        let unshared = MoverSettings {
            cloning: Cloning::Never,
            ..MoverSettings::default()
        };
        movers.push(transfer::mover("underpass, nothing shared", unshared)?);
    }
    for mechanism in [Mechanism::CopyRange, Mechanism::Sendfile, Mechanism::Splice] {
        movers.push(transfer::mover(
            mechanism.name(),
            transfer::only(mechanism, None),
        )?);
    }
    for buffer in BUFFERS {
        let name = format!("read/write {} KiB", buffer >> 10);
        let settings = transfer::only(Mechanism::ReadWrite, Some(buffer));
        movers.push(transfer::mover(&name, settings)?);
    }
    Ok(movers)
}

fn remove(path: &Path) -> Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).context(|| format!("removing {}", path.display()))
        }
        _ => Ok(()),
    }
}

fn describe(bench: &CopyContenders, folder: &Path, rounds: usize) -> Experiment {
    let file_system = file_system(folder);
    let entrants = bench.entrants.iter();
    let contenders = entrants.map(|entrant| Contender {
        version: entrant.version().to_owned(),
        ..entrant.program.entry()
    });
    let started = bench
        .entrants
        .iter()
        .any(|e| matches!(e.doer, CopyMethod::CommandSpec));
    let notes = started.then(|| {
        "contenders whose command names the files are started anew for each copy, and the time \
         of starting and ending them counts"
            .to_owned()
    });
    Experiment {
        name: "copy".into(),
        variant: format!("on {file_system}"),
        title: format!("A file copied to a file on {file_system}"),
        measured: "A file in the page cache is copied into a new file of the same folder, which \
                   is removed before the next copy. Time ends when the last call returns: what \
                   is written to disk later is not in it."
            .into(),
        reading: "Copies between files go from page cache to page cache by the processor \
                  whatever the call; only where blocks are shared (clone) is nothing copied. \
                  Small files tell what opening, creating and removing a file costs."
            .into(),
        axis: Axis {
            label: "file size".into(),
            unit: Unit::Bytes,
        },
        rounds,
        contenders: contenders.collect(),
        notes: notes.into_iter().collect(),
        ..Experiment::default()
    }
}
