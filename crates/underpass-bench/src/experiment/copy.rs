//! `bench copy`: a file to a file, by size, by every mechanism that can, wherever it is wanted.

use std::path::{Path, PathBuf};
use std::thread;

use underpass::{Cloning, Mechanism, limits};

use super::transfer::{self, Transfer};
use super::{Ground, Scale, TRACED, size_label, sizes_of_cases};
use crate::contender::mover::Settings;
use crate::contender::named::Named;
use crate::contender::process::{self, Program, Seats};
use crate::contender::scratch::Scratch;
use crate::contender::worker_process::{Journey, Porter};
use crate::content;
use crate::document::{Axis, Calls, Case, Contender, Experiment, Unit};
use crate::error::{self, Doing as _, Error, Result};
use crate::machine::file_system;
use crate::machine::proc;
use crate::machine::trace;
use crate::machine::window::{observe, observe_children};
use crate::rounds::interleave::Played;
use crate::rounds::lineup::{Contenders, Lineup};
use crate::rounds::run::{Metric, Run, Trial, read_off};

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
pub struct Options {
    /// In bytes; from 10 KiB to 1 GiB if empty.
    pub sizes: Vec<u64>,
    /// The folders to copy in, an experiment each; that of temporary files if empty.
    pub folders: Vec<PathBuf>,
    /// Other porters: each COMMAND keeps the contract of porters.
    pub peers: Vec<Named>,
    /// Programs that copy `{from}` to `{to}` once and end.
    pub programs: Vec<Named>,
}

/// What tells most about copies, before what tells of all transfers.
const METRICS_FIRST: [Metric<Transfer>; 2] = [transfer::OPERATIONS, transfer::CPU_PER_OPERATION];

/// About how many milliseconds all of it takes.
pub(crate) fn weight(options: &Options, scale: Scale, rounds: usize) -> u64 {
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
pub(crate) fn run(options: &Options, ground: &Ground, run: &Run) -> Result<Vec<Experiment>> {
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

fn run_in(folder: &Path, options: &Options, ground: &Ground, run: &Run) -> Result<Experiment> {
    let mut bench = Bench {
        place: Place {
            from: folder.join("from"),
            to: folder.join("to"),
            seats: ground.seats,
        },
        entrants: Vec::new(),
        lineup: Lineup::default(),
    };
    let left_out = bench.admit_all(options)?;
    let names = bench.entrants.iter().map(|e| e.program.name.clone());
    bench.lineup = Lineup::of(names);
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
    let stopped = bench.entrants.iter_mut().map(Entrant::stop);
    error::all(stopped)?;
    Ok(experiment)
}

struct Bench {
    place: Place,
    entrants: Vec<Entrant>,
    lineup: Lineup,
}

/// What is copied where, and on which processor.
struct Place {
    from: PathBuf,
    to: PathBuf,
    seats: Seats,
}

/// One of those measured.
struct Entrant {
    program: Program,
    doer: Doer,
}

/// How it is had to copy.
enum Doer {
    /// It goes on and does as it is told.
    Porter(Porter),
    /// It is started anew for each copy.
    Program,
}

impl Entrant {
    fn stop(&mut self) -> Result<()> {
        match &mut self.doer {
            Doer::Porter(porter) => porter.stop(),
            Doer::Program => Ok(()),
        }
    }

    fn version(&self) -> &str {
        match &self.doer {
            Doer::Porter(porter) => porter.version(),
            Doer::Program => &self.program.version,
        }
    }

    fn pid(&self) -> Option<u32> {
        match &self.doer {
            Doer::Porter(porter) => Some(porter.pid()),
            Doer::Program => None,
        }
    }

    /// So far; 0 of what is started anew each time, since nobody can ask it afterwards.
    fn storage_read_bytes(&self) -> Result<u64> {
        let read = self.pid().map(proc::storage_read_bytes).transpose()?;
        Ok(read.flatten().unwrap_or(0))
    }

    fn times(&self, size: u64) -> u64 {
        match self.doer {
            Doer::Porter(_) => times(size),
            Doer::Program => times(size).min(PROGRAM_TIMES_MAX),
        }
    }
}

impl Bench {
    /// Lets those in that copy a small file as it is; says why of the others.
    fn admit_all(&mut self, options: &Options) -> Result<Vec<String>> {
        let mut left_out = Vec::new();
        let own = transfer::mover("underpass", Settings::default())?;
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
        let Place { from, to, .. } = &self.place;
        let (from, to) = (from.to_string_lossy(), to.to_string_lossy());
        let places = [("{from}", &*from), ("{to}", &*to)];
        let programs = options.programs.iter();
        let programs: Vec<Program> = programs.map(|named| named.program(&places)).collect();
        for mut program in programs {
            program.version = process::version_of(&program);
            let doer = Doer::Program;
            self.admit(Ok(Entrant { program, doer }), &mut left_out)?;
        }
        Ok(left_out)
    }

    fn admit_porter(
        &mut self,
        program: Program,
        left_out: &mut Vec<String>,
    ) -> Result<Vec<Journey>> {
        let porter = Porter::start(&program, self.place.seats.contender);
        let entrant = porter.map(|porter| Entrant {
            program,
            doer: Doer::Porter(porter),
        });
        self.admit(entrant, left_out)
    }

    fn admit(
        &mut self,
        entrant: Result<Entrant>,
        left_out: &mut Vec<String>,
    ) -> Result<Vec<Journey>> {
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

    fn case(&mut self, size: u64, run: &Run) -> Result<Option<Case>> {
        content::make(&self.place.from, size, 1)?;
        content::flush_to_disk(&self.place.from)?;
        let mut copying = Copying { bench: self, size };
        let played = run.play(&mut copying, weight_of(size))?;
        remove(&self.place.to)?;
        Ok((!played.rounds.is_empty()).then(|| self.told(size, &played)))
    }

    /// In one more copy each, under strace; programs that are started anew are left out.
    fn count_calls(
        &mut self,
        size: u64,
        ground: &Ground,
        run: &Run,
        notes: &mut Vec<String>,
    ) -> Result<Vec<Calls>> {
        content::make(&self.place.from, size, 1)?;
        let log = ground.scratch.path().join("calls.log");
        let mut copying = Copying { bench: self, size };
        let count = |copying: &mut Copying, contender: usize| {
            let Bench {
                place, entrants, ..
            } = &mut *copying.bench;
            let entrant = &mut entrants[contender];
            let Some(pid) = entrant.pid() else {
                return Ok(None);
            };
            let copy = || place.copy(entrant, 1).map(drop);
            let calls = trace::count_calls(pid, &log, copy)?;
            Ok(Some(Calls::of(contender, 1, calls)))
        };
        let all = run.once_each(&mut copying, TRACED, 0, notes, count)?;
        remove(&self.place.to)?;
        Ok(all.into_iter().flatten().collect())
    }

    fn told(&self, size: u64, played: &Played<Transfer>) -> Case {
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

impl Contenders for Bench {
    fn lineup(&mut self) -> &mut Lineup {
        &mut self.lineup
    }

    fn dismiss(&mut self, contender: usize) -> Result<()> {
        let _ = self.entrants[contender].stop();
        Ok(())
    }
}

/// A case on the stage.
struct Copying<'b> {
    bench: &'b mut Bench,
    size: u64,
}

impl Trial for Copying<'_> {
    type Observation = Transfer;
    type Contenders = Bench;

    fn contenders(&mut self) -> &mut Bench {
        self.bench
    }

    fn play(&mut self, contender: usize) -> Result<Transfer> {
        let Bench {
            place, entrants, ..
        } = &mut *self.bench;
        content::warm(&place.from)?;
        place.observe(&mut entrants[contender], self.size)
    }

    fn is_disturbed(&self, transfer: &Transfer) -> bool {
        transfer.is_disturbed()
    }
}

impl Place {
    fn verify(&self, entrant: &mut Entrant) -> Result<Vec<Journey>> {
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
    fn copy(&self, entrant: &mut Entrant, times: u64) -> Result<Vec<Journey>> {
        match &mut entrant.doer {
            Doer::Porter(porter) => {
                let (from, to) = (self.from.to_string_lossy(), self.to.to_string_lossy());
                Ok(porter
                    .job(&["copy", &from, &to, &times.to_string()])?
                    .journeys)
            }
            Doer::Program => {
                let program = &entrant.program;
                let run_all = || (0..times).try_for_each(|_| self.run_once(program));
                let done = thread::scope(|scope| scope.spawn(run_all).join());
                done.unwrap_or_else(|_| Err(Error::Contender("a thread failed".into())))?;
                Ok(Vec::new())
            }
        }
    }

    /// Runs a program to its end. What this thread starts is on the processor it is on itself.
    fn run_once(&self, program: &Program) -> Result<()> {
        if let Some(processor) = self.seats.contender {
            process::bind_to(processor)?;
        }
        remove(&self.to)?;
        process::run_to_its_end(program)
    }

    fn observe(&self, entrant: &mut Entrant, size: u64) -> Result<Transfer> {
        let times = entrant.times(size);
        let stored = entrant.storage_read_bytes()?;
        let (journeys, window) = match entrant.pid() {
            Some(pid) => observe(pid, || self.copy(entrant, times))?,
            None => observe_children(|| self.copy(entrant, times))?,
        };
        let stored_bytes = entrant.storage_read_bytes()?.saturating_sub(stored);
        let copied = std::fs::metadata(&self.to).doing(|| "looking at the copy".into())?;
        if copied.len() != size {
            let what = format!("the copy has {} bytes of {size}", copied.len());
            return Err(Error::Answer(what));
        }
        // What is not written to disk yet never has to be.
        remove(&self.to)?;
        Ok(Transfer {
            window,
            times,
            bytes: times * size,
            stored_bytes,
            journeys,
        })
    }
}

impl Options {
    fn sizes(&self, scale: Scale) -> Vec<u64> {
        sizes_of_cases(&self.sizes, scale.pick(SIZES, SIZES_QUICK))
    }
}

/// One of each mechanism, and where blocks can be shared also what comes first without that.
fn movers(shares_blocks: bool) -> Result<Vec<Program>> {
    let mut movers = Vec::new();
    if shares_blocks {
        let unshared = Settings {
            cloning: Cloning::Never,
            ..Settings::default()
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
            Err(error).doing(|| format!("removing {}", path.display()))
        }
        _ => Ok(()),
    }
}

fn describe(bench: &Bench, folder: &Path, rounds: usize) -> Experiment {
    let file_system = file_system(folder);
    let entrants = bench.entrants.iter();
    let contenders = entrants.map(|entrant| Contender {
        version: entrant.version().to_owned(),
        ..entrant.program.entry()
    });
    let started = bench
        .entrants
        .iter()
        .any(|e| matches!(e.doer, Doer::Program));
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
