//! Replaces segments by the compacted one that was made from them.
//!
//! ```text
//!  B.log.cleaned ─► B.log.swap │ B.log, C.log ─► *.deleted │ B.log.swap ─► B.log
//!                              │                           │
//!        incomplete            │   complete: a start finishes the replacement
//! ```
//!
//! The folder is synced between the steps. Until the names in the first step are, a start removes
//! the new files; from then on it completes the replacement.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::cleanup::error::CleanError;
use crate::cleanup::plan::SourceSegment;
use crate::cleanup::retention::DeletedFiles;
use crate::cleanup::writer::{CLEANED, EXTENSIONS, with_suffix};
use crate::files::disk;
use crate::partition::PartitionLog;
use crate::segment::damage::Numbering;
use crate::segment::{SNAPSHOT, Segment, lock};

const SWAP: &str = ".swap";
const DELETED: &str = ".deleted";

/// Renames that were made, so that they can be undone.
#[derive(Default)]
struct Renames(Vec<(PathBuf, PathBuf)>);

impl Renames {
    /// Renames a file if it exists.
    fn rename(&mut self, from: PathBuf, to: PathBuf) -> io::Result<()> {
        match disk::rename(&from, &to) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            renamed => {
                renamed?;
                self.0.push((from, to));
                Ok(())
            }
        }
    }

    fn undo(self, folder: &Path) -> io::Result<()> {
        for (from, to) in self.0.iter().rev() {
            disk::rename(to, from)?;
        }
        disk::sync_folder(folder)
    }
}

/// Replaces segments by their `.cleaned` one, whose files are complete and synced. Readers of the
/// old segments keep their files.
///
/// # Errors
/// [`CleanError`]. The `.cleaned` files are left, unless the error is `Stuck`.
pub(crate) fn replace(
    log: &PartitionLog,
    sources: &[SourceSegment],
    size: u64,
    deleted: &DeletedFiles,
) -> Result<(), CleanError> {
    let _files = lock(&log.files);
    check(log, sources)?;
    for source in sources {
        source.segment.pin()?;
    }
    let mut renames = Renames::default();
    if let Err(error) = rename_all(log, sources, &mut renames) {
        let undone = renames.undo(&log.folder);
        return Err(match undone {
            Ok(()) => {
                sources.iter().for_each(|source| source.segment.unpin());
                error.into()
            }
            Err(_) => CleanError::Stuck(error),
        });
    }
    let gone = renames.0.into_iter().map(|(_, to)| to);
    let gone = gone.filter(|to| to.as_os_str().to_string_lossy().ends_with(DELETED));
    let delay_ms = log.config().file_delete_delay_ms;
    gone.for_each(|path| deleted.add(path, delay_ms));
    publish(log, sources, size)?;
    release(sources);
    Ok(())
}

/// The references to a segment that this pass has: from its plan, and from its group.
const OWN_REFERENCES: usize = 2;

/// Closes the files of replaced segments, except those in use. The plan of a pass may refer to
/// thousands.
fn release(sources: &[SourceSegment]) {
    let segments = sources.iter().map(|source| &source.segment);
    // A reader cannot get a new reference: the segments are not published any more.
    let unused = segments.filter(|segment| Arc::strong_count(segment) == OWN_REFERENCES);
    unused.for_each(|segment| segment.release());
}

/// Checks that the segments are still in the log.
fn check(log: &PartitionLog, sources: &[SourceSegment]) -> Result<(), CleanError> {
    let published = log.published();
    let Some(from) = position(&published.segments, sources) else {
        return Err(CleanError::Interrupted);
    };
    let range = published.segments[from].base..sources.last().map_or(0, |last| last.end);
    let mut gaps = published.gaps.iter();
    let damage = gaps.find(|gap| gap.offsets.start < range.end && range.start < gap.offsets.end);
    match damage {
        _ if log.is_deleted() => Err(CleanError::Interrupted),
        Some(gap) => Err(CleanError::Damaged {
            base: gap.place.0,
            position: gap.place.1,
        }),
        None => Ok(()),
    }
}

/// Returns the place of consecutive segments.
fn position(segments: &[Arc<Segment>], sources: &[SourceSegment]) -> Option<usize> {
    let first = &sources.first()?.segment;
    let from = segments.iter().position(|it| Arc::ptr_eq(it, first))?;
    let present = segments[from..].iter().zip(sources);
    let are_there = present.filter(|(segment, source)| Arc::ptr_eq(segment, &source.segment));
    (are_there.count() == sources.len()).then_some(from)
}

fn rename_all(
    log: &PartitionLog,
    sources: &[SourceSegment],
    renames: &mut Renames,
) -> io::Result<()> {
    let Some(first) = sources.first() else {
        return Ok(());
    };
    let named = |suffix: &'static str| {
        EXTENSIONS.map(|extension| with_suffix(&first.segment.path(extension), suffix))
    };
    // The names of new files, so that a crash does not leave an index in place of a segment.
    disk::sync_folder(&log.folder)?;
    for (from, to) in named(CLEANED).into_iter().zip(named(SWAP)) {
        renames.rename(from, to)?;
    }
    disk::sync_folder(&log.folder)?;
    for source in sources {
        let segment = &source.segment;
        let is_merged = segment.base > first.segment.base;
        let snapshot = is_merged.then_some(SNAPSHOT);
        for extension in EXTENSIONS.into_iter().chain(snapshot) {
            let path = segment.path(extension);
            renames.rename(path.clone(), with_suffix(&path, DELETED))?;
        }
    }
    disk::sync_folder(&log.folder)?;
    for (from, to) in named(SWAP).into_iter().zip(named("")) {
        renames.rename(from, to)?;
    }
    disk::sync_folder(&log.folder)
}

/// Shows the new segment to readers.
fn publish(log: &PartitionLog, sources: &[SourceSegment], size: u64) -> Result<(), CleanError> {
    let mut published = log.published();
    let Some((from, first)) = position(&published.segments, sources).zip(sources.first()) else {
        return Err(CleanError::Interrupted);
    };
    let base = first.segment.base;
    let cleaned = Segment::closed(&log.folder, base, size, Numbering::Compacted);
    let cleaned = [Arc::new(cleaned)];
    published
        .segments
        .splice(from..from + sources.len(), cleaned);
    Ok(())
}
