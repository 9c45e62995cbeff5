//! The folders above a copy (`--parents`): made one by one on the way down, and given the metadata
//! of their originals when what is in them is done.

use std::ffi::{CStr, CString, OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::Arc;

use rustix::fs::{AtFlags, CWD, Mode, Stat, fstat, mkdirat, openat, statat};
use rustix::io::Errno;

use crate::fs::folder::{Folder, PLACE, READ, append, is_folder};
use crate::metadata::{self, Creation, MetadataTarget};
use crate::report::event::{Event, EventDetail};
use crate::report::problem::{Problem, ProblemKind};
use crate::report::reporter::EventBuffer;
use crate::run::CopyRun;
use crate::tree::level::{DestinationOrigin, FolderPair, Level};

/// Folders that were walked through, source beside destination.
pub(crate) struct Parents {
    pub(crate) level: Arc<Level>,
    pub(crate) folders: Arc<FolderPair>,
    /// Outermost first.
    passed: Vec<ParentFolder>,
}

struct ParentFolder {
    source: OwnedFd,
    stat: Stat,
    dest: Folder,
    creation: Creation,
    shown: OsString,
    /// `.` or `..`: a folder of the target that is the copy of nothing.
    is_dots: bool,
}

impl Parents {
    /// Goes down `path` below the working folder and below `target`, and makes what lacks there.
    pub(crate) fn make(
        run: &CopyRun<'_>,
        (path, last): (&[u8], &[u8]),
        target: &OsStr,
        fd: &Arc<OwnedFd>,
    ) -> Result<Self, Problem> {
        let mut events = run.reporter.buffer(run.reporter.sequence());
        let descent = Descent {
            run,
            passed: Vec::new(),
            source: Vec::new(),
            dest: target.as_bytes().to_vec(),
            target: target.as_bytes().to_vec(),
            operand: [path, last].concat(),
        };
        let made = descent.down(path, fd, &mut events);
        events.submit();
        made
    }

    /// All that is in them is done.
    pub(crate) fn finish(self, run: &CopyRun<'_>) {
        let mut events = run.reporter.buffer(run.reporter.sequence());
        let real = !run.options.dry_run;
        let copies = |passed: &&ParentFolder| real && !passed.is_dots;
        for passed in self.passed.iter().rev().filter(copies) {
            run.preserve(
                MetadataTarget::Open(passed.source.as_fd()),
                &passed.stat,
                MetadataTarget::Open(passed.dest.fd()),
                passed.creation,
                (&mut events, &|| passed.shown.clone()),
            );
        }
        events.submit();
    }
}

struct Descent<'a> {
    run: &'a CopyRun<'a>,
    passed: Vec<ParentFolder>,
    /// Both, as they are shown.
    source: Vec<u8>,
    dest: Vec<u8>,
    /// The folder that is copied into, as it is shown.
    target: Vec<u8>,
    operand: Vec<u8>,
}

impl Descent<'_> {
    fn down(
        mut self,
        path: &[u8],
        target: &Arc<OwnedFd>,
        events: &mut EventBuffer<'_>,
    ) -> Result<Parents, Problem> {
        if path.starts_with(b"/") {
            self.source.push(b'/');
        }
        for name in path
            .split(|byte| *byte == b'/')
            .filter(|name| !name.is_empty())
        {
            append(&mut self.source, name);
            append(&mut self.dest, name);
            self.step(path, name, target, events)?;
        }
        let source = match self.passed.last() {
            Some(passed) => Folder::Place(self.again(&passed.source)?),
            None if path.is_empty() => Folder::Working,
            None => Folder::Place(self.root()?),
        };
        let (dest, origin) = match self.passed.last() {
            Some(ParentFolder {
                dest: Folder::Open(fd) | Folder::Place(fd),
                ..
            }) => (Folder::Place(self.again(fd)?), DestinationOrigin::Old),
            Some(_) => (Folder::Imagined, DestinationOrigin::Imagined),
            None => (Folder::Target(Arc::clone(target)), DestinationOrigin::Old),
        };
        let folders = Arc::new(FolderPair {
            source,
            dest,
            origin,
        });
        // As it was given, with all its dots and slashes.
        let inside = path.iter().position(|byte| *byte != b'/');
        append(&mut self.target, &path[inside.unwrap_or(path.len())..]);
        let shown = OsString::from_vec(path.to_vec());
        let dest_shown = OsString::from_vec(self.target);
        Ok(Parents {
            level: Level::top(shown, dest_shown, Arc::clone(&folders)),
            folders,
            passed: self.passed,
        })
    }

    /// One folder further, on both sides. Symbolic links that the user named are followed.
    fn step(
        &mut self,
        path: &[u8],
        name: &[u8],
        target: &Arc<OwnedFd>,
        events: &mut EventBuffer<'_>,
    ) -> Result<(), Problem> {
        let shown = OsString::from_vec(self.dest.clone());
        let is_dots = matches!(name, b"." | b"..");
        let name = CString::new(name).map_err(|_nul| {
            Problem::failed(ProblemKind::MakeParent, shown.clone(), Errno::INVAL)
        })?;
        let place = match self.passed.last() {
            None => Some(target.as_fd()),
            Some(ParentFolder {
                dest: Folder::Imagined,
                ..
            }) => None,
            Some(above) => Some(above.dest.fd()),
        };
        let there = place.map_or(Err(Errno::NOENT), |place| {
            statat(place, &name, AtFlags::empty())
        });
        if there.is_ok_and(|there| !is_folder(&there)) {
            return Err(Problem::new(ProblemKind::ParentNotDirectory, shown));
        }
        let source = self.open_source(path, &name).map_err(|errno| match there {
            // Where the target has such a folder, nobody has asked for the source's yet.
            Ok(_) => Problem::failed(
                ProblemKind::Stat,
                OsString::from_vec(self.operand.clone()),
                errno,
            ),
            Err(_) => Problem::failed(ProblemKind::ParentAttributes, self.source_shown(), errno),
        })?;
        let stat = fstat(&source).map_err(|errno| {
            Problem::failed(ProblemKind::ParentAttributes, self.source_shown(), errno)
        })?;
        let (dest, creation) = match (place, self.run.options.dry_run) {
            (Some(place), false) => self.make_or_open(place, &name, &stat)?,
            (Some(place), true) if there.is_ok() => {
                let opened = open(place, &name);
                (
                    opened.map_or(Folder::Imagined, Folder::Place),
                    Creation::Existing,
                )
            }
            _ => (Folder::Imagined, Creation::New(0)),
        };
        if matches!(creation, Creation::New(_)) && events.wants(EventDetail::Changes) {
            events.push(Event::MadeParent {
                source: self.source_shown(),
                dest: shown.clone(),
            });
        }
        self.passed.push(ParentFolder {
            source,
            stat,
            dest,
            creation,
            shown,
            is_dots,
        });
        Ok(())
    }

    fn open_source(&self, path: &[u8], name: &CStr) -> Result<OwnedFd, Errno> {
        match self.passed.last() {
            Some(above) => open(above.source.as_fd(), name),
            None if path.starts_with(b"/") => open(open(CWD, c"/")?, name),
            None => open(CWD, name),
        }
    }

    fn make_or_open(
        &self,
        place: BorrowedFd<'_>,
        name: &CStr,
        source: &Stat,
    ) -> Result<(Folder, Creation), Problem> {
        let shown = || OsString::from_vec(self.dest.clone());
        let wishes = &self.run.options.preserve;
        let mode = metadata::mode_at_first(source, wishes, &self.run.process) | 0o700;
        let creation = match mkdirat(place, name, Mode::from_raw_mode(mode)) {
            Ok(()) => Creation::New(mode),
            Err(Errno::EXIST) => Creation::Existing,
            Err(errno) => return Err(Problem::failed(ProblemKind::MakeParent, shown(), errno)),
        };
        match open(place, name) {
            Ok(dest) => Ok((Folder::Open(dest), creation)),
            Err(Errno::NOTDIR) => Err(Problem::new(ProblemKind::ParentNotDirectory, shown())),
            Err(errno) => Err(Problem::failed(ProblemKind::MakeParent, shown(), errno)),
        }
    }

    fn source_shown(&self) -> OsString {
        OsString::from_vec(self.source.clone())
    }

    fn root(&self) -> Result<OwnedFd, Problem> {
        open(CWD, c"/").map_err(|errno| Problem::failed(ProblemKind::Stat, "/", errno))
    }

    fn again(&self, fd: &OwnedFd) -> Result<OwnedFd, Problem> {
        let shown = || OsString::from_vec(self.dest.clone());
        let cloned = rustix::io::fcntl_dupfd_cloexec(fd, 0);
        cloned.map_err(|errno| Problem::failed(ProblemKind::Stat, shown(), errno))
    }
}

fn open(folder: impl AsFd, name: &CStr) -> Result<OwnedFd, Errno> {
    openat(folder.as_fd(), name, READ, Mode::empty())
        .or_else(|_| openat(folder, name, PLACE, Mode::empty()))
}
