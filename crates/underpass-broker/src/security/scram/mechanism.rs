//! The two hash functions, behind one interface.

use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256, Sha512};

/// A SCRAM mechanism.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub(crate) enum ScramMechanism {
    #[serde(rename = "SCRAM-SHA-256")]
    Sha256,
    #[serde(rename = "SCRAM-SHA-512")]
    Sha512,
}

impl ScramMechanism {
    pub(crate) const ALL: [ScramMechanism; 2] = [ScramMechanism::Sha256, ScramMechanism::Sha512];

    /// Returns the name that SASL has registered.
    pub(crate) fn name(self) -> &'static str {
        match self {
            ScramMechanism::Sha256 => "SCRAM-SHA-256",
            ScramMechanism::Sha512 => "SCRAM-SHA-512",
        }
    }

    /// Returns the number in Kafka's requests.
    pub(crate) fn number(self) -> i8 {
        match self {
            ScramMechanism::Sha256 => 1,
            ScramMechanism::Sha512 => 2,
        }
    }

    /// Returns the mechanism with a number of Kafka.
    pub(crate) fn numbered(number: i8) -> Option<ScramMechanism> {
        let mut all = ScramMechanism::ALL.into_iter();
        all.find(|mechanism| mechanism.number() == number)
    }

    /// Returns the length of a hash in bytes.
    pub(crate) fn hash_bytes(self) -> usize {
        match self {
            ScramMechanism::Sha256 => 32,
            ScramMechanism::Sha512 => 64,
        }
    }

    pub(crate) fn hash(self, bytes: &[u8]) -> Vec<u8> {
        match self {
            ScramMechanism::Sha256 => Sha256::digest(bytes).to_vec(),
            ScramMechanism::Sha512 => Sha512::digest(bytes).to_vec(),
        }
    }

    pub(crate) fn hmac(self, key: &[u8], bytes: &[u8]) -> Vec<u8> {
        match self {
            ScramMechanism::Sha256 => mac::<Hmac<Sha256>>(key, bytes),
            ScramMechanism::Sha512 => mac::<Hmac<Sha512>>(key, bytes),
        }
    }

    /// Returns the salted password. Takes milliseconds, by design.
    pub(crate) fn salted(self, password: &[u8], salt: &[u8], iterations: u32) -> Vec<u8> {
        let mut salted = vec![0; self.hash_bytes()];
        match self {
            ScramMechanism::Sha256 => {
                pbkdf2::pbkdf2_hmac::<Sha256>(password, salt, iterations, &mut salted);
            }
            ScramMechanism::Sha512 => {
                pbkdf2::pbkdf2_hmac::<Sha512>(password, salt, iterations, &mut salted);
            }
        }
        salted
    }
}

fn mac<M: Mac + KeyInit>(key: &[u8], bytes: &[u8]) -> Vec<u8> {
    // HMAC takes keys of any length, so this always returns a code.
    let mac = <M as KeyInit>::new_from_slice(key);
    mac.map_or_else(
        |_| Vec::new(),
        |mac| mac.chain_update(bytes).finalize().into_bytes().to_vec(),
    )
}
