//! What a peer sent and nobody took yet.

use std::cell::RefCell;
use std::mem;

use crate::limits::INPUT_BYTES_START;

/// A buffer read at its end and consumed at its front. It holds no memory while it is empty and
/// released, which is how a connection waits while a large file is sent.
#[derive(Default)]
pub(crate) struct Input {
    buffer: Vec<u8>,
    taken: usize,
}

impl Input {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buffer[self.taken..]
    }

    /// Takes the first `count` bytes away. Panics if there are fewer.
    pub(crate) fn consume(&mut self, count: usize) {
        assert!(count <= self.bytes().len(), "consumed more than there is");
        self.taken += count;
        if self.taken == self.buffer.len() {
            self.clear();
        }
    }

    /// Adds what has been read elsewhere.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    pub(crate) fn clear(&mut self) {
        self.buffer.clear();
        self.taken = 0;
    }

    /// The buffer with room to read into; it begins with the one that is spare.
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

    /// Gives the memory to whoever reads next, if nothing is waiting.
    pub(crate) fn lend_to(&mut self, spare: &RefCell<Vec<u8>>) {
        if self.buffer.is_empty() && self.buffer.capacity() > 0 {
            let buffer = mem::take(&mut self.buffer);
            if buffer.capacity() <= INPUT_BYTES_START {
                spare.replace(buffer);
            }
        }
    }

    /// Gives the memory back if nothing is waiting.
    pub(crate) fn release(&mut self) {
        if self.buffer.is_empty() {
            self.buffer = Vec::new();
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
    fn what_is_unread_stays_and_an_empty_buffer_is_the_next_ones() {
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
    fn a_buffer_that_had_to_grow_is_nobodys() {
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
}
