//! `bench tree`: whole trees and special files, by programs that are started for each copy.
//!
//! ```text
//!   room?  ─▶ create source ─▶ trial: one copy each, compared ─▶ rounds ─▶ experiments
//!                                                                 │
//!          drop the last copy from cache ◀─ write all to disk ◀───┤ before each play,
//!                                             read source ◀───────┘ not timed
//! ```
//!
//! Copies of trees stay until the end. For a minute and longer ext4 skips inodes that were just
//! removed, and checks each of them again for every file that is created, so that a copy after a
//! removal takes many times as long (`recently_deleted`, fs/ext4/ialloc.c).

mod program;
mod source;

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use clap::{Args, ValueEnum};
use rustix::fs::{StatVfs, statvfs};

use self::source::{CopySource, TreeSize};
use super::folders::run_in_each;
use super::sample::{self as read, PlayMetric, PlaySample};
use super::sizes::{parse_size, size_label};

use super::{ExperimentContext, Measurable, RunScale};
use crate::contender::named::NamedCommand;
use crate::contender::process::{self, CommandSpec, Processors, RunLimit};
use crate::content::{self, Sha256Hash};
use crate::document::{Case, Contender, Experiment};
use crate::error::{Error, ErrorContext as _, Result};
use crate::machine::window::observe_children;
use crate::machine::{file_system, touch_free_memory};
use crate::rounds::contenders::{ContenderList, ContenderSet};
use crate::rounds::interleave::Played;
use crate::rounds::metric::read_all;
use crate::rounds::runner::RoundRunner;

/// The threads of our own contenders. The first one is compared with all others.
const JOBS: [usize; 2] = [2, 1];

/// A copy of a sparse file that takes this many times the disk space of the file has its holes
/// filled.
const FILLED_FACTOR: u64 = 16;

/// A copy that takes a minute, and this many times as long as estimated, is stuck.
const STUCK_MIN: Duration = Duration::from_secs(60);
const STUCK_FACTOR: u64 = 20;

/// The kind of a source. The one whose copies stay comes last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum SourceKind {
    /// Copy one large file without sharing blocks
    File,
    /// Copy a very large file with little data in it
    Sparse,
    /// Copy a large file by sharing its blocks
    Clone,
    /// Copy many small files in directories
    Tree,
}

/// The options of `bench tree`.
#[derive(Args, Clone, Debug)]
pub struct TreeOptions {
    /// Copy these kinds of sources [default: all; clone where the file system supports it]
    #[arg(long, value_name = "KIND,…", value_delimiter = ',')]
    kinds: Vec<SourceKind>,
    /// Copy a tree with this many files [default: 100000, with --quick 2000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    files: Option<u64>,
    /// Give each file of the tree this size [default: 4KiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    file_size: Option<u64>,
    /// Give the large file and the clone this size [default: 2GiB, with --quick 64MiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    large_size: Option<u64>,
    /// Give the sparse file this size [default: 100GiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    sparse_size: Option<u64>,
    /// Copy in this directory; give it several times for several file systems [default: --scratch]
    #[arg(long = "in", value_name = "DIR")]
    folders: Vec<PathBuf>,
    /// Measure this program too, as in 'gnu=cp -r {reflink} {from} {to}' (docs/bench.md)
    #[arg(long = "program", value_name = "NAME=COMMAND")]
    programs: Vec<NamedCommand>,
}

const METRICS: [PlayMetric; 9] = [
    PlayMetric {
        label: "time of a copy",
        ..read::WALL
    },
    read::CPU,
    read::CPU_PER_THOUSAND_FILES,
    read::CPU_PER_GIB,
    read::PEAK_RESIDENT,
    read::USER,
    read::SYSTEM,
    read::ITS_CONTEXT_SWITCHES,
    read::ITS_PAGE_FAULTS,
];

impl Measurable for TreeOptions {
    fn usual_controls(&self, _: RunScale) -> Option<&'static [&'static str]> {
        None
    }

    fn weight(&self, scale: RunScale, rounds: usize) -> u64 {
        let kinds = self.kinds().into_iter();
        let play: u64 = kinds.map(|kind| weight_of(self.source(kind, scale))).sum();
        let contenders = JOBS.len() + self.programs.len();
        let plays = contenders * (rounds + 1) * self.folders.len().max(1);
        play * plays as u64
    }

    /// Copies each kind with all contenders, in each directory.
    fn run(&self, setting: &ExperimentContext) -> Result<Vec<Experiment>> {
        run_in_each(&self.folders, setting, "tree", |folder| {
            let mut experiments = Vec::new();
            let shares_blocks = source::shares_blocks(folder)?;
            for kind in self.kinds() {
                let reflink = match (kind, shares_blocks) {
                    (SourceKind::Clone, false) => continue,
                    (SourceKind::Clone, true) => Some("--reflink=always"),
                    (SourceKind::File | SourceKind::Sparse, true) => Some("--reflink=never"),
                    // With an explicit option, GNU cp falls back to read and write.
                    (SourceKind::File | SourceKind::Sparse, false) | (SourceKind::Tree, _) => None,
                };
                if !setting.runner.is_stopped() {
                    let source = self.source(kind, setting.scale);
                    let mut contenders = TreeContenders {
                        kind,
                        reflink,
                        source,
                        folder: folder.to_owned(),
                        from: folder.join(format!("from-{}", kind.word())),
                        digest: Sha256Hash::default(),
                        size: TreeSize::default(),
                        last: None,
                        copies: 0,
                        processors: setting.processors,
                        stop: setting.runner.stop,
                        programs: Vec::new(),
                        list: ContenderList::default(),
                    };
                    experiments.extend(contenders.run(&self.programs, &setting.runner)?);
                }
            }
            Ok(experiments)
        })
    }
}

fn weight_of(source: CopySource) -> u64 {
    20 + source.entries() / 10 + source.disk_bytes() / (1 << 20)
}

impl TreeOptions {
    /// In the order of the enum, each once.
    fn kinds(&self) -> Vec<SourceKind> {
        let mut kinds = SourceKind::value_variants().to_vec();
        kinds.retain(|kind| self.kinds.is_empty() || self.kinds.contains(kind));
        kinds
    }

    fn source(&self, kind: SourceKind, scale: RunScale) -> CopySource {
        match kind {
            SourceKind::File | SourceKind::Clone => CopySource::File {
                bytes: self.large_size.unwrap_or(scale.pick(2 << 30, 64 << 20)),
            },
            SourceKind::Sparse => CopySource::Sparse {
                bytes: self.sparse_size.unwrap_or(100 << 30),
            },
            SourceKind::Tree => CopySource::Tree {
                files: self.files.unwrap_or(scale.pick(100_000, 2000)),
                file_bytes: self.file_size.unwrap_or(4 << 10),
            },
        }
    }
}

/// Whether a copy takes disk space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Blocks {
    Own,
    Shared,
}

struct TreeContenders<'a> {
    kind: SourceKind,
    reflink: Option<&'static str>,
    source: CopySource,
    folder: PathBuf,
    from: PathBuf,
    digest: Sha256Hash,
    size: TreeSize,
    /// The last copy, while it still exists.
    last: Option<PathBuf>,
    copies: u64,
    processors: Processors,
    stop: &'a AtomicBool,
    programs: Vec<(NamedCommand, String)>,
    list: ContenderList,
}

impl TreeContenders<'_> {
    /// `None` if it was stopped before the first round was complete.
    fn run(&mut self, others: &[NamedCommand], runner: &RoundRunner) -> Result<Option<Experiment>> {
        self.require_room_for(2)?;
        self.source.make(&self.from)?;
        self.digest = source::digest(&self.from)?;
        self.size = source::warm(&self.from)?;
        if self.kind == SourceKind::Tree {
            // A trial, a warm-up, the rounds.
            let copies = (JOBS.len() + others.len()) * (runner.rounds + 2);
            self.require_room_for(copies as u64)?;
        }
        runner.progress.begin(&self.title());
        let admitted = self.admit_all(others);
        if runner.is_stopped() {
            // The stop may have made it fail.
            return Ok(None);
        }
        admitted?;
        let weight = weight_of(self.source);
        let played = runner.play(self, weight, TreeContenders::observe)?;
        self.tidy_up()?;
        let has_result = played.is_some() || self.list.standing().is_empty();
        Ok(has_result.then(|| self.describe(played.as_ref(), runner.rounds)))
    }

    /// Admits contenders that copy correctly, and notes why others are left out.
    fn admit_all(&mut self, others: &[NamedCommand]) -> Result<()> {
        let own = JOBS.map(program::own).into_iter();
        for named in own.chain(others.iter().cloned().map(Ok)) {
            let named = named?;
            let is_own = self.programs.len() < JOBS.len();
            match self.copy_and_compare(&named) {
                Err(error) if !is_own => self.list.reject(&named.name, error)?,
                Ok(Blocks::Shared) if !is_own && self.kind == SourceKind::File => {
                    let why = format!("{} shares blocks despite its options", named.name);
                    self.list.reject(&named.name, Error::Contender(why))?;
                }
                compared => {
                    compared?;
                    self.list.admit(&named.name);
                    let version = process::version_of(&self.command(&named, Path::new("")));
                    self.programs.push((named, version));
                }
            }
        }
        Ok(())
    }

    fn copy_and_compare(&mut self, named: &NamedCommand) -> Result<Blocks> {
        let to = self.next_copy()?;
        let free_before = self.room()?.f_bfree;
        self.copy(&self.command(named, &to), &to)?;
        let name = &named.name;
        if std::fs::symlink_metadata(&to).is_err() {
            return Err(Error::Answer(format!("{name}: there is no copy")));
        }
        if source::digest(&self.root_of(&to))? != self.digest {
            return Err(Error::Answer(format!("{name}: the copy differs")));
        }
        content::flush_file_system(&self.folder)?;
        let room = self.room()?;
        let taken = free_before.saturating_sub(room.f_bfree) * room.f_frsize;
        match taken < self.source.disk_bytes() / 2 {
            true => Ok(Blocks::Shared),
            false => Ok(Blocks::Own),
        }
    }

    fn observe(&mut self, contender: usize) -> Result<PlaySample> {
        let to = self.next_copy()?;
        let command = self.command(&self.programs[contender].0, &to);
        let (peak_resident_bytes, window) = observe_children(|| self.copy(&command, &to))?;
        content::flush_file_system(&self.folder)?;
        let copied = source::drop_from_cache(&self.root_of(&to))?;
        if copied != self.size {
            return Err(Error::Answer(format!(
                "copied {} entries and {} bytes of {} and {}",
                copied.entries, copied.bytes, self.size.entries, self.size.bytes
            )));
        }
        let bytes = match self.kind {
            SourceKind::File => self.size.bytes,
            SourceKind::Sparse | SourceKind::Clone | SourceKind::Tree => 0,
        };
        Ok(PlaySample {
            files: self.source.files(),
            peak_resident_bytes,
            ..PlaySample::of(window, 1, bytes)
        })
    }

    /// For some programs, a directory that doesn't exist yet becomes the copy; others copy into it.
    fn root_of(&self, to: &Path) -> PathBuf {
        let inside = self.from.file_name().map(|name| to.join(name));
        inside
            .filter(|inside| inside.exists())
            .unwrap_or_else(|| to.to_owned())
    }

    fn room(&self) -> Result<StatVfs> {
        statvfs(&self.folder).context(|| "reading the free space".into())
    }

    /// Brings everything to rest; returns where the next copy goes.
    fn next_copy(&mut self) -> Result<PathBuf> {
        self.tidy_up()?;
        source::warm(&self.from)?;
        content::flush_file_system(&self.folder)?;
        self.require_room_for(1)?;
        self.copies += 1;
        let name = format!("to-{}-{}", self.kind.word(), self.copies);
        touch_free_memory(self.source.disk_bytes() * 5 / 4);
        Ok(self.last.insert(self.folder.join(name)).clone())
    }

    /// Removes the last copy, or that of a tree from the page cache.
    fn tidy_up(&mut self) -> Result<()> {
        let Some(last) = self.last.take() else {
            return Ok(());
        };
        if self.kind != SourceKind::Tree {
            return content::remove(&last);
        }
        content::flush_file_system(&self.folder)?;
        match last.exists() {
            true => source::drop_from_cache(&last).map(drop),
            false => Ok(()),
        }
    }

    fn require_room_for(&self, copies: u64) -> Result<()> {
        let room = self.room()?;
        let bytes = room.f_bavail * room.f_frsize;
        let needed = self.source.disk_bytes().saturating_mul(copies);
        let entries = self.source.entries().saturating_mul(copies);
        // 0 means unlimited.
        let lacks_inodes = room.f_files > 0 && room.f_favail < entries;
        if needed <= bytes && !lacks_inodes {
            return Ok(());
        }
        let mib = |bytes| bytes / (1 << 20);
        Err(Error::Setting(format!(
            "{copies} copies of {} need {} MiB and {entries} inodes, and {} has {} MiB and {}; \
             choose another directory with --in, or fewer --files or --rounds",
            self.what(),
            mib(needed),
            self.folder.display(),
            mib(bytes),
            room.f_favail,
        )))
    }

    /// Runs a program; returns its peak resident memory.
    fn copy(&self, program: &CommandSpec, to: &Path) -> Result<Option<u64>> {
        let is_sparse = self.kind == SourceKind::Sparse;
        let disk_bytes_max = is_sparse.then_some(self.source.disk_bytes() * FILLED_FACTOR);
        let limit = RunLimit {
            time: STUCK_MIN + Duration::from_millis(weight_of(self.source) * STUCK_FACTOR),
            stop: self.stop,
        };
        program::run(program, &self.processors, (to, disk_bytes_max), limit)
    }

    fn command(&self, named: &NamedCommand, to: &Path) -> CommandSpec {
        program::command(named, self.reflink, &self.from, to)
    }

    /// There is no case if all contenders have failed.
    fn describe(&self, played: Option<&Played<PlaySample>>, rounds: usize) -> Experiment {
        let contenders = self.programs.iter().map(|(named, version)| Contender {
            version: version.clone(),
            ..self.command(named, &self.folder.join("to")).entry()
        });
        let (word, place) = (self.kind.word(), file_system(&self.folder));
        let what = self.what();
        let case = played.map(|played| Case {
            load: format!("{what}, {}", self.kind.manner()),
            label: what,
            metrics: read_all(&METRICS, played),
            notes: played.notes(),
            ..Case::default()
        });
        Experiment {
            name: "tree".into(),
            variant: format!("{word} on {place}"),
            title: self.title(),
            measured: MEASURED.into(),
            reading: self.kind.reading().into(),
            rounds,
            contenders: contenders.collect(),
            cases: case.into_iter().collect(),
            notes: self.list.missing(),
            left_out: self.list.left_out(),
            ..Experiment::default()
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

    fn title(&self) -> String {
        let (what, place) = (self.what(), file_system(&self.folder));
        let done = match self.kind {
            SourceKind::Clone => "cloned",
            SourceKind::File | SourceKind::Sparse | SourceKind::Tree => "copied",
        };
        format!("{what} {done} on {place}")
    }
}

impl ContenderSet for TreeContenders<'_> {
    fn list(&mut self) -> &mut ContenderList {
        &mut self.list
    }

    /// A program has ended when it has failed.
    fn dismiss(&mut self, _contender: usize) -> Result<()> {
        Ok(())
    }
}

const MEASURED: &str = "The source is in the page cache, and all other data on disk, when a \
    program is started to copy it to a new name; time ends when the program does, so writing to \
    disk later is not part of it. Programs may use all processors.";

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
                "no blocks shared, even where the file system supports it"
            }
            SourceKind::Clone => "all blocks shared by programs that have an option for it",
            SourceKind::Tree => "blocks shared or not, as each program does by default",
        }
    }

    fn reading(self) -> &'static str {
        match self {
            SourceKind::File => "One thread copies one file; programs differ in the calls only.",
            SourceKind::Sparse => {
                "A program that detects holes has little to do; one that fills them is not \
                 measured."
            }
            SourceKind::Clone => "No byte is copied: this is the time to start and end a program.",
            SourceKind::Tree => {
                "Most of the time is the file system's, which creates files: programs differ in \
                 the calls they make, and in how many of them at once."
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_come_in_their_own_order() {
        let options = |kinds: &[SourceKind]| TreeOptions {
            kinds: kinds.to_vec(),
            files: None,
            file_size: None,
            large_size: None,
            sparse_size: None,
            folders: Vec::new(),
            programs: Vec::new(),
        };
        let (file, tree) = (SourceKind::File, SourceKind::Tree);
        assert_eq!(options(&[tree, file, tree]).kinds(), [file, tree]);
        assert_eq!(options(&[]).kinds(), SourceKind::value_variants());
    }
}
