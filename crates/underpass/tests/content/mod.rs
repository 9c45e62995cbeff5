//! Bytes to move, how two heaps of them are compared, and a bound on how long a move may take.

#![allow(dead_code, reason = "every target uses another part of it")]

use std::sync::mpsc;
use std::time::Duration;

use sha2::{Digest, Sha256};

/// Numbers that look random and are the same in every run (splitmix64).
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn seeded(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

/// `len` bytes, none of which is 0: a hole or a forgotten page never passes for content.
pub(crate) fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut random = Random::seeded(seed);
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        let word = random.next() | 0x0101_0101_0101_0101;
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// SHA-256, as people write it.
pub(crate) fn hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// Equal by hash and length; says no more than that, for the bytes are many.
#[track_caller]
pub(crate) fn assert_same(got: &[u8], expected: &[u8], what: &str) {
    assert_eq!(got.len(), expected.len(), "{what}: length");
    assert_eq!(hash(got), hash(expected), "{what}: content");
}

/// Runs `test` on a thread of its own: one that hangs is a failure, not a hang.
#[track_caller]
pub(crate) fn within<T: Send + 'static>(
    seconds: u64,
    test: impl FnOnce() -> T + Send + 'static,
) -> T {
    let (done, outcome) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let value = test();
        let _nobody_waits = done.send(());
        value
    });
    match outcome.recv_timeout(Duration::from_secs(seconds)) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("not done after {seconds} s"),
        _ => thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
    }
}
