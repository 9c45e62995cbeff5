//! Requests as they arrive: a length of four bytes, and as many bytes.
//!
//! A length is the peer's word: memory is reserved part by part, as the parts before have arrived.

use std::future::poll_fn;
use std::ops::Range;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};
use underpass_net::{Connection, ConnectionError, FrameBuffer, ReadOutcome, WhileDraining};

use crate::limits::{
    FRAME_BYTES_MAX, FRAME_PART_BYTES_MAX, FRAME_TIMEOUT, POOLED_BUFFER_BYTES_MAX,
    POOLED_BUFFERS_MAX, REQUEST_BYTES_FREE, RESERVE_TIMEOUT,
};
use crate::lock::lock;

/// A request, and its share of the memory for requests. Its batches are written from here.
pub(crate) struct RequestFrame {
    /// Begins with what is behind the length of the frame.
    buffer: Vec<u8>,
    length: usize,
    pub(crate) share: RequestShare,
    pool: Arc<BufferPool>,
}

/// Buffers of requests that have ended: the kernel need not clear their pages for each request.
#[derive(Default)]
struct BufferPool(Mutex<Vec<Vec<u8>>>);

/// How much memory requests of all connections may take together: beyond it sockets are not read.
#[derive(Clone)]
pub(crate) struct RequestMemory {
    /// In units of a KiB.
    room: Arc<Semaphore>,
    /// One request may always arrive to its end, so that requests of which parts have arrived do
    /// not wait for one another.
    reserve: Arc<Semaphore>,
    pool: Arc<BufferPool>,
}

/// What a request holds of the memory for requests. Dropping it gives it back.
#[derive(Debug, Default)]
pub(crate) struct RequestShare {
    room: Option<OwnedSemaphorePermit>,
    /// Whoever has it needs no room.
    reserve: Option<OwnedSemaphorePermit>,
}

/// Why a connection ends without an answer.
#[derive(Debug)]
pub(crate) enum FrameError {
    Connection(ConnectionError),
    /// The peer has closed its side between two requests.
    End,
    /// This is not the length of a request: another protocol is spoken, or it is too long.
    Length(i32),
}

/// A request on its way in.
#[derive(Default)]
pub(crate) struct IncomingFrame(Option<FrameParts>);

struct FrameParts {
    buffer: FrameBuffer,
    /// What the peer has announced.
    length: usize,
    share: RequestShare,
    deadline: Instant,
}

impl RequestMemory {
    /// Room for so many bytes, and for one request of the largest size.
    pub(crate) fn new(bytes: usize) -> RequestMemory {
        RequestMemory {
            room: Arc::new(Semaphore::new(units(bytes).min(Semaphore::MAX_PERMITS))),
            reserve: Arc::new(Semaphore::new(1)),
            pool: Arc::default(),
        }
    }

    /// Waits for room for so many bytes more.
    async fn extend(&self, share: &mut RequestShare, bytes: usize) {
        if share.reserve.is_some() {
            return;
        }
        let count = u32::try_from(units(bytes)).unwrap_or(u32::MAX);
        let mut room = pin!(Arc::clone(&self.room).acquire_many_owned(count));
        let mut reserve = pin!(Arc::clone(&self.reserve).acquire_owned());
        poll_fn(|task| {
            // Neither is ever closed.
            if let Poll::Ready(Ok(room)) = room.as_mut().poll(task) {
                match &mut share.room {
                    Some(held) => held.merge(room),
                    None => share.room = Some(room),
                }
                return Poll::Ready(());
            }
            reserve.as_mut().poll(task).map(|reserve| {
                share.reserve = reserve.ok();
            })
        })
        .await;
    }
}

impl RequestFrame {
    /// How many bytes its buffer takes.
    #[cfg(any(test, feature = "fuzz"))]
    pub(crate) fn capacity(&self) -> usize {
        self.buffer.capacity()
    }

    /// The place of a part of its bytes.
    pub(crate) fn range_of(&self, part: &[u8]) -> Range<usize> {
        let start = part.as_ptr().addr() - self.buffer.as_ptr().addr();
        start..start + part.len()
    }
}

impl AsRef<[u8]> for RequestFrame {
    fn as_ref(&self) -> &[u8] {
        &self.buffer[..self.length]
    }
}

impl Drop for RequestFrame {
    fn drop(&mut self) {
        self.pool.put(std::mem::take(&mut self.buffer));
    }
}

impl BufferPool {
    /// A buffer for a request of such a length; a small one needs none that is large.
    fn take(&self, length: usize) -> Vec<u8> {
        match length > REQUEST_BYTES_FREE {
            true => lock(&self.0).pop().unwrap_or_default(),
            false => Vec::new(),
        }
    }

    fn put(&self, buffer: Vec<u8>) {
        if (REQUEST_BYTES_FREE + 1..=POOLED_BUFFER_BYTES_MAX).contains(&buffer.capacity()) {
            let mut buffers = lock(&self.0);
            if buffers.len() < POOLED_BUFFERS_MAX {
                buffers.push(buffer);
            }
        }
    }
}

impl RequestShare {
    /// Whether others may have to wait for it.
    pub(crate) fn is_none(&self) -> bool {
        self.room.is_none() && self.reserve.is_none()
    }
}

/// In units of a KiB: a semaphore counts to less than four billions.
fn units(bytes: usize) -> usize {
    bytes.div_ceil(1024)
}

impl IncomingFrame {
    /// Whether a part of a request is there.
    pub(crate) fn has_begun(&self) -> bool {
        self.0.is_some()
    }

    /// Receives a request. Between two requests it waits for `idle`. Cancel safe: another call goes
    /// on.
    pub(crate) async fn receive(
        &mut self,
        connection: &mut Connection,
        memory: &RequestMemory,
        idle: IdleWait,
    ) -> Result<RequestFrame, FrameError> {
        if self.0.is_none() {
            let length = receive_length(connection, idle).await?;
            let first = length.min(REQUEST_BYTES_FREE);
            let mut share = RequestShare::default();
            if idle == IdleWait::Busy {
                memory.extend(&mut share, first).await;
            }
            connection.consume(LENGTH_BYTES);
            connection.start_request_deadline(FRAME_TIMEOUT);
            self.0 = Some(FrameParts {
                buffer: FrameBuffer::in_buffer(memory.pool.take(length), first),
                length,
                share,
                deadline: Instant::now() + FRAME_TIMEOUT,
            });
        }
        if let Some(parts) = &mut self.0 {
            parts.receive(connection, memory).await?;
        }
        let parts = self.0.take().ok_or(FrameError::End)?;
        Ok(RequestFrame {
            length: parts.length,
            buffer: parts.buffer.into_buffer(),
            share: parts.share,
            pool: Arc::clone(&memory.pool),
        })
    }
}

impl FrameParts {
    /// Receives what is missing. Cancel safe.
    async fn receive(
        &mut self,
        connection: &mut Connection,
        memory: &RequestMemory,
    ) -> Result<(), FrameError> {
        loop {
            let received = connection.receive_frame(&mut self.buffer, WhileDraining::Continues);
            received.await.map_err(FrameError::Connection)?;
            let arrived = self.buffer.arrived();
            // What has arrived vouches for as much again.
            let part = arrived.min(FRAME_PART_BYTES_MAX).min(self.length - arrived);
            if part == 0 {
                return Ok(());
            }
            let extended = timeout_at(self.deadline, memory.extend(&mut self.share, part));
            let timed_out = |_| FrameError::Connection(ConnectionError::TimedOut);
            extended.await.map_err(timed_out)?;
            if self.share.reserve.is_some() {
                connection.start_request_deadline(RESERVE_TIMEOUT);
            }
            self.buffer.extend(part);
        }
    }
}

/// How long the next request may take to begin.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum IdleWait {
    /// As long as a connection may be idle; it is closed earlier where others have no room.
    Idle,
    /// As long as earlier requests are not answered.
    Busy,
}

/// Waits for the length, and leaves it in the input.
async fn receive_length(connection: &mut Connection, idle: IdleWait) -> Result<usize, FrameError> {
    match idle {
        IdleWait::Idle => connection.start_idle_deadline(),
        IdleWait::Busy => connection.start_deadline(FOREVER),
    }
    let length = loop {
        if let Some(length) = connection.input().first_chunk::<LENGTH_BYTES>() {
            break i32::from_be_bytes(*length);
        }
        let filled = connection.fill(WhileDraining::Ends).await;
        match filled.map_err(FrameError::Connection)? {
            ReadOutcome::Bytes(_) => {}
            ReadOutcome::End => return Err(FrameError::End),
        }
    };
    let checked = usize::try_from(length).ok();
    checked
        .filter(|length| (1..=FRAME_BYTES_MAX).contains(length))
        .ok_or(FrameError::Length(length))
}

const LENGTH_BYTES: usize = 4;

/// Longer than any request is worked on.
const FOREVER: Duration = Duration::from_secs(86_400);
