//! The two-call mechanisms, splice through a pipe and read/write through a buffer, as one machine.
//!
//! The order of its rules is its safety: what the middle holds goes on before anything else comes
//! in, so that a middle is empty whenever the mechanism changes, and EAGAIN can mean one side
//! only.

use crate::transfer::op::{Op, RelayBuffer};
use crate::vocabulary::limits::{BUFFER_BYTES, PIPE_BYTES};

/// What is between source and sink.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Relay {
    pipe: u64,
    buffer: u64,
    pipe_drains: PipeDrains,
}

/// Where the pipe's bytes go next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum PipeDrains {
    #[default]
    ToSink,
    /// The sink refused splice: they are read out and written.
    ToBuffer,
}

impl Relay {
    /// Bytes taken from the source that the sink has not got.
    pub(crate) fn held(&self) -> u64 {
        self.pipe + self.buffer
    }

    /// The sink refused the pipe.
    pub(crate) fn read_out(&mut self) {
        self.pipe_drains = PipeDrains::ToBuffer;
    }

    /// Bytes in the buffer that have not been written.
    pub(crate) fn buffered(&self) -> u64 {
        self.buffer
    }

    /// The sink has a hole of `len` bytes now, in the place of zeros if the buffer began with them.
    pub(crate) fn skipped(&mut self, len: u64) {
        self.buffer = self.buffer.saturating_sub(len);
    }

    /// What has to happen before anything else may: held bytes go on. From the buffer `most` of
    /// them at once.
    pub(crate) fn drain(&self, to: Option<u64>, most: u64) -> Option<Op> {
        if self.buffer > 0 {
            return Some(Op::Drain {
                through: RelayBuffer::Buffer,
                to,
                len: self.buffer.min(most),
            });
        }
        if self.pipe == 0 {
            return None;
        }
        Some(match self.pipe_drains {
            PipeDrains::ToSink => Op::Drain {
                through: RelayBuffer::Pipe,
                to,
                len: self.pipe,
            },
            PipeDrains::ToBuffer => Op::ReadOut {
                len: self.pipe.min(BUFFER_BYTES as u64),
            },
        })
    }

    /// The next piece of the source, `owed` bytes at the most.
    pub(crate) fn fill(through: RelayBuffer, from: Option<u64>, owed: u64) -> Op {
        let capacity = match through {
            RelayBuffer::Pipe => PIPE_BYTES as u64 - unaligned(from),
            RelayBuffer::Buffer => BUFFER_BYTES as u64,
        };
        Op::Fill {
            through,
            from,
            len: owed.min(capacity),
        }
    }

    /// Bytes have gone where `op` wanted them. Answers how many of them reached the sink.
    pub(crate) fn moved(&mut self, op: Op, bytes: u64) -> u64 {
        match op {
            Op::Fill { through, .. } => {
                *self.middle(through) += bytes;
                0
            }
            Op::Drain { through, .. } => {
                let held = self.middle(through);
                debug_assert!(
                    bytes <= *held,
                    "the kernel drained more than the middle held"
                );
                *held -= bytes;
                bytes
            }
            Op::ReadOut { .. } => {
                self.pipe -= bytes;
                self.buffer += bytes;
                0
            }
            _ => bytes,
        }
    }

    fn middle(&mut self, through: RelayBuffer) -> &mut u64 {
        match through {
            RelayBuffer::Pipe => &mut self.pipe,
            RelayBuffer::Buffer => &mut self.buffer,
        }
    }
}

/// QUIRK(splice-slots): a pipe holds pages, not bytes; from an offset inside a page the first
/// slot is only partly used, and so would be the first slot of every later call. A shorter first
/// piece makes the later ones start on a page.
fn unaligned(from: Option<u64>) -> u64 {
    const PAGE_BYTES: u64 = 4096;
    from.unwrap_or(0) % PAGE_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn held_bytes_go_on_before_new_ones_come() {
        let mut relay = Relay::default();
        assert_eq!(relay.drain(None, u64::MAX), None);
        let fill = Relay::fill(RelayBuffer::Pipe, Some(0), 100);
        assert_eq!(relay.moved(fill, 60), 0);
        let drain = relay.drain(Some(0), u64::MAX).expect("holds bytes");
        assert_eq!(
            drain,
            Op::Drain {
                through: RelayBuffer::Pipe,
                to: Some(0),
                len: 60
            }
        );
        assert_eq!(relay.moved(drain, 20), 20);
        relay.read_out();
        let out = relay.drain(Some(20), u64::MAX).expect("still holds bytes");
        assert_eq!(out, Op::ReadOut { len: 40 });
        assert_eq!(relay.moved(out, 40), 0);
        let rest = relay.drain(Some(20), u64::MAX).expect("in the buffer now");
        assert_eq!(
            rest,
            Op::Drain {
                through: RelayBuffer::Buffer,
                to: Some(20),
                len: 40
            }
        );
        let part = relay.drain(Some(20), 30).map(|op| relay.moved(op, 30));
        assert_eq!((part, relay.held()), (Some(30), 10));
        relay.skipped(10);
        assert_eq!(relay.held(), 0);
    }

    /// QUIRK(splice-slots)
    #[test]
    fn splice_slots() {
        let fill = Relay::fill(RelayBuffer::Pipe, Some(100), u64::MAX);
        let Op::Fill { len, .. } = fill else {
            panic!("a fill")
        };
        assert_eq!((100 + len) % 4096, 0, "the second piece starts on a page");
    }
}
