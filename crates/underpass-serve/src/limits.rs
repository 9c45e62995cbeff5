//! Every bound of the HTTP engine, with its reason. Bounds of connections are in `underpass_net`.

use std::num::NonZeroU64;
use std::time::Duration;

use serde::Deserialize;
use underpass_net::{INPUT_BYTES_MAX, size};

use crate::error::Error;

/// Fields of a request head. Browsers send about 15, chains of proxies some more.
pub(crate) const FIELDS_MAX: usize = 100;

/// Empty lines before a request line. RFC 9112, section 2.2, asks to skip at least one; old
/// clients sent one after a body.
pub(crate) const EMPTY_LINES_MAX: usize = 2;

/// Chunk extensions and trailers of one body. Clients hardly ever send any.
pub(crate) const CHUNK_EXTRAS_BYTES_MAX: usize = 16 << 10;

/// How long an open file is used before its name is resolved again. Long enough that a popular file
/// costs next to nothing, short enough that a new version shows soon.
pub(crate) const OPEN_FILE_KEPT: Duration = Duration::from_secs(1);

/// Files of a site that a worker keeps open. More than that many different ones a second are not
/// worth keeping.
pub(crate) const OPEN_FILES_MAX: usize = 1024;

/// A file whose content is kept in memory while it is kept open. Larger ones leave by sendfile,
/// which costs less than copying them.
pub(crate) const CONTENT_BYTES_MAX: u64 = 16 << 10;

/// Events about files that are read at a time: each is 16 bytes, without a name.
pub(crate) const WATCH_EVENTS_BYTES: usize = 4 << 10;

/// Candidates in a `try` list. Each costs one or more file system lookups for every request.
pub(crate) const TRIED_FILES_MAX: usize = 16;

/// How often a file is opened where descriptors are short, before the request is answered with 503:
/// each time one idle connection is closed, or a tenth of a second passes.
pub(crate) const OPEN_ATTEMPTS_MAX: u32 = 12;

/// How often a name is resolved again after a concurrent rename got in the way.
pub(crate) const RESOLVE_TRIES_MAX: usize = 4;

/// How often that is done once more for a link in a folder that is listed or sent as an archive.
/// Renames anywhere on the system get in the way of links that climb.
pub(crate) const LINK_TRIES_MAX: usize = 64;

/// A file changed less than this ago may change again without its date showing it, because HTTP's
/// dates count whole seconds. It gets no `Last-Modified`.
pub(crate) const DATE_SETTLES_AFTER: Duration = Duration::from_secs(2);

/// Different refusals (mechanism and cause) that a worker counts apart. A machine shows one or two.
pub(crate) const TALLIED_REFUSALS_MAX: usize = 16;

/// How long the log's thread waits for more lines after the first one. It bounds how often the
/// thread wakes and writes, and is too short to be noticed by a reader.
pub(crate) const LOG_LINGER: Duration = Duration::from_millis(50);

/// How long a worker that ends waits for its lines to be written. A disk that takes longer has
/// lost them.
pub(crate) const LOG_SETTLE_TIMEOUT: Duration = Duration::from_secs(5);

/// Entries of a folder that are sorted before they are listed. More rows are not read by people,
/// and these take a few megabytes at most.
pub(crate) const LISTED_ENTRIES_MAX: usize = 20_000;
/// What the entries of all listings of a worker take in memory together. Beyond it rows are sent as
/// they are read.
pub(crate) const LISTED_BYTES_MAX: usize = 32 << 20;
/// Names of a folder that are looked at before something is sent. A look at a cold disk takes some
/// milliseconds, so a client waits for a few seconds at most between two bytes.
pub(crate) const LOOKS_PER_BATCH: usize = 512;
/// Bytes made in memory before they are sent. More would not be any faster.
pub(crate) const BATCH_BYTES_MAX: usize = 64 << 10;
/// Files of an archive that are open at once.
pub(crate) const ARCHIVE_RANGES_PER_BATCH: usize = 8;
/// Folders within folders of an archive; each is a descriptor that stays open.
pub(crate) const ARCHIVE_DEPTH_MAX: usize = 64;
/// Descriptors that an archive may have open: its folder, the folders within, and files. It starts
/// only where its worker has so many left.
pub(crate) const ARCHIVE_DESCRIPTORS: usize = 1 + ARCHIVE_DEPTH_MAX + ARCHIVE_RANGES_PER_BATCH;
/// Archives that one worker makes at once.
pub(crate) const ARCHIVES_MAX: usize = 16;
/// Names of what was left out of an archive, kept until its end.
pub(crate) const LEFT_OUT_BYTES_MAX: usize = 64 << 10;
/// Answers that one worker compresses at once: each holds up to 4 MiB until its last byte is
/// compressed. Beyond that, files are sent as they are.
pub(crate) const COMPRESSIONS_MAX: usize = 16;
/// Those of them that one worker compresses at the same moment. The others wait for their turn, and
/// most of a worker's threads for disks are left to listings, archives and cold files.
pub(crate) const COMPRESSING_MAX: usize = 2;
/// How long a turn of compressing is, checked after each piece of [`READ_BYTES`]. Sixteen bodies
/// have one each within the blink of an eye.
pub(crate) const COMPRESSING_TURN: Duration = Duration::from_millis(4);
/// Content read at once for hashing or compressing: fits into a core's cache.
pub(crate) const READ_BYTES: usize = 128 << 10;
/// What `Retry-After` says with 503, in seconds: long enough for an archive or a listing to leave.
pub(crate) const RETRY_AFTER_SECONDS: u64 = 5;
/// Files hashed at once by a whole server, beside one small one. The processor is for the others.
pub(crate) const DIGESTS_AT_ONCE_MAX: usize = 2;
/// A file of at most this size is small: it is hashed in a few milliseconds.
pub(crate) const DIGEST_SMALL_BYTES_MAX: u64 = 1 << 20;
/// Requests that wait until another file is hashed, one of its size.
pub(crate) const DIGESTS_WAITING_MAX: usize = 64;
/// Hashes remembered, of 150 bytes or so each.
pub(crate) const DIGESTS_KEPT_MAX: usize = 1024;

/// A password file, a token file or a key of links. The largest has a line of about 120 bytes for
/// each of its entries.
pub(crate) const ACCESS_FILE_BYTES_MAX: u64 = 16 << 20;
/// Users or tokens of one file.
pub(crate) const ACCESS_ENTRIES_MAX: usize = 100_000;
/// How often files of users, tokens and keys are looked at for changes: who is removed is locked
/// out soon, and a look costs nothing.
pub(crate) const ACCESS_FILES_INTERVAL: Duration = Duration::from_secs(1);
/// The shortest key of signed links, which HMAC-SHA-256 wants to be as long as its hash; 32 bytes
/// in base64 are longer.
pub(crate) const LINK_KEY_BYTES_MIN: usize = 32;
/// How long a browser keeps the cookie of a signed folder: a day's work. The link renews it.
pub(crate) const LINK_COOKIE_AGE_MAX: Duration = Duration::from_secs(12 * 60 * 60);
/// Cookies of signed folders that are verified in one request: a browser has one for each folder
/// above a path. Each costs a hash for each key.
pub(crate) const LINK_COOKIES_MAX: usize = 8;
/// Memory that verifying one argon2id hash may take, in KiB; one thread verifies one at a time.
pub(crate) const ARGON2_MEMORY_KIB_MAX: u32 = 256 << 10;
/// Passes over it.
pub(crate) const ARGON2_PASSES_MAX: u32 = 16;
/// The cost of a bcrypt hash, doubled by each step: about two seconds of a processor.
pub(crate) const BCRYPT_COST_MAX: u32 = 15;
/// How long a worker remembers that a password was right. A file that changes ends it at once.
pub(crate) const LOGIN_KEPT: Duration = Duration::from_secs(300);
/// Logins remembered, of about 100 bytes each.
pub(crate) const LOGINS_KEPT_MAX: usize = 4096;
/// Logins that wait to be verified. More would wait longer than people do.
pub(crate) const LOGINS_WAITING_MAX: usize = 64;
/// Threads that verify passwords, half of the processors at most.
pub(crate) const LOGIN_THREADS_MAX: usize = 4;
/// Wrong passwords that a client may show at once: people mistype, and browsers ask in parallel.
pub(crate) const LOGIN_FAILURES_AT_ONCE: u32 = 10;
/// How often it may show one more after that.
pub(crate) const LOGIN_FAILURE_INTERVAL: Duration = Duration::from_secs(5);
/// Clients whose wrong passwords are counted; more count as one. About 32 bytes each.
pub(crate) const LOGIN_CLIENTS_MAX: usize = 16_384;
/// How often a link is followed on the way to one file, as in the kernel (path_resolution(7)).
pub(crate) const LINKS_FOLLOWED_MAX: usize = 40;

/// The bounds of requests.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct RequestLimits {
    /// A request line; a longer one gets 414. Browsers and proxies stay below 8,000 bytes
    /// (RFC 9112, section 3, asks to support at least that); twice as much costs nothing.
    #[serde(deserialize_with = "size::bytes")]
    pub line_bytes_max: usize,
    /// A whole request head; a larger one gets 431. Large cookies reach 8–16 KiB. A connection may
    /// hold as much memory.
    #[serde(deserialize_with = "size::bytes")]
    pub head_bytes_max: usize,
    /// From the first byte of a head to its last. A trickle does not extend it.
    #[serde(with = "humantime_serde")]
    pub head_timeout: Duration,
    /// For a request body that is thrown away.
    #[serde(with = "humantime_serde")]
    pub body_timeout: Duration,
    /// Requests on one connection; it is closed after the last one. No bound by default: a
    /// connection that goes on costs less than a new one. Behind something that spreads connections
    /// over servers, a bound spreads them anew.
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

/// Bytes of lines of the access log that may wait for the disk, for each worker: about 20,000
/// lines. Further ones are dropped and counted: a full or stuck disk must not stop the server.
pub(crate) const LOG_QUEUE_BYTES_MAX: usize = 4 << 20;

/// A request body is read and discarded up to this length, so that the connection can be kept; a
/// longer one closes it. A new connection is cheaper than reading more.
pub(crate) const DRAINED_BYTES_MAX: u64 = 64 << 10;

/// Ranges in one request that are not in ascending order; more get the whole file. Players ask for
/// a tail and a head, attacks for many.
pub(crate) const UNSORTED_RANGES_MAX: usize = 16;

/// `GET / HTTP/1.1` and some room.
const LINE_BYTES_MAX_MIN: usize = 64;

/// A `Host` at least.
const HEAD_BYTES_MORE: usize = 64;
