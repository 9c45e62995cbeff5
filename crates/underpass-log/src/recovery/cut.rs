//! Cuts off the bad end of a segment and keeps it in a separate file.

use std::fs::{self, File};
use std::io;
use std::ops::{ControlFlow, Range};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

use crate::error::{LogError, at};
use crate::files::disk::{self, DiskWait};
use crate::segment::{LOG, is_intact_at, walk};

/// The suffix of the file with the cut-off bytes.
const CUT: &str = "cut";

/// The bytes after the last whole batch of a segment.
#[derive(Clone)]
pub(super) struct Cut {
    pub(super) path: PathBuf,
    pub(super) range: Range<u64>,
}

impl Cut {
    /// Whether the range is known to contain only zeros.
    pub(super) fn is_zeros(&self) -> bool {
        let file = File::open(&self.path);
        let end = file.and_then(|file| written_end(&file, &self.range));
        end.is_ok_and(|end| end == self.range.start)
    }
}

/// A cut-off end that was kept.
pub(super) struct KeptEnd {
    pub(super) bytes: u64,
    /// Whether it contains whole batches.
    pub(super) is_damaged: bool,
}

/// Cuts off the end of a segment and keeps it; returns `None` if it was only zeros.
pub(super) fn cut_end(cut: &Cut) -> Result<Option<KeptEnd>, LogError> {
    let file = disk::open(&cut.path).map_err(at(&cut.path))?;
    // Reserved blocks are zeros; nothing is lost with them.
    let written = written_end(&file, &cut.range).map_err(at(&cut.path))?;
    let mut end = None;
    if written > cut.range.start {
        let kept = unused_name(&cut.path);
        copy(&file, &cut.range, &kept).map_err(at(&kept))?;
        end = Some(KeptEnd {
            bytes: cut.range.end - cut.range.start,
            is_damaged: has_whole_batch(&file, &cut.range).map_err(at(&cut.path))?,
        });
    }
    // The cut-off bytes must not reappear between the pages of later writes.
    let cut_off = disk::truncate(&file, cut.range.start).and_then(|()| disk::sync(&file));
    cut_off.map_err(at(&cut.path))?;
    Ok(end)
}

/// Returns an unused name for bytes that left the log but may be needed: `N.log.cut`, or, if that
/// exists, `N.log.1.cut`.
pub(super) fn unused_name(log: &Path) -> PathBuf {
    let mut name = log.with_extension(format!("{LOG}.{CUT}"));
    for number in 1.. {
        // Any kind of file counts.
        if fs::symlink_metadata(&name).is_err() {
            break;
        }
        name = log.with_extension(format!("{LOG}.{number}.{CUT}"));
    }
    name
}

/// The number of bytes copied at a time.
const PIECE_BYTES: usize = 256 << 10;

/// Returns the end of the bytes that are not zeros.
fn written_end(file: &File, range: &Range<u64>) -> io::Result<u64> {
    let mut piece = vec![0; PIECE_BYTES];
    let mut end = range.end;
    while end > range.start {
        let len = (end - range.start).min(PIECE_BYTES as u64);
        let piece = &mut piece[..len as usize];
        if data_from(file, end - len)? < end {
            file.read_exact_at(piece, end - len)?;
            if let Some(last) = piece.iter().rposition(|byte| *byte != 0) {
                return Ok(end - len + last as u64 + 1);
            }
        }
        end -= len;
    }
    Ok(range.start)
}

/// Returns the position of the next data at or after `at`; `u64::MAX` if there is only a hole.
/// Returns `at` if the file system does not support holes.
fn data_from(file: &File, at: u64) -> io::Result<u64> {
    match seek(file, SeekFrom::Data(at)) {
        Err(Errno::NXIO) => Ok(u64::MAX),
        Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(at),
        found => Ok(found?),
    }
}

/// Copies a range into a new file. Zeros become holes: a damaged file may have far more of them
/// than the disk has space.
fn copy(from: &File, range: &Range<u64>, to: &Path) -> io::Result<()> {
    let unfinished = to.with_extension(format!("{CUT}.tmp"));
    let file = disk::open(&unfinished)?;
    disk::truncate(&file, 0)?;
    let mut piece = vec![0; PIECE_BYTES];
    let mut at = range.start;
    loop {
        at = data_from(from, at)?;
        if at >= range.end {
            break;
        }
        let len = (range.end - at).min(PIECE_BYTES as u64);
        let piece = &mut piece[..len as usize];
        from.read_exact_at(piece, at)?;
        if piece.iter().any(|byte| *byte != 0) {
            disk::write_all(&file, &[piece], at - range.start)?;
        }
        at += len;
    }
    // The last batch may end with zeros.
    disk::truncate(&file, range.end - range.start)?;
    disk::sync(&file)?;
    disk::rename(&unfinished, to)?;
    to.parent().map_or(Ok(()), disk::sync_folder)
}

/// Whether an intact batch starts anywhere after the first batch of a range, which is broken.
fn has_whole_batch(file: &File, range: &Range<u64>) -> io::Result<bool> {
    let mut found = Ok(false);
    walk(
        file,
        range.start,
        range.end,
        DiskWait::Allowed,
        &mut |place, header| {
            found = match place.position > range.start {
                true => is_intact_at(file, place, header),
                false => Ok(false),
            };
            match found {
                Ok(false) => ControlFlow::Continue(()),
                _ => ControlFlow::Break(()),
            }
        },
    )?;
    found
}
