//! What bounds the broker, in one place, with the reasons.

use std::time::Duration;

/// The longest request, in bytes, as `socket.request.max.bytes` of Kafka.
pub(crate) const FRAME_BYTES_MAX: usize = 100 * 1024 * 1024;

/// So much of a request takes no part of the memory for requests, unless the connection has others
/// that are not answered: heartbeats and metadata pass while producers wait for room. What a
/// connection may take beside the memory for requests.
pub(crate) const REQUEST_BYTES_FREE: usize = 16 * 1024;

/// The largest part of a request that memory is reserved for before it has arrived.
pub(crate) const FRAME_PART_BYTES_MAX: usize = 1 << 20;

/// How long each such part may take of a request that arrives although there is no room: the others
/// wait for it.
pub(crate) const RESERVE_TIMEOUT: Duration = Duration::from_secs(5);

/// Buffers of requests that are kept for later ones, those of the largest requests that producers
/// send by default (`max.request.size`, 1 MiB) and no larger ones.
pub(crate) const POOLED_BUFFERS_MAX: usize = 8;

/// The largest buffer that is kept: the one of a request that has grown by doubling.
pub(crate) const POOLED_BUFFER_BYTES_MAX: usize = 2 << 20;

/// How long a request may take to arrive once it has begun: 100 MiB at 1 MiB/s and a little more.
/// What waits for memory counts: clients of Kafka have given up by then. A peer that sends slower
/// must not hold memory.
pub(crate) const FRAME_TIMEOUT: Duration = Duration::from_secs(120);

/// How long a fetch may wait for records that holds a part of the memory for requests, which
/// producers may need. Others wait for as long as the client wants.
pub(crate) const LARGE_FETCH_WAIT_MAX: Duration = Duration::from_secs(1);

/// How far a timestamp may be ahead of the broker's clock, as `message.timestamp.after.max.ms` of
/// Kafka 4: what is far in the future is a mistake of its producer, and never expires.
pub(crate) const TIMESTAMP_AHEAD_MAX: Duration = Duration::from_secs(3600);

/// Compressed batches up to this size are decompressed by the worker that has received them, as
/// long as their records have no more than [`DECOMPRESSED_INLINE_MAX`] bytes: others take longer
/// than other connections of the worker should wait.
pub(crate) const COMPRESSED_INLINE_MAX: usize = 16 * 1024;

/// The most bytes without compression that a worker decompresses of a batch: about 0.1 ms.
pub(crate) const DECOMPRESSED_INLINE_MAX: u64 = 256 * 1024;

/// The most bytes without compression that the records of a batch may have: a thousand times the
/// default of `max.message.bytes`, and about a second of decompression.
pub(crate) const DECOMPRESSED_MAX: u64 = 1 << 30;

/// Threads that decompress batches at a time. Each may hold a window of 128 MiB.
pub(crate) const DECOMPRESSING_MAX: usize = 2;

/// How long an answer may take when the broker ends: a fetch may wait for records for any time.
pub(crate) const LAST_ANSWERS_TIMEOUT: Duration = Duration::from_secs(2);

/// Requests of a connection that are worked on at the same time. Producers of Kafka's Java client
/// send 5, librdkafka without idempotence as many as it has.
pub(crate) const REQUESTS_PENDING_MAX: usize = 64;

/// What answers of a connection may have in memory that wait for an earlier one, and one more
/// answer: beyond it no request of the connection is taken or worked on. Clients pipeline requests
/// with small answers; a description of a thousand topics has some hundred KiB.
pub(crate) const READY_BYTES_MAX: usize = 1 << 20;
