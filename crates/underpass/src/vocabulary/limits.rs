//! The limits of the mover, with their reasons.

use std::time::Duration;

/// The maximum that one `sendfile`, `splice`, `copy_file_range`, `read` or `write` moves: the
/// kernel cuts larger counts to this (`MAX_RW_COUNT`, sendfile(2)).
pub const KERNEL_CALL_BYTES_MAX: u64 = 0x7fff_f000;

/// The size of one call between files. Small enough for progress and cancelling within
/// milliseconds, large enough that the calls themselves cost nothing measurable.
pub const FILE_CALL_BYTES_MAX: u64 = 8 << 20;

/// The size of one blocking call to or from a socket: deadlines see progress this often.
pub const STREAM_CALL_BYTES_MAX: u64 = 4 << 20;

/// The bytes one connection may send before an event loop serves the others, if there are few. A
/// fast reader takes this in a fifth of a millisecond; smaller turns cost more calls.
pub const TURN_BYTES_MAX: u64 = 2 << 20;

/// The same if there are many: large enough that the calls cost at most a tenth of the moving.
pub const TURN_BYTES_MIN: u64 = 256 << 10;

/// The buffer of the read/write mechanism: fits the second-level cache of most cores; larger ones
/// gain nothing.
pub const BUFFER_BYTES: usize = 256 << 10;

/// The alignment of such a buffer in memory, a cache line: unaligned, the processor copies between
/// it and the page cache a third slower (AMD EPYC).
pub const BUFFER_ALIGNMENT: usize = 64;

/// The smallest block of zeros that is searched for: no disk has smaller ones.
pub const ZERO_BLOCK_BYTES_MIN: u64 = 512;

/// The size requested for a pipe: with the default of 64 KiB, splicing from a socket gains next to
/// nothing over reading. It is also the maximum for an unprivileged user
/// (`/proc/sys/fs/pipe-max-size`).
pub const PIPE_BYTES: usize = 1 << 20;

/// Ranges of a file of at least this size go into a TCP socket or a file by splice first:
/// `sendfile` uses an internal pipe of 16 pages, and splice through one of [`PIPE_BYTES`] costs a
/// tenth less processor time, on XFS a fifth. Below this size little could be measured.
pub const SPLICED_BYTES_MIN: u64 = 256 << 10;

/// The maximum that one splice moves between files: the size of a write, by which file systems
/// allocate memory for the copy. 1 MiB takes no less processor time, and up to three times as much
/// if a virtual machine has reported its larger free blocks to the host (docs/kernel-notes.md).
pub const SPLICED_WRITE_BYTES_MAX: u64 = 256 << 10;

/// A TCP socket is corked before a range of a file of at least this size: that saves 4 to 16
/// percent of the processor time under cubic (1 MiB, 1 to 64 connections). It costs two calls, and
/// at 256 KiB more than it saves.
pub const CORKED_BYTES_MIN: u64 = 512 << 10;

/// The same if bbr paces the socket. A cork halves the processor time of 1 GiB. For shorter ranges
/// it can double or reduce it, depending on the processor (docs/kernel-notes.md).
pub const CORKED_BYTES_MIN_UNDER_BBR: u64 = 256 << 20;

/// The limit on unsent bytes in a TCP socket that bbr paces and whose peer is on the same machine
/// (`TCP_NOTSENT_LOWAT`), set before the first range of at least [`CORKED_BYTES_MIN`] or that takes
/// several turns. A socket that is empty at its next turn keeps its rate; one that never is, has a
/// timer for each packet.
pub const UNSENT_BYTES_MAX_UNDER_BBR: u32 = 32 << 10;

/// The largest turn of such a socket. For 1 MiB, half of it costs 7 % more processor time.
pub const TURN_BYTES_MAX_UNDER_BBR: u64 = 512 << 10;

/// The number of pipes of a kernel, in use or idle, beyond which large ranges go by `sendfile`
/// first. A user may own 64 MiB of pipe pages before the kernel shrinks new pipes to two pages
/// (`/proc/sys/fs/pipe-user-pages-soft`); slow readers keep theirs for long.
pub const PIPES_MAX: usize = 16;

/// A write of up to [`PIPE_BYTES`] to the page cache takes less; a longer one was throttled.
pub const SLOW_WRITE: Duration = Duration::from_millis(2);

/// After a slow write, another thread makes this many before the event loop tries again. Throttled
/// writers are held up for up to 200 ms at a time, others should not wait for it often.
pub const WRITES_APART: u32 = 64;

/// The bytes that a thread receives into a file before the event loop looks at the transfer again:
/// many writes, so that waking the thread and the loop costs little, and less than a second of a
/// slow disk.
pub const APART_BYTES_MAX: u64 = 16 << 20;

/// Idle buffers kept for reuse: enough for the threads that copy in parallel, 2 MiB in total. A new
/// one is mapped, zeroed and unmapped again, which a small file notices.
pub const IDLE_BUFFERS_MAX: usize = 8;

/// Head and body of at most this size in total leave in one call, the body read after the head.
/// `underpass bench small` shows the size at which separate calls become cheaper on a machine.
pub const JOINED_BYTES_MAX: u64 = 8 << 10;

/// The largest head buffer an outbox keeps for reuse: it bounds the cost of an idle connection.
pub const SPARE_BYTES_MAX: usize = 4 << 10;

/// The size of one read-ahead for a file that is not in the page cache: long enough to keep a disk
/// busy, short enough that a connection's first byte does not wait for it.
pub const READ_AHEAD_BYTES: u64 = 2 << 20;

/// The time for which a cached part of a file is assumed to stay cached. Pages of a file that is
/// being sent are the last to be dropped; a wrong guess costs one wait for the disk.
pub const CACHED_KEPT: Duration = Duration::from_secs(1);

/// Remembered refusals (of a device pair) per kernel. A machine with more pairs only makes more
/// attempts.
pub const REMEMBERED_REFUSALS_MAX: usize = 1024;

/// Distinct refusals an account lists; further ones are only counted.
pub const LISTED_REFUSALS_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_hold_what_is_spliced_and_buffers_a_head() {
        let turns = [TURN_BYTES_MIN, TURN_BYTES_MAX_UNDER_BBR, TURN_BYTES_MAX];
        let spliced = [SPLICED_BYTES_MIN, TURN_BYTES_MIN, TURN_BYTES_MAX];
        let pipes = [SPLICED_WRITE_BYTES_MAX, PIPE_BYTES as u64, TURN_BYTES_MAX];
        let calls = [
            BUFFER_BYTES as u64,
            STREAM_CALL_BYTES_MAX,
            FILE_CALL_BYTES_MAX,
        ];
        let heads = [1024, SPARE_BYTES_MAX as u64, JOINED_BYTES_MAX];
        let reads = [BUFFER_BYTES as u64, READ_AHEAD_BYTES, FILE_CALL_BYTES_MAX];
        for ascending in [turns, spliced, pipes, calls, reads, heads] {
            assert!(ascending.is_sorted(), "{ascending:?}");
        }
    }
}
