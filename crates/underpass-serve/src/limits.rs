//! The limits of the HTTP engine, with their reasons. Limits of connections are in `underpass_net`.

use std::num::NonZeroU64;
use std::time::Duration;

use serde::Deserialize;
use underpass_http::limits::HeadLimits;
use underpass_http::status::{HttpError, Status};
use underpass_net::{INPUT_BYTES_MAX, size};

use crate::error::Error;

/// The time for which an open file is used before its name is resolved again. Long enough that a
/// popular file costs next to nothing, short enough that a new version shows soon.
pub(crate) const OPEN_FILE_KEPT: Duration = Duration::from_secs(1);

/// Files of a site that a worker keeps open. If more are requested within a second, keeping them
/// open is not worthwhile.
pub(crate) const OPEN_FILES_MAX: usize = 1024;

/// The largest file whose content is cached in memory while it is kept open. Larger ones are sent
/// by sendfile, which costs less than copying them.
pub(crate) const CONTENT_BYTES_MAX: u64 = 16 << 10;

/// The buffer for file events: each event takes 16 bytes, without a name.
pub(crate) const WATCH_EVENTS_BYTES: usize = 4 << 10;

/// Candidates in a `try` list. Each costs one or more file system lookups for every request.
pub(crate) const TRIED_FILES_MAX: usize = 16;

/// Attempts to open a file while descriptors are short, before the response is 503: for each, one
/// idle connection is closed, or a tenth of a second passes.
pub(crate) const OPEN_ATTEMPTS_MAX: u32 = 12;

/// Attempts to resolve a name that a concurrent rename interferes with.
pub(crate) const RESOLVE_TRIES_MAX: usize = 4;

/// The same for links in a folder that is listed or archived. Renames anywhere on the system
/// interfere with links that contain `..`.
pub(crate) const LINK_TRIES_MAX: usize = 64;

/// Distinct refusals (mechanism and cause) that a worker counts separately. One or two are usual.
pub(crate) const TALLIED_REFUSALS_MAX: usize = 16;

/// The time the log thread waits for more lines after the first one. It limits how often the thread
/// wakes and writes, and is too short to be noticed by a reader.
pub(crate) const LOG_LINGER: Duration = Duration::from_millis(50);

/// The time a worker that ends waits for its lines to be written. After that they are lost.
pub(crate) const LOG_SETTLE_TIMEOUT: Duration = Duration::from_secs(5);

/// Entries of a folder that are sorted before they are listed. People do not read more rows, and
/// these take a few megabytes at most.
pub(crate) const LISTED_ENTRIES_MAX: usize = 20_000;
/// The memory for the entries of all listings of a worker together. Beyond it, rows are sent as
/// they are read.
pub(crate) const LISTED_BYTES_MAX: usize = 32 << 20;
/// Names of a folder that are examined before something is sent. With a cold disk each takes some
/// milliseconds, so a client waits for a few seconds at most between two bytes.
pub(crate) const LOOKS_PER_BATCH: usize = 512;
/// Bytes produced in memory before they are sent. More would not be any faster.
pub(crate) const BATCH_BYTES_MAX: usize = 64 << 10;
/// Files of an archive that are open concurrently.
pub(crate) const ARCHIVE_RANGES_PER_BATCH: usize = 8;
/// The nesting depth of folders in an archive; each level keeps a descriptor open.
pub(crate) const ARCHIVE_DEPTH_MAX: usize = 64;
/// Descriptors that an archive may have open: its folder, the folders within, and files. It starts
/// only if its worker has as many left.
pub(crate) const ARCHIVE_DESCRIPTORS: usize = 1 + ARCHIVE_DEPTH_MAX + ARCHIVE_RANGES_PER_BATCH;
/// Archives that one worker produces concurrently.
pub(crate) const ARCHIVES_MAX: usize = 16;
/// Bytes of the names omitted from an archive, kept until its end.
pub(crate) const LEFT_OUT_BYTES_MAX: usize = 64 << 10;
/// Responses that one worker compresses concurrently: each holds up to 4 MiB until its last byte is
/// compressed. Beyond that, files are sent uncompressed.
pub(crate) const COMPRESSIONS_MAX: usize = 16;
/// Responses that one worker compresses at the same moment. The others wait for their turn, and
/// most of a worker's disk threads remain for listings, archives and cold files.
pub(crate) const COMPRESSING_MAX: usize = 2;
/// The duration of a compression turn, checked after each piece of [`READ_BYTES`]. Sixteen bodies
/// get a turn each within a fraction of a second.
pub(crate) const COMPRESSING_TURN: Duration = Duration::from_millis(4);
/// The read size for hashing and compressing: fits into a core's cache.
pub(crate) const READ_BYTES: usize = 128 << 10;
/// The `Retry-After` of a 503, in seconds: long enough for an archive or a listing to finish.
pub(crate) const RETRY_AFTER_SECONDS: u64 = 5;
/// Files that a server hashes concurrently, in addition to one small file. Saves processor time.
pub(crate) const DIGESTS_AT_ONCE_MAX: usize = 2;
/// A file of at most this size is small: it is hashed in a few milliseconds.
pub(crate) const DIGEST_SMALL_BYTES_MAX: u64 = 1 << 20;
/// Requests that wait for a hash, per size class.
pub(crate) const DIGESTS_WAITING_MAX: usize = 64;
/// Hashes remembered, of 150 bytes or so each.
pub(crate) const DIGESTS_KEPT_MAX: usize = 1024;

/// The size of a password, token or key file. The largest has a line of about 120 bytes per entry.
pub(crate) const ACCESS_FILE_BYTES_MAX: u64 = 16 << 20;
/// Users or tokens of one file.
pub(crate) const ACCESS_ENTRIES_MAX: usize = 100_000;
/// The interval at which the files of users, tokens and keys are checked for changes: a removed
/// user is locked out soon, and a check costs nothing.
pub(crate) const ACCESS_FILES_INTERVAL: Duration = Duration::from_secs(1);
/// The shortest key of signed links. For HMAC-SHA-256 it should be as long as the hash; 32 bytes in
/// base64 are longer.
pub(crate) const LINK_KEY_BYTES_MIN: usize = 32;
/// The maximum age of the cookie of a signed folder: a working day. The link renews it.
pub(crate) const LINK_COOKIE_AGE_MAX: Duration = Duration::from_secs(12 * 60 * 60);
/// Cookies of signed folders that are verified per request: a browser has one for each parent
/// folder of a path. Each costs one hash per key.
pub(crate) const LINK_COOKIES_MAX: usize = 8;
/// Memory that verifying one argon2id hash may take, in KiB; one thread verifies one at a time.
pub(crate) const ARGON2_MEMORY_KIB_MAX: u32 = 256 << 10;
/// Passes over that memory.
pub(crate) const ARGON2_PASSES_MAX: u32 = 16;
/// The cost of a bcrypt hash, doubled by each step: about two seconds of a processor.
pub(crate) const BCRYPT_COST_MAX: u32 = 15;
/// The time for which a worker remembers a verified login. A file change ends it immediately.
pub(crate) const LOGIN_KEPT: Duration = Duration::from_secs(300);
/// Logins remembered, of about 100 bytes each.
pub(crate) const LOGINS_KEPT_MAX: usize = 4096;
/// Logins that wait to be verified. People would not wait for more.
pub(crate) const LOGINS_WAITING_MAX: usize = 64;
/// Threads that verify passwords, half of the processors at most.
pub(crate) const LOGIN_THREADS_MAX: usize = 4;
/// Wrong passwords that a client may send in a burst: people mistype, browsers ask in parallel.
pub(crate) const LOGIN_FAILURES_AT_ONCE: u32 = 10;
/// The interval after which a client may send one more.
pub(crate) const LOGIN_FAILURE_INTERVAL: Duration = Duration::from_secs(5);
/// Clients whose wrong passwords are counted; more count as one. About 32 bytes each.
pub(crate) const LOGIN_CLIENTS_MAX: usize = 16_384;
/// Links followed to find one file, as in the kernel (path_resolution(7)).
pub(crate) const LINKS_FOLLOWED_MAX: usize = 40;

/// The limits of requests.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct RequestLimits {
    /// The length of a request line; a longer one gets 414. Browsers and proxies stay below 8,000
    /// bytes (RFC 9112, section 3, asks to support at least that); twice as much costs nothing.
    #[serde(deserialize_with = "size::bytes")]
    pub line_bytes_max: usize,
    /// The size of a request head; a larger one gets 431. Large cookies reach 8–16 KiB. A
    /// connection may hold as much memory.
    #[serde(deserialize_with = "size::bytes")]
    pub head_bytes_max: usize,
    /// The time from the first byte of a head to its last. A trickle does not extend it.
    #[serde(with = "humantime_serde")]
    pub head_timeout: Duration,
    /// The time to receive a request body that is discarded.
    #[serde(with = "humantime_serde")]
    pub body_timeout: Duration,
    /// Requests per connection; it is closed after the last one. Unlimited by default: keeping a
    /// connection open costs less than a new one. Behind a load balancer, a limit redistributes
    /// connections among servers.
    pub per_connection_max: Option<NonZeroU64>,
    /// Ranges in one request; more get the whole file. Readers of indexed formats ask for dozens.
    pub ranges_max: usize,
}

impl Default for RequestLimits {
    fn default() -> RequestLimits {
        RequestLimits {
            line_bytes_max: 16 << 10,
            head_bytes_max: 32 << 10,
            head_timeout: Duration::from_secs(20),
            body_timeout: Duration::from_secs(20),
            per_connection_max: None,
            ranges_max: 128,
        }
    }
}

impl RequestLimits {
    /// Returns the limits of a head.
    pub(crate) fn head(&self) -> HeadLimits {
        HeadLimits {
            line_bytes_max: self.line_bytes_max,
            head_bytes_max: self.head_bytes_max,
        }
    }

    /// Checks for limits that contradict each other or admit no request.
    ///
    /// # Errors
    /// [`Error::Limits`]: which, and what to change.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let what = if self.line_bytes_max < LINE_BYTES_MAX_MIN {
            "requests.line-bytes-max is less than 64, too small for any request"
        } else if self.head_bytes_max < self.line_bytes_max.saturating_add(HEAD_BYTES_MORE) {
            "requests.head-bytes-max is less than requests.line-bytes-max + 64"
        } else if self.head_bytes_max > INPUT_BYTES_MAX {
            "requests.head-bytes-max is more than 65536, what a connection has room for"
        } else {
            return Ok(());
        };
        Err(Error::Limits { what })
    }
}

/// The limit of concurrently produced or hashed bodies is reached.
pub(crate) const BUSY: HttpError = HttpError::new(
    Status::ServiceUnavailable,
    "too many responses of this kind are in progress; try again later",
);

/// How often expired uploads are removed.
pub(crate) const SWEEP_INTERVAL: Duration = Duration::from_secs(60);

/// Bytes of queued lines of the access log per worker, about 20,000 lines. Further lines are
/// dropped and counted: a full or stuck disk must not stop the server.
pub(crate) const LOG_QUEUE_BYTES_MAX: usize = 4 << 20;

/// A request body is read and discarded up to this length, so that the connection can be kept; a
/// longer one closes it. A new connection is cheaper than reading more.
pub(crate) const DRAINED_BYTES_MAX: u64 = 64 << 10;

/// The length of `GET / HTTP/1.1`, and a reserve.
const LINE_BYTES_MAX_MIN: usize = 64;

/// The minimum size of the fields: a `Host`.
const HEAD_BYTES_MORE: usize = 64;
