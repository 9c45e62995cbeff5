//! Framing of requests: a length of four bytes, and as many bytes.
//!
//! The length is not trusted: memory is reserved part by part as data arrives.

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
    FRAME_PART_BYTES_MAX, FRAME_TIMEOUT, FrameLimits, POOLED_BUFFER_BYTES_MAX, POOLED_BUFFERS_MAX,
    REQUEST_BYTES_FREE, RESERVE_TIMEOUT,
};
use crate::lock::lock;

/// A request and its share of the request memory. Its batches are written from this buffer.
pub(crate) struct RequestFrame {
    /// The received bytes after the length field.
    buffer: Vec<u8>,
    length: usize,
    pub(crate) share: RequestShare,
    pool: Arc<BufferPool>,
}

/// Buffers of finished requests, kept so that the kernel need not clear new pages for each request.
#[derive(Default)]
struct BufferPool(Mutex<Vec<Vec<u8>>>);

/// The memory limit for the requests of all connections: at the limit, sockets are not read.
#[derive(Clone)]
pub(crate) struct RequestMemory {
    /// Permits of one KiB each.
    room: Arc<Semaphore>,
    /// A permit for one request to exceed the limit, so that partially received requests do not
    /// block each other.
    reserve: Arc<Semaphore>,
    pool: Arc<BufferPool>,
}

/// The part of the request memory that a request holds. Dropping it releases the memory.
#[derive(Debug, Default)]
pub(crate) struct RequestShare {
    room: Option<OwnedSemaphorePermit>,
    /// The holder of the reserve needs no other permits.
    reserve: Option<OwnedSemaphorePermit>,
}

/// The reason why a connection is closed without a response.
#[derive(Debug)]
pub(crate) enum FrameError {
    Connection(ConnectionError),
    /// The peer closed its side between two requests.
    End,
    /// The length is invalid: the peer speaks another protocol, or the request is too long.
    Length(i32),
    /// The client has not logged in in time.
    Login,
}

/// A partially received request.
#[derive(Default)]
pub(crate) struct IncomingFrame(Option<FrameParts>);

struct FrameParts {
    buffer: FrameBuffer,
    /// The length of the request, as stated by the peer.
    length: usize,
    share: RequestShare,
    deadline: Instant,
}

impl RequestMemory {
    /// Makes a limit of `bytes` bytes, plus one request of the largest size.
    pub(crate) fn new(bytes: usize) -> RequestMemory {
        RequestMemory {
            room: Arc::new(Semaphore::new(units(bytes).min(Semaphore::MAX_PERMITS))),
            reserve: Arc::new(Semaphore::new(1)),
            pool: Arc::default(),
        }
    }

    /// Waits until `bytes` more bytes are available.
    async fn extend(&self, share: &mut RequestShare, bytes: usize) {
        if share.reserve.is_some() {
            return;
        }
        let count = u32::try_from(units(bytes)).unwrap_or(u32::MAX);
        let mut room = pin!(Arc::clone(&self.room).acquire_many_owned(count));
        let mut reserve = pin!(Arc::clone(&self.reserve).acquire_owned());
        poll_fn(|task| {
            // Neither semaphore is ever closed.
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
    /// Returns the capacity of the buffer in bytes.
    #[cfg(any(test, feature = "fuzz"))]
    pub(crate) fn capacity(&self) -> usize {
        self.buffer.capacity()
    }

    /// Returns the range of a part of the bytes.
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
    /// Returns a buffer for a request of this length. Small requests get a new, empty one.
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
    /// Whether the request holds no part of the limit, so that no others wait for it.
    pub(crate) fn is_none(&self) -> bool {
        self.room.is_none() && self.reserve.is_none()
    }
}

/// Converts bytes to KiB: a semaphore has less than 2^32 permits.
fn units(bytes: usize) -> usize {
    bytes.div_ceil(1024)
}

impl IncomingFrame {
    /// Whether a part of a request has arrived.
    pub(crate) fn has_begun(&self) -> bool {
        self.0.is_some()
    }

    /// Receives a request. Between two requests it waits for `idle`. Cancel safe: another call
    /// continues.
    pub(crate) async fn receive(
        &mut self,
        connection: &mut Connection,
        (memory, limits): (&RequestMemory, FrameLimits),
        idle: IdleWait,
    ) -> Result<RequestFrame, FrameError> {
        if self.0.is_none() {
            let length = receive_length(connection, limits.bytes, idle).await?;
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
    /// Receives the rest of the request. Cancel safe.
    async fn receive(
        &mut self,
        connection: &mut Connection,
        memory: &RequestMemory,
    ) -> Result<(), FrameError> {
        loop {
            let received = connection.receive_frame(&mut self.buffer, WhileDraining::Continues);
            received.await.map_err(FrameError::Connection)?;
            let arrived = self.buffer.arrived();
            // The received bytes justify the same amount again.
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

/// The time until the next request must start.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum IdleWait {
    /// The idle timeout; shorter if other connections have no room.
    Idle,
    /// Until earlier requests are answered.
    Busy,
}

/// Waits for the length and leaves it in the input.
async fn receive_length(
    connection: &mut Connection,
    bytes_max: usize,
    idle: IdleWait,
) -> Result<usize, FrameError> {
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
        .filter(|length| (1..=bytes_max).contains(length))
        .ok_or(FrameError::Length(length))
}

const LENGTH_BYTES: usize = 4;

/// Longer than any request takes.
const FOREVER: Duration = Duration::from_secs(86_400);
