//! The blocking driver: makes a call, waits with poll(2) where a descriptor does not block, and
//! calls the caller's hook between calls.

use std::marker::PhantomData;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::Shutdown;

use crate::drive::perform::{RelayBuffers, SourceAndSink, perform, raised_by};
use crate::kernel::Kernel;
use crate::plan::{Plan, Policy};
use crate::sys::SignalGuard;
use crate::transfer::verdict::Wait;
use crate::transfer::{Step, Transfer};
use crate::vocabulary::account::{Account, Mechanism};
use crate::vocabulary::endpoint::{EndpointKind, Sink, Source};
use crate::vocabulary::error::Error;

/// The progress of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// Bytes that reached the sink, holes included.
    pub done: u64,
    /// Bytes of `done` that are holes: nothing had to be moved.
    pub holes: u64,
    /// Bytes of `done` whose blocks are shared ([`Mechanism::Clone`]): nothing had to be moved.
    pub shared: u64,
    /// Bytes that were taken from the source and have not reached the sink. If 0, the next call may
    /// wait for the source.
    pub held: u64,
    /// Total bytes to move, if known; may be 0. The total of a source that is read to its end is
    /// known once it has ended.
    pub total: Option<u64>,
}

impl Progress {
    /// Returns the percentage of the total that has reached the sink, rounded down: 100 only when
    /// everything has. `None` while the total is unknown.
    pub fn percent(&self) -> Option<u8> {
        let (done, total) = (u128::from(self.done), u128::from(self.total?));
        let percent = (done * 100).checked_div(total).unwrap_or(100);
        Some(u8::try_from(percent).unwrap_or(100))
    }
}

/// A hook that is called between two calls: [`ControlFlow::Break`] cancels the transfer.
pub type Watch<'a> = dyn FnMut(Progress) -> ControlFlow<()> + 'a;

/// Moves bytes on the calling thread.
///
/// ```
/// use std::ops::ControlFlow;
/// use underpass::{Kernel, Mechanism, Policy, Sink, Source, drive::blocking::Driver};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// # std::fs::write(dir.path().join("a"), "seventeen bytes!!")?;
/// let from = std::fs::File::open(dir.path().join("a"))?;
/// let to = std::fs::File::create(dir.path().join("b"))?;
/// let kernel = Kernel::probe();
/// let mut last = None;
/// let mut watch = |progress: underpass::Progress| {
///     last = Some((progress.done, progress.total));
///     ControlFlow::Continue(())
/// };
/// let account = Driver::new(&kernel)
///     .policy(Policy::only(Mechanism::Sendfile))
///     .watch(&mut watch)
///     .run(&Source::whole(&from)?, &Sink::new(&to)?)?;
/// assert_eq!(account.of(Mechanism::Sendfile).bytes, 17);
/// assert_eq!(last, Some((17, Some(17))));
/// # Ok(()) }
/// ```
pub struct Driver<'a> {
    kernel: &'a Kernel,
    policy: Policy,
    watch: Option<&'a mut Watch<'a>>,
    call_bytes_max: Option<u64>,
    sigxfsz_guard: Option<&'a SigxfszGuard>,
}

/// Makes writes of this thread beyond the file size limit (`RLIMIT_FSIZE`) fail with an error,
/// instead of ending the process by SIGXFSZ, until dropped. A driver without it makes three more
/// system calls per transfer, which slows copying many small files.
#[derive(Debug)]
pub struct SigxfszGuard {
    _guard: SignalGuard,
    /// Signal masks are per thread: it stays on the thread that created it.
    _here: PhantomData<*const ()>,
}

impl SigxfszGuard {
    /// Guards the calling thread.
    pub fn thread() -> Self {
        Self {
            _guard: SignalGuard::against(raised_by(EndpointKind::File)),
            _here: PhantomData,
        }
    }
}

impl std::fmt::Debug for Driver<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Driver")
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}

impl<'a> Driver<'a> {
    /// Creates a driver that may use every mechanism.
    pub fn new(kernel: &'a Kernel) -> Self {
        Self {
            kernel,
            policy: Policy::default(),
            watch: None,
            call_bytes_max: None,
            sigxfsz_guard: None,
        }
    }

    /// Sets the mechanisms that may be used.
    #[must_use]
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Calls `watch` before every call, after every call that a signal interrupted, a few times a
    /// second while waiting for a nonblocking descriptor, and once more when everything has moved
    /// or the transfer failed, when its result is ignored.
    #[must_use]
    pub fn watch(mut self, watch: &'a mut Watch<'a>) -> Self {
        self.watch = Some(watch);
        self
    }

    /// Limits the bytes that one call may move, and so the time between two calls of `watch`.
    #[must_use]
    pub fn call_bytes_max(mut self, bytes: u64) -> Self {
        self.call_bytes_max = Some(bytes);
        self
    }

    /// Uses an existing guard of the calling thread.
    #[must_use]
    pub fn sigxfsz_guard(mut self, guard: &'a SigxfszGuard) -> Self {
        self.sigxfsz_guard = Some(guard);
        self
    }

    /// Returns the plan that [`run`](Self::run) would follow.
    pub fn plan<F, G>(&self, source: &Source<F>, sink: &Sink<G>) -> Plan {
        self.kernel.plan(source, sink, &self.policy)
    }

    /// Moves the range of the source.
    ///
    /// Blocks until everything is moved, the hook cancels, or an error occurs. The file positions
    /// of both sides are unspecified afterwards; a sink that is a file is written from [`Sink::to`]
    /// on and not truncated.
    ///
    /// Source and sink may be ranges of one file, by its device and inode numbers, if these do not
    /// overlap. A sink opened with `O_APPEND` is written at its end, regardless of [`Sink::to`],
    /// and only by [`Mechanism::ReadWrite`].
    ///
    /// A sink that is a file must not be used through the same descriptor, or a duplicate of it, at
    /// the same time: sendfile writes at the shared position. To write ranges in parallel, open the
    /// file once for each.
    ///
    /// # Errors
    /// [`Error`], whose account is exact. Bytes that reached the sink stay there.
    /// [`Fault::Overlap`](crate::Fault::Overlap) before anything is moved.
    pub fn run<F: AsFd, G: AsFd>(
        self,
        source: &Source<F>,
        sink: &Sink<G>,
    ) -> Result<Account, Error> {
        let plan = self.plan(source, sink);
        self.follow(plan, source, sink)
    }

    /// Does the same as [`run`](Self::run) by a plan that [`plan`](Self::plan) made for these ends.
    ///
    /// # Errors
    /// As `run`.
    pub fn follow<F: AsFd, G: AsFd>(
        mut self,
        plan: Plan,
        source: &Source<F>,
        sink: &Sink<G>,
    ) -> Result<Account, Error> {
        let mut transfer = Transfer::new(source, sink, plan);
        if let Some(bytes) = self.call_bytes_max {
            transfer.limit_calls(bytes);
        }
        let ends = SourceAndSink::of(source, sink);
        let patience = self.watch.is_some().then_some(WATCH_INTERVAL);
        let mut buffers = RelayBuffers::default();
        let raised = match (self.sigxfsz_guard, sink.end.kind) {
            (Some(_), EndpointKind::File) => None,
            (_, kind) => raised_by(kind),
        };
        let _guard = SignalGuard::against(raised);
        while let Some(op) = transfer.next_op() {
            if self.cancels(&transfer) {
                break;
            }
            match transfer.record(perform(op, &ends, &mut buffers, self.kernel)) {
                Step::Wait(side) => {
                    if let Err(errno) = wait(side, &ends, patience) {
                        transfer.abandon(errno);
                    }
                }
                Step::Refused(refusal) => self.kernel.learn(&refusal, &source.end, &sink.end),
                Step::Again | Step::Done | Step::Failed => (),
            }
        }
        if transfer.next_op().is_none() {
            let _last = self.cancels(&transfer);
        }
        buffers.give_back(self.kernel);
        transfer.finish()
    }

    fn cancels(&mut self, transfer: &Transfer) -> bool {
        let progress = Progress {
            done: transfer.done(),
            holes: transfer.account().holes,
            shared: transfer.account().of(Mechanism::Clone).bytes,
            held: transfer.held(),
            total: transfer.total(),
        };
        self.watch
            .as_mut()
            .is_some_and(|watch| watch(progress).is_break())
    }
}

/// Copies all of `source` over the beginning of `sink`, or to its end if it was opened with
/// `O_APPEND`. The sink is neither truncated nor synced; closing it may report a lost write.
///
/// Truncate the sink first (`set_len(0)`, or `File::create`): only then may it share blocks with
/// the source and keep its holes. Blocks; positions of both files are unspecified afterwards.
///
/// # Errors
/// [`Error`]: its account is exactly the bytes that reached the sink, which stay there.
/// [`Fault::Overlap`](crate::Fault::Overlap) if both are the same file.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// # std::fs::write(dir.path().join("a"), vec![7; 100_000])?;
/// let from = std::fs::File::open(dir.path().join("a"))?;
/// let to = std::fs::File::create(dir.path().join("b"))?;
/// let account = underpass::copy_file(&underpass::Kernel::probe(), &from, &to)?;
/// assert_eq!(account.bytes(), 100_000);
/// println!("{account}"); // 100000 bytes by clone (1 call), or what this file system offers
/// # Ok(()) }
/// ```
pub fn copy_file(kernel: &Kernel, source: impl AsFd, sink: impl AsFd) -> Result<Account, Error> {
    Driver::new(kernel).run(&Source::whole(source)?, &Sink::new(sink)?)
}

/// Sends `len` bytes of a file from `offset` on to a connected stream socket.
///
/// Blocks, even on a nonblocking socket. The bytes leave as references to the page cache: see
/// [`Aliasing`](crate::Aliasing) for what must not happen to the file meanwhile.
///
/// # Errors
/// [`Error`]; [`Fault::Truncated`](crate::Fault::Truncated) if the file is shorter. The peer has
/// then received less than was promised, and the connection cannot be used further.
///
/// ```
/// use std::io::Read;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// # std::fs::write(dir.path().join("a"), "0123456789")?;
/// let file = std::fs::File::open(dir.path().join("a"))?;
/// let (ours, mut theirs) = std::os::unix::net::UnixStream::pair()?;
/// underpass::send_file(&underpass::Kernel::probe(), &file, 2, 5, &ours)?;
/// drop(ours);
/// let mut got = String::new();
/// theirs.read_to_string(&mut got)?;
/// assert_eq!(got, "23456");
/// # Ok(()) }
/// ```
pub fn send_file(
    kernel: &Kernel,
    file: impl AsFd,
    offset: u64,
    len: u64,
    socket: impl AsFd,
) -> Result<Account, Error> {
    Driver::new(kernel).run(&Source::range(file, offset, len)?, &Sink::new(socket)?)
}

/// Receives `len` bytes from a connected stream socket into a file, from `offset` on, or at its end
/// if it was opened with `O_APPEND`.
///
/// Blocks, even on a nonblocking socket. Nothing is synced.
///
/// # Errors
/// [`Error`]; [`Fault::Truncated`](crate::Fault::Truncated) if the peer ended early. Bytes that
/// arrived are in the file; [`Error::lost`] bytes were taken from the socket and are not. The
/// caller closes the file, which may report a lost write (close(2)).
///
/// ```
/// use std::io::Write;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// let file = std::fs::File::create_new(dir.path().join("a"))?;
/// let (ours, mut theirs) = std::os::unix::net::UnixStream::pair()?;
/// theirs.write_all(b"hello")?;
/// underpass::recv_file(&underpass::Kernel::probe(), &ours, &file, 0, 5)?;
/// assert_eq!(std::fs::read(dir.path().join("a"))?, b"hello");
/// # Ok(()) }
/// ```
pub fn recv_file(
    kernel: &Kernel,
    socket: impl AsFd,
    file: impl AsFd,
    offset: u64,
    len: u64,
) -> Result<Account, Error> {
    Driver::new(kernel).run(&Source::range(socket, 0, len)?, &Sink::at(file, offset)?)
}

/// The results of both directions of a relay: from the first socket to the second, and back.
pub type Relayed = (Result<Account, Error>, Result<Account, Error>);

/// Relays two connected stream sockets, both directions concurrently, until both have ended.
///
/// Propagates a half-close: when one side ends its direction, the other side sees the end and may
/// continue sending. A direction that fails shuts both sockets down, so that the other one ends
/// too. Blocks; uses one more thread meanwhile.
pub fn relay_streams(kernel: &Kernel, one: impl AsFd, other: impl AsFd) -> Relayed {
    let (one, other) = (one.as_fd(), other.as_fd());
    std::thread::scope(|scope| {
        let back = scope.spawn(|| relay_one_way(kernel, other, one));
        let there = relay_one_way(kernel, one, other);
        let back = back
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (there, back)
    })
}

fn relay_one_way(
    kernel: &Kernel,
    from: BorrowedFd<'_>,
    to: BorrowedFd<'_>,
) -> Result<Account, Error> {
    let run = || Driver::new(kernel).run(&Source::whole(from)?, &Sink::new(to)?);
    let relayed = run();
    end_direction(&relayed, from, to);
    relayed
}

/// Propagates the end of a direction of a relay; one that failed ends the other one too.
pub(crate) fn end_direction(relayed: &Result<Account, Error>, from: impl AsFd, to: impl AsFd) {
    // An error means that the peer has closed already.
    match relayed {
        Ok(_) => drop(rustix::net::shutdown(to, Shutdown::Write)),
        Err(_) => {
            let _gone = rustix::net::shutdown(from, Shutdown::Both);
            let _gone = rustix::net::shutdown(to, Shutdown::Both);
        }
    }
}

/// The longest time between two calls of the hook while waiting for a descriptor.
const WATCH_INTERVAL: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 50_000_000,
};

/// Waits until a side is ready, a signal arrives, or `patience` has passed.
fn wait(side: Wait, ends: &SourceAndSink<'_>, patience: Option<Timespec>) -> Result<(), Errno> {
    match side {
        Wait::Source => wait_for(ends.input, PollFlags::IN, patience),
        Wait::Sink => wait_for(ends.output, PollFlags::OUT, patience),
        Wait::Both => {
            wait_for(ends.input, PollFlags::IN, patience)?;
            wait_for(ends.output, PollFlags::OUT, patience)
        }
    }
}

fn wait_for(fd: BorrowedFd<'_>, flags: PollFlags, patience: Option<Timespec>) -> Result<(), Errno> {
    match poll(
        &mut [PollFd::from_borrowed_fd(fd, flags)],
        patience.as_ref(),
    ) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(errno) => Err(errno),
    }
}
