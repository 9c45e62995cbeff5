//! The folders above a copy (`--parents`): created one by one on the path down, and given the
//! metadata of their originals when their content is done.

use std::ffi::{CStr, CString, OsStr, OsString};
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStringExt;
use std::sync::Arc;

use rustix::fs::{AtFlags, CWD, OFlags, Stat, fstat, statat};
use rustix::io::Errno;

use crate::fs::folder::{Folder, is_folder, joined};
use crate::metadata::{self, Creation, FolderRole, MetadataTarget};
use crate::report::event::Event;
use crate::report::problem::{Problem, ProblemKind};
use crate::report::reporter::EventBuffer;
use crate::run::CopyRun;
use crate::tree::level::{FolderPair, Level};

/// The folders passed through, source and destination; outermost first.
pub(crate) struct Parents<'a> {
    run: &'a CopyRun<'a>,
    /// The start of the path: the working folder or `/`.
    root: Folder,
    /// The target folder.
    target: &'a Folder,
    passed: Vec<ParentFolder>,
}

struct ParentFolder {
    source: Folder,
    stat: Stat,
    dest: Folder,
    creation: Creation,
    /// The displayed path of the destination.
    shown: OsString,
    /// Whether this run has created the destination: an existing folder keeps its metadata.
    is_ours: bool,
}

impl<'a> Parents<'a> {
    /// Descends along `path` below the working folder and below `target`, and creates missing
    /// folders there. Returns the folders for the copy of `last`, too.
    pub(crate) fn make(
        run: &'a CopyRun<'a>,
        (path, last): (&[u8], &[u8]),
        (shown, target): (&OsStr, &'a Folder),
    ) -> Result<(Self, Arc<Level>, Arc<FolderPair>), Problem> {
        let root = match path.starts_with(b"/") {
            true => Folder::open(CWD, c"/", OFlags::empty())
                .map_err(|errno| Problem::failed(ProblemKind::Stat, "/", errno))?,
            false => Folder::Working,
        };
        let mut parents = Self {
            run,
            root,
            target,
            passed: Vec::new(),
        };
        let mut events = run.reporter.buffer(run.reporter.sequence());
        let down = parents.down(path, last, shown, &mut events);
        events.submit();
        down?;
        let (source, dest) = parents.innermost();
        let folders = FolderPair::new(source.clone(), dest.clone(), Creation::Existing);
        // As it was given, including dots and slashes.
        let inside = path.iter().position(|byte| *byte != b'/');
        let dest = joined(shown, &path[inside.unwrap_or(path.len())..]);
        let level = Level::top(
            OsString::from_vec(path.to_vec()),
            dest,
            Arc::clone(&folders),
        );
        Ok((parents, level, folders))
    }

    /// Finishes the folders: all their content is done.
    pub(crate) fn finish(self) {
        let run = self.run;
        let mut events = run.reporter.buffer(run.reporter.sequence());
        let real = !run.options.dry_run;
        let copies = |passed: &&ParentFolder| real && passed.is_ours;
        for passed in self.passed.iter().rev().filter(copies) {
            run.preserve(
                MetadataTarget::of_folder(&passed.source),
                &passed.stat,
                MetadataTarget::of_folder(&passed.dest),
                passed.creation,
                (&mut events, &|| passed.shown.clone()),
            );
        }
        events.submit();
    }

    /// Returns the innermost folders so far.
    fn innermost(&self) -> (&Folder, &Folder) {
        let passed = self.passed.last();
        passed.map_or((&self.root, self.target), |passed| {
            (&passed.source, &passed.dest)
        })
    }

    fn down(
        &mut self,
        path: &[u8],
        last: &[u8],
        target: &OsStr,
        events: &mut EventBuffer<'_>,
    ) -> Result<(), Problem> {
        let operand = OsString::from_vec([path, last].concat());
        let root = if path.starts_with(b"/") { "/" } else { "" };
        let (mut source, mut dest) = (OsString::from(root), target.to_owned());
        let names = path.split(|byte| *byte == b'/');
        for name in names.filter(|name| !name.is_empty()) {
            (source, dest) = (joined(&source, name), joined(&dest, name));
            let passed = self.step(name, (&source, &dest), &operand)?;
            if let Creation::New { .. } = passed.creation {
                let (source, dest) = (source.clone(), dest.clone());
                events.changed(|| Event::MadeParent { source, dest });
            }
            self.passed.push(passed);
        }
        Ok(())
    }

    /// Descends by one folder on both sides. Symbolic links that the user named are followed.
    fn step(
        &self,
        name: &[u8],
        (source_shown, shown): (&OsStr, &OsStr),
        operand: &OsStr,
    ) -> Result<ParentFolder, Problem> {
        let at_dest = |errno| Problem::failed(ProblemKind::MakeParent, shown, errno);
        let name = CString::new(name).map_err(|_nul| at_dest(Errno::INVAL))?;
        let (source_above, above) = self.innermost();
        let place = (!matches!(above, Folder::Imagined)).then(|| above.fd());
        let there = place.map_or(Err(Errno::NOENT), |place| {
            statat(place, &name, AtFlags::empty())
        });
        if there.is_ok_and(|there| !is_folder(&there)) {
            return Err(Problem::new(ProblemKind::ParentNotDirectory, shown));
        }
        let at_source = |errno| Problem::failed(ProblemKind::ParentAttributes, source_shown, errno);
        let opened = Folder::open(source_above.fd(), &name, OFlags::empty());
        let source = opened.map_err(|errno| match there {
            // If the target has such a folder, the source's has not been queried yet.
            Ok(_) => Problem::failed(ProblemKind::Stat, operand, errno),
            Err(_) => at_source(errno),
        })?;
        let stat = fstat(source.fd()).map_err(at_source)?;
        let (dest, creation) = match (place, self.run.options.dry_run) {
            (Some(place), false) => self.make_or_open(place, &name, &stat, shown)?,
            (Some(place), true) if there.is_ok() => {
                let opened =
                    Folder::open(place, &name, OFlags::empty()).unwrap_or(Folder::Imagined);
                (opened, Creation::Existing)
            }
            _ => (Folder::Imagined, Creation::new(0)),
        };
        let is_dots = matches!(name.to_bytes(), b"." | b"..");
        let is_ours = match creation {
            Creation::New { .. } => true,
            // A folder of the target that is not the copy of a folder.
            Creation::Existing if is_dots => false,
            Creation::Existing => {
                let identity = dest.identity();
                identity.is_some_and(|it| self.run.inodes.operands().parents.contains(&it))
            }
        };
        if is_ours {
            let mut operands = self.run.inodes.operands();
            operands.parents.extend(dest.identity());
        }
        Ok(ParentFolder {
            source,
            stat,
            dest,
            creation,
            shown: shown.to_owned(),
            is_ours,
        })
    }

    fn make_or_open(
        &self,
        place: BorrowedFd<'_>,
        name: &CStr,
        source: &Stat,
        shown: &OsStr,
    ) -> Result<(Folder, Creation), Problem> {
        let failed = |errno| Problem::failed(ProblemKind::MakeParent, shown, errno);
        let (wishes, role) = (&self.run.options.preserve, FolderRole::Parent);
        let mode = metadata::mode_at_first(source, wishes, &self.run.process, role) | 0o700;
        match Folder::make(place, name, mode) {
            Ok((made, lent)) => Ok((made, Creation::New { mode, lent, role })),
            Err((Errno::EXIST, _)) => match Folder::open(place, name, OFlags::empty()) {
                Ok(dest) => Ok((dest, Creation::Existing)),
                Err(Errno::NOTDIR) => Err(Problem::new(ProblemKind::ParentNotDirectory, shown)),
                Err(errno) => Err(failed(errno)),
            },
            Err((errno, call)) => Err(failed(errno).by_call(call)),
        }
    }
}
