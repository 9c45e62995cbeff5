//! What stands on the command line: sources, the target, and where each copy goes.
//!
//! An operand's folder is opened once, and its last component is all that is looked up in it.

use std::collections::HashSet;
use std::ffi::{CString, OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::Arc;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, openat, statat};
use rustix::io::Errno;

use crate::entry::decide::file_type;
use crate::entry::execute::Hand;
use crate::fs::backup;
use crate::options::{Backup, MakingWay, Naming, Slashes, Target};
use crate::report::problem::{Problem, What};
use crate::run::{Role, Run, Task};
use crate::tree::level::{Folder, Folders, Level, Surroundings, identity, joined};
use crate::walk::parents::Parents;
use crate::walk::tree::Walk;

/// Copies all operands.
pub(crate) fn copy_all(hand: &Hand<'_>, operands: &[OsString]) {
    let run = hand.run;
    let (sources, to) = match targets(run, operands) {
        Ok(targets) => targets,
        Err(problem) => return tell(run, problem),
    };
    let mut copying = Copying {
        run,
        hand,
        to,
        under_way: HashSet::new(),
        last: None,
    };
    for source in sources {
        if run.stopped() {
            break;
        }
        copying.copy(source);
    }
    run.crew.drain(&|task| hand.perform(task));
}

/// Where copies go.
enum To {
    /// To this name.
    Name(OsString),
    /// Into this folder.
    Folder(OsString, Arc<OwnedFd>),
}

fn targets<'o>(run: &Run<'_>, operands: &'o [OsString]) -> Result<(&'o [OsString], To), Problem> {
    let open = |path: &OsStr| {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        openat(CWD, path, flags, Mode::empty()).map(Arc::new)
    };
    let nothing: &[OsString] = &[];
    match (&run.options.target, operands.split_last()) {
        (Target::Folder(folder), _) => {
            let folder = folder.as_os_str();
            let fd =
                open(folder).map_err(|errno| Problem::of(What::TargetDirectory, folder, errno))?;
            Ok((operands, To::Folder(folder.to_owned(), fd)))
        }
        (_, None) => Ok((nothing, To::Name(OsString::new()))),
        (Target::LastOperandAsName, Some((last, sources))) => Ok((sources, To::Name(last.clone()))),
        (Target::LastOperand, Some((last, sources))) => match open(last) {
            Ok(fd) => Ok((sources, To::Folder(last.clone(), fd))),
            Err(errno) if sources.len() > 1 || run.options.naming == Naming::Parents => {
                Err(Problem::of(What::Target, last.clone(), errno))
            }
            Err(_) => Ok((sources, To::Name(last.clone()))),
        },
    }
}

struct Copying<'a> {
    run: &'a Run<'a>,
    hand: &'a Hand<'a>,
    to: To,
    /// Names of copies that may not be done yet, in small letters: some file systems see no
    /// difference.
    under_way: HashSet<Vec<u8>>,
    /// The folders of the operand before: mostly they are the next one's, too.
    last: Option<(Vec<u8>, Arc<Level>, Arc<Folders>)>,
}

impl Copying<'_> {
    fn copy(&mut self, source: &OsString) {
        let mut path = source.as_bytes();
        let into_folder = matches!(self.to, To::Folder(..));
        if into_folder && self.run.options.slashes == Slashes::Stripped {
            path = without_slashes(path);
        }
        let (prefix, last) = split(path);
        let made = match (&self.to, self.run.options.naming) {
            (To::Name(to), _) if to.as_bytes() == path && self.backs_itself_up() => {
                self.own_backup((prefix, last))
            }
            (To::Name(to), _) => self.pair((prefix, last), split(to.as_bytes())),
            (To::Folder(folder, fd), Naming::Parents) => {
                let (folder, fd) = (folder.clone(), Arc::clone(fd));
                return self.below_parents(path, &folder, &fd);
            }
            (To::Folder(folder, _), _) if without_slashes(last) == b".." => {
                self.pair((prefix, last), split(folder.as_bytes()))
            }
            (To::Folder(folder, fd), _) => {
                let (folder, fd) = (folder.clone(), Arc::clone(fd));
                let dest = match without_slashes(last) {
                    b"" if last.is_empty() => b"".as_slice(),
                    b"" => b".",
                    name => name,
                };
                self.below_folder(prefix, &folder, &fd, last, dest)
            }
        };
        match made {
            Ok(task) => self.begin(task),
            Err(errno) => tell(self.run, Problem::of(What::Stat, source.clone(), errno)),
        }
    }

    /// A task with folders of its own.
    fn pair(&self, source: (&[u8], &[u8]), dest: (&[u8], &[u8])) -> Result<Task, Errno> {
        let (source_folder, source, source_shown) = opened(source.0, source.1);
        let (dest_folder, dest, dest_shown) = opened(dest.0, dest.1);
        let folders = Arc::new(Folders {
            source: source_folder,
            dest: dest_folder,
            surroundings: Surroundings::Old,
        });
        let level = Level::top(source_shown, dest_shown, Arc::clone(&folders));
        self.task(&level, &folders, &source, &dest)
    }

    /// Whether an operand that is its own destination is a wish for a backup, as with `cp` it is.
    fn backs_itself_up(&self) -> bool {
        let options = self.run.options;
        options.making_way == MakingWay::Unwritable && options.backup != Backup::None
    }

    /// A regular file is copied to the name of its backup; anything else is an error that the copy
    /// itself will tell.
    fn own_backup(&self, (prefix, last): (&[u8], &[u8])) -> Result<Task, Errno> {
        let task = self.pair((prefix, last), (prefix, last))?;
        let folder = task.folders.dest.fd();
        let stat = statat(folder, &task.dest, AtFlags::empty());
        if !stat.is_ok_and(|stat| file_type(&stat) == FileType::RegularFile) {
            return Ok(task);
        }
        let dest = backup::name_for(folder, &task.dest, &self.run.options.backup)?;
        Ok(Task {
            dest,
            role: Role::OwnBackup,
            ..task
        })
    }

    fn below_folder(
        &mut self,
        prefix: &[u8],
        folder: &OsStr,
        fd: &Arc<OwnedFd>,
        source: &[u8],
        dest: &[u8],
    ) -> Result<Task, Errno> {
        if let Some((last, level, folders)) = &self.last
            && last == prefix
        {
            return self.task(level, folders, source, dest);
        }
        let (source_folder, source, shown) = opened(prefix, source);
        let is_open = shown.as_bytes() == prefix;
        let folders = Arc::new(Folders {
            source: source_folder,
            dest: Folder::Target(Arc::clone(fd)),
            surroundings: Surroundings::Old,
        });
        let level = Level::top(shown, folder.to_owned(), Arc::clone(&folders));
        let task = self.task(&level, &folders, &source, dest);
        if is_open {
            self.last = Some((prefix.to_vec(), level, folders));
        }
        task
    }

    fn task(
        &self,
        level: &Arc<Level>,
        folders: &Arc<Folders>,
        source: &[u8],
        dest: &[u8],
    ) -> Result<Task, Errno> {
        let name = |name: &[u8]| CString::new(name).map_err(|_nul| Errno::INVAL);
        let (source, dest) = (name(source)?, name(dest)?);
        level.expect_child();
        Ok(Task {
            level: Arc::clone(level),
            folders: Arc::clone(folders),
            source,
            dest,
            role: Role::Operand,
            ticket: self.run.ledger.ticket(),
        })
    }

    /// Has a task done: by somebody else, where it is no folder and nothing depends on the order.
    fn begin(&mut self, task: Task) {
        let (run, hand) = (self.run, self.hand);
        let name = task.dest.to_bytes().to_ascii_lowercase();
        if !self.under_way.insert(name) || self.copies_from_target(&task) {
            run.crew.drain(&|task| hand.perform(task));
            self.under_way.clear();
        }
        let flags = match run.follows(Role::Operand) {
            true => AtFlags::empty(),
            false => AtFlags::SYMLINK_NOFOLLOW,
        };
        let looked = || statat(task.folders.source.fd(), &task.source, flags);
        let is_file = run.crew.has_others()
            && looked().is_ok_and(|stat| file_type(&stat) != FileType::Directory);
        if is_file {
            run.crew.submit([task].into(), &|task| hand.perform(task));
        } else {
            Walk::operand(hand, task);
        }
    }

    /// Whether the source may be what an earlier operand is becoming.
    fn copies_from_target(&self, task: &Task) -> bool {
        let folder = |folder: &Folder| {
            let stat = statat(folder.fd(), c".", AtFlags::empty());
            stat.ok().map(|stat| identity(&stat))
        };
        self.run.crew.has_others() && folder(&task.folders.source) == folder(&task.folders.dest)
    }

    /// Makes the folders above a copy, too, and gives them their metadata when it is done.
    fn below_parents(&mut self, path: &[u8], folder: &OsStr, fd: &Arc<OwnedFd>) {
        let (run, hand) = (self.run, self.hand);
        let (prefix, last) = split(path);
        match Parents::make(run, (prefix, last), folder, fd) {
            Ok(parents) => {
                let dest = without_slashes(last);
                if let Ok(task) = self.task(&parents.level, &parents.folders, last, dest) {
                    Walk::operand(hand, task);
                }
                run.crew.drain(&|task| hand.perform(task));
                parents.finish(run);
            }
            Err(problem) => tell(run, *problem),
        }
    }
}

/// The folder that a prefix names, the name to be looked up in it, and how the folder is shown. One
/// that can't be opened leaves all to the calls that follow, which then say why.
fn opened(prefix: &[u8], name: &[u8]) -> (Folder, Vec<u8>, OsString) {
    let shown = OsString::from_vec(prefix.to_vec());
    if prefix.is_empty() {
        return (Folder::Working, name.to_vec(), shown);
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match openat(CWD, OsStr::from_bytes(prefix), flags, Mode::empty()) {
        Ok(fd) => (Folder::Place(fd), name.to_vec(), shown),
        Err(_) => {
            let whole = joined(&shown, name).into_vec();
            (Folder::Working, whole, OsString::new())
        }
    }
}

/// What stands before the last component of a path, with its slash, and the last component, with
/// the slashes behind it.
pub(crate) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    let end = without_slashes(path).len();
    let start = path[..end].iter().rposition(|byte| *byte == b'/');
    path.split_at(start.map_or(0, |slash| slash + 1))
}

pub(crate) fn without_slashes(path: &[u8]) -> &[u8] {
    let last = path.iter().rposition(|byte| *byte != b'/');
    &path[..last.map_or(0, |last| last + 1)]
}

pub(crate) fn tell(run: &Run<'_>, problem: Problem) {
    let mut voice = run.ledger.voice(run.ledger.ticket());
    voice.problem(problem);
    voice.settle();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_split_before_their_last_component() {
        for (path, prefix, last) in [
            ("a", "", "a"),
            ("a/b", "a/", "b"),
            ("a/b//", "a/", "b//"),
            ("//a//b", "//a//", "b"),
            ("/", "", "/"),
            ("", "", ""),
            ("..", "", ".."),
            ("a/..", "a/", ".."),
        ] {
            let split = split(path.as_bytes());
            assert_eq!(split, (prefix.as_bytes(), last.as_bytes()), "{path}");
        }
    }
}
