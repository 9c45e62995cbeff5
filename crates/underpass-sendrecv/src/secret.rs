//! The secret that both sides of a transfer share, and what is derived from it.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use blake3::Hash;
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};
use zeroize::Zeroizing;

/// Bytes of a secret: 128 bits cannot be guessed.
pub const SECRET_BYTES: usize = 16;

/// Bytes of a nonce.
pub(crate) const NONCE_BYTES: usize = 16;

/// The secret of a ticket. Its text is never printed by `Debug`.
#[derive(Clone, Eq, PartialEq)]
pub struct Secret(Zeroizing<[u8; SECRET_BYTES]>);

/// The side that proves that it knows the secret.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Prover {
    Listener,
    Connector,
}

impl Secret {
    /// Returns a new secret.
    ///
    /// # Errors
    /// `ENOSYS` and others of getrandom(2).
    pub fn random() -> Result<Secret, Errno> {
        random().map(|bytes| Secret(Zeroizing::new(bytes)))
    }

    /// Wraps the bytes of a secret.
    pub fn of(bytes: [u8; SECRET_BYTES]) -> Secret {
        Secret(Zeroizing::new(bytes))
    }

    /// Returns the bytes.
    pub fn bytes(&self) -> &[u8; SECRET_BYTES] {
        &self.0
    }

    /// Returns the first name of all paths: who knows it may use the transfer. It does not reveal
    /// the secret.
    pub fn token(&self) -> String {
        let derived = self.derive("underpass sendrecv 1 token");
        URL_SAFE_NO_PAD.encode(&derived[..SECRET_BYTES])
    }

    /// Returns the proof that one side knows the secret, for one connection without encryption and
    /// one request on it.
    pub(crate) fn proof(&self, prover: Prover, nonces: &Nonces, about: &[u8]) -> Hash {
        let key = self.derive(match prover {
            Prover::Listener => "underpass sendrecv 1 proof of the listener",
            Prover::Connector => "underpass sendrecv 1 proof of the connector",
        });
        let mut hasher = blake3::Hasher::new_keyed(&key);
        hasher.update(&nonces.connector);
        hasher.update(&nonces.listener);
        hasher.update(about);
        hasher.finalize()
    }

    fn derive(&self, context: &str) -> Zeroizing<[u8; 32]> {
        Zeroizing::new(blake3::derive_key(context, &self.0[..]))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// The random numbers of a connection, one of each side.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Nonces {
    pub(crate) connector: [u8; NONCE_BYTES],
    pub(crate) listener: [u8; NONCE_BYTES],
}

/// Returns random bytes.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], Errno> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        match getrandom(&mut bytes[filled..], GetRandomFlags::empty()) {
            Ok(count) => filled += count,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(bytes)
}

/// Returns bytes in hexadecimal.
pub(crate) fn hex_text(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Reads bytes in hexadecimal.
pub(crate) fn hex_of<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    if text.len() != 2 * N {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, digits) in bytes.iter_mut().zip(text.chunks(2)) {
        let is_hex = digits.iter().all(u8::is_ascii_hexdigit);
        let digits = str::from_utf8(digits).ok().filter(|_| is_hex)?;
        *byte = u8::from_str_radix(digits, 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_derived_differs_by_purpose_side_and_connection() {
        let secret = Secret::of([7; SECRET_BYTES]);
        let nonces = Nonces {
            connector: [1; NONCE_BYTES],
            listener: [2; NONCE_BYTES],
        };
        let other = Nonces {
            connector: [3; NONCE_BYTES],
            ..nonces
        };
        let proof = secret.proof(Prover::Listener, &nonces, b"");
        assert_eq!(proof, secret.proof(Prover::Listener, &nonces, b""));
        assert_ne!(proof, secret.proof(Prover::Connector, &nonces, b""));
        assert_ne!(proof, secret.proof(Prover::Listener, &other, b""));
        assert_ne!(proof, secret.proof(Prover::Listener, &nonces, b"PUT /x"));
        assert_eq!(secret.token().len(), 22);
        assert_ne!(secret.token(), Secret::of([8; SECRET_BYTES]).token());
        assert!(!format!("{secret:?}").contains('7'));
        assert_ne!(Secret::random().unwrap(), Secret::random().unwrap());
    }

    #[test]
    fn hexadecimal_digits_are_read_as_they_were_written() {
        assert_eq!(hex_of(hex_text(&[0, 0xa5]).as_bytes()), Some([0, 0xa5]));
        for wrong in ["", "00a", "00a50", "+0a5", "00ä"] {
            assert_eq!(hex_of::<2>(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
