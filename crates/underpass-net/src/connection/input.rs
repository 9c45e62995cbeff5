//! What has been received and not consumed yet, and frames of known length on their way in.

use std::cell::RefCell;
use std::mem;

use crate::limits::INPUT_BYTES_START;

/// A buffer that is filled at its end and consumed at its front. It holds no memory while it is
/// empty and released, as while a large file is sent.
#[derive(Default)]
pub(crate) struct Input {
    buffer: Vec<u8>,
    taken: usize,
}

impl Input {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buffer[self.taken..]
    }

    /// Removes the first `count` bytes. Panics if there are fewer.
    pub(crate) fn consume(&mut self, count: usize) {
        assert!(count <= self.bytes().len(), "consumed more than there is");
        self.taken += count;
        if self.taken == self.buffer.len() {
            self.clear();
        }
    }

    pub(crate) fn clear(&mut self) {
        self.buffer.clear();
        self.taken = 0;
    }

    /// The buffer with room to read into; the spare one of the worker if it has none.
    pub(crate) fn room(&mut self, spare: &RefCell<Vec<u8>>) -> &mut Vec<u8> {
        if self.buffer.capacity() == 0 {
            self.buffer = spare.take();
        }
        if self.buffer.len() == self.buffer.capacity() {
            self.buffer.drain(..self.taken);
            self.taken = 0;
            let more = self.buffer.len().max(INPUT_BYTES_START);
            self.buffer.reserve_exact(more);
        }
        &mut self.buffer
    }

    /// Gives the memory to the next connection that reads, if the buffer is empty.
    pub(crate) fn lend_to(&mut self, spare: &RefCell<Vec<u8>>) {
        if self.buffer.is_empty() && self.buffer.capacity() > 0 {
            let buffer = mem::take(&mut self.buffer);
            if buffer.capacity() <= INPUT_BYTES_START {
                spare.replace(buffer);
            }
        }
    }

    /// Frees the memory if the buffer is empty.
    pub(crate) fn release(&mut self) {
        if self.buffer.is_empty() {
            self.buffer = Vec::new();
        }
    }
}

/// A frame of known length on its way in, in a buffer of its own. The length is the peer's word, so
/// the buffer grows with what has arrived and never ahead of it by more than that.
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
    pub(crate) fn room(&mut self) -> &mut Vec<u8> {
        if self.bytes.len() == self.bytes.capacity() {
            let more = self.bytes.len().max(INPUT_BYTES_START).min(self.missing());
            self.bytes.reserve_exact(more);
        }
        &mut self.bytes
    }

    /// Takes the beginning of `input`, as much as is missing, and returns how much that was.
    pub(crate) fn take(&mut self, input: &[u8]) -> usize {
        let taken = &input[..input.len().min(self.missing())];
        self.bytes.extend_from_slice(taken);
        taken.len()
    }

    /// Moves what has arrived beyond the end to `input`: the allocator may have given more room
    /// than was asked for.
    pub(crate) fn leave_rest(&mut self, input: &mut Input) {
        if self.bytes.len() > self.length {
            input.buffer.extend_from_slice(&self.bytes[self.length..]);
            self.bytes.truncate(self.length);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_out_as_they_went_in() {
        let (mut input, spare) = (Input::default(), RefCell::default());
        input.room(&spare).extend_from_slice(b"first second");
        input.consume(6);
        assert_eq!(input.bytes(), b"second");
        input.room(&spare).extend_from_slice(b" third");
        assert_eq!(input.bytes(), b"second third");
        input.consume(12);
        assert_eq!(input.bytes(), b"");
    }

    #[test]
    fn unread_input_stays_and_an_empty_buffer_is_passed_on() {
        let (mut input, spare) = (Input::default(), RefCell::default());
        input.room(&spare).extend_from_slice(b"12345678");
        input.release();
        input.lend_to(&spare);
        assert_eq!(input.bytes(), b"12345678");
        input.consume(8);
        input.lend_to(&spare);
        assert_eq!(input.buffer.capacity(), 0);
        assert!(spare.borrow().capacity() > 0);
        let mut next = Input::default();
        next.room(&spare);
        assert_eq!(spare.borrow().capacity(), 0);
        next.release();
        assert_eq!(next.buffer.capacity(), 0);
    }

    #[test]
    fn a_buffer_that_has_grown_is_not_passed_on() {
        let (mut input, spare) = (Input::default(), RefCell::default());
        let room = input.room(&spare);
        room.resize(room.capacity(), b'x');
        input.room(&spare);
        input.clear();
        input.lend_to(&spare);
        assert_eq!(spare.borrow().capacity(), 0);
    }

    #[test]
    fn consumed_bytes_make_room_before_memory_grows() {
        let (mut input, spare) = (Input::default(), RefCell::default());
        let room = input.room(&spare);
        room.resize(room.capacity(), b'x');
        input.consume(INPUT_BYTES_START - 1);
        let room = input.room(&spare);
        assert_eq!(room.len(), 1);
        assert!(room.capacity() <= 2 * INPUT_BYTES_START);
    }

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
