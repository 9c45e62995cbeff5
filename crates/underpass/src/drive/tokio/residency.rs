//! Queries whether ranges of files are in the page cache, and reads them into it.
//!
//! Linux's sendfile blocks on the disk even if the socket would not, and reports no readiness to
//! wait for. So the cache is queried before a call, and missing pages are read by a blocking
//! thread. The thread sends the range to `/dev/null`: that waits for the pages and copies none of
//! them.

use std::fs::File;
use std::io::IoSliceMut;
use std::num::NonZeroU64;
use std::os::fd::AsFd;
use std::sync::Arc;

use rustix::fs::{Advice, fadvise};
use rustix::io::{Errno, ReadWriteFlags, pread, preadv2};

use crate::shared_file::SharedFile;
use crate::sys;
use crate::vocabulary::limits::READ_AHEAD_BYTES;

/// Reads from the page cache; `None` if that would have to wait for the disk.
///
/// QUIRK(nowait-false-end): RWF_NOWAIT is unknown to some file systems (EOPNOTSUPP on tmpfs before
/// 6.x), and 5.9 and 5.10 may return 0 before the end of the file: a plain read decides then.
pub(crate) fn read_cached(
    file: &SharedFile,
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

/// Returns whether a range is in the page cache, completely read.
///
/// QUIRK(cached-not-read): cachestat(2) counts pages that the disk is still filling, and a call
/// that needs them waits. `RWF_NOWAIT` distinguishes these, but only for the bytes it reads. So
/// both are used: cachestat for gaps in the range, `RWF_NOWAIT` for its first and its last byte,
/// which the disk fills last. Without cachestat (since 6.13 it requires permission to write the
/// file), the two bytes stand for the range.
pub fn is_cached(file: impl AsFd, from: u64, len: u64) -> bool {
    let file = file.as_fd();
    let page = rustix::param::page_size() as u64;
    let pages = from.saturating_add(len).div_ceil(page) - from / page;
    let whole = match sys::cached_pages(file, from, len) {
        Ok(cached) => cached >= pages,
        Err(_) => true,
    };
    whole && is_byte_cached(file, from) && is_byte_cached(file, from + len.max(1) - 1)
}

fn is_byte_cached(file: impl AsFd, at: u64) -> bool {
    let mut byte = [0];
    preadv2(
        file,
        &mut [IoSliceMut::new(&mut byte)],
        at,
        ReadWriteFlags::NOWAIT,
    ) != Err(Errno::AGAIN)
}

/// Reads a range into the page cache on a blocking thread, and starts reading ahead after it.
///
/// Errors are ignored: the call that needs the bytes meets them again.
pub(crate) async fn read_ahead(file: &Arc<SharedFile>, from: u64, len: u64) {
    let file = Arc::clone(file);
    let read = move || {
        let end = from.saturating_add(len);
        let _hint = fadvise(
            &*file,
            end,
            NonZeroU64::new(READ_AHEAD_BYTES),
            Advice::WillNeed,
        );
        let Ok(null) = File::options().write(true).open("/dev/null") else {
            return;
        };
        let mut at = from;
        while at < end {
            let left = usize::try_from(end - at).unwrap_or(usize::MAX);
            match rustix::fs::sendfile(&null, &*file, Some(&mut at), left) {
                Ok(0) => return,
                Ok(_) | Err(Errno::INTR) => (),
                Err(_) => return,
            }
        }
    };
    let _panicked = ::tokio::task::spawn_blocking(read).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(len: usize) -> std::fs::File {
        let folder = underpass_testkit::disk_folder();
        let file = tempfile::tempfile_in(folder.path()).expect("a file");
        rustix::io::pwrite(&file, &vec![7; len], 0).expect("it is written");
        file
    }

    fn is_cached_in(file: &std::fs::File, from: u64, len: u64) -> bool {
        is_cached(file, from, len)
    }

    #[test]
    fn what_was_just_written_is_cached() {
        let file = written(3 << 20);
        assert!(is_cached_in(&file, 0, 3 << 20));
        assert!(is_cached_in(&file, 100, 1));
    }

    /// QUIRK(cached-not-read): a missing or incomplete page is not cached; one that was waited for
    /// is.
    #[test]
    fn cached_not_read() {
        let file = written(3 << 20);
        underpass_testkit::cool(&file, |file, from, len| is_cached(file, from, len));
        assert!(!is_cached_in(&file, 0, 3 << 20));
        let shared = SharedFile::new(file.try_clone().expect("a clone").into());
        let runtime = ::tokio::runtime::Builder::new_current_thread().build();
        runtime
            .expect("a runtime")
            .block_on(read_ahead(&shared, 0, 3 << 20));
        assert!(is_cached_in(&file, 0, 3 << 20));
    }
}
