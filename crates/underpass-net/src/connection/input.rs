//! Input that has been received but not consumed, and partly received frames of known length.

use std::cell::RefCell;
use std::mem;

use crate::limits::INPUT_BYTES_START;

/// A buffer that is filled at its end and consumed at its front. It holds no memory while it is
/// empty and lent, for example while a large file is sent.
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

    /// Returns the buffer to read into; takes the worker's spare one if it has no memory.
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

    /// Returns the memory to the worker for the next connection that reads, if the buffer is empty.
    pub(crate) fn lend_to(&mut self, spare: &RefCell<Vec<u8>>) {
        if self.buffer.is_empty() && self.buffer.capacity() > 0 {
            let buffer = mem::take(&mut self.buffer);
            if buffer.capacity() <= INPUT_BYTES_START {
                spare.replace(buffer);
            }
        }
    }
}

/// A partly received frame of known length, in a separate buffer. The peer chose the length, so the
/// buffer grows with the bytes that have arrived, at most doubling.
#[derive(Debug)]
pub struct FrameBuffer {
    /// May have older bytes after those that have arrived.
    bytes: Vec<u8>,
    arrived: usize,
    length: usize,
}

impl FrameBuffer {
    /// Creates a frame of `length` bytes, none of which has arrived. Allocates nothing. The caller
    /// has checked the length against the limit of its protocol.
    pub fn new(length: usize) -> FrameBuffer {
        FrameBuffer::in_buffer(Vec::new(), length)
    }

    /// Creates a frame in the buffer of an earlier one, whose content is overwritten.
    pub fn in_buffer(buffer: Vec<u8>, length: usize) -> FrameBuffer {
        FrameBuffer {
            bytes: buffer,
            arrived: 0,
            length,
        }
    }

    /// Adds `more` bytes to the length: a frame may be received in parts.
    pub fn extend(&mut self, more: usize) {
        self.length += more;
    }

    /// Returns the number of bytes that have arrived.
    pub fn arrived(&self) -> usize {
        self.arrived
    }

    /// Returns the number of bytes that are missing.
    pub fn missing(&self) -> usize {
        self.length - self.arrived
    }

    /// Returns the bytes that have arrived: the whole frame if none is [missing](Self::missing).
    pub fn into_bytes(mut self) -> Vec<u8> {
        self.bytes.truncate(self.arrived);
        self.bytes
    }

    /// Returns the buffer, which starts with the bytes that have arrived.
    pub fn into_buffer(self) -> Vec<u8> {
        self.bytes
    }

    /// Returns initialized room after the bytes that have arrived, up to the end of the frame, as
    /// far as those bytes let the buffer grow.
    pub(crate) fn written_room(&mut self) -> &mut [u8] {
        if self.bytes.len() == self.arrived {
            let more = self.vouched();
            self.bytes.reserve_exact(more);
            self.bytes.resize(self.arrived + more, 0);
        }
        let end = self.bytes.len().min(self.length);
        &mut self.bytes[self.arrived..end]
    }

    /// Returns the buffer, truncated to the bytes that have arrived, with room for more.
    pub(crate) fn room(&mut self) -> &mut Vec<u8> {
        self.bytes.truncate(self.arrived);
        if self.bytes.len() == self.bytes.capacity() {
            self.bytes.reserve_exact(self.vouched());
        }
        &mut self.bytes
    }

    fn vouched(&self) -> usize {
        self.arrived.max(INPUT_BYTES_START).min(self.missing())
    }

    /// Counts `count` bytes of the room as arrived.
    pub(crate) fn advance(&mut self, count: usize) {
        self.arrived += count;
    }

    /// Counts all bytes in the buffer as arrived.
    pub(crate) fn advance_to_end(&mut self) {
        self.arrived = self.bytes.len();
    }

    /// Takes up to the missing number of bytes from the start of `input`; returns their number.
    pub(crate) fn take(&mut self, input: &[u8]) -> usize {
        let taken = &input[..input.len().min(self.missing())];
        let end = self.arrived + taken.len();
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.bytes[self.arrived..end].copy_from_slice(taken);
        self.arrived = end;
        taken.len()
    }

    /// Moves bytes past the end of the frame to `input`: TLS records are opened as a whole.
    pub(crate) fn leave_rest(&mut self, input: &mut Input) {
        if self.arrived > self.length {
            let rest = &self.bytes[self.length..self.arrived];
            input.buffer.extend_from_slice(rest);
            self.arrived = self.length;
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
        input.lend_to(&spare);
        assert_eq!(input.bytes(), b"12345678");
        input.consume(8);
        input.lend_to(&spare);
        assert_eq!(input.buffer.capacity(), 0);
        assert!(spare.borrow().capacity() > 0);
        let mut next = Input::default();
        next.room(&spare);
        assert_eq!(spare.borrow().capacity(), 0);
        assert!(next.buffer.capacity() > 0);
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
        assert!(frame.written_room().len() <= 2 * INPUT_BYTES_START);
        while frame.arrived() < 1 << 20 {
            let count = frame.written_room().len();
            frame.advance(count);
            let arrived = frame.arrived();
            frame.written_room();
            assert!(frame.bytes.capacity() <= 2 * arrived + INPUT_BYTES_START);
        }
    }

    #[test]
    fn a_buffer_is_used_again_and_nothing_beyond_the_frame_is_written() {
        let mut frame = FrameBuffer::in_buffer(vec![7; 100], 20);
        assert_eq!(frame.take(b"abcd"), 4);
        let room = frame.written_room();
        assert_eq!(room.len(), 16);
        room.fill(b'x');
        frame.advance(16);
        assert_eq!(frame.missing(), 0);
        let buffer = frame.into_buffer();
        assert_eq!((buffer.len(), &buffer[..6]), (100, &b"abcdxx"[..]));
        assert_eq!(buffer[20..], [7; 80]);
    }

    #[test]
    fn a_frame_takes_its_own_bytes_of_the_input_and_no_more() {
        let mut frame = FrameBuffer::new(5);
        assert_eq!(frame.take(b"fra"), 3);
        assert_eq!(frame.take(b"mes follow"), 2);
        assert_eq!(frame.missing(), 0);
        frame.extend(3);
        assert_eq!((frame.arrived(), frame.missing()), (5, 3));
        assert_eq!(frame.take(b"s, and more"), 3);
        assert_eq!(frame.into_bytes(), b"frames, ");
        assert_eq!(FrameBuffer::new(0).missing(), 0);
    }
}
