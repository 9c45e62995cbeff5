//! The folders above a copy (`--parents`): made one by one on the way down, and given the metadata
//! of their originals when what is in them is done.

use std::ffi::{CStr, CString, OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::Arc;

use rustix::fs::{AtFlags, CWD, Mode, Stat, fstat, mkdirat, openat, statat};
use rustix::io::Errno;

use crate::fs::folder::{Folder, PLACE, READ, is_folder, joined};
use crate::metadata::{self, Creation, MetadataTarget};
use crate::report::event::{Event, EventDetail};
use crate::report::problem::{Problem, ProblemKind};
use crate::report::reporter::EventBuffer;
use crate::run::CopyRun;
use crate::tree::level::{DestinationOrigin, FolderPair, Level};

/// Folders that were walked through, source beside destination; outermost first.
pub(crate) struct Parents<'a> {
    run: &'a CopyRun<'a>,
    /// The folder that is copied into.
    target: &'a Arc<OwnedFd>,
    passed: Vec<ParentFolder>,
}

struct ParentFolder {
    source: OwnedFd,
    stat: Stat,
    dest: Folder,
    creation: Creation,
    /// The destination, as it is shown.
    shown: OsString,
    /// `.` or `..`: a folder of the target that is the copy of nothing.
    is_dots: bool,
}

impl<'a> Parents<'a> {
    /// Goes down `path` below the working folder and below `target`, and makes what lacks there.
    /// Returns where what is called `last` is to be copied, too.
    pub(crate) fn make(
        run: &'a CopyRun<'a>,
        (path, last): (&[u8], &[u8]),
        (shown, target): (&OsStr, &'a Arc<OwnedFd>),
    ) -> Result<(Self, Arc<Level>, Arc<FolderPair>), Problem> {
        let mut events = run.reporter.buffer(run.reporter.sequence());
        let mut parents = Self {
            run,
            target,
            passed: Vec::new(),
        };
        let down = parents.down(path, last, shown, &mut events);
        events.submit();
        down?;
        let folders = Arc::new(parents.innermost(path)?);
        // As it was given, with all its dots and slashes.
        let inside = path.iter().position(|byte| *byte != b'/');
        let dest = joined(shown, &path[inside.unwrap_or(path.len())..]);
        let level = Level::top(
            OsString::from_vec(path.to_vec()),
            dest,
            Arc::clone(&folders),
        );
        Ok((parents, level, folders))
    }

    /// All that is in them is done.
    pub(crate) fn finish(self) {
        let run = self.run;
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

    /// Opens the innermost folders for the copy.
    fn innermost(&self, path: &[u8]) -> Result<FolderPair, Problem> {
        let Some(passed) = self.passed.last() else {
            return Ok(FolderPair {
                source: match path.is_empty() {
                    true => Folder::Working,
                    false => Folder::Place(
                        open(CWD, c"/")
                            .map_err(|errno| Problem::failed(ProblemKind::Stat, "/", errno))?,
                    ),
                },
                dest: Folder::Target(Arc::clone(self.target)),
                origin: DestinationOrigin::Old,
            });
        };
        let again = |fd: BorrowedFd<'_>| {
            let cloned = rustix::io::fcntl_dupfd_cloexec(fd, 0).map(Folder::Place);
            cloned.map_err(|errno| Problem::failed(ProblemKind::Stat, &passed.shown, errno))
        };
        let (dest, origin) = match &passed.dest {
            Folder::Imagined => (Folder::Imagined, DestinationOrigin::Imagined),
            dest => (again(dest.fd())?, DestinationOrigin::Old),
        };
        Ok(FolderPair {
            source: again(passed.source.as_fd())?,
            dest,
            origin,
        })
    }

    fn down(
        &mut self,
        path: &[u8],
        last: &[u8],
        target: &OsStr,
        events: &mut EventBuffer<'_>,
    ) -> Result<(), Problem> {
        let root: &[u8] = match path.starts_with(b"/") {
            true => b"/",
            false => b"",
        };
        let operand = OsString::from_vec([path, last].concat());
        let (mut source, mut dest) = (OsStr::from_bytes(root).to_owned(), target.to_owned());
        let names = path.split(|byte| *byte == b'/');
        for name in names.filter(|name| !name.is_empty()) {
            (source, dest) = (joined(&source, name), joined(&dest, name));
            let passed = self.step(root, name, (&source, &dest), &operand)?;
            let is_new = matches!(passed.creation, Creation::New(_));
            if is_new && events.wants(EventDetail::Changes) {
                let (source, dest) = (source.clone(), dest.clone());
                events.push(Event::MadeParent { source, dest });
            }
            self.passed.push(passed);
        }
        Ok(())
    }

    /// One folder further, on both sides. Symbolic links that the user named are followed.
    fn step(
        &self,
        root: &[u8],
        name: &[u8],
        (source_shown, shown): (&OsStr, &OsStr),
        operand: &OsStr,
    ) -> Result<ParentFolder, Problem> {
        let is_dots = matches!(name, b"." | b"..");
        let at_dest = |errno| Problem::failed(ProblemKind::MakeParent, shown, errno);
        let name = CString::new(name).map_err(|_nul| at_dest(Errno::INVAL))?;
        let place = match self.passed.last().map(|above| &above.dest) {
            None => Some(self.target.as_fd()),
            Some(Folder::Imagined) => None,
            Some(above) => Some(above.fd()),
        };
        let there = place.map_or(Err(Errno::NOENT), |place| {
            statat(place, &name, AtFlags::empty())
        });
        if there.is_ok_and(|there| !is_folder(&there)) {
            return Err(Problem::new(ProblemKind::ParentNotDirectory, shown));
        }
        let at_source = |errno| Problem::failed(ProblemKind::ParentAttributes, source_shown, errno);
        let source = self.open_source(root, &name).map_err(|errno| match there {
            // Where the target has such a folder, nobody has asked for the source's yet.
            Ok(_) => Problem::failed(ProblemKind::Stat, operand, errno),
            Err(_) => at_source(errno),
        })?;
        let stat = fstat(&source).map_err(at_source)?;
        let (dest, creation) = match (place, self.run.options.dry_run) {
            (Some(place), false) => self.make_or_open(place, &name, &stat, shown)?,
            (Some(place), true) if there.is_ok() => {
                let opened = open(place, &name).map_or(Folder::Imagined, Folder::Place);
                (opened, Creation::Existing)
            }
            _ => (Folder::Imagined, Creation::New(0)),
        };
        Ok(ParentFolder {
            source,
            stat,
            dest,
            creation,
            shown: shown.to_owned(),
            is_dots,
        })
    }

    fn open_source(&self, root: &[u8], name: &CStr) -> Result<OwnedFd, Errno> {
        match self.passed.last() {
            Some(above) => open(above.source.as_fd(), name),
            None if root.is_empty() => open(CWD, name),
            None => open(open(CWD, c"/")?, name),
        }
    }

    fn make_or_open(
        &self,
        place: BorrowedFd<'_>,
        name: &CStr,
        source: &Stat,
        shown: &OsStr,
    ) -> Result<(Folder, Creation), Problem> {
        let failed = |errno| Problem::failed(ProblemKind::MakeParent, shown, errno);
        let wishes = &self.run.options.preserve;
        let mode = metadata::mode_at_first(source, wishes, &self.run.process) | 0o700;
        let creation = match mkdirat(place, name, Mode::from_raw_mode(mode)) {
            Ok(()) => Creation::New(mode),
            Err(Errno::EXIST) => Creation::Existing,
            Err(errno) => return Err(failed(errno)),
        };
        match open(place, name) {
            Ok(dest) => Ok((Folder::Open(dest), creation)),
            Err(Errno::NOTDIR) => Err(Problem::new(ProblemKind::ParentNotDirectory, shown)),
            Err(errno) => Err(failed(errno)),
        }
    }
}

fn open(folder: impl AsFd, name: &CStr) -> Result<OwnedFd, Errno> {
    openat(folder.as_fd(), name, READ, Mode::empty())
        .or_else(|_| openat(folder, name, PLACE, Mode::empty()))
}
