//! The encryption speed of this process, as a comparison for kernel TLS.

use std::time::{Duration, Instant};

use aws_lc_rs::aead::{Aad, LessSafeKey, Nonce, UnboundKey};
use underpass::kernel_tls::Cipher;

use super::self_test::algorithm;
use crate::tls::records::CONTENT_BYTES_MAX;

/// The best of several spans counts: interrupts slow down the others.
const SPANS: usize = 8;
const SPAN: Duration = Duration::from_millis(3);

/// Returns the bytes per second that one processor encrypts, in pieces of a full record that stay
/// in its cache; `None` if the library rejects the cipher. Takes 24 milliseconds.
pub fn encryption_speed(cipher: Cipher) -> Option<u64> {
    let key = vec![7; cipher.key_bytes()];
    let key = LessSafeKey::new(UnboundKey::new(algorithm(cipher), &key).ok()?);
    let (mut record, mut number) = (vec![0x5a; CONTENT_BYTES_MAX], 0_u32);
    let mut span = || {
        let (mut bytes, start) = (0, Instant::now());
        while start.elapsed() < SPAN {
            let mut nonce = [0; 12];
            nonce[8..].copy_from_slice(&number.to_be_bytes());
            number = number.wrapping_add(1);
            let nonce = Nonce::assume_unique_for_key(nonce);
            let sealed = key.seal_in_place_separate_tag(nonce, Aad::empty(), &mut record);
            drop(sealed.ok()?);
            bytes += record.len();
        }
        Some(bytes as f64 / start.elapsed().as_secs_f64())
    };
    let speeds: Option<Vec<_>> = (0..SPANS).map(|_| span()).collect();
    Some(speeds?.into_iter().fold(0.0, f64::max) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cipher_has_a_speed() {
        for cipher in Cipher::ALL {
            let speed = encryption_speed(cipher).expect("a cipher of the library");
            // A span encrypts at least a record.
            assert!(speed >= CONTENT_BYTES_MAX as u64, "{cipher:?}: {speed}");
        }
    }
}
