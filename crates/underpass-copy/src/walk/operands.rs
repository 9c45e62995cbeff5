//! The operands of a command line: sources, the target, and the destination of each copy.
//!
//! An operand's folder is opened once, and only its last component is looked up in it.

use std::collections::HashSet;
use std::ffi::{CString, OsStr, OsString};
use std::num::NonZeroUsize;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};

use rustix::fs::{CWD, OFlags, lstat, stat};
use rustix::io::Errno;

use crate::entry::execute::CopyWorker;
use crate::fs::backup;
use crate::fs::folder::{Folder, is_folder, is_regular, joined, split, without_slashes};
use crate::metadata::{Creation, ProcessFacts};
use crate::options::{Backup, CopyMode, CopyOptions, CopyTarget, RemoveExisting};
use crate::report::problem::{Problem, ProblemKind};
use crate::report::reporter::{CopySummary, Delivery, OrderedReporter};
use crate::run::{CopyContext, CopyRun, DescriptorShares, RunStart, SourceCount};
use crate::tree::filter::NameFilter;
use crate::tree::inode_table::InodeTable;
use crate::tree::level::{FolderPair, Level, Role, Task};
use crate::walk::parents::Parents;
use crate::walk::tree::TreeWalk;
use crate::workers::pool::WorkerPool;
use crate::workers::throttle::Throttle;

/// The number of parallel files that pays off on file systems of one machine.
const DEFAULT_JOBS_MAX: NonZeroUsize = NonZeroUsize::new(16).unwrap();

/// Starts a copy, before it makes any visible change.
///
/// A symbolic link that exists as a destination, in a folder that existed before, is followed if it
/// existed before too, but not if another user has put it there since. Change times distinguish the
/// two, with the granularity of a tick: if a copy may meet such a link, this waits for the next
/// tick, 1 to 10 ms.
pub fn begin(operands: &[OsString], options: &CopyOptions) -> RunStart {
    match may_meet_links(operands, options) {
        true => RunStart::at_next_tick(),
        false => RunStart::now(),
    }
}

/// Returns whether a folder is copied over an existing one, and links in it are followed.
fn may_meet_links(operands: &[OsString], options: &CopyOptions) -> bool {
    let follows = options.recursive
        && options.backup == Backup::None
        && !options.removes_first()
        && matches!(options.copy_mode, CopyMode::Copy | CopyMode::AttributesOnly);
    if !follows {
        return false;
    }
    let target = target_shown(options, operands);
    let into_folder = options.target != CopyTarget::LastAsName && is_folder_at(target);
    let dest = |source: &OsString| {
        let path = without_slashes(source.as_bytes());
        let (_, last) = split(path);
        match (into_folder, options.parents) {
            (false, _) => target.to_owned(),
            (true, false) => joined(target, last),
            (true, true) => joined(target, path),
        }
    };
    let mut sources = sources(options, operands).iter();
    sources.any(|source| is_folder_at(&dest(source)))
}

/// Copies `operands` as `options` specify.
///
/// With [`CopyTarget::Folder`] all operands are sources; otherwise the last one of at least two is
/// the target. Blocks until all is done, and continues after an error: each one is reported as a
/// [`Problem`] and counted in the [`CopySummary`].
pub fn copy(operands: &[OsString], options: &CopyOptions, context: CopyContext<'_>) -> CopySummary {
    let sources = match sources(options, operands).len() {
        0 | 1 => SourceCount::One,
        _ => SourceCount::IntoFolder,
    };
    let jobs = match (sources, operands.first()) {
        // One file is copied by one thread.
        (SourceCount::One, Some(source)) if lstat(source).is_ok_and(|stat| is_regular(&stat)) => 1,
        _ => options.jobs.unwrap_or_else(processors).get(),
    };
    let shares = DescriptorShares::of(jobs.min(CopyOptions::JOBS_MAX));
    let DescriptorShares { jobs, folders_max } = shares;
    let pool = (jobs > 1).then(|| WorkerPool::new(folders_max));
    let delivery = match pool {
        None => Delivery::Immediate,
        Some(_) => Delivery::Ordered,
    };
    let reporter = OrderedReporter::new(context.observer, delivery);
    let filter = (!options.filters.is_empty()).then(|| NameFilter::of(&options.filters));
    let filter = match filter.transpose() {
        Ok(filter) => filter,
        Err(why) => {
            reporter.problem(Problem::new(ProblemKind::Pattern(why), OsString::new()));
            return reporter.finish();
        }
    };
    let process = ProcessFacts::read(&options.preserve);
    if pool.is_some() {
        // Done before other threads create files.
        process.umask();
    }
    let run = CopyRun {
        options,
        context,
        reporter,
        inodes: InodeTable::default(),
        process,
        filter,
        throttle: options.bytes_per_second_max.map(Throttle::to),
        pool,
        sources,
        folders_max,
        unclosed: AtomicUsize::new(0),
        to_sync: Mutex::default(),
    };
    match &run.pool {
        None => copy_all(&CopyWorker::of(&run), operands),
        Some(pool) => copy_with(pool, jobs, &run, operands),
    }
    run.finish()
}

/// Returns the number of parallel files that pays off. Costs a dozen system calls.
fn processors() -> NonZeroUsize {
    let processors = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    processors.min(DEFAULT_JOBS_MAX)
}

/// Copies all operands on several threads, including the calling one.
fn copy_with(pool: &WorkerPool, jobs: usize, run: &CopyRun<'_>, operands: &[OsString]) {
    std::thread::scope(|scope| {
        // If no more threads can be started, the existing ones do all the work.
        let others = (1..jobs).map_while(|_| {
            let work = || CopyWorker::of(run).work(pool);
            std::thread::Builder::new().spawn_scoped(scope, work).ok()
        });
        let others = others.count();
        copy_all(&CopyWorker::of(run), operands);
        for _ in 0..others {
            pool.dismiss();
        }
    });
}

/// Copies all operands.
fn copy_all(worker: &CopyWorker<'_>, operands: &[OsString]) {
    let run = worker.run;
    let to = match resolve_target(run.options, operands) {
        Ok(to) => to,
        Err(problem) => return run.reporter.problem(problem),
    };
    let mut walk = OperandWalk {
        run,
        worker,
        to: &to,
        in_progress: HashSet::new(),
        last: None,
    };
    for source in sources(run.options, operands) {
        if run.stopped() {
            break;
        }
        walk.copy(source);
    }
    worker.drain();
}

/// Returns the operands that are copied.
pub(crate) fn sources<'o>(options: &CopyOptions, operands: &'o [OsString]) -> &'o [OsString] {
    match (&options.target, operands.split_last()) {
        (CopyTarget::Folder(_), _) | (_, None) => operands,
        (_, Some((_, sources))) => sources,
    }
}

/// The target of the copies.
struct ResolvedTarget {
    shown: OsString,
    /// The folder that they go into; `None` if the target is the name of the copy.
    folder: Option<Folder>,
}

fn is_folder_at(path: &OsStr) -> bool {
    stat(path).is_ok_and(|stat| is_folder(&stat))
}

/// Returns the last operand, or the folder that was given instead.
fn target_shown<'o>(options: &'o CopyOptions, operands: &'o [OsString]) -> &'o OsStr {
    let last = operands.last().map(OsString::as_os_str);
    match &options.target {
        CopyTarget::Folder(folder) => folder.as_os_str(),
        CopyTarget::Last | CopyTarget::LastAsName => last.unwrap_or_default(),
    }
}

fn resolve_target(options: &CopyOptions, operands: &[OsString]) -> Result<ResolvedTarget, Problem> {
    let shown = target_shown(options, operands);
    let opened = || Folder::place(CWD, shown, OFlags::empty());
    let failed = |kind, errno| Problem::failed(kind, shown, errno);
    let needs_folder = options.parents || sources(options, operands).len() > 1;
    let folder = match options.target {
        CopyTarget::LastAsName => None,
        CopyTarget::Folder(_) => {
            Some(opened().map_err(|errno| failed(ProblemKind::TargetDirectory, errno))?)
        }
        CopyTarget::Last if needs_folder => {
            Some(opened().map_err(|errno| failed(ProblemKind::Target, errno))?)
        }
        CopyTarget::Last => match opened() {
            // The name of the copy, unless it is a folder that could not be opened.
            Err(errno) if is_folder_at(shown) => return Err(failed(ProblemKind::Target, errno)),
            opened => opened.ok(),
        },
    };
    let shown = shown.to_owned();
    Ok(ResolvedTarget { shown, folder })
}

struct OperandWalk<'a> {
    run: &'a CopyRun<'a>,
    worker: &'a CopyWorker<'a>,
    to: &'a ResolvedTarget,
    /// Names of copies that may not be done yet, in lower case: some file systems ignore case.
    in_progress: HashSet<Vec<u8>>,
    /// The folders of the previous operand: mostly they are the next one's, too.
    last: Option<(Vec<u8>, Arc<Level>, Arc<FolderPair>)>,
}

impl OperandWalk<'_> {
    fn copy(&mut self, source: &OsString) {
        let ResolvedTarget { shown: to, folder } = self.to;
        let mut path = source.as_bytes();
        if folder.is_some() && self.run.options.strip_trailing_slashes {
            path = without_slashes(path);
        }
        let (prefix, last) = split(path);
        let made = match folder {
            None if to.as_bytes() == path && self.backs_itself_up() => {
                self.own_backup((prefix, last))
            }
            None => self.pair((prefix, last), split(to.as_bytes())),
            Some(folder) if self.run.options.parents => {
                return self.below_parents((prefix, last), (to, folder));
            }
            Some(_) if without_slashes(last) == b".." => {
                self.pair((prefix, last), split(to.as_bytes()))
            }
            Some(folder) => {
                let dest = match without_slashes(last) {
                    b"" if last.is_empty() => b"".as_slice(),
                    b"" => b".",
                    name => name,
                };
                self.below_folder(prefix, (to, folder), last, dest)
            }
        };
        match made {
            Ok(task) => self.begin(task),
            Err(errno) => {
                let problem = Problem::failed(ProblemKind::Stat, source.clone(), errno);
                self.run.reporter.problem(problem);
            }
        }
    }

    /// Returns a task with separately opened folders.
    fn pair(&self, source: (&[u8], &[u8]), dest: (&[u8], &[u8])) -> Result<Task, Errno> {
        let (source_folder, source, source_shown) = opened(source.0, source.1);
        let (dest_folder, dest, dest_shown) = opened(dest.0, dest.1);
        let folders = FolderPair::new(source_folder, dest_folder, Creation::Existing);
        let level = Level::top(source_shown, dest_shown, Arc::clone(&folders));
        self.task(&level, &folders, &source, &dest)
    }

    /// Returns whether an operand copied to itself gets a backup, as with GNU's `cp -fb`.
    fn backs_itself_up(&self) -> bool {
        let options = self.run.options;
        options.remove_existing == RemoveExisting::IfUnwritable && options.backup != Backup::None
    }

    /// Copies a regular file to the name of its backup; anything else is an error that the copy
    /// itself will report.
    fn own_backup(&self, (prefix, last): (&[u8], &[u8])) -> Result<Task, Errno> {
        let task = self.pair((prefix, last), (prefix, last))?;
        let folder = &task.folders.dest;
        let stat = folder.look_behind(&task.dest);
        if !stat.is_ok_and(|stat| is_regular(&stat)) {
            return Ok(task);
        }
        let dest = backup::name_for(folder.fd(), &task.dest, &self.run.options.backup)?;
        Ok(Task {
            dest,
            role: Role::OwnBackup,
            ..task
        })
    }

    fn below_folder(
        &mut self,
        prefix: &[u8],
        (to, folder): (&OsStr, &Folder),
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
        let folders = FolderPair::new(source_folder, folder.clone(), Creation::Existing);
        let level = Level::top(shown, to.to_owned(), Arc::clone(&folders));
        let task = self.task(&level, &folders, &source, dest);
        if is_open {
            self.last = Some((prefix.to_vec(), level, folders));
        }
        task
    }

    fn task(
        &self,
        level: &Arc<Level>,
        folders: &Arc<FolderPair>,
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
            sequence: self.run.reporter.sequence(),
        })
    }

    /// Starts a task: on another worker if it is not a folder and nothing depends on the order.
    fn begin(&mut self, task: Task) {
        let (run, worker) = (self.run, self.worker);
        let name = task.dest.to_bytes().to_ascii_lowercase();
        if !self.in_progress.insert(name) || self.copies_from_target(&task) {
            worker.drain();
            self.in_progress.clear();
        }
        let looked = || worker.entry(&task).look_at_source();
        let is_file = run.pool.is_some() && looked().is_ok_and(|stat| !is_folder(&stat));
        if is_file {
            worker.submit([task].into());
        } else {
            self.walk(&task);
        }
    }

    /// Copies an operand, and everything below it.
    fn walk(&self, task: &Task) {
        let mut walk = None;
        self.worker.perform(task, |entry, source, dest, events| {
            let walk = walk.insert(TreeWalk::new(self.worker, entry));
            walk.enter(entry, source, dest, events);
        });
        if let Some(mut walk) = walk {
            walk.walk();
        }
    }

    /// Returns whether the source may be the unfinished copy of an earlier operand.
    fn copies_from_target(&self, task: &Task) -> bool {
        let FolderPair { source, dest, .. } = &*task.folders;
        self.run.pool.is_some() && source.identity() == dest.identity()
    }

    /// Also creates the folders above a copy, and gives them their metadata when it is done.
    fn below_parents(&self, (prefix, last): (&[u8], &[u8]), target: (&OsStr, &Folder)) {
        let (run, worker) = (self.run, self.worker);
        match Parents::make(run, (prefix, last), target) {
            Ok((parents, level, folders)) => {
                let dest = without_slashes(last);
                if let Ok(task) = self.task(&level, &folders, last, dest) {
                    self.walk(&task);
                }
                worker.drain();
                parents.finish();
            }
            Err(problem) => run.reporter.problem(problem),
        }
    }
}

/// Returns the folder that a prefix names, the name to look up in it, and its displayed path. If it
/// can't be opened, the calls that follow use the whole path and report the error.
fn opened(prefix: &[u8], name: &[u8]) -> (Folder, Vec<u8>, OsString) {
    let shown = OsString::from_vec(prefix.to_vec());
    if prefix.is_empty() {
        return (Folder::Working, name.to_vec(), shown);
    }
    match Folder::place(CWD, prefix, OFlags::empty()) {
        Ok(folder) => (folder, name.to_vec(), shown),
        Err(_) => {
            let whole = joined(&shown, name).into_vec();
            (Folder::Working, whole, OsString::new())
        }
    }
}
