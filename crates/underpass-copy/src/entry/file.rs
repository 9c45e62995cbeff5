//! One regular file: opened, created, filled by the mover, and given its metadata.
//!
//! ```text
//!   open source ─▶ open or create destination ─▶ (resume: compare) ─▶ move ─▶ metadata
//!                                                     ─▶ (fsync) ─▶ (verify) ─▶ (name)
//! ```

use std::ops::ControlFlow;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags, Stat, fstat, fsync, openat};
use rustix::io::Errno;
use underpass::drive::blocking::Driver;
use underpass::{
    Account, Choice, Cloning, Endpoint, Error, Fault, FileStat, Holes, Kind, Mechanism, Owed, Plan,
    Policy, Side, Sink, Source,
};

use crate::compare::{self, Compared};
use crate::entry::decide::file_type;
use crate::entry::destination::{self, Opened};
use crate::entry::execute::{Entry, Made, Way};
use crate::fs::atomic_file::Over;
use crate::fs::fifo::{self, Waited};
use crate::metadata::{self, Held};
use crate::options::{Durability, Leftovers, Manner, Verification};
use crate::report::event::{HolesSought, Travel};
use crate::report::problem::{Problem, What};
use crate::report::reporter::Voice;
use crate::tree::level::identity;

type Failure = Box<Problem>;

/// Copies what can be read from the source into a regular file, or whatever is in its place.
pub(crate) fn copy(
    entry: &Entry<'_>,
    seen: &Stat,
    way: Way,
    voice: &mut Voice<'_>,
) -> Result<Made, Failure> {
    let source = open_source(entry, seen)?;
    let mut opened = destination::open(entry, &source.as_file, way, voice)?;
    let copied = fill(entry, &source, &mut opened, voice);
    let copied = copied.and_then(|made| {
        finish(entry, &source, &opened, voice)?;
        let hash = verify(entry, &source, &opened, voice)?;
        Ok(Made { hash, ..made })
    });
    match copied {
        Ok(made) => {
            opened.place(entry)?;
            entry.run.around.progress.file_done();
            Ok(made)
        }
        Err(problem) => {
            opened.give_up(entry, &problem);
            Err(problem)
        }
    }
}

/// A source that is open, and what it was then.
pub(crate) struct Reading {
    pub(crate) fd: OwnedFd,
    pub(crate) stat: Stat,
    /// The same as far as the copy takes after it: which is a file, whatever it is made of.
    pub(crate) as_file: Stat,
}

impl Reading {
    fn is_regular(&self) -> bool {
        file_type(&self.stat) == FileType::RegularFile
    }

    fn len(&self) -> u64 {
        match self.is_regular() {
            true => self.stat.st_size.max(0).cast_unsigned(),
            false => 0,
        }
    }
}

fn open_source(entry: &Entry<'_>, seen: &Stat) -> Result<Reading, Failure> {
    let task = entry.task;
    let mut flags = OFlags::RDONLY | OFlags::NOCTTY | OFlags::CLOEXEC;
    if !entry.run.follows(task.role) {
        flags |= OFlags::NOFOLLOW;
    }
    if matches!(file_type(seen), FileType::RegularFile | FileType::Fifo) {
        // What has taken the place of a file since may be a FIFO, which would block.
        flags |= OFlags::NONBLOCK;
    }
    let cannot = |what, errno| Box::new(Problem::of(what, entry.source_shown(), errno));
    let folder = task.folders.source.fd();
    let fd = openat(folder, &task.source, flags, Mode::empty())
        .map_err(|errno| cannot(What::Open, errno))?;
    let stat = fstat(&fd).map_err(|errno| Box::new(cannot(What::Open, errno).by("fstat")))?;
    if identity(&stat) != identity(seen) || file_type(&stat) != file_type(seen) {
        return Err(Box::new(Problem::said(
            What::Replaced,
            entry.source_shown(),
        )));
    }
    if file_type(&stat) == FileType::Fifo {
        let waited = fifo::until_readable(&fd, || entry.run.stopped())
            .and_then(|waited| fifo::let_block(&fd).map(|()| waited));
        match waited {
            Ok(Waited::Ready) => (),
            Ok(Waited::Stopped) => return Err(stopped(entry, 0)),
            Err(errno) => return Err(Box::new(cannot(What::Open, errno).by("poll"))),
        }
    }
    let mut as_file = stat;
    as_file.st_mode = FileType::RegularFile.as_raw_mode() | (stat.st_mode & 0o7777);
    Ok(Reading { fd, stat, as_file })
}

/// Content.
fn fill(
    entry: &Entry<'_>,
    source: &Reading,
    opened: &mut Opened,
    voice: &mut Voice<'_>,
) -> Result<Made, Failure> {
    if entry.run.options.manner == Manner::AttributesOnly {
        return Ok(Made::default());
    }
    let kept = match entry.run.options.leftovers {
        Leftovers::Resumed => keep_equal(entry, source, opened)?,
        Leftovers::Overwritten => 0,
    };
    voice.counts.resumed_bytes += kept;
    let travel = travel(entry, source, opened, kept)?;
    voice.counts.account.add(&travel.account);
    Ok(Made {
        travel: Some(Box::new(travel)),
        resumed: kept,
        ..Made::default()
    })
}

/// Finds how much of the destination equals the source, and cuts off the rest.
fn keep_equal(entry: &Entry<'_>, source: &Reading, opened: &mut Opened) -> Result<u64, Failure> {
    let there = opened.len();
    if !source.is_regular() || !opened.is_regular() || there == 0 {
        return Ok(0);
    }
    let both = there.min(source.len());
    let failed = |what, errno| Box::new(Problem::of(what, entry.dest_shown(), errno));
    let equal = match compare_both(entry, source, &opened.fd, both)? {
        Compared::Equal(_) => both,
        Compared::DifferentAt(offset) => offset,
        Compared::Stopped => return Err(stopped(entry, there)),
    };
    if equal < there {
        rustix::fs::ftruncate(&opened.fd, equal)
            .map_err(|errno| Box::new(failed(What::Resume, errno).by("ftruncate")))?;
        opened.stat = fstat(&opened.fd).map_err(|errno| failed(What::Resume, errno))?;
    }
    entry.run.around.progress.advanced(equal);
    Ok(equal)
}

/// A regular file that was looked at when it was opened.
fn endpoint(stat: &Stat) -> Endpoint {
    Endpoint::of_file(FileStat {
        device: stat.st_dev,
        size: stat.st_size.cast_unsigned(),
        allocated: stat.st_blocks.cast_unsigned() * 512,
        block_bytes: stat.st_blksize.cast_unsigned(),
    })
}

/// Moves the bytes, from `kept` on.
fn travel(
    entry: &Entry<'_>,
    source: &Reading,
    opened: &Opened,
    kept: u64,
) -> Result<Travel, Failure> {
    let failed = |what, shown, errno| Box::new(Problem::of(what, shown, errno));
    let input = match source.is_regular() {
        true => Source::of(source.fd.as_fd(), endpoint(&source.stat)),
        false => Source::whole(source.fd.as_fd())
            .map_err(|errno| failed(What::Open, entry.source_shown(), errno))?,
    };
    let input = from(input, kept);
    let output = match opened.is_regular() {
        true => Sink::of(opened.fd.as_fd(), endpoint(&opened.stat)),
        false => Sink::new(opened.fd.as_fd())
            .map_err(|errno| failed(What::CreateFile, entry.dest_shown(), errno))?,
    };
    let output = Sink { to: kept, ..output };
    let policy = policy(entry);
    let plan = Driver::new(entry.run.around.kernel)
        .policy(policy)
        .plan(&input, &output);
    let account =
        drive(entry, &input, &output, plan).map_err(|error| explain(entry, &error, kept))?;
    Ok(Travel {
        plan,
        holes_sought: holes_sought(&input.end, &output.end, &account, policy.holes),
        account,
    })
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

fn policy(entry: &Entry<'_>) -> Policy {
    let options = entry.run.options;
    Policy {
        choice: options.only.map_or(Choice::Auto, Choice::Only),
        cloning: options.cloning,
        holes: options.holes,
        ..Policy::default()
    }
}

fn drive<F: AsFd, G: AsFd>(
    entry: &Entry<'_>,
    source: &Source<F>,
    sink: &Sink<G>,
    plan: Plan,
) -> Result<Account, Error> {
    let around = entry.run.around;
    let throttle = entry.run.throttle.as_ref();
    let (mut counted, mut spent) = (0, 0);
    let mut count = |done: u64, unmoved: u64| {
        around.progress.advanced(done.saturating_sub(counted));
        counted = done;
        let moved = done.saturating_sub(unmoved);
        if let Some(throttle) = throttle {
            throttle.spend(moved.saturating_sub(spent), around.stop);
        }
        spent = moved;
    };
    let pipe = (source.end.kind == Kind::Pipe).then(|| source.fd.as_fd());
    let mut watch = |progress: underpass::Progress| {
        // Holes are where they should be, shared blocks too, and nothing had to be moved for it.
        count(progress.done, progress.holes + progress.shared);
        if let (Some(pipe), 0) = (pipe, progress.held) {
            // What went wrong here will go wrong in the call that follows, which tells.
            let _waited = fifo::until_readable(pipe, || entry.run.stopped());
        }
        match entry.run.stopped() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    };
    let mut driver = Driver::new(around.kernel);
    if let Some(throttle) = throttle {
        driver = driver.call_bytes_max(throttle.call_bytes_max());
    }
    let driver = driver.shielded(&entry.hand.shielded);
    let moved = driver.watch(&mut watch).follow(plan, source, sink);
    match &moved {
        Ok(account) => count(account.bytes() + account.holes, unmoved(account)),
        Err(error) => count(error.moved(), unmoved(&error.account)),
    }
    moved
}

/// Bytes that are where they should be without having been moved.
fn unmoved(account: &Account) -> u64 {
    account.holes + account.of(Mechanism::Clone).bytes
}

/// Who is to blame, in `cp`'s words. The destination had `kept` bytes before.
fn explain(entry: &Entry<'_>, error: &Error, kept: u64) -> Failure {
    let (source, dest) = (entry.source_shown(), entry.dest_shown());
    let cloning = entry.run.options.cloning == Cloning::Always;
    let (what, path, other) = match error.fault {
        Fault::Cancelled => return stopped(entry, kept + error.moved()),
        Fault::Truncated => (What::Shrunk, source, dest),
        Fault::Source => (What::Read, source, dest),
        Fault::Sink | Fault::Full => (What::Write, dest, source),
        _ if cloning => (What::Clone, dest, source),
        // From one mechanism it may mean that another one can; where there is none, it means what
        // it says.
        Fault::Refused if error.errno == Some(Errno::FBIG) => (What::Write, dest, source),
        Fault::Refused => (What::Refused, source, dest),
        _ => (What::Copy, source, dest),
    };
    let mut problem = Problem::said(what, path).and(other);
    // A clone that was not even tried was none of two files.
    let untried = (problem.what == What::Clone).then_some(Errno::INVAL);
    problem.errno = error.errno.or(untried);
    problem.call = error.mechanism.map(Mechanism::name);
    problem.moved = Some(error.moved());
    Box::new(problem)
}

/// Somebody asked for an end, when `there` bytes were where they should be.
pub(crate) fn stopped(entry: &Entry<'_>, there: u64) -> Failure {
    let problem = Problem::said(What::Stopped(there), entry.source_shown());
    Box::new(problem.and(entry.dest_shown()))
}

fn holes_sought(
    source: &Endpoint,
    sink: &Endpoint,
    account: &Account,
    holes: Holes,
) -> HolesSought {
    let files = source.kind == Kind::File && sink.kind == Kind::File;
    let sparse = source.allocated < source.size;
    let cloned = account.of(Mechanism::Clone).bytes > 0;
    match holes {
        Holes::Keep if files && sparse && !cloned => HolesSought::Asked,
        Holes::Keep | Holes::Fill => HolesSought::No,
        Holes::Find if sparse => HolesSought::AskedAndZeros,
        Holes::Find => HolesSought::Zeros,
    }
}

/// Metadata, and the disk.
fn finish(
    entry: &Entry<'_>,
    source: &Reading,
    opened: &Opened,
    voice: &mut Voice<'_>,
) -> Result<(), Failure> {
    let (run, options) = (entry.run, entry.run.options);
    let troubles = metadata::preserve(
        Held::Open(source.fd.as_fd()),
        &source.as_file,
        Held::Open(opened.fd.as_fd()),
        opened.made,
        &options.preserve,
        &run.process,
    );
    voice.troubles(troubles, || entry.dest_shown());
    let synced = match options.durability {
        Durability::File | Durability::Folder => fsync(&opened.fd),
        _ if options.verification == Verification::On => fsync(&opened.fd),
        Durability::Unsaid | Durability::End => Ok(()),
    };
    match synced {
        // Pipes and some devices have nothing to sync.
        Ok(()) | Err(Errno::INVAL | Errno::ROFS) => Ok(()),
        Err(errno) => Err(Box::new(Problem::of(What::Sync, entry.dest_shown(), errno))),
    }
}

/// Reads the copy back, and the source again.
fn verify(
    entry: &Entry<'_>,
    source: &Reading,
    opened: &Opened,
    voice: &mut Voice<'_>,
) -> Result<Option<String>, Failure> {
    let options = entry.run.options;
    let readable = source.is_regular() && opened.is_regular();
    if options.verification == Verification::Off
        || options.manner == Manner::AttributesOnly
        || !readable
    {
        return Ok(None);
    }
    compare::forget_pages(opened.fd.as_fd());
    let differs = |offset| {
        let problem = Problem::said(What::Differs(offset), entry.dest_shown());
        Box::new(problem.and(entry.source_shown()))
    };
    let failed = |errno| Box::new(Problem::of(What::Read, entry.dest_shown(), errno));
    let is_now = fstat(&opened.fd).map_err(failed)?;
    let copied = is_now.st_size.cast_unsigned();
    // Files of /proc and /sys don't say how long they are: all that came is read again.
    let len = match Source::of(source.fd.as_fd(), endpoint(&source.stat)).owed {
        Owed::Exactly(len) => len,
        Owed::ToEnd => copied,
    };
    match compare_both(entry, source, &opened.fd, len)? {
        Compared::Stopped => Err(stopped(entry, len)),
        Compared::DifferentAt(offset) => Err(differs(offset)),
        Compared::Equal(_) if copied != len => Err(differs(len)),
        Compared::Equal(hash) => {
            voice.counts.verified += 1;
            Ok(Some(hash))
        }
    }
}

fn compare_both(
    entry: &Entry<'_>,
    source: &Reading,
    dest: &OwnedFd,
    len: u64,
) -> Result<Compared, Failure> {
    let mut tick = |_bytes| match entry.run.stopped() {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    };
    let compared = compare::compare(source.fd.as_fd(), dest.as_fd(), len, &mut tick);
    compared.map_err(|(side, errno)| {
        let shown = match side {
            Side::Source => entry.source_shown(),
            Side::Sink => entry.dest_shown(),
        };
        Box::new(Problem::of(What::Read, shown, errno))
    })
}

/// What is over the name of a complete file.
pub(crate) fn over(way: &Way) -> Over {
    match way {
        Way::New { .. } => Over::Nothing,
        Way::Into(_) => Over::Anything,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_kept_is_not_owed_any_more() {
        let file = Source::sample(Kind::File);
        let all = file.end.size;
        for (kept, left) in [(0, all), (100, all - 100), (all, 0), (all + 1, 0)] {
            let rest = from(file, kept);
            assert_eq!((rest.from, rest.owed), (kept, Owed::Exactly(left)));
        }
        assert_eq!(from(Source::sample(Kind::Pipe), 0).owed, Owed::ToEnd);
    }

    #[test]
    fn holes_are_asked_for_where_there_are_some_and_they_may_stay() {
        let [dense, pipe] = [Kind::File, Kind::Pipe].map(Endpoint::sample);
        let sparse = Endpoint {
            allocated: 0,
            ..dense
        };
        for (source, sink, holes, sought) in [
            (&sparse, &dense, Holes::Keep, HolesSought::Asked),
            (&dense, &dense, Holes::Keep, HolesSought::No),
            (&sparse, &pipe, Holes::Keep, HolesSought::No),
            (&pipe, &dense, Holes::Keep, HolesSought::No),
            (&sparse, &dense, Holes::Fill, HolesSought::No),
            (&sparse, &dense, Holes::Find, HolesSought::AskedAndZeros),
            (&dense, &dense, Holes::Find, HolesSought::Zeros),
        ] {
            let told = holes_sought(source, sink, &Account::default(), holes);
            assert_eq!(told, sought, "{source:?} to {sink:?}: {holes:?}");
        }
    }
}
