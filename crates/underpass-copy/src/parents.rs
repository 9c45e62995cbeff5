//! The folders above a copy (`--parents`): made one by one on the way down, and given the metadata
//! of their originals when what is in them is done.

use std::ffi::{CString, OsStr, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::Arc;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat, fstat, mkdirat, openat, statat};
use rustix::io::Errno;

use crate::decide::file_type;
use crate::event::{Curiosity, Event};
use crate::ledger::Voice;
use crate::level::{Folder, Folders, Level, Surroundings, append};
use crate::metadata::{self, Held, Made};
use crate::options::Effect;
use crate::problem::{Problem, What};
use crate::run::Run;

/// Folders that were walked through, source beside destination.
pub(crate) struct Parents {
    pub(crate) level: Arc<Level>,
    pub(crate) folders: Arc<Folders>,
    /// Outermost first.
    passed: Vec<Passed>,
}

struct Passed {
    source: OwnedFd,
    stat: Stat,
    dest: OwnedFd,
    made: Made,
    shown: OsString,
    component: Component,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Component {
    Name,
    Dots,
}

impl Parents {
    /// Goes down `path` below the working folder and below `target`, and makes what lacks there.
    pub(crate) fn make(
        run: &Run<'_>,
        (path, last): (&[u8], &[u8]),
        target: &OsStr,
        fd: &Arc<OwnedFd>,
    ) -> Result<Self, Box<Problem>> {
        let mut voice = run.ledger.voice(run.ledger.ticket());
        let way = Way {
            run,
            passed: Vec::new(),
            source: Vec::new(),
            dest: target.as_bytes().to_vec(),
            target: target.as_bytes().to_vec(),
            operand: [path, last].concat(),
        };
        let made = way.down(path, fd, &mut voice);
        voice.settle();
        made
    }

    /// All that is in them is done.
    pub(crate) fn finish(self, run: &Run<'_>) {
        let mut voice = run.ledger.voice(run.ledger.ticket());
        // `.` and `..` of the target are no copies of anything.
        let copies = |passed: &&Passed| passed.component == Component::Name;
        for passed in self.passed.iter().rev().filter(copies) {
            let troubles = metadata::preserve(
                Held::Open(passed.source.as_fd()),
                &passed.stat,
                Held::Open(passed.dest.as_fd()),
                passed.made,
                &run.options.preserve,
                &run.process,
            );
            voice.troubles(troubles, || passed.shown.clone());
        }
        voice.settle();
    }
}

struct Way<'a> {
    run: &'a Run<'a>,
    passed: Vec<Passed>,
    /// Both, as they are shown.
    source: Vec<u8>,
    dest: Vec<u8>,
    /// The folder that is copied into, as it is shown.
    target: Vec<u8>,
    operand: Vec<u8>,
}

impl Way<'_> {
    fn down(
        mut self,
        path: &[u8],
        target: &Arc<OwnedFd>,
        voice: &mut Voice<'_>,
    ) -> Result<Parents, Box<Problem>> {
        if path.starts_with(b"/") {
            self.source.push(b'/');
        }
        for name in path
            .split(|byte| *byte == b'/')
            .filter(|name| !name.is_empty())
        {
            append(&mut self.source, name);
            append(&mut self.dest, name);
            self.step(path, name, target, voice)?;
        }
        let source = match self.passed.last() {
            Some(passed) => Folder::Place(self.again(&passed.source)?),
            None if path.is_empty() => Folder::Working,
            None => Folder::Place(self.root()?),
        };
        let (dest, surroundings) = match (self.passed.last(), self.run.options.effect) {
            (_, Effect::ToldOnly) => (Folder::Imagined, Surroundings::Imagined),
            (Some(passed), _) => (Folder::Place(self.again(&passed.dest)?), Surroundings::Old),
            (None, _) => (Folder::Target(Arc::clone(target)), Surroundings::Old),
        };
        let folders = Arc::new(Folders {
            source,
            dest,
            surroundings,
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
        voice: &mut Voice<'_>,
    ) -> Result<(), Box<Problem>> {
        let shown_source = OsString::from_vec(self.source.clone());
        let shown = OsString::from_vec(self.dest.clone());
        let attributes = |errno| {
            Box::new(Problem::of(
                What::ParentAttributes,
                shown_source.clone(),
                errno,
            ))
        };
        let component = match name {
            b"." | b".." => Component::Dots,
            _ => Component::Name,
        };
        let name = CString::new(name).map_err(|_nul| attributes(Errno::INVAL))?;
        let above = self.passed.last();
        let into = above.map_or(target.as_fd(), |above| above.dest.as_fd());
        let there = statat(into, &name, AtFlags::empty());
        if there.is_ok_and(|there| file_type(&there) != FileType::Directory) {
            return Err(Box::new(Problem::said(What::ParentNotDirectory, shown)));
        }
        // Where the target has such a folder, nobody has asked for the source's yet.
        let operand = || OsString::from_vec(self.operand.clone());
        let cannot = |errno| match there {
            Ok(_) => Box::new(Problem::of(What::Stat, operand(), errno)),
            Err(_) => attributes(errno),
        };
        let source = match above {
            Some(above) => open(above.source.as_fd(), &name),
            None if path.starts_with(b"/") => open(self.root()?, &name),
            None => open(CWD, &name),
        };
        let source = source.map_err(cannot)?;
        let stat = fstat(&source).map_err(attributes)?;
        if self.run.options.effect == Effect::ToldOnly {
            return Ok(());
        }
        let wishes = &self.run.options.preserve;
        let mode = metadata::mode_at_first(&stat, wishes, &self.run.process) | 0o700;
        let made = match mkdirat(into, &name, Mode::from_raw_mode(mode)) {
            Ok(()) => Made::New(mode),
            Err(Errno::EXIST) => Made::Before,
            Err(errno) => {
                return Err(Box::new(Problem::of(What::MakeParent, shown, errno)));
            }
        };
        let dest = match open(into, &name) {
            Ok(dest) => dest,
            Err(Errno::NOTDIR) => {
                return Err(Box::new(Problem::said(What::ParentNotDirectory, shown)));
            }
            Err(errno) => return Err(Box::new(Problem::of(What::MakeParent, shown, errno))),
        };
        if matches!(made, Made::New(_)) && voice.wants(Curiosity::Changes) {
            voice.say(Event::MadeParent {
                source: shown_source,
                dest: shown.clone(),
            });
        }
        self.passed.push(Passed {
            source,
            stat,
            dest,
            made,
            shown,
            component,
        });
        Ok(())
    }

    fn root(&self) -> Result<OwnedFd, Box<Problem>> {
        open(CWD, c"/").map_err(|errno| Box::new(Problem::of(What::Stat, "/", errno)))
    }

    fn again(&self, fd: &OwnedFd) -> Result<OwnedFd, Box<Problem>> {
        let shown = || OsString::from_vec(self.dest.clone());
        let cloned = rustix::io::fcntl_dupfd_cloexec(fd, 0);
        cloned.map_err(|errno| Box::new(Problem::of(What::Stat, shown(), errno)))
    }
}

fn open(folder: impl AsFd, name: &std::ffi::CStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat(folder.as_fd(), name, flags, Mode::empty())
        .or_else(|_| openat(folder, name, flags | OFlags::PATH, Mode::empty()))
}
