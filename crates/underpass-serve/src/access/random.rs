//! Random bytes of the kernel, and hashes under a key that only this process has.

use rustix::rand::{GetRandomFlags, getrandom};

/// Fills `bytes` at random.
///
/// # Panics
/// The kernel has no randomness: secrets would be guessed.
pub(crate) fn fill(bytes: &mut [u8]) {
    let mut filled = 0;
    while filled < bytes.len() {
        match getrandom(&mut bytes[filled..], GetRandomFlags::empty()) {
            Ok(count) => filled += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => panic!("getrandom: {errno}"),
        }
    }
}

/// Hashes secrets so that what is kept of them is worth nothing elsewhere.
#[derive(Debug)]
pub(crate) struct KeyedHasher {
    key: [u8; blake3::KEY_LEN],
}

impl KeyedHasher {
    /// With a new key.
    pub(crate) fn new() -> KeyedHasher {
        let mut key = [0; blake3::KEY_LEN];
        fill(&mut key);
        KeyedHasher { key }
    }

    pub(crate) fn hash(&self, secret: &[u8]) -> [u8; 32] {
        *blake3::keyed_hash(&self.key, secret).as_bytes()
    }
}
