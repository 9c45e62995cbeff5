//! What a peer sent and nobody took yet.

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

    pub(crate) fn clear(&mut self) {
        self.buffer.clear();
        self.taken = 0;
    }

    /// The buffer with room to read into, or nothing if `bytes_max` are waiting already.
    pub(crate) fn room(&mut self, bytes_max: usize) -> Option<&mut Vec<u8>> {
        if self.bytes().len() >= bytes_max {
            return None;
        }
        if self.buffer.len() == self.buffer.capacity() {
            self.buffer.drain(..self.taken);
            self.taken = 0;
            let more = self.buffer.len().max(INPUT_BYTES_START);
            self.buffer.reserve_exact(more);
        }
        Some(&mut self.buffer)
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
        let mut input = Input::default();
        input
            .room(1 << 20)
            .unwrap()
            .extend_from_slice(b"first second");
        input.consume(6);
        assert_eq!(input.bytes(), b"second");
        input.room(1 << 20).unwrap().extend_from_slice(b" third");
        assert_eq!(input.bytes(), b"second third");
        input.consume(12);
        assert_eq!(input.bytes(), b"");
    }

    #[test]
    fn a_full_buffer_has_no_room_and_an_empty_one_no_memory() {
        let mut input = Input::default();
        input.room(8).unwrap().extend_from_slice(b"12345678");
        assert!(input.room(8).is_none());
        input.release();
        assert_eq!(input.bytes(), b"12345678");
        input.consume(8);
        input.release();
        assert_eq!(input.buffer.capacity(), 0);
    }

    #[test]
    fn consumed_bytes_make_room_before_memory_grows() {
        let mut input = Input::default();
        let room = input.room(1 << 20).unwrap();
        room.resize(room.capacity(), b'x');
        input.consume(INPUT_BYTES_START - 1);
        let room = input.room(1 << 20).unwrap();
        assert_eq!(room.len(), 1);
        assert!(room.capacity() <= 2 * INPUT_BYTES_START);
    }
}
