//! Sends a range of a file to a socket, or receives one from it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::tokio::io::Interest;
use ::tokio::task::{JoinHandle, spawn_blocking};
use rustix::io::Errno;

use super::sender::{Sender, Turn, stream_end};
use super::stream::{AlwaysReady, Stream, ready};
use super::transfer::{RunApart, StreamTransfer};
use crate::drive::perform::raised_by;
use crate::kernel::Kernel;
use crate::outbox::{FileRange, Outbox, Piece};
use crate::plan::Policy;
use crate::shared_file::SharedFile;
use crate::sys::SignalGuard;
use crate::transfer::Step;
use crate::transfer::op::Op;
use crate::transfer::verdict::{Situation, Verdict, verdict};
use crate::vocabulary::account::{Account, Mechanism};
use crate::vocabulary::endpoint::{EndpointKind, Sink, Source, Waits, within_offsets};
use crate::vocabulary::error::{Error, Fault};
use crate::vocabulary::limits::{
    APART_BYTES_MAX, PIPE_BYTES, SLOW_WRITE, TURN_BYTES_MAX, WRITES_APART,
};

/// Sends a range of a file to one socket. Dropping a future loses nothing: the sender records what
/// the socket has taken, and a later call continues from there.
///
/// ```
/// use std::time::Duration;
/// use underpass::{Kernel, drive::tokio::FileSender};
///
/// # async fn example(socket: tokio::net::TcpStream) -> Result<(), Box<dyn std::error::Error>> {
/// let kernel = Kernel::probe();
/// let file = std::fs::File::open("big.iso")?;
/// let mut sender = FileSender::new(&file, 0, file.metadata()?.len())?;
/// loop {
///     match tokio::time::timeout(Duration::from_secs(1), sender.run(&socket, &kernel)).await {
///         Ok(sent) => break sent?,
///         Err(_elapsed) => println!("{} bytes so far", sender.account().bytes()),
///     }
/// }
/// println!("{}", sender.account());
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct FileSender {
    outbox: Outbox,
    sender: Sender,
    policy: Policy,
}

impl FileSender {
    /// Sends `len` bytes of `file` from `offset` on, using a duplicate of its descriptor.
    ///
    /// # Errors
    /// `EMFILE` and `ENFILE` if the descriptor cannot be duplicated; the errors of
    /// [`FileRange::source`], so that a pipe or a terminal never blocks the event loop.
    pub fn new(file: impl AsFd, offset: u64, len: u64) -> Result<Self, Errno> {
        let file = SharedFile::new(rustix::io::fcntl_dupfd_cloexec(file, 3)?);
        let range = FileRange { file, offset, len };
        range.source()?;
        let mut outbox = Outbox::new();
        outbox.push(Piece::Range(range));
        Ok(Self {
            outbox,
            sender: Sender::new(),
            policy: Policy::default(),
        })
    }

    /// Sets the mechanisms that may be used.
    #[must_use]
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Sends at most `bytes_max` bytes, then yields to other tasks. Waits for the socket, and for
    /// parts of the file that are not in the page cache. Cancel safe. Use the same socket in all
    /// turns: its properties and its cork are kept between them, and a part of the file may be in
    /// transit to it.
    ///
    /// # Errors
    /// As [`Sender::turn`].
    pub async fn turn<S: Stream>(
        &mut self,
        socket: &S,
        kernel: &Kernel,
        bytes_max: u64,
    ) -> Result<Turn, Error> {
        let (outbox, policy) = (&mut self.outbox, &self.policy);
        self.sender
            .turn(outbox, socket, kernel, policy, bytes_max)
            .await
    }

    /// Sends the rest. Cancel safe.
    ///
    /// # Errors
    /// As [`Sender::turn`].
    pub async fn run<S: Stream>(&mut self, socket: &S, kernel: &Kernel) -> Result<(), Error> {
        while self.turn(socket, kernel, TURN_BYTES_MAX).await? == Turn::More {}
        Ok(())
    }

    /// Returns the account of the bytes sent so far.
    pub fn account(&self) -> &Account {
        self.outbox.account()
    }

    /// Consumes the sender and returns its account.
    pub fn into_account(mut self) -> Account {
        self.outbox.take_account()
    }
}

/// Receives a body of known length from one socket into a file, by splice if the kernel can. While
/// the kernel throttles writers, Tokio's threads for blocking calls write to the file, so that the
/// event loop does not wait for the disk. Dropping a future loses nothing: bytes between socket
/// and file stay in the receiver, and a later call continues from there. The caller syncs and
/// closes the file, which may report a lost write (close(2)).
///
/// ```
/// use std::time::Duration;
/// use underpass::drive::tokio::{FileReceiver, Turn};
/// use underpass::{Kernel, limits::TURN_BYTES_MAX};
///
/// # async fn example(socket: tokio::net::TcpStream, input: &[u8])
/// # -> Result<(), Box<dyn std::error::Error>> {
/// let kernel = Kernel::probe();
/// let file = std::fs::File::create("upload")?;
/// let mut receiver = FileReceiver::new(&file, 0, 1_000_000)?;
/// // What was read with the head of the message is the beginning of the body.
/// receiver.push(input);
/// loop {
///     let turn = receiver.turn(&socket, &kernel, TURN_BYTES_MAX);
///     match tokio::time::timeout(Duration::from_secs(60), turn).await?? {
///         Turn::More => println!("{} bytes left", receiver.left()),
///         Turn::Empty => break,
///     }
/// }
/// println!("{}", receiver.account());
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct FileReceiver {
    sink: Sink<Arc<OwnedFd>>,
    left: u64,
    account: Account,
    /// Bytes of the body in memory, which are written first.
    unwritten: Vec<u8>,
    /// Boxed: until the first turn there is none.
    body: Option<Box<StreamTransfer>>,
    /// The socket, for another thread.
    socket: Option<Arc<OwnedFd>>,
    /// The write in progress on another thread.
    pending: Option<WriteInProgress>,
    pace: WritePace,
    failed: Option<(Fault, Option<Errno>)>,
}

/// Whether writes are made on the event loop: they are as long as none takes long, which a write to
/// the page cache does not.
#[derive(Debug, Default)]
struct WritePace {
    /// Number of writes that another thread makes before the event loop tries again.
    apart: u32,
}

impl WritePace {
    fn is_quick(&self) -> bool {
        self.apart == 0
    }

    /// Records writes, of which the slowest has taken so long.
    fn record(&mut self, writes: u32, slowest: Duration) {
        self.apart = match slowest > SLOW_WRITE {
            true => WRITES_APART,
            false => self.apart.saturating_sub(writes),
        };
    }
}

#[derive(Debug)]
enum WriteInProgress {
    /// The transfer itself, which moves bytes there.
    Body(JoinHandle<(Box<StreamTransfer>, RunApart)>),
    Memory(JoinHandle<MemoryWrite>),
}

/// The result of writing bytes from memory.
#[derive(Debug)]
struct MemoryWrite {
    written: u64,
    calls: u64,
    took: Duration,
    result: Result<(), Errno>,
}

impl FileReceiver {
    /// Receives `len` bytes into `file`, from `offset` on, or at its end if it was opened with
    /// `O_APPEND`, by a duplicate of its descriptor. The file is neither truncated nor synced.
    ///
    /// # Errors
    /// `EMFILE` and `ENFILE` where the descriptor can't be duplicated; as [`Sink::at`]; `EOVERFLOW`
    /// where the range ends beyond 2⁶³ − 1; `ESPIPE` for anything but a regular file or a block
    /// device.
    pub fn new(file: impl AsFd, offset: u64, len: u64) -> Result<Self, Errno> {
        within_offsets(offset, len)?;
        let file = Arc::new(rustix::io::fcntl_dupfd_cloexec(file, 3)?);
        let sink = Sink::at(file, offset)?;
        if !sink.end.kind.has_offsets() {
            return Err(Errno::SPIPE);
        }
        Ok(Self {
            sink,
            left: len,
            account: Account::default(),
            unwritten: Vec::new(),
            body: None,
            socket: None,
            pending: None,
            pace: WritePace::default(),
            failed: None,
        })
    }

    /// Takes the next bytes of the body from memory: bytes that were received with the head of the
    /// message, or decrypted. Returns how many belong to the body. The next turn writes them.
    pub fn push(&mut self, bytes: &[u8]) -> usize {
        let room = self.left.saturating_sub(self.unwritten.len() as u64);
        let len = usize::try_from(room).map_or(bytes.len(), |room| room.min(bytes.len()));
        self.unwritten.extend_from_slice(&bytes[..len]);
        len
    }

    /// Receives until at least `bytes_max` bytes have reached the file, or all have; then yields to
    /// other tasks. Waits for the socket on the event loop, and for the file on another thread.
    /// Cancel safe. The socket must be the same in all turns; bytes after the body stay in it.
    ///
    /// # Errors
    /// [`Error`]; [`Fault::Truncated`](crate::Fault::Truncated) where the peer ended early. Bytes
    /// that arrived are in the file; [`Error::lost`] bytes were taken from the socket and are not.
    /// Later turns return the same.
    pub async fn turn<S: Stream>(
        &mut self,
        socket: &S,
        kernel: &Kernel,
        bytes_max: u64,
    ) -> Result<Turn, Error> {
        let stop_at = self.left.saturating_sub(bytes_max.max(1));
        loop {
            self.flush(kernel).await?;
            if self.left <= stop_at {
                break;
            }
            if let Step::Wait(_) = self.advance(socket, kernel)? {
                ready(socket, Interest::READABLE).await?;
            }
            ::tokio::task::consume_budget().await;
        }
        if self.left == 0 {
            return Ok(Turn::Empty);
        }
        ::tokio::task::yield_now().await;
        Ok(Turn::More)
    }

    /// Receives everything that is left. Cancel safe.
    ///
    /// # Errors
    /// As [`turn`](Self::turn).
    pub async fn run<S: Stream>(&mut self, socket: &S, kernel: &Kernel) -> Result<(), Error> {
        while self.turn(socket, kernel, TURN_BYTES_MAX).await? == Turn::More {}
        Ok(())
    }

    /// Writes the bytes in memory, and waits for the write in progress. Afterwards the file has
    /// everything that the account counts. Cancel safe.
    ///
    /// # Errors
    /// [`Error`] of writing to the file. Later calls return the same.
    pub async fn flush(&mut self, kernel: &Kernel) -> Result<(), Error> {
        loop {
            if let Some((fault, errno)) = self.failed {
                return Err(Error::of_writing(fault, errno, &self.account));
            }
            match &mut self.pending {
                Some(WriteInProgress::Body(moving)) => {
                    let done = moving.await;
                    self.pending = None;
                    match done {
                        Ok((body, run)) => {
                            self.pace.record(run.writes, run.slowest);
                            self.returned(body, run.last, kernel)?;
                        }
                        Err(_) => self.failed = Some((Fault::Sink, Some(Errno::IO))),
                    }
                }
                Some(WriteInProgress::Memory(write)) => {
                    let done = write.await;
                    self.pending = None;
                    match done {
                        Ok(done) => self.wrote(&done),
                        Err(_) => self.failed = Some((Fault::Sink, Some(Errno::IO))),
                    }
                }
                None if self.unwritten.is_empty() => return Ok(()),
                None => self.write(),
            }
        }
    }

    /// Whether another thread is writing to the file.
    pub fn is_writing(&self) -> bool {
        self.pending.is_some()
    }

    /// Returns an error for a caller that pushes bytes, with the account up to now.
    pub fn error(&self, fault: Fault, errno: Option<Errno>) -> Error {
        Error::of_writing(fault, errno, &self.account)
    }

    /// Returns the number of bytes of the body that are not in the file yet.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Returns the account of the bytes in the file.
    pub fn account(&self) -> &Account {
        &self.account
    }

    /// Returns the account, and ends the receiver.
    pub fn into_account(self) -> Account {
        self.account
    }

    /// Makes the next call of the body's transfer, or has a thread make it.
    fn advance<S: Stream>(&mut self, socket: &S, kernel: &Kernel) -> Result<Step, Error> {
        let body = match &mut self.body {
            Some(body) => body,
            None => {
                let source = Source::range_of((), stream_end(socket)?, 0, self.left)?;
                let plan = kernel.plan(&source, &self.sink, &Policy::default());
                let raised = raised_by(self.sink.end.kind);
                let mut body = StreamTransfer::new(&source, &self.sink, plan, raised);
                body.machine.limit_calls(PIPE_BYTES as u64);
                self.body.insert(Box::new(body))
            }
        };
        let writes = body.writes_next();
        // Without a descriptor for the thread, this one writes.
        if writes && !self.pace.is_quick() && self.run_apart(socket).is_ok() {
            return Ok(Step::Again);
        }
        let Some(body) = &mut self.body else {
            return Ok(Step::Done);
        };
        let begun = Instant::now();
        let step = body.step(socket, &AlwaysReady(self.sink.fd.as_fd()), kernel);
        if writes {
            self.pace.record(1, begun.elapsed());
        }
        self.count(step, kernel)
    }

    /// Has a thread receive from the socket and write to the file for a while.
    fn run_apart<S: Stream>(&mut self, socket: &S) -> Result<(), Errno> {
        let socket = match &self.socket {
            Some(socket) => Arc::clone(socket),
            None => {
                let socket = rustix::io::fcntl_dupfd_cloexec(socket.descriptor(), 3)?;
                Arc::clone(self.socket.insert(Arc::new(socket)))
            }
        };
        let mut body = self.body.take().ok_or(Errno::BADF)?;
        let file = Arc::clone(&self.sink.fd);
        self.pending = Some(WriteInProgress::Body(spawn_blocking(move || {
            let ends = (socket.as_fd(), file.as_fd());
            let run = body.run_apart(ends, APART_BYTES_MAX);
            (body, run)
        })));
        Ok(())
    }

    /// Continues with a transfer that a thread has returned.
    fn returned(
        &mut self,
        body: Box<StreamTransfer>,
        last: Option<Step>,
        kernel: &Kernel,
    ) -> Result<(), Error> {
        let (source, sink) = body.machine.ends();
        self.body = Some(body);
        if let Some(Step::Refused(refusal)) = last {
            kernel.learn(&refusal, &source, &sink);
        }
        match last {
            // The socket is waited for where it is used.
            Some(step) => self.count(Some(step), kernel).map(drop),
            None => Ok(()),
        }
    }

    /// Counts the bytes of a call; the body's transfer ends with its last byte.
    fn count(&mut self, step: Option<Step>, kernel: &Kernel) -> Result<Step, Error> {
        let Some(body) = &mut self.body else {
            return Ok(Step::Done);
        };
        let Some(step) = step else {
            let failed = body.machine.clone().finish().err();
            let mut error = failed.unwrap_or_else(|| Errno::IO.into());
            *error.account = self.account.clone();
            return Err(error);
        };
        let moved = body.machine.take_account();
        self.left -= moved.bytes();
        self.account.add(&moved);
        if step == Step::Done {
            self.body
                .take()
                .map(|body| body.finish(kernel))
                .transpose()?;
        }
        Ok(step)
    }

    /// Writes the bytes in memory, or has a thread do so.
    fn write(&mut self) {
        let (file, at) = (Arc::clone(&self.sink.fd), self.sink.to);
        let bytes = std::mem::take(&mut self.unwritten);
        let raised = raised_by(self.sink.end.kind);
        let write = move || {
            let _guard = SignalGuard::against(raised);
            write_all(file.as_fd(), &bytes, at)
        };
        match self.pace.is_quick() {
            true => self.wrote(&write()),
            false => self.pending = Some(WriteInProgress::Memory(spawn_blocking(write))),
        }
    }

    fn wrote(&mut self, done: &MemoryWrite) {
        self.pace.record(1, done.took);
        self.account
            .record(Mechanism::ReadWrite, done.written, done.calls);
        self.sink.to += done.written;
        self.left -= done.written;
        if let Err(errno) = done.result {
            let situation = Situation {
                source: EndpointKind::Other,
                sink: self.sink.end.kind,
                source_waits: Waits::Blocks,
                sink_waits: self.sink.end.waits,
                done: self.account.bytes(),
            };
            let fault = match verdict(Op::WRITE, Err(errno), &situation) {
                Verdict::Fatal(fault) => fault,
                _ => Fault::Sink,
            };
            self.failed = Some((fault, Some(errno)));
        }
    }
}

/// Writes all of `bytes` at an offset of a file, unless a call fails.
fn write_all(file: BorrowedFd<'_>, bytes: &[u8], from: u64) -> MemoryWrite {
    let begun = Instant::now();
    let mut done = MemoryWrite {
        written: 0,
        calls: 0,
        took: Duration::ZERO,
        result: Ok(()),
    };
    while done.result.is_ok() && done.written < bytes.len() as u64 {
        done.calls += 1;
        let rest = &bytes[done.written as usize..];
        match rustix::io::pwrite(file, rest, from + done.written) {
            Ok(written) => done.written += written as u64,
            Err(Errno::INTR) => {}
            Err(errno) => done.result = Err(errno),
        }
    }
    done.took = begun.elapsed();
    done
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::pin::pin;

    use ::tokio::net::TcpStream;
    use ::tokio::runtime::Builder;
    use tempfile::tempfile;

    use super::*;
    use crate::tcp;

    /// Receives `body` on other threads, dropping turns, and returns the file and what follows in
    /// the socket.
    fn received_apart(body: &[u8], dropped_after: Duration) -> (Vec<u8>, Vec<u8>, Account) {
        let (ours, theirs) = tcp::loopback_pair().expect("a connection");
        let mut sent = body.to_vec();
        sent.extend_from_slice(b"the next message");
        let peer = std::thread::spawn(move || {
            let mut theirs = theirs;
            for piece in sent.chunks(300_001) {
                theirs.write_all(piece).expect("sends");
            }
        });
        let mut file = tempfile().expect("a file");
        let runtime = Builder::new_current_thread().enable_all().build();
        let (account, mut rest) = runtime.expect("a runtime").block_on(async {
            ours.set_nonblocking(true).expect("an option");
            let rest = ours.try_clone().expect("a clone");
            let socket = TcpStream::from_std(ours).expect("a stream");
            let kernel = Kernel::probe();
            let receiver = FileReceiver::new(&file, 0, body.len() as u64);
            let mut receiver = receiver.expect("a receiver");
            loop {
                receiver.pace.apart = WRITES_APART;
                let turn = pin!(receiver.turn(&socket, &kernel, 1_000_000));
                match ::tokio::time::timeout(dropped_after, turn).await {
                    Ok(turn) => match turn.expect("receives") {
                        Turn::Empty => break,
                        Turn::More => {}
                    },
                    Err(_elapsed) => {}
                }
            }
            (receiver.into_account(), rest)
        });
        peer.join().expect("no panic");
        let mut content = Vec::new();
        std::io::Seek::rewind(&mut file).expect("seeks");
        file.read_to_end(&mut content).expect("reads");
        rest.set_nonblocking(false).expect("an option");
        let mut next = vec![0; 16];
        rest.read_exact(&mut next).expect("reads");
        (content, next, account)
    }

    #[test]
    fn another_thread_receives_what_the_loop_would_and_no_byte_more() {
        let body: Vec<u8> = (0..20_000_003_u32).map(|at| (at / 251) as u8).collect();
        for dropped_after in [Duration::from_micros(50), Duration::from_secs(60)] {
            let (content, next, account) = received_apart(&body, dropped_after);
            assert!(content == body, "{} bytes", content.len());
            assert_eq!(next, b"the next message");
            assert_eq!(account.of(Mechanism::Splice).bytes, body.len() as u64);
        }
    }
}
