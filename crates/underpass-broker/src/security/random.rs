//! Random bytes from the kernel.

use rustix::rand::{GetRandomFlags, getrandom};

/// Returns random bytes.
///
/// # Panics
/// The kernel has no randomness: nonces and salts would be predictable, and IDs not unique.
pub(crate) fn bytes<const N: usize>() -> [u8; N] {
    let (mut bytes, mut filled) = ([0; N], 0);
    while filled < N {
        match getrandom(&mut bytes[filled..], GetRandomFlags::empty()) {
            Ok(count) => filled += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => panic!("getrandom: {errno}"),
        }
    }
    bytes
}
