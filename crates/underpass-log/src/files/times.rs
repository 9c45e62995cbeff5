//! Times in milliseconds since 1970, as in Kafka's records.

use std::io;
use std::os::fd::AsFd;
use std::time::SystemTime;

use rustix::fs::fstat;

/// Returns the present time.
pub(crate) fn unix_ms() -> i64 {
    since_1970(SystemTime::now())
}

/// Returns the modification time of an open file.
pub(crate) fn modified_ms(file: impl AsFd) -> io::Result<i64> {
    let found = fstat(file)?;
    Ok(found.st_mtime.saturating_mul(1000) + (found.st_mtime_nsec / 1_000_000) as i64)
}

fn since_1970(time: SystemTime) -> i64 {
    let since = time
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
