//! The cost of encryption alone: the yardstick of a server that encrypts.

use aws_lc_rs::aead::{
    AES_128_GCM, AES_256_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey,
};
use rustix::time::{ClockId, clock_gettime};
use underpass::kernel_tls::Cipher;

use crate::stats::Spread;

const GIB: f64 = (1_u64 << 30) as f64;

const RECORD_BYTES: usize = 16 << 10;

/// The median of several spans counts, as it does of the rounds of a server.
const SPANS: usize = 15;
const SPAN_BYTES: usize = 32 << 20;

/// Returns how long this thread encrypts a GiB, in seconds of processor time, in records of the
/// largest size that stay in the cache. Takes about half a GiB's time.
pub(crate) fn sealing_seconds_per_gib(cipher: Cipher) -> Option<f64> {
    let algorithm = algorithm(cipher);
    let key = UnboundKey::new(algorithm, &vec![7; algorithm.key_len()]).ok()?;
    let key = LessSafeKey::new(key);
    let (mut record, mut number) = (vec![0x5a; RECORD_BYTES], 0_u32);
    let mut span = || {
        let start = thread_seconds();
        for _ in 0..SPAN_BYTES / RECORD_BYTES {
            let mut nonce = [0; 12];
            nonce[8..].copy_from_slice(&number.to_be_bytes());
            number = number.wrapping_add(1);
            let nonce = Nonce::assume_unique_for_key(nonce);
            let sealed = key.seal_in_place_separate_tag(nonce, Aad::empty(), &mut record);
            drop(sealed.ok()?);
        }
        Some((thread_seconds() - start) * GIB / SPAN_BYTES as f64)
    };
    let spans: Option<Vec<_>> = (0..SPANS).map(|_| span()).collect();
    Some(Spread::of(&spans?)?.median)
}

fn algorithm(cipher: Cipher) -> &'static Algorithm {
    match cipher {
        Cipher::Aes128Gcm => &AES_128_GCM,
        Cipher::Aes256Gcm => &AES_256_GCM,
        Cipher::ChaCha20Poly1305 => &CHACHA20_POLY1305,
    }
}

/// Of processor time.
fn thread_seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cipher_takes_time() {
        for cipher in Cipher::ALL {
            let seconds = sealing_seconds_per_gib(cipher).unwrap();
            assert!(seconds > 0.0, "{cipher:?}");
        }
    }
}
