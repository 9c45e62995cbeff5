//! Estimates the total size of a copy: for progress with a known end.
//!
//! A read-only walk, concurrent with the copying one. Its result may differ from the copy if files
//! appear and disappear or if destinations are kept: it is an estimate, and nothing depends on it.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, openat, statat};

use crate::fs::folder::{Identity, Listing, READ, append, file_type, identity};
use crate::options::CopyOptions;
use crate::report::reporter::CopyProgress;
use crate::tree::filter::NameFilter;
use crate::tree::level::Role;
use crate::walk::operands::sources;

/// The maximum number of open folders. Anything deeper is not counted.
const DEPTH_MAX: usize = 128;

/// Counts the files and bytes below `operands`, as [`crate::copy`] takes them, into `progress`.
/// Blocks until everything is found or `stop` is set; reads folders and metadata only.
pub fn survey(
    operands: &[OsString],
    options: &CopyOptions,
    progress: &CopyProgress,
    stop: &AtomicBool,
) {
    let survey = Survey {
        filter: NameFilter::of(&options.filters).ok(),
        options,
        progress,
        stop,
        counted: RefCell::default(),
        device: Cell::default(),
    };
    for source in sources(options, operands) {
        survey.look(CWD, source.as_bytes(), &[], 0);
        if survey.is_over() {
            return;
        }
    }
    progress.all_found.store(1, Relaxed);
}

struct Survey<'a> {
    filter: Option<NameFilter>,
    options: &'a CopyOptions,
    progress: &'a CopyProgress,
    stop: &'a AtomicBool,
    /// Files with several names, whose bytes count once.
    counted: RefCell<HashSet<Identity>>,
    /// That of the operand.
    device: Cell<u64>,
}

impl Survey<'_> {
    /// Returns whether it was stopped.
    fn is_over(&self) -> bool {
        self.stop.load(Relaxed)
    }

    /// Counts a name and everything below it; `path` is its path below the operand.
    fn look(&self, folder: BorrowedFd<'_>, name: &[u8], path: &[u8], depth: usize) {
        let role = match depth {
            0 => Role::Operand,
            _ => Role::Inside,
        };
        let (flags, opening) = match self.options.follows(role) {
            true => (AtFlags::empty(), OFlags::empty()),
            false => (AtFlags::SYMLINK_NOFOLLOW, OFlags::NOFOLLOW),
        };
        let Ok(stat) = statat(folder, name, flags) else {
            return;
        };
        let kind = file_type(&stat);
        if depth == 0 {
            self.device.set(stat.st_dev);
        }
        let admitted = |filter: &NameFilter| path.is_empty() || filter.admits(path, kind);
        if !self.filter.as_ref().is_none_or(admitted) {
            return;
        }
        if kind == FileType::RegularFile {
            self.progress.files_found.fetch_add(1, Relaxed);
            let is_linked = self.options.keeps_links_of(&stat, role);
            if !is_linked || self.counted.borrow_mut().insert(identity(&stat)) {
                let bytes = self.options.bytes_to_move(&stat);
                self.progress.bytes_found.fetch_add(bytes, Relaxed);
            }
        } else if kind == FileType::Directory
            && self.options.recursive
            && depth < DEPTH_MAX
            && (!self.options.one_file_system || stat.st_dev == self.device.get())
            && let Ok(fd) = openat(folder, name, READ | opening, Mode::empty())
        {
            self.look_in(fd.as_fd(), path, depth + 1);
        }
    }

    fn look_in(&self, folder: BorrowedFd<'_>, path: &[u8], depth: usize) {
        let mut listing = Listing::default();
        while let (false, Ok(Some((name, _)))) = (self.is_over(), listing.next(folder)) {
            let mut path = path.to_vec();
            append(&mut path, name.to_bytes());
            self.look(folder, name.to_bytes(), &path, depth);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the files and bytes found below a folder with two files, and the end marker.
    fn found(stop: &AtomicBool) -> (u64, u64, u64) {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(folder.path().join("below")).expect("room");
        for name in ["one", "below/two"] {
            std::fs::write(folder.path().join(name), name).expect("room");
        }
        let options = CopyOptions {
            recursive: true,
            ..CopyOptions::default()
        };
        let operands = [folder.path().into(), OsString::from("nowhere")];
        let progress = CopyProgress::default();
        survey(&operands, &options, &progress, stop);
        let all = [
            &progress.files_found,
            &progress.bytes_found,
            &progress.all_found,
        ];
        let [files, bytes, whole] = all.map(|counter| counter.load(Relaxed));
        (files, bytes, whole)
    }

    #[test]
    fn what_was_stopped_is_not_said_to_be_all() {
        assert_eq!(found(&AtomicBool::new(false)), (2, 12, 1));
        let (_, _, whole) = found(&AtomicBool::new(true));
        assert_eq!(whole, 0);
    }
}
