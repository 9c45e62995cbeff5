//! Every bound of the HTTP engine, with its reason. Those of connections are in `underpass_net`.

use std::num::NonZeroU64;
use std::time::Duration;

use serde::Deserialize;

use crate::error::Error;

/// Fields of a request head. Browsers send about 15, chains of proxies some more.
pub(crate) const FIELDS_MAX: usize = 100;

/// Empty lines before a request line. RFC 9112, section 2.2, asks to skip at least one; old
/// clients sent one after a body.
pub(crate) const EMPTY_LINES_MAX: usize = 2;

/// Chunk extensions and trailers of one body. Nobody sends any.
pub(crate) const CHUNK_EXTRAS_BYTES_MAX: usize = 16 << 10;

/// How long an open file answers for its name without the name being resolved again. Long enough
/// that a popular file costs next to nothing, short enough that nobody waits for a new version.
pub(crate) const OPEN_FILE_KEPT: Duration = Duration::from_secs(1);

/// Files a worker keeps open. More than that many different ones a second are not worth keeping.
pub(crate) const OPEN_FILES_MAX: usize = 1024;

/// How often a name is resolved again after a concurrent rename got in the way.
pub(crate) const RESOLVE_TRIES_MAX: usize = 4;

/// A file changed less than this ago may change again without its date showing it, because HTTP's
/// dates count whole seconds. It gets no `Last-Modified`.
pub(crate) const DATE_SETTLES_AFTER: Duration = Duration::from_secs(2);

/// The bounds of requests.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Limits {
    /// A request line; a longer one gets 414. Browsers and proxies stay below 8,000 bytes
    /// (RFC 9112, section 3, asks to support at least that); twice as much costs nothing.
    pub line_bytes_max: usize,
    /// A whole request head; a larger one gets 431. Large cookies reach 8–16 KiB. A connection may
    /// hold as much memory.
    pub head_bytes_max: usize,
    /// From the first byte of a head to its last. A trickle does not extend it.
    #[serde(with = "humantime_serde")]
    pub head_timeout: Duration,
    /// For a request body that is thrown away.
    #[serde(with = "humantime_serde")]
    pub body_timeout: Duration,
    /// A request body that nobody wants is read and thrown away up to this, so that the connection
    /// can be kept; a longer one ends it. A new connection is cheaper than reading more.
    pub drained_bytes_max: u64,
    /// Requests on one connection; it is closed after the last one. No bound by default: a
    /// connection that goes on costs less than a new one. Behind something that spreads connections
    /// over servers, a bound spreads them anew.
    pub per_connection_max: Option<NonZeroU64>,
    /// Ranges in one request; more get the whole file. Readers of indexed formats ask for dozens.
    pub ranges_max: usize,
    /// Ranges in one request that are not in ascending order; more get the whole file. Players ask
    /// for a tail and a head, attacks for many.
    pub unsorted_ranges_max: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            line_bytes_max: 16 << 10,
            head_bytes_max: 32 << 10,
            head_timeout: Duration::from_secs(20),
            body_timeout: Duration::from_secs(20),
            drained_bytes_max: 64 << 10,
            per_connection_max: None,
            ranges_max: 128,
            unsorted_ranges_max: 16,
        }
    }
}

/// Where a request stands on its connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Place {
    /// Another one may follow.
    Among,
    /// It is the last one that is answered.
    Last,
}

impl Limits {
    /// The place of the request with this number, the first being 1.
    pub(crate) fn place(&self, number: u64) -> Place {
        match self.per_connection_max {
            Some(max) if number >= max.get() => Place::Last,
            _ => Place::Among,
        }
    }

    /// Looks for limits that contradict each other or leave no request.
    ///
    /// # Errors
    /// [`Error::Limits`]: which, and what to change.
    pub(crate) fn check(&self, input_bytes_max: usize) -> Result<(), Error> {
        let what = if self.line_bytes_max < LINE_BYTES_MAX_MIN {
            "requests.line-bytes-max is less than 64: no request would fit"
        } else if self.head_bytes_max < self.line_bytes_max.saturating_add(HEAD_BYTES_MORE) {
            "requests.head-bytes-max has no room for requests.line-bytes-max and 64 bytes more"
        } else if input_bytes_max < self.head_bytes_max {
            "connections.input-bytes-max is less than requests.head-bytes-max; raise it as well"
        } else {
            return Ok(());
        };
        Err(Error::Limits { what })
    }
}

/// `GET / HTTP/1.1` and some room.
const LINE_BYTES_MAX_MIN: usize = 64;

/// A `Host` at least.
const HEAD_BYTES_MORE: usize = 64;
