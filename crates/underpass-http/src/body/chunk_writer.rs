//! Writes the framing of a chunked body: RFC 9112, section 7.1. The payload itself is sent by the
//! caller, for instance as a range of a file.
//!
//! ```text
//!  head │ payload │ CHUNK_END │ head │ payload │ CHUNK_END │ LAST_CHUNK
//! ```

use std::io::Write;
use std::num::NonZeroU64;

/// The end of a chunk, after its payload.
pub const CHUNK_END: &[u8] = b"\r\n";

/// The end of a body without trailers.
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// Appends the head of a chunk with `length` bytes of payload. A chunk without payload would end
/// the body.
pub fn push_chunk_head(out: &mut Vec<u8>, length: NonZeroU64) {
    // Writing to a vector cannot fail.
    let _ = write!(out, "{length:x}\r\n");
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::body::chunked::{BodyPosition, ChunkedReader};

    #[test]
    fn a_head_is_the_length_in_hexadecimal() {
        for (length, expected) in [
            (1, "1\r\n"),
            (10, "a\r\n"),
            (1 << 20, "100000\r\n"),
            (u64::MAX, "ffffffffffffffff\r\n"),
        ] {
            let mut head = Vec::new();
            push_chunk_head(&mut head, NonZeroU64::new(length).unwrap());
            assert_eq!(head, expected.as_bytes());
        }
    }

    proptest! {
        #[test]
        fn a_reader_reads_what_is_written(chunks in vec(vec(any::<u8>(), 1..40), 0..8)) {
            let mut body = Vec::new();
            for chunk in &chunks {
                push_chunk_head(&mut body, NonZeroU64::new(chunk.len() as u64).unwrap());
                body.extend_from_slice(chunk);
                body.extend_from_slice(CHUNK_END);
            }
            body.extend_from_slice(LAST_CHUNK);
            let mut reader = ChunkedReader::new();
            prop_assert_eq!(reader.read(&body), Ok((body.len(), BodyPosition::End)));
            let payload: usize = chunks.iter().map(Vec::len).sum();
            prop_assert_eq!(reader.announced(), payload as u64);
        }
    }
}
