//! `bench copy`: a file to a file, by size and mechanism, on any file system.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::thread;

use clap::Args;
use underpass::{Mechanism, limits};

use super::folders::run_in_each;
use super::sample::{self as read, PlayMetric};
use super::sizes::{parse_size, sizes_of_cases};
use super::transfer::{self, TransferCase, TransferContender, TransferEnvironment, TransferSet};
use super::{ExperimentContext, Measurable, RunScale};
use crate::contender::mover::MoverSettings;
use crate::contender::named::NamedCommand;
use crate::contender::process::{self, CommandSpec, Processors, RunLimit};
use crate::contender::worker_process::JOB_TIMEOUT;
use crate::content;
use crate::document::{Axis, Experiment, PayloadPath, Unit};
use crate::error::{Error, Result};
use crate::machine::file_system;

/// From 10 KiB to 1 GiB, each about ten times the one before.
const SIZES: &[u64] = &[10 << 10, 100 << 10, 1 << 20, 10 << 20, 100 << 20, 1 << 30];
const SIZES_QUICK: &[u64] = &[10 << 10, 1 << 20, 100 << 20];

/// Smaller files are copied several times for one figure, up to about this many bytes or this
/// often.
const SAMPLE_BYTES: u64 = 64 << 20;
const TIMES_MAX: u64 = 500;

/// The size of the file that every contender copies before anything is measured.
const TRIAL_BYTES: u64 = (3 << 20) + 17;

/// Buffers for read/write. The largest is the mover's default.
const BUFFERS: [u64; 3] = [limits::BUFFER_BYTES as u64, 64 << 10, 8 << 10];

/// The options of `bench copy`.
#[derive(Args, Clone, Debug)]
pub struct FileCopyOptions {
    /// Copy files of these sizes, such as 10KiB,1GiB [default: 10 KiB to 1 GiB]
    #[arg(long, value_name = "SIZE,…", value_delimiter = ',', value_parser = parse_size)]
    sizes: Vec<u64>,
    /// Copy in this directory; give it several times for several file systems [default: --scratch]
    #[arg(long = "in", value_name = "DIR")]
    folders: Vec<PathBuf>,
    /// Measure this program too, which takes jobs on its standard input (docs/bench.md)
    #[arg(long = "peer", value_name = "NAME=COMMAND")]
    peers: Vec<NamedCommand>,
    /// Measure this program too, which is started for each copy, as in 'gnu=cp {from} {to}'
    #[arg(long = "program", value_name = "NAME=COMMAND")]
    programs: Vec<NamedCommand>,
}

impl Measurable for FileCopyOptions {
    fn usual_controls(&self, _: RunScale) -> Option<&'static [&'static str]> {
        None
    }

    fn weight(&self, scale: RunScale, rounds: usize) -> u64 {
        let contenders = 5 + BUFFERS.len() + self.peers.len() + self.programs.len();
        let all: u64 = self.sizes(scale).into_iter().map(weight_of).sum();
        all * contenders as u64 * (rounds as u64 + 1) * self.folders.len().max(1) as u64
    }

    fn run(&self, setting: &ExperimentContext) -> Result<Vec<Experiment>> {
        run_in_each(&self.folders, setting, "copy", |folder| {
            let mut set = TransferSet::new(CopyEnvironment {
                from: folder.join("from"),
                to: folder.join("to"),
                size: None,
                processors: setting.processors,
                stop: setting.runner.stop,
            });
            self.admit_all(&mut set)?;
            let experiment = describe(&file_system(folder), set.has_programs());
            let sizes = self.sizes(setting.scale);
            let mut experiment = set.play(experiment, &sizes, setting)?;
            experiment.notes.extend(set.stop());
            Ok(vec![experiment])
        })
    }
}

impl FileCopyOptions {
    fn sizes(&self, scale: RunScale) -> Vec<u64> {
        sizes_of_cases(&self.sizes, scale.pick(SIZES, SIZES_QUICK))
    }

    /// Admits the mover with its defaults, without sharing blocks if they can be shared, and with
    /// each mechanism; then the user's programs.
    fn admit_all(&self, set: &mut TransferSet<CopyEnvironment<'_>>) -> Result<()> {
        let processor = set.environment.processors.contender;
        let own = transfer::mover("underpass", MoverSettings::default())?;
        let paths = set.admit_worker(own, processor)?;
        let shares_blocks = paths
            .iter()
            .any(|path| path.mechanism == Mechanism::Clone.name() && path.bytes > 0);
        if shares_blocks {
            let unshared = MoverSettings {
                unshared: true,
                ..MoverSettings::default()
            };
            let unshared = transfer::mover("underpass, nothing shared", unshared)?;
            set.admit_worker(unshared, processor)?;
        }
        let in_kernel = [Mechanism::CopyRange, Mechanism::Sendfile, Mechanism::Splice];
        let own = in_kernel.map(transfer::mover_with).into_iter();
        let own = own.chain(transfer::read_writers(&BUFFERS));
        for command in own.chain(self.peers.iter().map(|peer| Ok(peer.command(&[])))) {
            set.admit_worker(command?, processor)?;
        }
        for named in &self.programs {
            let (from, to) = (&set.environment.from, &set.environment.to);
            let (from, to) = (from.to_string_lossy(), to.to_string_lossy());
            let mut command = named.command(&[("{from}", &from), ("{to}", &to)]);
            command.version = process::version_of(&command);
            let worker = None;
            set.admit(&named.name, Ok(TransferContender { command, worker }))?;
        }
        Ok(())
    }
}

fn weight_of(size: u64) -> u64 {
    20 + times(size) / 20 + times(size) * size / (1 << 20)
}

fn times(size: u64) -> u64 {
    transfer::times(size, SAMPLE_BYTES, TIMES_MAX)
}

struct CopyEnvironment<'a> {
    from: PathBuf,
    to: PathBuf,
    size: Option<u64>,
    processors: Processors,
    stop: &'a AtomicBool,
}

impl TransferEnvironment for CopyEnvironment<'_> {
    const NAME: &'static str = "copy";
    const METRICS_FIRST: &'static [PlayMetric] = &[read::TRANSFERS, read::CPU_PER_TRANSFER];
    const OTHER_SIDE: &'static str = "the bench";

    fn verify(&self, contender: &mut TransferContender) -> Result<Vec<PayloadPath>> {
        let sha256 = content::make(&self.from, TRIAL_BYTES, 0)?;
        let counts = self.transfer(&self.from, contender, 1)?;
        let compared = self.check(TRIAL_BYTES).and_then(|()| {
            let mut both = self.files().into_iter();
            match both.find(|(_, path)| content::hash(path).ok() != Some(sha256)) {
                Some((what, _)) => Err(Error::Answer(format!("the {what} has other bytes"))),
                None => Ok(counts),
            }
        });
        compared.map_err(|error| error.of(&contender.command.name))
    }

    fn prepare(&mut self, size: u64) -> Result<TransferCase> {
        self.size = Some(size);
        content::make(&self.from, size, 1)?;
        content::flush_to_disk(&self.from)?;
        let times = times(size);
        Ok(TransferCase {
            file: self.from.clone(),
            size,
            times,
            load: format!("copied {times} times for each figure"),
            weight: weight_of(size),
        })
    }

    /// Copies each time into a new file.
    fn transfer(
        &self,
        file: &Path,
        contender: &mut TransferContender,
        times: u64,
    ) -> Result<Vec<PayloadPath>> {
        if let Some(worker) = &mut contender.worker {
            let (from, to) = (file.to_string_lossy(), self.to.to_string_lossy());
            let job = ["copy", &from, &to, &times.to_string()];
            return Ok(worker.job(&job, self.stop)?.paths);
        }
        // Children run on the processor of the thread that starts them.
        let command = &contender.command;
        let run_all = || (0..times).try_for_each(|_| self.run_once(command));
        let done = thread::scope(|scope| scope.spawn(run_all).join());
        done.unwrap_or_else(|_| Err(Error::Contender("a thread failed".into())))?;
        Ok(Vec::new())
    }

    /// Data that is removed before it is written back never has to be.
    fn finish(&self, size: u64, _times: u64) -> Result<()> {
        self.check(size)?;
        content::remove(&self.to)
    }

    fn recover(&mut self) -> Result<()> {
        content::remove(&self.to)?;
        content::remove(&self.from)?;
        let size = self.size;
        size.map_or(Ok(()), |size| self.prepare(size).map(drop))
    }

    fn stop(&self) -> &AtomicBool {
        self.stop
    }
}

impl CopyEnvironment<'_> {
    fn files(&self) -> [(&str, &Path); 2] {
        [("copy", &self.to), ("source", &self.from)]
    }

    /// Checks that the copy and the source are files of this size: a program may have made anything
    /// of them.
    fn check(&self, size: u64) -> Result<()> {
        for (what, path) in self.files() {
            let why = match fs::symlink_metadata(path) {
                Ok(file) if !file.is_file() => format!("the {what} is not a regular file"),
                Ok(file) if file.len() == size => continue,
                Ok(file) => format!("the {what} has {} bytes of {size}", file.len()),
                Err(_) => format!("there is no {what}"),
            };
            return Err(Error::Answer(why));
        }
        Ok(())
    }

    fn run_once(&self, command: &CommandSpec) -> Result<()> {
        if let Some(processor) = self.processors.contender {
            process::bind_to(processor)?;
        }
        content::remove(&self.to)?;
        let limit = RunLimit {
            time: JOB_TIMEOUT,
            stop: self.stop,
        };
        process::run(command, limit, |_| Ok(()))
    }
}

fn describe(file_system: &str, has_programs: bool) -> Experiment {
    let notes = has_programs.then(|| {
        "contenders whose command names the files are started for each copy, and the time to start \
         and end them counts"
            .to_owned()
    });
    Experiment {
        name: "copy".into(),
        variant: format!("on {file_system}"),
        title: format!("A file copied to a file on {file_system}"),
        measured: "A file in the page cache is copied into a new file of the same directory, \
                   which is removed before the next copy. Time ends when the last call returns, \
                   so writing to disk later is not part of it."
            .into(),
        reading: "Copies between files go from page cache to page cache by the processor \
                  whatever the call; only where blocks are shared (clone) no bytes are copied. \
                  Small files show what it costs to open, create and remove a file."
            .into(),
        axis: Axis {
            label: "file size".into(),
            unit: Unit::Bytes,
        },
        notes: notes.into_iter().collect(),
        ..Experiment::default()
    }
}
