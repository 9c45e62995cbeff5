//! Times in milliseconds since 1970, as in Kafka's records.

use std::fs;
use std::io;
use std::path::Path;
use std::time::SystemTime;

/// Returns the present time.
pub(crate) fn unix_ms() -> i64 {
    since_1970(SystemTime::now())
}

/// Returns the modification time of a file.
pub(crate) fn modified_ms(path: &Path) -> io::Result<i64> {
    Ok(since_1970(fs::metadata(path)?.modified()?))
}

fn since_1970(time: SystemTime) -> i64 {
    let since = time
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
