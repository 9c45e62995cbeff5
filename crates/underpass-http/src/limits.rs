//! The limits of messages, with their reasons.

use std::time::Duration;

/// Fields of a request head. Browsers send about 15, chains of proxies some more.
pub const FIELDS_MAX: usize = 100;

/// Empty lines before a request line. RFC 9112, section 2.2, asks to skip at least one; old
/// clients sent one after a body.
pub const EMPTY_LINES_MAX: usize = 2;

/// Chunk extensions and trailers of one body. Clients hardly ever send any.
pub const CHUNK_EXTRAS_BYTES_MAX: usize = 16 << 10;

/// The minimum age of a change for `Last-Modified`. HTTP dates count whole seconds, so a file that
/// changed later may change again without its date showing it.
pub const DATE_SETTLES_AFTER: Duration = Duration::from_secs(2);

/// Ranges in one request that are not in ascending order; more get the whole file. Players ask for
/// a tail and a head, attacks for many.
pub const UNSORTED_RANGES_MAX: usize = 16;

/// Interim responses before the final one. Servers send one or two (100, 103, 104); a long upload
/// may get some more.
pub const INTERIM_RESPONSES_MAX: usize = 100;

/// The limits of a request head.
#[derive(Clone, Copy, Debug)]
pub struct HeadLimits {
    /// The length of a request line; a longer one gets 414. At least 64.
    pub line_bytes_max: usize,
    /// The size of a head; a larger one gets 431. At least 64 more than a line.
    pub head_bytes_max: usize,
}

impl Default for HeadLimits {
    fn default() -> HeadLimits {
        HeadLimits {
            line_bytes_max: 16 << 10,
            head_bytes_max: 32 << 10,
        }
    }
}
