//! The limits of the broker, with the reasons.

use std::time::Duration;

/// The longest request, in bytes, like Kafka's `socket.request.max.bytes`.
pub(crate) const FRAME_BYTES_MAX: usize = 100 * 1024 * 1024;

/// The bytes of a request that are not charged to the request memory, unless the connection has
/// unanswered requests: heartbeats and metadata pass while producers wait for room. So a connection
/// may take this much in addition to the request memory.
pub(crate) const REQUEST_BYTES_FREE: usize = 16 * 1024;

/// The largest part of a request for which memory is reserved before the part has arrived.
pub(crate) const FRAME_PART_BYTES_MAX: usize = 1 << 20;

/// The time limit for each such part of a request that uses the reserve, since other requests wait
/// for the reserve.
pub(crate) const RESERVE_TIMEOUT: Duration = Duration::from_secs(5);

/// The number of buffers of requests kept for reuse: those of the largest requests that producers
/// send by default (`max.request.size`, 1 MiB), and no larger ones.
pub(crate) const POOLED_BUFFERS_MAX: usize = 8;

/// The largest buffer that is kept: that of a request that grew by doubling.
pub(crate) const POOLED_BUFFER_BYTES_MAX: usize = 2 << 20;

/// The time limit for a request to arrive after its start: 100 MiB at 1 MiB/s and some slack.
/// Includes waiting for memory: Kafka clients have given up by that time. A slower peer must not
/// hold memory.
pub(crate) const FRAME_TIMEOUT: Duration = Duration::from_secs(120);

/// The longest wait for records of a fetch that holds a part of the request memory, which producers
/// may need. Other fetches wait for as long as the client wants.
pub(crate) const LARGE_FETCH_WAIT_MAX: Duration = Duration::from_secs(1);

/// The largest lead of a timestamp over the broker's clock, like `message.timestamp.after.max.ms`
/// of Kafka 4: records far in the future are a mistake of the producer and never expire.
pub(crate) const TIMESTAMP_AHEAD_MAX: Duration = Duration::from_secs(3600);

/// The largest compressed batch that the receiving worker decompresses itself, if its records have
/// at most [`DECOMPRESSED_INLINE_MAX`] bytes. Larger ones would delay the other connections of the
/// worker too long.
pub(crate) const COMPRESSED_INLINE_MAX: usize = 16 * 1024;

/// The largest uncompressed size that a worker decompresses itself: about 0.1 ms.
pub(crate) const DECOMPRESSED_INLINE_MAX: u64 = 256 * 1024;

/// The largest uncompressed size of the records of a batch: a thousand times the default of
/// `max.message.bytes`, and about a second of decompression.
pub(crate) const DECOMPRESSED_MAX: u64 = 1 << 30;

/// The number of records without a key that the response to a rejected batch names.
pub(crate) const RECORD_ERRORS_MAX: usize = 1000;

/// The number of threads that decompress batches. Each may hold a window of 128 MiB.
pub(crate) const DECOMPRESSING_MAX: usize = 2;

/// The time limit for pending responses when the broker stops: a fetch may wait for any time.
pub(crate) const LAST_ANSWERS_TIMEOUT: Duration = Duration::from_secs(2);

/// The number of requests of a connection that are processed concurrently. Kafka's Java producers
/// send 5, librdkafka without idempotence any number.
pub(crate) const REQUESTS_PENDING_MAX: usize = 64;

/// The memory of responses of a connection that wait for an earlier one, in bytes; one more
/// response may exceed it. At the limit no request of the connection is read or processed. Clients
/// pipeline requests with small responses; a description of a thousand topics has some hundred KiB.
pub(crate) const READY_BYTES_MAX: usize = 1 << 20;

/// The limits for the requests of a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct FrameLimits {
    /// The longest request, in bytes.
    pub(crate) bytes: usize,
    /// The number of requests that are processed concurrently.
    pub(crate) pending: usize,
}

impl FrameLimits {
    pub(crate) const USUAL: FrameLimits = FrameLimits {
        bytes: FRAME_BYTES_MAX,
        pending: REQUESTS_PENDING_MAX,
    };

    /// Before a login: one request at a time, since the next one may have no header, and of a size
    /// that takes no request memory. No message of a login is as long.
    pub(crate) const BEFORE_LOGIN: FrameLimits = FrameLimits {
        bytes: REQUEST_BYTES_FREE,
        pending: 1,
    };
}
