//! One regular file: opened, created, filled by the mover, and given its metadata.
//!
//! ```text
//!   open source ─▶ open or create destination ─▶ (resume: compare) ─▶ move ─▶ metadata
//!                                                     ─▶ (fsync) ─▶ (verify) ─▶ (name)
//! ```

use std::cell::Cell;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags, Stat, fstat, fsync, ftruncate, openat};
use rustix::io::Errno;
use underpass::drive::blocking::Driver;
use underpass::{
    Account, Aliasing, Cloning, Endpoint, EndpointKind, Error, Fault, Holes, Mechanism, Owed, Plan,
    Policy, Side, Sink, Source,
};

use crate::compare::{self, Comparison};
use crate::entry::destination::{self, OpenDestination};
use crate::entry::{Destination, Entry};
use crate::fs::fifo;
use crate::fs::folder::{endpoint, file_type, is_regular, is_same_file, size};
use crate::metadata::MetadataTarget;
use crate::options::{CopyMode, Fsync};
use crate::report::event::{EntryOutcome, HoleDetection, TransferReport};
use crate::report::problem::{Problem, ProblemKind};
use crate::report::reporter::{CopyProgress, EventBuffer};

/// Copies the readable content of the source into a regular file, or the existing destination.
pub(crate) fn copy(
    entry: &Entry<'_>,
    seen: &Stat,
    dest: Destination,
    events: &mut EventBuffer<'_>,
) -> Result<EntryOutcome, Problem> {
    let source = OpenSource::open(entry, seen)?;
    let dest = destination::open(entry, &source.as_file, dest, events)?;
    let mut copy = FileCopy {
        entry,
        counter: ProgressCounter::of(entry, &source.stat),
        source,
        dest,
    };
    match copy.fill_and_finish(events) {
        Ok(()) => {
            copy.dest.commit(entry)?;
            copy.counter.reach_end();
            Ok(EntryOutcome::Copied)
        }
        Err(problem) => Err(copy.dest.discard(entry, problem)),
    }
}

/// An open source.
struct OpenSource {
    fd: OwnedFd,
    /// The state of the source when it was opened.
    stat: Stat,
    /// The model of its copy: the same, as a regular file.
    as_file: Stat,
}

impl OpenSource {
    fn open(entry: &Entry<'_>, seen: &Stat) -> Result<Self, Problem> {
        let mut flags = OFlags::RDONLY | OFlags::NOCTTY | OFlags::CLOEXEC;
        if !entry.follows() {
            flags |= OFlags::NOFOLLOW;
        }
        if matches!(file_type(seen), FileType::RegularFile | FileType::Fifo) {
            // The file may have been replaced by a FIFO since, which would block.
            flags |= OFlags::NONBLOCK;
        }
        let failed = |errno| entry.at_source(ProblemKind::Open, errno);
        let folder = entry.task.folders.source.fd();
        let fd = openat(folder, &entry.task.source, flags, Mode::empty()).map_err(failed)?;
        let stat = fstat(&fd).map_err(|errno| failed(errno).by_call("fstat"))?;
        if !is_same_file(&fd, &stat, seen) || file_type(&stat) != file_type(seen) {
            return Err(Problem::new(ProblemKind::Replaced, entry.source_shown()));
        }
        if file_type(&stat) == FileType::Fifo {
            let waited = fifo::until_readable(&fd, || entry.run.stopped());
            match waited.and_then(|()| fifo::let_block(&fd)) {
                Ok(()) => (),
                Err(Errno::INTR) => return Err(entry.stopped(0)),
                Err(errno) => return Err(failed(errno).by_call("poll")),
            }
        }
        let mut as_file = stat;
        as_file.st_mode = FileType::RegularFile.as_raw_mode() | (stat.st_mode & 0o7777);
        Ok(Self { fd, stat, as_file })
    }
}

/// A file that is being copied.
struct FileCopy<'a> {
    entry: &'a Entry<'a>,
    source: OpenSource,
    dest: OpenDestination,
    counter: ProgressCounter<'a>,
}

/// What one file adds to the progress: what was found of it, no more and, at the end, no less.
struct ProgressCounter<'a> {
    progress: &'a CopyProgress,
    /// Unknown of what is no regular file, or does not tell how long it is.
    bytes: Option<u64>,
    counted: Cell<u64>,
}

impl<'a> ProgressCounter<'a> {
    fn of(entry: &Entry<'a>, source: &Stat) -> Self {
        let is_known = is_regular(source) && size(source) > 0;
        Self {
            progress: entry.run.context.progress,
            bytes: is_known.then(|| entry.bytes_to_count(source)),
            counted: Cell::new(0),
        }
    }

    /// So many bytes of data are in place.
    fn reach(&self, bytes: u64) {
        let bytes = bytes.min(self.bytes.unwrap_or(u64::MAX));
        let before = self.counted.get().min(bytes);
        self.progress.advanced(bytes - before);
        self.counted.set(self.counted.get().max(bytes));
    }

    fn reach_end(&self) {
        self.reach(self.bytes.unwrap_or(0));
    }
}

impl FileCopy<'_> {
    fn fill_and_finish(&mut self, events: &mut EventBuffer<'_>) -> Result<(), Problem> {
        let options = self.entry.run.options;
        if options.copy_mode != CopyMode::AttributesOnly {
            let kept = match options.resume {
                true => self.keep_equal(events)?,
                false => 0,
            };
            events.content.resumed = kept;
            events.counts.resumed_bytes += kept;
            let travel = self.transfer(kept, events)?;
            events.counts.account.add(&travel.account);
            events.content.travel = Some(Box::new(travel));
        }
        self.finish(events)?;
        if options.verify && options.copy_mode != CopyMode::AttributesOnly {
            events.content.hash = self.verify(events)?;
        }
        Ok(())
    }

    /// Finds the length of the destination that equals the source, and truncates the rest.
    fn keep_equal(&mut self, events: &mut EventBuffer<'_>) -> Result<u64, Problem> {
        let entry = self.entry;
        let there = size(&self.dest.stat);
        if !is_regular(&self.source.stat) || !is_regular(&self.dest.stat) || there == 0 {
            return Ok(0);
        }
        let both = there.min(size(&self.source.stat));
        let equal = match self.compare(both)? {
            Comparison::Equal(_) => both,
            Comparison::DifferentAt(offset) => offset,
            Comparison::Stopped => return Err(entry.stopped(there)),
        };
        let links = entry.run.options.preserve.links;
        let is_shared = links.is_wanted() && self.dest.stat.st_nlink > 1;
        if is_shared && (equal < there || there < size(&self.source.stat)) {
            entry.remove(events)?;
            let new = Destination::New { backup: None };
            self.dest = destination::open(entry, &self.source.as_file, new, events)?;
            return Ok(0);
        }
        let dest = &mut self.dest;
        if equal < there {
            let failed = |errno| entry.at_dest(ProblemKind::Resume, errno);
            ftruncate(&dest.fd, equal).map_err(|errno| failed(errno).by_call("ftruncate"))?;
            dest.stat = fstat(&dest.fd).map_err(|errno| failed(errno).by_call("fstat"))?;
        }
        self.counter.reach(equal);
        Ok(equal)
    }

    /// Transfers the bytes from `kept` on.
    fn transfer(&self, kept: u64, events: &mut EventBuffer<'_>) -> Result<TransferReport, Problem> {
        let (entry, source, dest) = (self.entry, &self.source, &self.dest);
        let input = match is_regular(&source.stat) {
            true => Source::of(source.fd.as_fd(), endpoint(&source.stat)),
            false => Source::whole(source.fd.as_fd())
                .map_err(|errno| entry.at_source(ProblemKind::Open, errno))?,
        };
        let input = from(input, kept);
        let output = match is_regular(&dest.stat) {
            true => Sink::of(dest.fd.as_fd(), endpoint(&dest.stat)),
            false => Sink::new(dest.fd.as_fd())
                .map_err(|errno| entry.at_dest(ProblemKind::CreateFile, errno))?,
        };
        let output = Sink { to: kept, ..output };
        let options = entry.run.options;
        // A pipe may be read long after this program has ended.
        let copied = Policy::default().aliasing(Aliasing::Refused);
        let policy = options
            .only
            .map_or(copied, Policy::only)
            .cloning(options.cloning)
            .holes(options.holes);
        let driver = Driver::new(entry.run.context.kernel).policy(policy);
        let plan = driver.plan(&input, &output);
        let moved = self.drive(&input, &output, plan, kept);
        let account = moved.map_err(|error| {
            events.counts.incomplete_bytes += error.account.bytes();
            explain(entry, &error, kept)
        })?;
        // A pipe holds pages of the source. What was cut off meanwhile left it as zeros.
        if is_regular(&source.stat)
            && account.of(Mechanism::Splice).bytes > 0
            && fstat(&source.fd)
                .is_ok_and(|now| size(&now) < size(&source.stat).min(kept + account.bytes()))
        {
            let shrunk = Problem::new(ProblemKind::Shrunk, entry.source_shown());
            let mut shrunk = shrunk.with_other(entry.dest_shown());
            shrunk.call = Some(Mechanism::Splice.name());
            shrunk.moved = Some(account.bytes());
            events.counts.incomplete_bytes += account.bytes();
            return Err(shrunk);
        }
        Ok(TransferReport {
            plan,
            holes_sought: holes_sought(&input.end, &output.end, &account, policy.holes),
            account,
        })
    }

    fn drive<F: AsFd, G: AsFd>(
        &self,
        source: &Source<F>,
        sink: &Sink<G>,
        plan: Plan,
        kept: u64,
    ) -> Result<Account, Error> {
        let (entry, context) = (self.entry, self.entry.run.context);
        let throttle = entry.run.throttle.as_ref();
        let mut spent = 0;
        let mut count = |data: u64, shared: u64| {
            self.counter.reach(kept.saturating_add(data));
            let moved = data.saturating_sub(shared);
            if let Some(throttle) = throttle {
                throttle.spend(moved.saturating_sub(spent), context.stop);
            }
            spent = moved;
        };
        let pipe = (source.end.kind == EndpointKind::Pipe).then(|| source.fd.as_fd());
        let mut watch = |progress: underpass::Progress| {
            count(
                progress.done.saturating_sub(progress.holes),
                progress.shared,
            );
            let ended = progress.total == Some(progress.done);
            if let (Some(pipe), 0, false) = (pipe, progress.held, ended) {
                // What fails here fails in the call that follows, too, which reports it.
                let _waited = fifo::until_readable(pipe, || entry.run.stopped());
            }
            unless_stopped(entry)
        };
        let mut driver = Driver::new(context.kernel);
        if let Some(throttle) = throttle {
            driver = driver.call_bytes_max(throttle.call_bytes_max());
        }
        let driver = driver.sigxfsz_guard(entry.sigxfsz_guard);
        let moved = driver.watch(&mut watch).follow(plan, source, sink);
        let account = moved.as_ref().unwrap_or_else(|error| &error.account);
        count(account.bytes(), account.of(Mechanism::Clone).bytes);
        moved
    }

    /// Metadata, and the disk.
    fn finish(&self, events: &mut EventBuffer<'_>) -> Result<(), Problem> {
        let (entry, dest, options) = (self.entry, &self.dest, self.entry.run.options);
        entry.run.preserve(
            MetadataTarget::Open(self.source.fd.as_fd()),
            &self.source.as_file,
            MetadataTarget::Open(dest.fd.as_fd()),
            dest.creation,
            (events, &|| entry.dest_shown()),
        );
        let synced = match options.fsync {
            Fsync::File | Fsync::Folder => fsync(&dest.fd),
            _ if options.verify => fsync(&dest.fd),
            Fsync::Never | Fsync::End => Ok(()),
        };
        match synced {
            // Pipes and some devices have nothing to sync.
            Ok(()) | Err(Errno::INVAL | Errno::ROFS) => Ok(()),
            Err(errno) => Err(entry.at_dest(ProblemKind::Sync, errno)),
        }
    }

    /// Reads the copy and the source again and compares them. Returns their hash.
    fn verify(&self, events: &mut EventBuffer<'_>) -> Result<Option<String>, Problem> {
        let (entry, dest) = (self.entry, &self.dest);
        if !is_regular(&self.source.stat) || !is_regular(&dest.stat) {
            return Ok(None);
        }
        compare::forget_pages(dest.fd.as_fd());
        let is_now = fstat(&dest.fd)
            .map_err(|errno| entry.at_dest(ProblemKind::Read, errno).by_call("fstat"))?;
        let copied = size(&is_now);
        let end = endpoint(&self.source.stat);
        // The size of files in /proc and /sys is unknown: everything that was copied is read again.
        let len = match Source::of(self.source.fd.as_fd(), end).owed {
            Owed::Exactly(len) => len,
            Owed::ToEnd => copied,
        };
        let offset = match self.compare(len)? {
            Comparison::Stopped => return Err(entry.stopped(len)),
            Comparison::Equal(hash) if copied == len => {
                self.check_names()?;
                events.counts.verified += 1;
                return Ok(Some(hash));
            }
            Comparison::Equal(_) => len,
            Comparison::DifferentAt(offset) => offset,
        };
        let problem = Problem::new(ProblemKind::Differs(offset), entry.dest_shown());
        Err(problem.with_other(entry.source_shown()))
    }

    /// Checks that the names of source and copy still lead to the files compared.
    fn check_names(&self) -> Result<(), Problem> {
        let entry = self.entry;
        // Files in /proc may be replaced under their names.
        let source = (size(&self.source.stat) > 0)
            .then(|| entry.look_at_source())
            .transpose()?;
        if source.is_some_and(|now| !is_same_file(&self.source.fd, &now, &self.source.stat)) {
            return Err(Problem::new(ProblemKind::Replaced, entry.source_shown()));
        }
        let Some((folder, name)) = self.dest.named(entry) else {
            return Ok(());
        };
        let now = folder.look_behind(name);
        let now = now.map_err(|errno| entry.at_dest(ProblemKind::StatDestination, errno))?;
        match is_same_file(&self.dest.fd, &now, &self.dest.stat) {
            true => Ok(()),
            false => Err(Problem::new(ProblemKind::Replaced, entry.dest_shown())),
        }
    }

    fn compare(&self, len: u64) -> Result<Comparison, Problem> {
        let entry = self.entry;
        let (source, dest) = (self.source.fd.as_fd(), self.dest.fd.as_fd());
        let compared = compare::compare(source, dest, len, &mut |_| unless_stopped(entry));
        compared.map_err(|(side, errno)| match side {
            Side::Source => entry.at_source(ProblemKind::Read, errno).by_call("pread"),
            Side::Sink => entry.at_dest(ProblemKind::Read, errno).by_call("pread"),
        })
    }
}

fn unless_stopped(entry: &Entry<'_>) -> ControlFlow<()> {
    match entry.run.stopped() {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    }
}

fn from<F>(source: Source<F>, kept: u64) -> Source<F> {
    let owed = match source.owed {
        Owed::Exactly(len) => Owed::Exactly(len.saturating_sub(kept)),
        Owed::ToEnd => Owed::ToEnd,
    };
    Source {
        from: kept,
        owed,
        ..source
    }
}

/// The error of the mover as a problem of `cp`. The destination had `kept` bytes before.
fn explain(entry: &Entry<'_>, error: &Error, kept: u64) -> Problem {
    let (source, dest) = (entry.source_shown(), entry.dest_shown());
    let cloning = entry.run.options.cloning == Cloning::Always;
    let (kind, path, other) = match error.fault {
        Fault::Cancelled => return entry.stopped(kept + error.moved()),
        Fault::Truncated => (ProblemKind::Shrunk, source, dest),
        Fault::Source => (ProblemKind::Read, source, dest),
        Fault::Sink | Fault::Full => (ProblemKind::Write, dest, source),
        _ if cloning => (ProblemKind::Clone, dest, source),
        // A file refused by one mechanism for its size may suit another one; if none is left, it is
        // too large.
        Fault::Refused if error.errno == Some(Errno::FBIG) => (ProblemKind::Write, dest, source),
        Fault::Refused => (ProblemKind::Refused, source, dest),
        _ => (ProblemKind::Copy, source, dest),
    };
    let mut problem = Problem::new(kind, path).with_other(other);
    // A clone that was not tried involves something other than a regular file.
    let untried = (problem.kind == ProblemKind::Clone).then_some(Errno::INVAL);
    problem.errno = error.errno.or(untried);
    problem.call = error.mechanism.map(Mechanism::name);
    problem.moved = Some(error.moved());
    problem
}

fn holes_sought(
    source: &Endpoint,
    sink: &Endpoint,
    account: &Account,
    holes: Holes,
) -> HoleDetection {
    let files = source.kind == EndpointKind::File && sink.kind == EndpointKind::File;
    let sparse = source.may_have_holes();
    let cloned = account.of(Mechanism::Clone).bytes > 0;
    match holes {
        Holes::Keep if files && sparse && !cloned => HoleDetection::Asked,
        Holes::Keep | Holes::Fill => HoleDetection::No,
        Holes::Find if sparse => HoleDetection::AskedAndZeros,
        Holes::Find => HoleDetection::Zeros,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_kept_is_not_owed_any_more() {
        let file = Source::sample(EndpointKind::File);
        let all = file.end.size;
        for (kept, left) in [(0, all), (100, all - 100), (all, 0), (all + 1, 0)] {
            let rest = from(file, kept);
            assert_eq!((rest.from, rest.owed), (kept, Owed::Exactly(left)));
        }
        assert_eq!(
            from(Source::sample(EndpointKind::Pipe), 0).owed,
            Owed::ToEnd
        );
    }

    #[test]
    fn holes_are_asked_for_where_there_are_some_and_they_may_stay() {
        let [dense, pipe] = [EndpointKind::File, EndpointKind::Pipe].map(Endpoint::sample);
        let mut sparse = dense;
        sparse.allocated = 0;
        for (source, sink, holes, sought) in [
            (&sparse, &dense, Holes::Keep, HoleDetection::Asked),
            (&dense, &dense, Holes::Keep, HoleDetection::No),
            (&sparse, &pipe, Holes::Keep, HoleDetection::No),
            (&pipe, &dense, Holes::Keep, HoleDetection::No),
            (&sparse, &dense, Holes::Fill, HoleDetection::No),
            (&sparse, &dense, Holes::Find, HoleDetection::AskedAndZeros),
            (&dense, &dense, Holes::Find, HoleDetection::Zeros),
        ] {
            let reported = holes_sought(source, sink, &Account::default(), holes);
            assert_eq!(reported, sought, "{source:?} to {sink:?}: {holes:?}");
        }
    }
}
