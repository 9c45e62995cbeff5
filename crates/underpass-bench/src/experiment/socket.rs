//! `bench socket`: a file through a TCP socket, by size, by every mechanism that can.

use std::path::{Path, PathBuf};

use underpass::{Mechanism, limits};

use super::transfer::{self, TransferSample};
use super::{ExperimentContext, RunScale, TRACED, size_label, sizes_of_cases};
use crate::contender::named::NamedCommand;
use crate::contender::process::CommandSpec;
use crate::contender::receiver::{ReceiveMode, TestReceiver};
use crate::contender::worker_process::WorkerProcess;
use crate::content::{self, Sha256Hash};
use crate::document::{Axis, Case, Contender, Experiment, SystemCalls, Unit};
use crate::error::{self, Error, Result};
use crate::machine::window::observe;
use crate::machine::{proc, trace};
use crate::rounds::interleave::Played;
use crate::rounds::lineup::{ContenderList, ContenderSet};
use crate::rounds::run::{RoundRunner, Workload, read_off};

const MB: u64 = 1_000_000;

/// The sizes that the published experiment used.
const SIZES: &[u64] = &[
    7 * MB,
    21 * MB,
    63 * MB,
    98 * MB,
    200 * MB,
    350 * MB,
    700 * MB,
    1000 * MB,
];
const SIZES_QUICK: &[u64] = &[7 * MB, 63 * MB];

/// Smaller files are sent several times for one figure, until it is about so many bytes, or
/// so many times.
const SAMPLE_BYTES_FULL: u64 = 100 * MB;
const SAMPLE_BYTES_QUICK: u64 = 14 * MB;
const TIMES_MAX: u64 = 1000;

/// What read/write is tried with. The largest is the mover's own.
const BUFFERS: [u64; 4] = [limits::BUFFER_BYTES as u64, 64 << 10, 8 << 10, 4 << 10];

/// What to send, and to whom.
#[derive(Clone, Debug, Default)]
pub struct SocketOptions {
    /// In bytes; those of the published experiment if empty.
    pub sizes: Vec<u64>,
    /// Only one way of receiving; both if none.
    pub taking: Option<ReceiveMode>,
    /// A receiver on another machine, as `bench sink` names it: host and port.
    pub to: Option<(String, u16)>,
    /// Other porters: each COMMAND keeps the contract of porters.
    pub peers: Vec<NamedCommand>,
}

/// About how many milliseconds all of it takes.
pub(crate) fn weight(options: &SocketOptions, scale: RunScale, rounds: usize) -> u64 {
    let contenders = (2 + BUFFERS.len() + options.peers.len()) as u64;
    let sizes = options.sizes(scale);
    let all: u64 = sizes.iter().map(|&size| weight_of(size, scale)).sum();
    all * contenders * (rounds as u64 + 1) * options.takings().len() as u64
}

fn weight_of(size: u64, scale: RunScale) -> u64 {
    20 + times(size, scale) * size / (3 * MB)
}

fn times(size: u64, scale: RunScale) -> u64 {
    let sample_bytes = scale.pick(SAMPLE_BYTES_FULL, SAMPLE_BYTES_QUICK);
    transfer::times(size, sample_bytes, TIMES_MAX)
}

/// Sends by all contenders; an experiment for each way of receiving.
pub(crate) fn run(
    options: &SocketOptions,
    ground: &ExperimentContext,
    run: &RoundRunner,
) -> Result<Vec<Experiment>> {
    let receiver = TestReceiver::start()?;
    let mut bench = SocketContenders {
        scale: ground.scale,
        target: options.target(),
        receiver,
        folder: ground.scratch.subdirectory("socket")?,
        entrants: Vec::new(),
        lineup: ContenderList::default(),
    };
    let mut left_out = Vec::new();
    for program in programs(options)? {
        let porter = WorkerProcess::start(&program, ground.seats.contender);
        match porter.and_then(|porter| bench.admit(program, porter)) {
            Ok(entrant) => bench.entrants.push(entrant),
            Err(Error::Contender(why)) => {
                left_out.push(format!("not measured: {why}"));
                // What of its bytes is still to arrive must not be taken for the next one's.
                bench.receiver = TestReceiver::start()?;
            }
            Err(error) => return Err(error),
        }
    }
    let names = bench.entrants.iter().map(|e| e.program.name.clone());
    bench.lineup = ContenderList::of(names);
    let mut experiments = Vec::new();
    for taking in options.takings() {
        let mut experiment = describe(&bench, options, taking, run.rounds);
        let failures = bench.lineup.failures();
        experiment
            .notes
            .extend(left_out.iter().chain(failures).cloned());
        for size in options.sizes(ground.scale) {
            if run.is_stopped() || bench.entrants.is_empty() {
                break;
            }
            run.progress.begin(&format!("socket, {}", size_label(size)));
            experiment.cases.extend(bench.case(size, taking, run)?);
        }
        if !run.is_stopped() {
            let count = |size, notes: &mut _| bench.count_calls(taking, size, ground, run, notes);
            transfer::add_calls(&mut experiment, count)?;
        }
        experiments.push(experiment);
    }
    let stopped = bench.entrants.iter_mut().map(|e| e.porter.stop());
    error::all(stopped)?;
    Ok(experiments)
}

/// What the plan would choose comes first.
fn programs(options: &SocketOptions) -> Result<Vec<CommandSpec>> {
    let mut programs = vec![
        transfer::mover("sendfile", transfer::only(Mechanism::Sendfile, None))?,
        transfer::mover("splice", transfer::only(Mechanism::Splice, None))?,
    ];
    for buffer in BUFFERS {
        let name = format!("read/write {} KiB", buffer >> 10);
        let settings = transfer::only(Mechanism::ReadWrite, Some(buffer));
        programs.push(transfer::mover(&name, settings)?);
    }
    programs.extend(options.peers.iter().map(|peer| peer.program(&[])));
    Ok(programs)
}

struct SocketContenders {
    scale: RunScale,
    receiver: TestReceiver,
    target: SendDestination,
    folder: PathBuf,
    entrants: Vec<SocketContender>,
    lineup: ContenderList,
}

/// Who receives.
enum SendDestination {
    Here,
    /// Host, and the port of the way of receiving that discards; the other one is the next.
    There(String, u16),
}

struct SocketContender {
    program: CommandSpec,
    porter: WorkerProcess,
}

impl SocketContenders {
    /// Lets a porter in that delivers a small file as it is.
    fn admit(&self, program: CommandSpec, mut porter: WorkerProcess) -> Result<SocketContender> {
        let file = self.folder.join("trial");
        let bytes = 3 * MB + 17;
        let sha256 = content::make(&file, bytes, 0)?;
        self.verify(&mut porter, &file, bytes, &sha256)
            .map_err(|error| match error {
                Error::Answer(what) => Error::Contender(format!("{}: {what}", program.name)),
                other => other,
            })?;
        Ok(SocketContender { program, porter })
    }

    /// What is sent to another machine can't be looked at, so the trial stays here.
    fn verify(
        &self,
        porter: &mut WorkerProcess,
        file: &Path,
        bytes: u64,
        sha256: &Sha256Hash,
    ) -> Result<()> {
        self.receiver.take_by(ReceiveMode::Hash);
        let address = self.receiver.address().to_string();
        let done = porter.job(&["send", &file.to_string_lossy(), &address])?;
        if done.bytes != bytes {
            let what = format!("says that it sent {} bytes of {bytes}", done.bytes);
            return Err(Error::Answer(what));
        }
        let taken = self.receiver.taken()?;
        match (taken.bytes, taken.sha256) {
            (taken, Some(hash)) if taken == bytes && hash == *sha256 => Ok(()),
            (taken, _) if taken == bytes => Err(Error::Answer("other bytes arrived".into())),
            (taken, _) => Err(Error::Answer(format!("{taken} bytes of {bytes} arrived"))),
        }
    }

    fn case(&mut self, size: u64, taking: ReceiveMode, run: &RoundRunner) -> Result<Option<Case>> {
        let file = self.folder.join(format!("{size}"));
        if !file.exists() {
            content::make(&file, size, 1)?;
            content::flush_to_disk(&file)?;
        }
        let weight = weight_of(size, self.scale);
        let mut sending = self.sending(size, taking);
        let played = run.play(&mut sending, weight)?;
        Ok((!played.rounds.is_empty()).then(|| self.told(size, &played)))
    }

    fn told(&self, size: u64, played: &Played<TransferSample>) -> Case {
        let load = match times(size, self.scale) {
            1 => "sent once for each figure".to_owned(),
            times => format!("sent {times} times for each figure"),
        };
        Case {
            label: size_label(size),
            x: size as f64,
            load,
            metrics: read_off(&transfer::METRICS, played),
            travelled: transfer::travelled(played),
            notes: transfer::notes(&self.lineup, "the receiver", played),
            ..Case::default()
        }
    }

    /// In one more transfer each, under strace.
    fn count_calls(
        &mut self,
        taking: ReceiveMode,
        size: u64,
        ground: &ExperimentContext,
        run: &RoundRunner,
        notes: &mut Vec<String>,
    ) -> Result<Vec<SystemCalls>> {
        let mut sending = self.sending(size, taking);
        let count = |sending: &mut SendWorkload, contender| {
            let calls = sending.calls_of(contender, ground)?;
            Ok(SystemCalls::of(contender, 1, calls))
        };
        run.once_each(&mut sending, TRACED, 0, notes, count)
    }

    fn sending(&mut self, size: u64, taking: ReceiveMode) -> SendWorkload<'_> {
        SendWorkload {
            file: self.folder.join(format!("{size}")),
            bench: self,
            size,
            taking,
        }
    }

    fn address(&self, taking: ReceiveMode) -> String {
        match &self.target {
            SendDestination::Here => self.receiver.address().to_string(),
            SendDestination::There(host, port) if taking == ReceiveMode::Discard => {
                format!("{host}:{port}")
            }
            SendDestination::There(host, port) => format!("{host}:{}", port + 1),
        }
    }
}

impl ContenderSet for SocketContenders {
    fn lineup(&mut self) -> &mut ContenderList {
        &mut self.lineup
    }

    fn dismiss(&mut self, contender: usize) -> Result<()> {
        let _ = self.entrants[contender].porter.stop();
        // What of its bytes is still to arrive must not be taken for the next one's.
        self.receiver = TestReceiver::start()?;
        Ok(())
    }
}

/// A case on the stage.
struct SendWorkload<'b> {
    bench: &'b mut SocketContenders,
    file: PathBuf,
    size: u64,
    taking: ReceiveMode,
}

impl Workload for SendWorkload<'_> {
    type Sample = TransferSample;
    type ContenderSet = SocketContenders;

    fn contenders(&mut self) -> &mut SocketContenders {
        self.bench
    }

    fn play(&mut self, contender: usize) -> Result<TransferSample> {
        content::warm(&self.file)?;
        let address = self.bench.address(self.taking);
        let receiver = &self.bench.receiver;
        receiver.take_by(self.taking);
        let porter = &mut self.bench.entrants[contender].porter;
        let file = self.file.to_string_lossy();
        let times = times(self.size, self.bench.scale);
        let stored = proc::storage_read_bytes(porter.pid())?.unwrap_or(0);
        let pid = porter.pid();
        let send_all = || {
            let mut journeys = Vec::new();
            for _ in 0..times {
                let done = porter.job(&["send", &file, &address])?;
                if done.bytes != self.size {
                    let what = format!("{} bytes of {} were sent", done.bytes, self.size);
                    return Err(Error::Answer(what));
                }
                journeys.extend(done.journeys);
            }
            Ok(journeys)
        };
        let (journeys, window) = observe(pid, send_all)?;
        if matches!(self.bench.target, SendDestination::Here) {
            for _ in 0..times {
                let taken = receiver.taken()?.bytes;
                if taken != self.size {
                    let what = format!("{taken} bytes of {} arrived", self.size);
                    return Err(Error::Answer(what));
                }
            }
        }
        let stored_now = proc::storage_read_bytes(pid)?.unwrap_or(0);
        Ok(TransferSample {
            window,
            times,
            bytes: times * self.size,
            stored_bytes: stored_now.saturating_sub(stored),
            journeys,
        })
    }

    fn is_disturbed(&self, transfer: &TransferSample) -> bool {
        transfer.is_disturbed()
    }
}

impl SendWorkload<'_> {
    fn calls_of(
        &mut self,
        contender: usize,
        ground: &ExperimentContext,
    ) -> Result<trace::CallCounts> {
        let log = ground.scratch.path().join("calls.log");
        let address = self.bench.address(self.taking);
        self.bench.receiver.take_by(self.taking);
        let porter = &mut self.bench.entrants[contender].porter;
        let pid = porter.pid();
        let words = ["send", &*self.file.to_string_lossy(), &address];
        let calls = trace::count_calls(pid, &log, || porter.job(&words).map(drop))?;
        if matches!(self.bench.target, SendDestination::Here) {
            self.bench.receiver.taken()?;
        }
        Ok(calls)
    }
}

impl SocketOptions {
    fn sizes(&self, scale: RunScale) -> Vec<u64> {
        sizes_of_cases(&self.sizes, scale.pick(SIZES, SIZES_QUICK))
    }

    fn takings(&self) -> Vec<ReceiveMode> {
        match self.taking {
            Some(taking) => vec![taking],
            None => vec![ReceiveMode::Discard, ReceiveMode::Copy],
        }
    }

    fn target(&self) -> SendDestination {
        match &self.to {
            Some((host, port)) => SendDestination::There(host.clone(), *port),
            None => SendDestination::Here,
        }
    }
}

fn describe(
    bench: &SocketContenders,
    options: &SocketOptions,
    taking: ReceiveMode,
    rounds: usize,
) -> Experiment {
    let (variant, receiver) = match taking {
        ReceiveMode::Discard => (
            "receiver discards",
            "a receiver that has the kernel throw the bytes away, so that the sender's cost alone \
             shows",
        ),
        _ => (
            "receiver copies",
            "a receiver that copies the bytes into a buffer, as programs do that look at them",
        ),
    };
    let whither = match &options.to {
        Some((host, port)) => format!("{host}:{port}"),
        None => "loopback".to_owned(),
    };
    let entrants = bench.entrants.iter();
    let contenders = entrants.map(|entrant| Contender {
        version: entrant.porter.version().to_owned(),
        ..entrant.program.entry()
    });
    Experiment {
        name: "socket".into(),
        variant: variant.into(),
        title: format!("A file through a TCP socket, {variant}"),
        measured: format!(
            "A file from the page cache is sent over a new TCP connection ({whither}) to \
             {receiver}. Time ends when the receiver has all of it; processor time is the sender's."
        ),
        reading:
            "Lower is cheaper. Where the sender costs less but takes as long, the receiver is \
                  the limit: over loopback it does the one copy that is left."
                .into(),
        axis: Axis {
            label: "file size".into(),
            unit: Unit::Bytes,
        },
        rounds,
        contenders: contenders.collect(),
        ..Experiment::default()
    }
}
