//! Sends a range of a file to a socket, or receives one from it.

use std::os::fd::AsFd;

use ::tokio::io::Interest;
use rustix::io::Errno;

use super::sender::{Sender, StreamTransfer, Turn, stream_end};
use super::stream::{AlwaysReady, Stream, ready};
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
use crate::vocabulary::limits::{TURN_BYTES_MAX, TURN_BYTES_MIN};

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

/// Receives a body of known length from one socket into a file, by splice if the kernel can.
/// Dropping a future loses nothing: bytes between socket and file stay in the receiver, and a later
/// call continues from there. Syncing and closing the file, which may report a lost write
/// (close(2)), is left to the caller.
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
/// // What was read with the head of the message is the beginning of the body.
/// let mut receiver = FileReceiver::after(input, &file, 0, 1_000_000)?;
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
pub struct FileReceiver<F> {
    sink: Sink<F>,
    left: u64,
    account: Account,
    /// `None` until the first turn; boxed to keep the receiver small.
    body: Option<Box<StreamTransfer>>,
}

impl<F: AsFd> FileReceiver<F> {
    /// Receives `len` bytes into `file`, from `offset` on, or at its end if it was opened with
    /// `O_APPEND`. The file is neither truncated nor synced.
    ///
    /// # Errors
    /// As [`Sink::at`]; `EOVERFLOW` if the range ends beyond 2⁶³ − 1; `ESPIPE` for anything but a
    /// regular file or block device, since writing to it may block the event loop.
    pub fn new(file: F, offset: u64, len: u64) -> Result<Self, Errno> {
        within_offsets(offset, len)?;
        let sink = Sink::at(file, offset)?;
        if !sink.end.kind.has_offsets() {
            return Err(Errno::SPIPE);
        }
        Ok(Self {
            sink,
            left: len,
            account: Account::default(),
            body: None,
        })
    }

    /// Does the same for a body whose `first` bytes the caller has received along with its head.
    /// Writes those that belong to the body to the file immediately, which may block as any write
    /// to the file may; [`account`](Self::account) counts them.
    ///
    /// # Errors
    /// As [`new`](Self::new), and if the file cannot be written.
    pub fn after(first: &[u8], file: F, offset: u64, len: u64) -> Result<Self, Error> {
        let mut receiver = Self::new(file, offset, len)?;
        receiver.push(first)?;
        Ok(receiver)
    }

    /// Writes the next bytes of the body, which the caller has received and decrypted, to the file,
    /// up to the end of the body. Returns the number of bytes written. May block as any write to
    /// the file may.
    ///
    /// # Errors
    /// The file cannot be written. Bytes written before the error are in the account.
    pub fn push(&mut self, bytes: &[u8]) -> Result<usize, Error> {
        let len = usize::try_from(self.left).map_or(bytes.len(), |left| left.min(bytes.len()));
        let mut rest = &bytes[..len];
        let _guard = SignalGuard::against(raised_by(self.sink.end.kind));
        while !rest.is_empty() {
            let written = self.write(rest)?;
            rest = &rest[written..];
        }
        Ok(len)
    }

    /// Receives until at least `bytes_max` bytes have reached the file, or all have; then yields to
    /// other tasks. Waits for the socket on the event loop; writing to the file may block it for as
    /// long as the kernel throttles writers. Cancel safe. Use the same socket in all turns; bytes
    /// after the body stay in it.
    ///
    /// # Errors
    /// [`Error`]; [`Fault::Truncated`](crate::Fault::Truncated) if the peer ended early. Bytes that
    /// arrived are in the file; [`Error::lost`] bytes were taken from the socket and are not. Later
    /// turns return the same error.
    pub async fn turn<S: Stream>(
        &mut self,
        socket: &S,
        kernel: &Kernel,
        bytes_max: u64,
    ) -> Result<Turn, Error> {
        let stop_at = self.left.saturating_sub(bytes_max.max(1));
        while self.left > stop_at {
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

    /// Receives the rest. Cancel safe.
    ///
    /// # Errors
    /// As [`turn`](Self::turn).
    pub async fn run<S: Stream>(&mut self, socket: &S, kernel: &Kernel) -> Result<(), Error> {
        while self.turn(socket, kernel, TURN_BYTES_MAX).await? == Turn::More {}
        Ok(())
    }

    /// Returns an error of a caller that pushes bytes, with the account so far.
    pub fn error(&self, fault: Fault, errno: Option<Errno>) -> Error {
        Error::of_writing(fault, errno, &self.account)
    }

    /// Returns the bytes of the body that have not reached the file yet.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Returns the account of the bytes that have reached the file so far.
    pub fn account(&self) -> &Account {
        &self.account
    }

    /// Consumes the receiver and returns its account.
    pub fn into_account(self) -> Account {
        self.account
    }

    /// Makes the next call of the body's transfer, starting the transfer if necessary.
    fn advance<S: Stream>(&mut self, socket: &S, kernel: &Kernel) -> Result<Step, Error> {
        let body = match &mut self.body {
            Some(body) => body,
            None => {
                let source = Source::range_of((), stream_end(socket)?, 0, self.left)?;
                let plan = kernel.plan(&source, &self.sink, &Policy::default());
                let raised = raised_by(self.sink.end.kind);
                let mut body = StreamTransfer::new(&source, &self.sink, plan, raised);
                body.machine.limit_calls(TURN_BYTES_MIN);
                self.body.insert(Box::new(body))
            }
        };
        let Some(step) = body.step(socket, &AlwaysReady(self.sink.fd.as_fd()), kernel) else {
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

    /// Writes bytes of the body that are in memory. Returns the number of bytes written.
    fn write(&mut self, bytes: &[u8]) -> Result<usize, Error> {
        self.account.called(Mechanism::ReadWrite);
        let result = rustix::io::pwrite(&self.sink.fd, bytes, self.sink.to);
        let situation = Situation {
            source: EndpointKind::Other,
            sink: self.sink.end.kind,
            source_waits: Waits::Blocks,
            sink_waits: self.sink.end.waits,
            done: self.account.bytes(),
        };
        let written = result.map(|written| written as u64);
        let fault = match verdict(Op::WRITE, written, &situation) {
            Verdict::Moved(bytes) => {
                self.account.moved(Mechanism::ReadWrite, bytes);
                self.sink.to += bytes;
                self.left -= bytes;
                return Ok(result.unwrap_or(0));
            }
            Verdict::Again => return Ok(0),
            Verdict::Fatal(fault) => fault,
            _ => Fault::Sink,
        };
        Err(Error::of_writing(fault, result.err(), &self.account))
    }
}
