//! `bench tree`: whole trees, and files that are special, by programs started for each copy.
//!
//! ```text
//!   room?  ─▶ source made ─▶ trial: a copy each, compared ─▶ rounds ─▶ experiments
//!                                                             │
//!                 copy before forgotten ◀─ all on disk ◀──────┤ before each play,
//!                                          source read ◀──────┘ not timed
//! ```
//!
//! Copies of trees stay until all is over. For a minute and longer ext4 passes over inodes that
//! were just removed, and looks at each of them again for every file that is created, so that a
//! copy after a removal takes many times as long (`recently_deleted`, fs/ext4/ialloc.c).

mod copied;
mod copier;
mod source;

use std::fs::File;
use std::path::{Path, PathBuf};

use rustix::fs::{statvfs, syncfs};

use self::copied::{CopySample, METRICS};
use self::copier::Reflink;
use self::source::{CopySource, TreeSize};
use super::{ExperimentContext, RunScale, size_label};
use crate::contender::named::NamedCommand;
use crate::contender::process::{self, CommandSpec, Processors};
use crate::contender::scratch::Scratch;
use crate::content::Sha256Hash;
use crate::document::{Axis, Case, Contender, Experiment};
use crate::error::{Error, ErrorContext as _, Result};
use crate::machine::file_system;
use crate::machine::window::observe_children;
use crate::rounds::interleave::Played;
use crate::rounds::lineup::{ContenderList, ContenderSet};
use crate::rounds::run::{RoundRunner, Workload, notes_of_rounds, read_off};

/// How many threads our own are given. Each of them is compared with all others.
const JOBS: [usize; 2] = [1, 2];

/// A copy of a sparse file that takes this many times what the file takes has its holes filled.
const FILLED_FACTOR: u64 = 16;

/// What is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceKind {
    /// One large file, its blocks not shared.
    File,
    /// A very large file with little in it, likewise.
    Sparse,
    /// A large file, its blocks shared; where the file system can't, there is none.
    Clone,
    /// Many small files in folders.
    Tree,
}

impl SourceKind {
    /// What leaves most behind comes last.
    pub const ALL: [SourceKind; 4] = [
        SourceKind::File,
        SourceKind::Sparse,
        SourceKind::Clone,
        SourceKind::Tree,
    ];
}

/// What to copy, where, and who else does.
#[derive(Clone, Debug, Default)]
pub struct TreeOptions {
    /// All if empty.
    pub kinds: Vec<SourceKind>,
    /// Files of a tree.
    pub files: Option<u64>,
    /// Bytes of each of them.
    pub file_bytes: Option<u64>,
    /// Bytes of the large file, and of the one whose blocks are shared.
    pub large_bytes: Option<u64>,
    /// Bytes of the sparse file.
    pub sparse_bytes: Option<u64>,
    /// The folders to copy in; that of temporary files if empty.
    pub folders: Vec<PathBuf>,
    /// Programs that copy `{from}` to `{to}` once and end; `{reflink}` becomes `--reflink=never` or
    /// `--reflink=always`, or nothing.
    pub programs: Vec<NamedCommand>,
}

/// About how many milliseconds all of it takes.
pub(crate) fn weight(options: &TreeOptions, scale: RunScale, rounds: usize) -> u64 {
    let kinds = options.kinds().into_iter();
    let play: u64 = kinds
        .map(|kind| weight_of(options.source(kind, scale)))
        .sum();
    let contenders = JOBS.len() + options.programs.len();
    let plays = contenders * (rounds + 1) * options.folders.len().max(1);
    play * plays as u64
}

fn weight_of(source: CopySource) -> u64 {
    20 + source.entries() / 10 + source.disk_bytes() / (1 << 20)
}

/// Copies of each kind by all contenders, in each folder.
pub(crate) fn run(
    options: &TreeOptions,
    ground: &ExperimentContext,
    run: &RoundRunner,
) -> Result<Vec<Experiment>> {
    if options.folders.is_empty() {
        let folder = ground.scratch.subdirectory("tree")?;
        return run_in(&folder, options, ground, run);
    }
    let mut experiments: Vec<Experiment> = Vec::new();
    for folder in &options.folders {
        let scratch = Scratch::create(folder)?;
        let done = run_in(scratch.path(), options, ground, run);
        scratch.finish()?;
        for mut experiment in done? {
            let is_namesake = |one: &&Experiment| one.variant.starts_with(&experiment.variant);
            if let count @ 1.. = experiments.iter().filter(is_namesake).count() {
                experiment.variant += &format!(", folder {}", count + 1);
            }
            experiments.push(experiment);
        }
    }
    Ok(experiments)
}

fn run_in(
    folder: &Path,
    options: &TreeOptions,
    ground: &ExperimentContext,
    run: &RoundRunner,
) -> Result<Vec<Experiment>> {
    let mut experiments = Vec::new();
    let shares_blocks = source::shares_blocks(folder)?;
    for kind in options.kinds() {
        let reflink = match (kind, shares_blocks) {
            (SourceKind::Clone, false) => continue,
            (SourceKind::Clone, true) => Reflink::Always,
            (SourceKind::File | SourceKind::Sparse, true) => Reflink::Never,
            // GNU cp can do no better than read and write once it is told.
            (SourceKind::File | SourceKind::Sparse, false) | (SourceKind::Tree, _) => {
                Reflink::Unsaid
            }
        };
        if !run.is_stopped() {
            let source = options.source(kind, ground.scale);
            let mut bench =
                TreeContenders::set_up((kind, reflink), source, folder, options, ground.seats)?;
            experiments.extend(bench.experiments(run)?);
        }
    }
    Ok(experiments)
}

impl TreeOptions {
    fn kinds(&self) -> Vec<SourceKind> {
        let wanted = |kind: &SourceKind| self.kinds.is_empty() || self.kinds.contains(kind);
        SourceKind::ALL.into_iter().filter(wanted).collect()
    }

    fn source(&self, kind: SourceKind, scale: RunScale) -> CopySource {
        match kind {
            SourceKind::File | SourceKind::Clone => CopySource::File {
                bytes: self.large_bytes.unwrap_or(scale.pick(2 << 30, 64 << 20)),
            },
            SourceKind::Sparse => CopySource::Sparse {
                bytes: self.sparse_bytes.unwrap_or(100 << 30),
            },
            SourceKind::Tree => CopySource::Tree {
                files: self.files.unwrap_or(scale.pick(100_000, 2000)),
                file_bytes: self.file_bytes.unwrap_or(4 << 10),
            },
        }
    }
}

/// Whether a copy takes room of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Blocks {
    Own,
    Shared,
}

/// Everybody, before one source.
struct TreeContenders {
    kind: SourceKind,
    reflink: Reflink,
    source: CopySource,
    /// Where copies go.
    folder: PathBuf,
    from: PathBuf,
    digest: Sha256Hash,
    amount: TreeSize,
    /// What was made last, while it is still there.
    last: Option<PathBuf>,
    copies: u64,
    seats: Processors,
    entrants: Vec<NamedCommand>,
    versions: Vec<String>,
    left_out: Vec<String>,
    lineup: ContenderList,
}

impl TreeContenders {
    /// Makes the source. Nobody has copied it yet.
    fn set_up(
        (kind, reflink): (SourceKind, Reflink),
        source: CopySource,
        folder: &Path,
        options: &TreeOptions,
        seats: Processors,
    ) -> Result<TreeContenders> {
        let own = JOBS
            .map(copier::own)
            .into_iter()
            .collect::<Result<Vec<_>>>()?;
        let entrants: Vec<NamedCommand> = own.into_iter().chain(options.programs.clone()).collect();
        let mut bench = TreeContenders {
            kind,
            reflink,
            source,
            folder: folder.to_owned(),
            from: folder.join(format!("from-{}", kind.word())),
            digest: Sha256Hash::default(),
            amount: TreeSize::default(),
            last: None,
            copies: 0,
            seats,
            entrants,
            versions: Vec::new(),
            left_out: Vec::new(),
            lineup: ContenderList::default(),
        };
        bench.has_room_for(2)?;
        source.make(&bench.from)?;
        bench.digest = source::digest(&bench.from)?;
        bench.amount = source::warm(&bench.from)?;
        Ok(bench)
    }

    /// Lets those in who copy as they should, and plays.
    fn experiments(&mut self, run: &RoundRunner) -> Result<Vec<Experiment>> {
        if self.kind == SourceKind::Tree {
            // A trial, a warm-up, the rounds.
            let copies = self.entrants.len() * (run.rounds + 2);
            self.has_room_for(copies as u64)?;
        }
        run.progress.begin(&self.title(None));
        self.admit_all()?;
        self.lineup = ContenderList::of(self.entrants.iter().map(|named| named.name.clone()));
        let weight = weight_of(self.source);
        let played = run.play(self, weight)?;
        self.tidy_up()?;
        if played.rounds.is_empty() {
            return Ok(Vec::new());
        }
        let firsts = match self.kind {
            SourceKind::Tree => 0..JOBS.len(),
            SourceKind::File | SourceKind::Sparse | SourceKind::Clone => 0..1,
        };
        Ok(firsts
            .map(|first| self.told(first, &played, run.rounds))
            .collect())
    }

    fn admit_all(&mut self) -> Result<()> {
        for (place, named) in std::mem::take(&mut self.entrants).into_iter().enumerate() {
            match self.copy_and_compare(&named) {
                Err(Error::Contender(why) | Error::Answer(why)) if place >= JOBS.len() => {
                    self.left_out.push(format!("not measured: {why}"));
                }
                Ok(Blocks::Shared) if place >= JOBS.len() && self.kind == SourceKind::File => {
                    let name = &named.name;
                    let why = format!("not measured: {name} shares blocks, whatever it is told");
                    self.left_out.push(why);
                }
                compared => {
                    compared?;
                    let version = process::version_of(&self.command(&named, Path::new("")));
                    self.versions.push(version);
                    self.entrants.push(named);
                }
            }
        }
        Ok(())
    }

    fn copy_and_compare(&mut self, named: &NamedCommand) -> Result<Blocks> {
        let to = self.next_copy()?;
        let free_before = self.free_bytes()?;
        let limit = self.disk_bytes_max();
        copier::run(&self.command(named, &to), &self.seats, &to, limit)?;
        let name = &named.name;
        if std::fs::symlink_metadata(&to).is_err() {
            return Err(Error::Answer(format!("{name}: there is no copy")));
        }
        if source::digest(&self.root_of(&to))? != self.digest {
            return Err(Error::Answer(format!("{name}: the copy is another")));
        }
        self.settle()?;
        let taken = free_before.saturating_sub(self.free_bytes()?);
        match taken < self.source.disk_bytes() / 2 {
            true => Ok(Blocks::Shared),
            false => Ok(Blocks::Own),
        }
    }

    /// A folder that is not there yet is to some the copy, and to others where it goes.
    fn root_of(&self, to: &Path) -> PathBuf {
        let inside = self.from.file_name().map(|name| to.join(name));
        inside
            .filter(|inside| inside.exists())
            .unwrap_or_else(|| to.to_owned())
    }

    fn free_bytes(&self) -> Result<u64> {
        let free = statvfs(&self.folder).context(|| "looking for room".into())?;
        Ok(free.f_bfree * free.f_frsize)
    }

    /// Brings everything to rest; where the next copy goes.
    fn next_copy(&mut self) -> Result<PathBuf> {
        self.tidy_up()?;
        source::warm(&self.from)?;
        self.settle()?;
        self.has_room_for(1)?;
        self.copies += 1;
        let to = self
            .folder
            .join(format!("to-{}-{}", self.kind.word(), self.copies));
        self.last = Some(to.clone());
        Ok(to)
    }

    /// The last copy is out of everybody's way.
    fn tidy_up(&mut self) -> Result<()> {
        let Some(last) = self.last.take() else {
            return Ok(());
        };
        if self.kind != SourceKind::Tree {
            return source::remove(&last);
        }
        self.settle()?;
        match last.exists() {
            true => source::forget(&last).map(drop),
            false => Ok(()),
        }
    }

    /// What was written is on the disk, so that nobody is charged for another's.
    fn settle(&self) -> Result<()> {
        let folder = File::open(&self.folder);
        let context = || "writing all of it to disk".into();
        syncfs(folder.context(context)?).context(context)
    }

    fn has_room_for(&self, copies: u64) -> Result<()> {
        let free = statvfs(&self.folder).context(|| "looking for room".into())?;
        let bytes = free.f_bavail * free.f_frsize;
        let (needed, entries) = (
            self.source.disk_bytes().saturating_mul(copies),
            self.source.entries().saturating_mul(copies),
        );
        // Where there is no such limit it is 0.
        let is_short_of_inodes = free.f_files > 0 && free.f_favail < entries;
        if needed <= bytes && !is_short_of_inodes {
            return Ok(());
        }
        let mib = |bytes| bytes / (1 << 20);
        Err(Error::Setting(format!(
            "{} copies of {} need {} MiB and {entries} inodes, and {} has {} MiB and {}: name \
             another folder by --in, or ask for fewer --files or --rounds",
            copies,
            self.what(),
            mib(needed),
            self.folder.display(),
            mib(bytes),
            free.f_favail,
        )))
    }

    fn disk_bytes_max(&self) -> Option<u64> {
        (self.kind == SourceKind::Sparse).then_some(self.source.disk_bytes() * FILLED_FACTOR)
    }

    fn command(&self, named: &NamedCommand, to: &Path) -> CommandSpec {
        copier::command(named, self.reflink, &self.from, to)
    }

    /// As one of our own sees it: it comes first, and is compared with the others.
    fn told(&self, first: usize, played: &Played<CopySample>, rounds: usize) -> Experiment {
        let mut order: Vec<usize> = (0..self.entrants.len()).collect();
        order[..=first].rotate_right(1);
        let contenders = order.iter().map(|&place| {
            let (named, version) = (&self.entrants[place], self.versions[place].clone());
            Contender {
                version,
                ..self.command(named, &self.folder.join("to")).entry()
            }
        });
        let contenders = contenders.collect();
        let jobs = (self.kind == SourceKind::Tree).then(|| JOBS[first]);
        let played = played.in_order(&order);
        let what = self.what();
        let case = Case {
            load: format!("{what}, {}", self.kind.manner()),
            label: what,
            metrics: read_off(&METRICS, &played),
            notes: notes_of_rounds(&played),
            ..Case::default()
        };
        Experiment {
            name: "tree".into(),
            variant: self.variant(jobs),
            title: self.title(jobs),
            measured: MEASURED.into(),
            reading: self.kind.reading().into(),
            axis: Axis::default(),
            rounds,
            contenders,
            cases: vec![case],
            notes: self.left_out.clone(),
        }
    }

    fn what(&self) -> String {
        match self.source {
            CopySource::Tree { files, file_bytes } => {
                format!("{files} files of {}", size_label(file_bytes))
            }
            CopySource::File { bytes } => size_label(bytes),
            CopySource::Sparse { bytes } => format!("{} of holes", size_label(bytes)),
        }
    }

    fn variant(&self, jobs: Option<usize>) -> String {
        let (word, place) = (self.kind.word(), file_system(&self.folder));
        let jobs = jobs.map_or(String::new(), |jobs| format!(", -j {jobs}"));
        format!("{word} on {place}{jobs}")
    }

    fn title(&self, jobs: Option<usize>) -> String {
        let (what, place) = (self.what(), file_system(&self.folder));
        let jobs = jobs.map_or(String::new(), |jobs| format!(", by -j {jobs}"));
        match self.kind {
            SourceKind::Clone => format!("{what} cloned on {place}"),
            SourceKind::File | SourceKind::Sparse | SourceKind::Tree => {
                format!("{what} copied on {place}{jobs}")
            }
        }
    }
}

const MEASURED: &str = "What is copied is in the page cache, and everything else on disk, when a \
    program is started to copy it to a new name; time ends when the program does. What is written \
    to disk later is not in it. Programs may use all processors.";

impl SourceKind {
    fn word(self) -> &'static str {
        match self {
            SourceKind::File => "file",
            SourceKind::Sparse => "sparse",
            SourceKind::Clone => "clone",
            SourceKind::Tree => "tree",
        }
    }

    fn manner(self) -> &'static str {
        match self {
            SourceKind::File | SourceKind::Sparse => {
                "no blocks shared, where the file system could"
            }
            SourceKind::Clone => "all blocks shared by those who can be told so",
            SourceKind::Tree => "blocks shared or not as each program does by itself",
        }
    }

    fn reading(self) -> &'static str {
        match self {
            SourceKind::File => "One file is copied by one thread: all that differs is how.",
            SourceKind::Sparse => {
                "Who knows of holes has next to nothing to do; who fills them is not measured."
            }
            SourceKind::Clone => "No byte is copied: it is the start and the end of a program.",
            SourceKind::Tree => {
                "Most of it is the file system, which creates files: what a program asks of it, \
                 and how much of that at once, makes the difference."
            }
        }
    }

    fn bytes_moved(self, amount: TreeSize) -> Option<u64> {
        (self == SourceKind::File).then_some(amount.bytes)
    }
}

impl ContenderSet for TreeContenders {
    fn lineup(&mut self) -> &mut ContenderList {
        &mut self.lineup
    }

    /// It has ended.
    fn dismiss(&mut self, _contender: usize) -> Result<()> {
        Ok(())
    }
}

impl Workload for TreeContenders {
    type Sample = CopySample;
    type ContenderSet = TreeContenders;

    fn contenders(&mut self) -> &mut TreeContenders {
        self
    }

    fn play(&mut self, contender: usize) -> Result<CopySample> {
        let to = self.next_copy()?;
        let program = self.command(&self.entrants[contender], &to);
        let limit = self.disk_bytes_max();
        let copy = || copier::run(&program, &self.seats, &to, limit);
        let (peak_resident_bytes, window) = observe_children(copy)?;
        self.settle()?;
        let amount = source::forget(&self.root_of(&to))?;
        if amount != self.amount {
            return Err(Error::Answer(format!(
                "{} entries and {} bytes were copied, of {} and {}",
                amount.entries, amount.bytes, self.amount.entries, self.amount.bytes
            )));
        }
        Ok(CopySample {
            window,
            files: self.source.files(),
            bytes: self.kind.bytes_moved(self.amount),
            peak_resident_bytes,
        })
    }

    fn is_disturbed(&self, copied: &CopySample) -> bool {
        copied.window.is_disturbed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_come_in_their_own_order() {
        let options = TreeOptions {
            kinds: vec![SourceKind::Tree, SourceKind::File, SourceKind::Tree],
            ..TreeOptions::default()
        };
        assert_eq!(options.kinds(), [SourceKind::File, SourceKind::Tree]);
        assert_eq!(TreeOptions::default().kinds(), SourceKind::ALL);
    }
}
