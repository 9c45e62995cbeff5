//! Receiving a frame of known length into a buffer of its own.
//!
//! The length is the peer's word, so the buffer grows with what has arrived and never ahead of it
//! by more than that.

use std::future::poll_fn;

use crate::connection::wait::{BoundedWait, PeerActivity, WhileDraining};
use crate::connection::{Connection, read_error};
use crate::error::ConnectionError;
use crate::limits::INPUT_BYTES_START;

/// A frame on its way in.
#[derive(Debug)]
pub struct FrameBuffer {
    bytes: Vec<u8>,
    length: usize,
}

impl FrameBuffer {
    /// A frame of `length` bytes, none of which has arrived. Allocates nothing. The caller has
    /// checked the length against the limit of its protocol.
    pub fn new(length: usize) -> FrameBuffer {
        FrameBuffer {
            bytes: Vec::new(),
            length,
        }
    }

    /// How many bytes are missing.
    pub fn missing(&self) -> usize {
        self.length - self.bytes.len()
    }

    /// What has arrived, the whole frame once nothing is [missing](FrameBuffer::missing).
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// The buffer with room for what is missing, as far as what has arrived vouches for it.
    fn room(&mut self) -> &mut Vec<u8> {
        if self.bytes.len() == self.bytes.capacity() {
            let more = self.bytes.len().max(INPUT_BYTES_START).min(self.missing());
            self.bytes.reserve_exact(more);
        }
        &mut self.bytes
    }

    /// Takes the beginning of `input`, as much as is missing, and returns how much that was.
    fn take(&mut self, input: &[u8]) -> usize {
        let taken = &input[..input.len().min(self.missing())];
        self.bytes.extend_from_slice(taken);
        taken.len()
    }
}

impl Connection {
    /// Receives the rest of a frame: what is in the input first, the others directly. The deadline
    /// is the one that [`start_deadline`](Connection::start_deadline) has set. Cancel safe: `frame`
    /// keeps what has arrived, and another call goes on.
    ///
    /// # Errors
    /// `TimedOut`, `Stopped`, `PeerGone` (also where the peer ends its side before the frame is
    /// complete), `Read`.
    pub async fn receive_frame(
        &mut self,
        frame: &mut FrameBuffer,
        while_draining: WhileDraining,
    ) -> Result<(), ConnectionError> {
        let taken = frame.take(self.input.bytes());
        self.input.consume(taken);
        while frame.missing() > 0 {
            let transport = &self.link.transport;
            let read = poll_fn(|task| transport.poll_read(task, frame.room()));
            let wait = BoundedWait {
                deadline: &mut self.deadline,
                connections: &self.worker.connections,
                while_draining,
                activity: self.activity,
            };
            match wait.until(read).await? {
                Ok(0) => return Err(ConnectionError::PeerGone),
                Ok(_) => self.activity = PeerActivity::Received,
                Err(error) => return Err(read_error(error)),
            }
            // The allocator may have given more room than was asked for.
            if frame.bytes.len() > frame.length {
                self.input.push(&frame.bytes[frame.length..]);
                frame.bytes.truncate(frame.length);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_alone_takes_little_memory_and_what_arrives_vouches_for_more() {
        let mut frame = FrameBuffer::new(1 << 30);
        assert!(frame.room().capacity() <= 2 * INPUT_BYTES_START);
        let mut arrived = 0;
        while arrived < 1 << 20 {
            let room = frame.room();
            room.resize(room.capacity(), 7);
            arrived = room.len();
            assert!(frame.room().capacity() <= 2 * arrived + INPUT_BYTES_START);
        }
    }

    #[test]
    fn a_frame_takes_its_own_bytes_of_the_input_and_no_more() {
        let mut frame = FrameBuffer::new(5);
        assert_eq!(frame.take(b"fra"), 3);
        assert_eq!(frame.take(b"mes follow"), 2);
        assert_eq!(frame.missing(), 0);
        assert_eq!(frame.into_bytes(), b"frame");
        assert_eq!(FrameBuffer::new(0).missing(), 0);
    }
}
