//! Random bytes from the kernel, and hashes with a key that only this process has.

use rustix::rand::{GetRandomFlags, getrandom};

/// Fills `bytes` with random data.
///
/// # Panics
/// The kernel has no randomness: secrets would be predictable.
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

/// Hashes secrets so that the stored hashes are worthless outside this process.
#[derive(Debug)]
pub(crate) struct KeyedHasher {
    key: [u8; blake3::KEY_LEN],
}

impl KeyedHasher {
    /// Creates a hasher with a new key.
    pub(crate) fn new() -> KeyedHasher {
        let mut key = [0; blake3::KEY_LEN];
        fill(&mut key);
        KeyedHasher { key }
    }

    pub(crate) fn hash(&self, secret: &[u8]) -> [u8; 32] {
        *blake3::keyed_hash(&self.key, secret).as_bytes()
    }
}
