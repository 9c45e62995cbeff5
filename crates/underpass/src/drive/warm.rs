//! Files that are not in the page cache.
//!
//! Linux's sendfile blocks on the disk even where the socket would not, and there is no readiness
//! to wait for. So before a call the cache is asked, and what is missing is read by a blocking
//! thread. The thread sends the range to `/dev/null`: that waits for the pages and copies none of
//! them.

use std::fs::File;
use std::io::IoSliceMut;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{Advice, fadvise};
use rustix::io::{Errno, ReadWriteFlags, pread, preadv2};

use crate::limits::READ_AHEAD_BYTES;
use crate::sys;

/// Reads what is in the page cache; none where the disk would have to be waited for.
///
/// QUIRK(nowait-false-end): RWF_NOWAIT is unknown to some file systems (EOPNOTSUPP on tmpfs before
/// 6.x), and 5.9 and 5.10 may say 0 before the end of the file: a plain read decides then.
pub(crate) fn read_cached(
    file: &OwnedFd,
    buffer: &mut [u8],
    from: u64,
) -> Option<Result<usize, Errno>> {
    let mut slices = [IoSliceMut::new(buffer)];
    match preadv2(file, &mut slices, from, ReadWriteFlags::NOWAIT) {
        Err(Errno::AGAIN) => None,
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) | Ok(0) => {
            Some(pread(file, buffer, from))
        }
        result => Some(result),
    }
}

/// Whether a range is in the page cache. cachestat(2) tells exactly; where it is missing or only
/// the file's owner may ask, the first and the last byte stand for the range.
pub(crate) fn is_cached(file: &OwnedFd, from: u64, len: u64) -> bool {
    let page = rustix::param::page_size() as u64;
    let pages = (from + len).div_ceil(page) - from / page;
    match sys::cached_pages(file.as_fd(), from, len) {
        Ok(cached) => cached >= pages,
        Err(_) => is_byte_cached(file, from) && is_byte_cached(file, from + len.max(1) - 1),
    }
}

fn is_byte_cached(file: &OwnedFd, at: u64) -> bool {
    let mut byte = [0];
    preadv2(
        file,
        &mut [IoSliceMut::new(&mut byte)],
        at,
        ReadWriteFlags::NOWAIT,
    ) != Err(Errno::AGAIN)
}

/// Reads a range into the page cache on a blocking thread, and starts the disk on what follows it.
///
/// Errors are not told: the call that needs the bytes meets them again.
pub(crate) async fn read_ahead(file: &Arc<OwnedFd>, from: u64, len: u64) {
    let file = Arc::clone(file);
    let read = move || {
        let _hint = fadvise(
            &file,
            from + len,
            NonZeroU64::new(READ_AHEAD_BYTES),
            Advice::WillNeed,
        );
        let Ok(null) = File::options().write(true).open("/dev/null") else {
            return;
        };
        let (mut at, end) = (from, from + len);
        while at < end {
            let left = usize::try_from(end - at).unwrap_or(usize::MAX);
            match rustix::fs::sendfile(&null, &file, Some(&mut at), left) {
                Ok(0) => return,
                Ok(_) | Err(Errno::INTR) => (),
                Err(_) => return,
            }
        }
    };
    let _panicked = ::tokio::task::spawn_blocking(read).await;
}
