//! The content hash of a verified file.
//!
//! Content is divided into stretches of 16 MiB, the last one shorter:
//!
//! - If no whole stretch is zeros, the hash is the BLAKE3 hash of the bytes, as `b3sum` prints it.
//! - Otherwise it is the BLAKE3 hash, in key derivation mode with the context [`CONTEXT`], of: the
//!   BLAKE3 hash of the bytes without those stretches (32 bytes); for each longest run of them its
//!   offset and its length; and the length of the content. Numbers have 8 bytes, little endian.
//!
//! So a file of terabytes that is nearly all hole is hashed within milliseconds, with the same
//! result as if the zeros were written out: they are compared, but not hashed.

use blake3::Hasher;

/// The unit of zeros that is left out, at multiples of this offset.
pub(super) const STRETCH_BYTES: u64 = 16 << 20;

/// The name of this definition. A new definition gets a new name.
const CONTEXT: &str = "underpass 2026 content with stretches of zeros left out";

static ZEROS: [u8; 16 << 10] = [0; 16 << 10];

/// Content, hashed in order.
#[derive(Default)]
pub(super) struct ContentHash {
    hasher: Hasher,
    at: u64,
    /// Zeros at the beginning of this stretch, not hashed yet: its length so far if it is all
    /// zeros, otherwise 0.
    held: u64,
    /// Offset and length of each run of whole stretches of zeros.
    left_out: Vec<(u64, u64)>,
}

impl ContentHash {
    pub(super) fn data(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = usize::try_from(STRETCH_BYTES - self.at % STRETCH_BYTES);
            let (piece, rest) = bytes.split_at(room.unwrap_or(usize::MAX).min(bytes.len()));
            self.piece(piece);
            bytes = rest;
        }
    }

    /// Adds zeros, faster than [`Self::data`].
    pub(super) fn zeros(&mut self, mut bytes: u64) {
        while bytes > 0 {
            let into = self.at % STRETCH_BYTES;
            let whole = bytes - bytes % STRETCH_BYTES;
            let piece = if into == 0 && whole > 0 {
                self.leave_out(whole);
                whole
            } else {
                let piece = bytes.min(STRETCH_BYTES - into);
                self.zeros_in_stretch(piece);
                piece
            };
            bytes -= piece;
        }
    }

    pub(super) fn finish(mut self) -> String {
        self.release();
        let hash = self.hasher.finalize();
        if self.left_out.is_empty() {
            return hash.to_hex().to_string();
        }
        let mut outer = Hasher::new_derive_key(CONTEXT);
        outer.update(hash.as_bytes());
        for (offset, len) in &self.left_out {
            outer.update(&offset.to_le_bytes());
            outer.update(&len.to_le_bytes());
        }
        outer.update(&self.at.to_le_bytes());
        outer.finalize().to_hex().to_string()
    }

    /// Adds a piece of one stretch.
    fn piece(&mut self, piece: &[u8]) {
        let bytes = piece.len() as u64;
        if self.is_zero_so_far() && is_zero(piece) {
            self.zeros_in_stretch(bytes);
        } else {
            self.release();
            self.hasher.update(piece);
            self.at += bytes;
        }
    }

    fn zeros_in_stretch(&mut self, bytes: u64) {
        if !self.is_zero_so_far() {
            hash_zeros(&mut self.hasher, bytes);
            self.at += bytes;
        } else if self.held + bytes < STRETCH_BYTES {
            self.held += bytes;
            self.at += bytes;
        } else {
            self.at -= self.held;
            self.held = 0;
            self.leave_out(STRETCH_BYTES);
        }
    }

    fn is_zero_so_far(&self) -> bool {
        self.held == self.at % STRETCH_BYTES
    }

    /// Hashes the held zeros: the stretch is not all zeros, or not whole.
    fn release(&mut self) {
        hash_zeros(&mut self.hasher, self.held);
        self.held = 0;
    }

    /// Skips stretches of zeros.
    fn leave_out(&mut self, len: u64) {
        match self.left_out.last_mut() {
            Some((offset, before)) if *offset + *before == self.at => *before += len,
            _ => self.left_out.push((self.at, len)),
        }
        self.at += len;
    }
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes
        .chunks(ZEROS.len())
        .all(|chunk| chunk == &ZEROS[..chunk.len()])
}

fn hash_zeros(hasher: &mut Hasher, mut bytes: u64) {
    while bytes > 0 {
        let now = bytes.min(ZEROS.len() as u64);
        hasher.update(&ZEROS[..now as usize]);
        bytes -= now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STRETCH: usize = STRETCH_BYTES as usize;

    fn hash_in_pieces(content: &[u8], piece: usize) -> String {
        let mut hash = ContentHash::default();
        for piece in content.chunks(piece) {
            hash.data(piece);
        }
        hash.finish()
    }

    /// Computes the hash as the module documentation defines it.
    fn by_definition(content: &[u8]) -> String {
        let mut kept = Vec::new();
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for (index, stretch) in content.chunks(STRETCH).enumerate() {
            let offset = (index * STRETCH) as u64;
            if stretch.len() < STRETCH || stretch.iter().any(|&byte| byte != 0) {
                kept.extend_from_slice(stretch);
            } else if let Some((_, len)) = runs.last_mut().filter(|(at, len)| at + len == offset) {
                *len += STRETCH_BYTES;
            } else {
                runs.push((offset, STRETCH_BYTES));
            }
        }
        let inner = blake3::hash(&kept);
        if runs.is_empty() {
            return inner.to_hex().to_string();
        }
        let mut outer = inner.as_bytes().to_vec();
        let numbers = runs.iter().flat_map(|&(offset, len)| [offset, len]);
        for number in numbers.chain([content.len() as u64]) {
            outer.extend(number.to_le_bytes());
        }
        blake3::Hash::from(blake3::derive_key(CONTEXT, &outer))
            .to_hex()
            .to_string()
    }

    #[test]
    fn short_content_has_its_blake3_hash() {
        // The known hash of empty input.
        let nothing = "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262";
        assert_eq!(ContentHash::default().finish(), nothing);
        for content in [&b"abc"[..], &[0; 5000], &[7; 70_000]] {
            let expected = blake3::hash(content).to_hex().to_string();
            assert_eq!(hash_in_pieces(content, 999), expected);
        }
    }

    #[test]
    fn stretches_of_zeros_are_left_out_however_they_come() {
        let mut content = vec![0; 6 * STRETCH + 77];
        content[STRETCH - 1] = 1;
        content[4 * STRETCH] = 2;
        let expected = by_definition(&content);
        assert_eq!(hash_in_pieces(&content, 1 << 20), expected);
        assert_eq!(hash_in_pieces(&content, 5_000_011), expected);
        assert_eq!(hash_in_pieces(&content, content.len()), expected);

        let mut hash = ContentHash::default();
        hash.zeros(STRETCH_BYTES - 1);
        hash.data(&[1]);
        hash.zeros(1000);
        hash.data(&content[STRETCH + 1000..2 * STRETCH - 5]);
        hash.zeros(2 * STRETCH_BYTES + 5);
        hash.data(&[2]);
        hash.zeros(2 * STRETCH_BYTES + 76);
        assert_eq!(hash.finish(), expected);
    }

    #[test]
    fn zeros_that_differ_in_place_or_number_have_different_hashes() {
        let stretch = STRETCH_BYTES;
        let hash = |before: u64, after: u64| {
            let mut hash = ContentHash::default();
            hash.zeros(before);
            hash.data(&[1; STRETCH]);
            hash.zeros(after);
            hash.finish()
        };
        let mut all = [
            hash(0, 0),
            hash(stretch, 0),
            hash(0, stretch),
            hash(0, stretch + 1),
            hash(2 * stretch, 0),
            hash(stretch, stretch),
        ];
        all.sort();
        assert!(all.windows(2).all(|pair| pair[0] != pair[1]));
    }
}
