//! Every bound of the mover, with its reason.

use std::time::Duration;

/// What one `sendfile`, `splice`, `copy_file_range`, `read` or `write` moves at the most: the
/// kernel cuts larger counts to this (`MAX_RW_COUNT`, sendfile(2)).
pub const KERNEL_CALL_BYTES_MAX: u64 = 0x7fff_f000;

/// One call between files. Small enough that progress and cancelling follow within milliseconds,
/// large enough that the calls themselves cost nothing measurable.
pub const FILE_CALL_BYTES_MAX: u64 = 8 << 20;

/// One call towards or from a socket on a thread of its own: deadlines see progress this often.
pub const STREAM_CALL_BYTES_MAX: u64 = 4 << 20;

/// What one connection may send before an event loop turns to the others, when there are few of
/// them. A fast reader takes this in a fifth of a millisecond; smaller turns cost more calls.
pub const TURN_BYTES_MAX: u64 = 2 << 20;

/// The same when there are many: enough that the calls cost a tenth of the moving at most.
pub const TURN_BYTES_MIN: u64 = 256 << 10;

/// The buffer of the read/write mechanism: fits the second-level cache of most cores, and larger
/// ones gain nothing.
pub const BUFFER_BYTES: usize = 256 << 10;

/// Where in memory such a buffer begins, a multiple of a cache line: elsewhere the processor copies
/// between it and the page cache a third slower (AMD EPYC).
pub const BUFFER_ALIGNMENT: usize = 64;

/// The smallest block of zeros that is looked for: no disk has smaller ones.
pub const ZERO_BLOCK_BYTES_MIN: u64 = 512;

/// The size requested for a pipe: with the default of 64 KiB splicing from a socket gains next to
/// nothing over reading. It is also what an unprivileged user may have
/// (`/proc/sys/fs/pipe-max-size`).
pub const PIPE_BYTES: usize = 1 << 20;

/// A range of a file of so many bytes goes into a TCP socket or a file by splice first: `sendfile`
/// has a pipe of its own, of 16 pages, and splice through one of [`PIPE_BYTES`] costs a tenth less
/// processor time, on XFS a fifth. Below little could be measured.
pub const SPLICED_BYTES_MIN: u64 = 256 << 10;

/// What splice moves at once between files: a write of so many bytes, by which file systems
/// allocate memory for the copy. 1 MiB takes no less processor time, and up to three times as much
/// where a virtual machine has reported its larger free blocks to the host (docs/kernel-notes.md).
pub const SPLICED_WRITE_BYTES_MAX: u64 = 256 << 10;

/// A TCP socket is corked before a range of a file of at least so many bytes: that saves 4 to 16
/// hundredths of the processor time under cubic (1 MiB, 1 to 64 connections). It costs two calls,
/// and at 256 KiB more than it saves.
pub const CORKED_BYTES_MIN: u64 = 512 << 10;

/// The same where bbr paces the socket. A cork halves the processor time of 1 GiB. That of shorter
/// ranges it can double, or reduce, depending on the processor (docs/kernel-notes.md).
pub const CORKED_BYTES_MIN_UNDER_BBR: u64 = 256 << 20;

/// What may wait in a TCP socket that bbr paces and whose peer is on the same machine
/// (`TCP_NOTSENT_LOWAT`), set before the first range of at least [`CORKED_BYTES_MIN`] or that takes
/// several turns. A socket that is empty at its next turn keeps its rate; one that never is, has a
/// timer for each packet.
pub const UNSENT_BYTES_MAX_UNDER_BBR: u32 = 32 << 10;

/// The largest turn of such a socket. For 1 MiB, half of it costs 7 % more processor time.
pub const TURN_BYTES_MAX_UNDER_BBR: u64 = 512 << 10;

/// Pipes that a kernel has, lent or idle, before large ranges go by `sendfile` first after all. A
/// user may own 64 MiB of pipe pages before the kernel shrinks new pipes to two pages
/// (`/proc/sys/fs/pipe-user-pages-soft`); slow readers keep theirs for long.
pub const PIPES_MAX: usize = 16;

/// Idle buffers kept for the next transfer: as many as threads that copy side by side need, 2 MiB
/// in all. A new one is mapped, zeroed and unmapped again, which a small file notices.
pub const IDLE_BUFFERS_MAX: usize = 8;

/// Head and body that together fit into this leave in one call, the body read behind the head.
/// `underpass bench small` shows where the other way becomes cheaper on a machine.
pub const JOINED_BYTES_MAX: u64 = 8 << 10;

/// The largest head buffer an outbox keeps for the next head: an idle connection costs no more.
pub const SPARE_BYTES_MAX: usize = 4 << 10;

/// What is read ahead at once for a file that is not in the page cache: long enough to keep a disk
/// busy, short enough that a connection's first byte does not wait for it.
pub const READ_AHEAD_BYTES: u64 = 2 << 20;

/// How long a part of a file that was in the page cache is taken to be there still. Pages of a file
/// that is being sent are the last to be dropped; one that is costs one wait for the disk.
pub const CACHED_KEPT: Duration = Duration::from_secs(1);

/// Remembered refusals (of a device pair) per kernel. A machine with more pairs than this forgets
/// nothing it needs: it only tries once more.
pub const REMEMBERED_REFUSALS_MAX: usize = 1024;

/// Different refusals an account lists; further ones only count.
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
