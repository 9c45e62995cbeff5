//! One copy as a whole: what was asked, who is around, and what it has met so far.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{AtFlags, Mode, Stat, Timespec, fchmod, statat};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

use crate::Around;
use crate::entry::decide::{Deref, Terms, WithBackup};
use crate::fs::sync;
use crate::metadata::{self, Held, Process};
use crate::options::{
    Backup, Durability, Effect, Links, MakingWay, Manner, Options, Recursion, Specials, Wish,
};
use crate::report::problem::{Problem, What};
use crate::report::reporter::Ledger;
use crate::report::summary::{Ended, Summary};
use crate::tree::filter::Filter;
use crate::tree::inode_table::Seen;
use crate::tree::level::{Folder, Folders, Level, Surroundings};
use crate::workers::pool::Crew;
use crate::workers::throttle::Throttle;

/// A copy that is going on.
pub(crate) struct Run<'a> {
    pub(crate) options: &'a Options,
    pub(crate) around: Around<'a>,
    pub(crate) ledger: Ledger<'a>,
    pub(crate) seen: Seen,
    pub(crate) process: Process,
    pub(crate) filter: Option<Filter>,
    pub(crate) throttle: Option<Throttle>,
    pub(crate) crew: Crew<Task>,
    pub(crate) operands: Operands,
    /// Folders whose walk is over and that wait for what is in them.
    pub(crate) unclosed: AtomicUsize,
    /// File systems that are to be synced at the end, each with something open on it.
    pub(crate) to_sync: Mutex<HashMap<u64, OwnedFd>>,
    /// By the fine clock: since Linux 6.13 a time of change is fine where somebody has looked at
    /// the file before, and by the coarse clock what was changed a moment ago would be newer.
    began: Timespec,
}

/// How many sources there are, and where they go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operands {
    /// One, to the name that was given.
    One,
    /// Each into the target folder.
    IntoFolder,
}

/// A name that somebody has to copy.
pub(crate) struct Task {
    pub(crate) level: Arc<Level>,
    pub(crate) folders: Arc<Folders>,
    pub(crate) source: CString,
    pub(crate) dest: CString,
    pub(crate) role: Role,
    pub(crate) ticket: u64,
}

/// Where a name comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// The command line.
    Operand,
    /// The command line, as source and destination: a backup is made of it, and nothing else.
    OwnBackup,
    /// A folder that is copied.
    Inside,
}

impl<'a> Run<'a> {
    pub(crate) fn new(
        options: &'a Options,
        around: Around<'a>,
        ledger: Ledger<'a>,
        crew: Crew<Task>,
        filter: Option<Filter>,
        operands: Operands,
    ) -> Self {
        Self {
            options,
            around,
            ledger,
            seen: Seen::default(),
            process: Process::read(),
            filter,
            throttle: options.bytes_per_second_max.map(Throttle::to),
            crew,
            operands,
            unclosed: AtomicUsize::new(0),
            to_sync: Mutex::default(),
            began: clock_gettime(ClockId::Realtime),
        }
    }

    pub(crate) fn stopped(&self) -> bool {
        self.around.stop.load(Relaxed)
    }

    pub(crate) fn deref(&self, role: Role) -> Deref {
        let recursive = self.options.recursion == Recursion::On;
        match self.options.links {
            Links::Kept => Deref::Never,
            Links::FollowedOnCommandLine if role == Role::Inside => Deref::Never,
            Links::FollowedOnCommandLine => Deref::CommandLine,
            Links::Followed => Deref::Always,
            Links::Unsaid if recursive && self.options.manner != Manner::HardLink => Deref::Never,
            Links::Unsaid => Deref::Always,
        }
    }

    /// Whether a symbolic link in this role is taken for what it leads to.
    pub(crate) fn follows(&self, role: Role) -> bool {
        self.deref(role) != Deref::Never
    }

    /// Whether something that is no regular file becomes one.
    pub(crate) fn reads_specials(&self) -> bool {
        self.options.recursion == Recursion::Off || self.options.specials == Specials::Read
    }

    pub(crate) fn removes_first(&self) -> bool {
        self.options.making_way == MakingWay::Everything
    }

    pub(crate) fn terms(&self, role: Role, backup: &Backup) -> Terms {
        Terms {
            deref: self.deref(role),
            manner: self.options.manner,
            making_way: self.options.making_way,
            backup: match backup {
                Backup::None => WithBackup::No,
                _ => WithBackup::Yes,
            },
        }
    }

    /// Whether a symbolic link appeared after the run began: nobody meant us to follow it.
    pub(crate) fn is_newer_than_run(&self, link: &Stat) -> bool {
        let changed = (link.st_ctime, link.st_ctime_nsec as i64);
        changed > (self.began.tv_sec, self.began.tv_nsec)
    }

    /// Something in a folder is done; it may have been the last, there and above.
    pub(crate) fn child_done(&self, level: &Arc<Level>) {
        let mut level = level;
        while level.child_done() {
            self.close(level);
            match level.up() {
                Some(up) => level = up,
                None => break,
            }
        }
    }

    /// All in a folder is done: its copy gets its metadata.
    fn close(&self, level: &Arc<Level>) {
        let Some(closing) = level.take_closing() else {
            return;
        };
        let mut voice = self.ledger.voice(closing.ticket);
        let Folders {
            source,
            dest,
            surroundings,
        } = &*closing.folders;
        if *surroundings != Surroundings::Imagined && self.options.effect == Effect::Real {
            let troubles = metadata::preserve(
                held(source),
                &closing.stat,
                held(dest),
                closing.made,
                &self.options.preserve,
                &self.process,
            );
            voice.troubles(troubles, || level.dest());
            let mode_is_set = self.options.preserve.mode != Wish::Unsaid;
            if let (Some(mode), false) = (closing.narrowed, mode_is_set) {
                let set = fchmod(dest.fd(), Mode::from_raw_mode(mode));
                if let Err(errno) = set {
                    voice.problem(Problem::of(What::Mode, level.dest(), errno));
                }
            }
            // The name of an operand's copy stands in the folder above it.
            let above = level
                .above_operand()
                .map_or(Ok(()), |above| self.sync_folder(&above.dest));
            if let Err(errno) = self.sync_folder(dest).and(above) {
                voice.problem(Problem::of(What::Sync, level.dest(), errno));
            }
        }
        self.unclosed.fetch_sub(1, Relaxed);
        voice.settle();
    }

    /// Something open on a file system that is to be synced at the end.
    fn sync_at_end(&self, device: u64, open: impl FnOnce() -> Option<OwnedFd>) {
        let mut to_sync = self.to_sync.lock().unwrap_or_else(PoisonError::into_inner);
        if let Entry::Vacant(vacant) = to_sync.entry(device)
            && let Some(fd) = open()
        {
            vacant.insert(fd);
        }
    }

    /// The end of all: what is to be on disk gets there.
    pub(crate) fn finish(self) -> Summary {
        let to_sync = self.to_sync.into_inner();
        let mut voice = self.ledger.voice(self.ledger.ticket());
        for fd in to_sync.unwrap_or_else(PoisonError::into_inner).values() {
            if let Err(errno) = sync::file_system(fd) {
                voice.problem(Problem::of(What::Sync, "", errno));
            }
        }
        voice.settle();
        let mut summary = self.ledger.finish();
        if self.around.stop.load(Relaxed) {
            summary.ended = Ended::Stopped;
        }
        summary
    }

    /// What is in a folder has its names on disk, now or at the end.
    pub(crate) fn sync_folder(&self, dest: &Folder) -> Result<(), Errno> {
        match self.options.durability {
            Durability::Folder => sync::folder(dest),
            Durability::End => {
                let device = statat(dest.fd(), c".", AtFlags::empty())?.st_dev;
                self.sync_at_end(device, || sync::readable(dest).ok());
                Ok(())
            }
            Durability::Unsaid | Durability::File => Ok(()),
        }
    }
}

fn held(folder: &Folder) -> Held<'_> {
    match folder {
        Folder::Open(_) => Held::Open(folder.fd()),
        _ => Held::Named(folder.fd(), c"."),
    }
}
