//! Performs one [`Op`] as one system call.

use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{FallocateFlags, SeekFrom, copy_file_range, fallocate, ftruncate, sendfile};
use rustix::io::Errno;
use rustix::net::SendFlags;
use rustix::pipe::SpliceFlags;

use crate::kernel::{Kernel, Pipe, probe};
use crate::sys::{self, UnignoredSignal};
use crate::transfer::extents::BlockContent;
use crate::transfer::op::{Op, RelayBuffer};
use crate::vocabulary::endpoint::{Endpoint, EndpointKind, Side, Sink, Source, Waits};
use crate::vocabulary::limits::{BUFFER_ALIGNMENT, BUFFER_BYTES, KERNEL_CALL_BYTES_MAX};

/// The pipe and the buffer of one relayed transfer, taken from the pool of the [`Kernel`] when they
/// are first needed.
#[derive(Debug, Default)]
pub struct RelayBuffers {
    pipe: Option<Pipe>,
    /// Bytes in the pipe.
    in_pipe: u64,
    buffer: Option<Box<[u8]>>,
    /// The part of the buffer that is not drained yet.
    filled: Range<usize>,
}

impl RelayBuffers {
    /// Returns buffer and pipe to the pool. A pipe that still holds bytes is closed.
    pub fn give_back(self, kernel: &Kernel) {
        if let (Some(pipe), 0) = (self.pipe, self.in_pipe) {
            kernel.idle.put_pipe(pipe);
        }
        if let Some(buffer) = self.buffer {
            kernel.idle.put_buffer(buffer);
        }
    }

    fn pipe(&mut self, kernel: &Kernel) -> Result<&Pipe, Errno> {
        if self.pipe.is_none() {
            self.pipe = Some(kernel.idle.take_pipe()?);
        }
        self.pipe.as_ref().ok_or(Errno::BADF)
    }

    fn fill(
        &mut self,
        read: impl FnOnce(&mut [u8]) -> Result<usize, Errno>,
        len: u64,
        kernel: &Kernel,
    ) -> CallResult {
        let buffer = self.buffer.get_or_insert_with(|| kernel.idle.take_buffer());
        let start = buffer.as_ptr().addr().wrapping_neg() % BUFFER_ALIGNMENT;
        let len = count(len).min(BUFFER_BYTES);
        let read = read(&mut buffer[start..start + len])?;
        self.filled = start..start + read;
        Ok(read as u64)
    }

    fn held(&self) -> &[u8] {
        let buffer = self.buffer.as_deref().unwrap_or_default();
        &buffer[self.filled.clone()]
    }

    fn read_out(&mut self, len: u64, kernel: &Kernel) -> CallResult {
        let pipe = self.pipe.take().ok_or(Errno::BADF)?;
        let outcome = self.fill(|buffer| rustix::io::read(&pipe.read, buffer), len, kernel);
        self.pipe = Some(pipe);
        self.in_pipe -= *outcome.as_ref().unwrap_or(&0);
        outcome
    }
}

/// The open descriptors that calls are made on.
#[derive(Clone, Copy, Debug)]
pub struct SourceAndSink<'fd> {
    /// The descriptor of the source.
    pub input: BorrowedFd<'fd>,
    /// The descriptor of the sink.
    pub output: BorrowedFd<'fd>,
    /// The facts about the source.
    pub source: Endpoint,
    /// The facts about the sink.
    pub sink: Endpoint,
}

impl<'fd> SourceAndSink<'fd> {
    /// Returns the ends of a source and a sink.
    pub fn of<F: AsFd, G: AsFd>(source: &'fd Source<F>, sink: &'fd Sink<G>) -> Self {
        let (input, output) = (source.fd.as_fd(), sink.fd.as_fd());
        Self {
            input,
            output,
            source: source.end,
            sink: sink.end,
        }
    }
}

type CallResult = Result<u64, Errno>;

/// Makes the call and returns the result for [`Transfer::record`](crate::Transfer::record). Blocks
/// exactly where the call does.
///
/// Into a pipe or a socket whose other end is closed, sendfile and splice raise SIGPIPE: a program
/// that does not ignore it (Rust programs do) must block it meanwhile.
///
/// # Errors
/// The error of the call.
pub fn perform(
    op: Op,
    ends: &SourceAndSink<'_>,
    buffers: &mut RelayBuffers,
    kernel: &Kernel,
) -> Result<u64, Errno> {
    let SourceAndSink { input, output, .. } = *ends;
    match op {
        Op::Clone => rustix::fs::ioctl_ficlone(output, input).map(|()| 0),
        Op::CloneRange { from, to, len } => {
            sys::clone_range(input, output, from, to, len).map(|()| 0)
        }
        Op::CopyRange {
            mut from,
            mut to,
            len,
        } => {
            let (from, to) = (Some(&mut from), Some(&mut to));
            Ok(copy_file_range(input, from, output, to, count(len))? as u64)
        }
        Op::Sendfile { mut from, len } => {
            Ok(sendfile(output, input, from.as_mut(), count(len))? as u64)
        }
        Op::Splice { from, to, len } => {
            let flags = splice_flags(&ends.source, &ends.sink);
            splice(input, from, output, to, len, flags)
        }
        Op::Fill { through, from, len } => fill(through, input, from, len, buffers, kernel),
        Op::Drain { through, to, len } => drain(through, ends, to, len, buffers),
        Op::ReadOut { len } => buffers.read_out(len, kernel),
        Op::DropZeros(held) => {
            let zeros = held.run_of(BlockContent::Zeros, buffers.held());
            buffers.filled.start += zeros;
            Ok(zeros as u64)
        }
        Op::DataAhead(held) => Ok(held.run_of(BlockContent::Data, buffers.held()) as u64),
        aside => ask(aside, input, output),
    }
}

fn ask(op: Op, input: BorrowedFd<'_>, output: BorrowedFd<'_>) -> CallResult {
    match op {
        Op::Peek { from } => rustix::io::pread(input, &mut [0_u8][..], from).map(|n| n as u64),
        Op::Probe(mechanism) => Err(probe(mechanism)),
        Op::SeekSink { to } => rustix::fs::seek(output, SeekFrom::Start(to)),
        Op::SeekData { from } => rustix::fs::seek(input, SeekFrom::Data(from)),
        Op::SeekHole { from } => rustix::fs::seek(input, SeekFrom::Hole(from)),
        Op::Punch { to, len } => {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            fallocate(output, flags, to, len).map(|()| 0)
        }
        Op::SetLength { len } => ftruncate(output, len).map(|()| 0),
        Op::LastByte { at } => rustix::io::pwrite(output, &[0], at).map(|n| n as u64),
        Op::Length(Side::Source) => length(input),
        Op::Length(Side::Sink) => length(output),
        _ => Err(Errno::NOSYS),
    }
}

fn length(file: BorrowedFd<'_>) -> CallResult {
    Ok(rustix::fs::fstat(file)?.st_size.max(0).cast_unsigned())
}

fn splice(
    input: BorrowedFd<'_>,
    mut from: Option<u64>,
    output: BorrowedFd<'_>,
    mut to: Option<u64>,
    len: u64,
    flags: SpliceFlags,
) -> CallResult {
    let moved = rustix::pipe::splice(input, from.as_mut(), output, to.as_mut(), count(len), flags)?;
    Ok(moved as u64)
}

/// The flag affects the pipe side only: a nonblocking pipe must not be waited for.
fn splice_flags(source: &Endpoint, sink: &Endpoint) -> SpliceFlags {
    let polls = |end: &Endpoint| end.kind == EndpointKind::Pipe && end.waits == Waits::Polls;
    if polls(source) || polls(sink) {
        SpliceFlags::NONBLOCK
    } else {
        SpliceFlags::empty()
    }
}

fn fill(
    through: RelayBuffer,
    input: BorrowedFd<'_>,
    from: Option<u64>,
    len: u64,
    buffers: &mut RelayBuffers,
    kernel: &Kernel,
) -> CallResult {
    match (through, from) {
        (RelayBuffer::Pipe, from) => {
            let pipe = buffers.pipe(kernel)?.write.as_fd();
            let filled = splice(input, from, pipe, None, len, SpliceFlags::empty())?;
            buffers.in_pipe += filled;
            Ok(filled)
        }
        (RelayBuffer::Buffer, Some(from)) => {
            buffers.fill(|buffer| rustix::io::pread(input, buffer, from), len, kernel)
        }
        (RelayBuffer::Buffer, None) => {
            buffers.fill(|buffer| rustix::io::read(input, buffer), len, kernel)
        }
    }
}

/// Writes bytes of a relay buffer to the sink.
fn drain(
    through: RelayBuffer,
    ends: &SourceAndSink<'_>,
    to: Option<u64>,
    len: u64,
    buffers: &mut RelayBuffers,
) -> CallResult {
    let output = ends.output;
    if through == RelayBuffer::Pipe {
        let pipe = buffers.pipe.as_ref().ok_or(Errno::BADF)?.read.as_fd();
        let drained = splice(pipe, None, output, to, len, SpliceFlags::empty())?;
        buffers.in_pipe -= drained;
        return Ok(drained);
    }
    let held = buffers.held();
    let bytes = &held[..held.len().min(count(len))];
    let written = match to {
        Some(to) => rustix::io::pwrite(output, bytes, to)?,
        None if ends.sink.kind.is_socket() => {
            rustix::net::send(output, bytes, SendFlags::NOSIGNAL)?
        }
        None => rustix::io::write(output, bytes)?,
    };
    buffers.filled.start += written;
    Ok(written as u64)
}

/// Converts a count, bounded by what a call takes, which fits every `usize`.
fn count(len: u64) -> usize {
    usize::try_from(len.min(KERNEL_CALL_BYTES_MAX)).unwrap_or(usize::MAX)
}

/// Returns the signal that calls into such a sink may raise, as long as the program does not change
/// its signal actions or its limits.
pub(crate) fn raised_by(sink: EndpointKind) -> Option<UnignoredSignal> {
    match sink.has_offsets() {
        true if !sys::is_file_size_limited() => None,
        true => UnignoredSignal::unless_ignored(libc::SIGXFSZ),
        false => UnignoredSignal::unless_ignored(libc::SIGPIPE),
    }
}
