//! What a broker stores of a password: enough to verify it, too little to log in elsewhere without
//! guessing it.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq;

use crate::security::random;
use crate::security::scram::ScramMechanism;

/// The least number of iterations, as in Kafka and RFC 7677.
const ITERATIONS_MIN: u32 = 4096;

/// The largest number of iterations, as in Kafka: PLAIN computes them here.
const ITERATIONS_MAX: u32 = 16_384;

/// The number of iterations of new passwords. Clients compute them at every login.
pub(crate) const ITERATIONS: u32 = 8192;

/// The length of a new salt, in bytes.
const SALT_BYTES: usize = 16;

/// The longest salt, in bytes.
const SALT_BYTES_MAX: usize = 1024;

/// A salted and hashed password.
#[derive(Clone, Deserialize, Eq, PartialEq, Serialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct ScramCredential {
    pub(crate) iterations: u32,
    pub(crate) salt: Vec<u8>,
    stored_key: Vec<u8>,
    server_key: Vec<u8>,
}

impl ScramCredential {
    /// Hashes a password with a new salt. Takes milliseconds.
    pub(crate) fn of_password(mechanism: ScramMechanism, password: &[u8]) -> ScramCredential {
        let salt = random::bytes::<SALT_BYTES>();
        let salted = mechanism.salted(password, &salt, ITERATIONS);
        ScramCredential::of_salted(mechanism, ITERATIONS, &salt, &salted)
    }

    /// Hashes a salted password.
    pub(crate) fn of_salted(
        mechanism: ScramMechanism,
        iterations: u32,
        salt: &[u8],
        salted: &[u8],
    ) -> ScramCredential {
        let client_key = mechanism.hmac(salted, b"Client Key");
        ScramCredential {
            iterations,
            salt: salt.to_vec(),
            stored_key: mechanism.hash(&client_key),
            server_key: mechanism.hmac(salted, b"Server Key"),
        }
    }

    /// Returns a credential that no password has, for a user that does not exist.
    pub(crate) fn unusable(mechanism: ScramMechanism, iterations: u32, salt: &[u8]) -> Self {
        ScramCredential {
            iterations,
            salt: salt[..SALT_BYTES.min(salt.len())].to_vec(),
            stored_key: vec![0; mechanism.hash_bytes()],
            server_key: vec![0; mechanism.hash_bytes()],
        }
    }

    /// Checks the values that a client has sent.
    ///
    /// # Errors
    /// The value that is out of range.
    pub(crate) fn check(iterations: i32, salt: &[u8]) -> Result<u32, String> {
        let range = ITERATIONS_MIN..=ITERATIONS_MAX;
        let accepted = u32::try_from(iterations).ok();
        let accepted = accepted.filter(|count| range.contains(count));
        let accepted = accepted.ok_or_else(|| {
            format!("{iterations} iterations: expected {ITERATIONS_MIN} to {ITERATIONS_MAX}")
        })?;
        match (1..=SALT_BYTES_MAX).contains(&salt.len()) {
            true => Ok(accepted),
            false => Err(format!("the salt must have 1 to {SALT_BYTES_MAX} bytes")),
        }
    }

    /// Whether a password is the one. Takes milliseconds.
    pub(crate) fn verify_password(&self, mechanism: ScramMechanism, password: &[u8]) -> bool {
        let salted = mechanism.salted(password, &self.salt, self.iterations);
        self.verify_client_key(mechanism, &mechanism.hmac(&salted, b"Client Key"))
    }

    /// Whether a client key belongs to the password.
    pub(crate) fn verify_client_key(&self, mechanism: ScramMechanism, client_key: &[u8]) -> bool {
        let stored_key = mechanism.hash(client_key);
        stored_key.ct_eq(&self.stored_key).into()
    }

    /// Returns the code by which the client's proof hides its key.
    pub(crate) fn client_signature(&self, mechanism: ScramMechanism, exchange: &[u8]) -> Vec<u8> {
        mechanism.hmac(&self.stored_key, exchange)
    }

    /// Returns the proof that this server knows the credential.
    pub(crate) fn server_signature(&self, mechanism: ScramMechanism, exchange: &[u8]) -> Vec<u8> {
        mechanism.hmac(&self.server_key, exchange)
    }

    /// Returns bytes that differ for different passwords and salts.
    pub(crate) fn identity(&self) -> &[u8] {
        &self.stored_key
    }

    /// Whether the keys have the length of the mechanism's hashes.
    pub(crate) fn is_of(&self, mechanism: ScramMechanism) -> bool {
        let bytes = mechanism.hash_bytes();
        self.stored_key.len() == bytes && self.server_key.len() == bytes
    }
}

/// Prints no keys.
impl fmt::Debug for ScramCredential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ScramCredential({} iterations)", self.iterations)
    }
}

/// `ITERATIONS:SALT$STORED_KEY:SERVER_KEY` in Base64, as PostgreSQL writes it after the mechanism.
impl From<ScramCredential> for String {
    fn from(credential: ScramCredential) -> String {
        let [salt, stored, server] = [
            &credential.salt,
            &credential.stored_key,
            &credential.server_key,
        ]
        .map(|bytes| STANDARD.encode(bytes));
        format!("{}:{salt}${stored}:{server}", credential.iterations)
    }
}

impl TryFrom<String> for ScramCredential {
    type Error = String;

    fn try_from(text: String) -> Result<ScramCredential, String> {
        let parts = || {
            let (salting, keys) = text.split_once('$')?;
            let (iterations, salt) = salting.split_once(':')?;
            let (stored, server) = keys.split_once(':')?;
            let decoded = |text: &str| STANDARD.decode(text).ok();
            Some((
                iterations.parse::<i32>().ok()?,
                decoded(salt)?,
                decoded(stored)?,
                decoded(server)?,
            ))
        };
        let expected = || "expected ITERATIONS:SALT$STORED_KEY:SERVER_KEY in Base64".to_owned();
        let (iterations, salt, stored_key, server_key) = parts().ok_or_else(expected)?;
        Ok(ScramCredential {
            iterations: ScramCredential::check(iterations, &salt)?,
            salt,
            stored_key,
            server_key,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_told_apart_by_what_is_stored_of_them() {
        for mechanism in ScramMechanism::ALL {
            let credential = ScramCredential::of_password(mechanism, b"right");
            assert!(credential.is_of(mechanism));
            assert!(credential.verify_password(mechanism, b"right"));
            for wrong in [&b"wrong"[..], b"", b"right\0x"] {
                assert!(!credential.verify_password(mechanism, wrong));
            }
            let again = ScramCredential::of_password(mechanism, b"right");
            assert_ne!(again, credential, "it has another salt");
            let text = String::from(credential.clone());
            assert_eq!(ScramCredential::try_from(text), Ok(credential.clone()));
            let unusable = ScramCredential::unusable(mechanism, ITERATIONS, &[7; 32]);
            assert!(!unusable.verify_password(mechanism, b""));
            assert_eq!(unusable.salt.len(), credential.salt.len());
            assert!(!format!("{credential:?}").contains(&STANDARD.encode(&credential.stored_key)));
        }
    }

    #[test]
    fn a_verifier_of_postgresql_is_read() {
        // SELECT of a role with the password "pencil" and the salt of RFC 7677.
        let text = "4096:W22ZaJ0SNY7soEsUEjb6gQ==$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:\
                    wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=";
        let credential = ScramCredential::try_from(text.to_owned()).unwrap();
        assert!(credential.verify_password(ScramMechanism::Sha256, b"pencil"));
        assert!(!credential.is_of(ScramMechanism::Sha512));
    }

    #[test]
    fn damaged_texts_are_refused() {
        for text in [
            "",
            "4096",
            "4096:c2FsdA==",
            "4095:c2FsdA==$eA==:eA==",
            "16385:c2FsdA==$eA==:eA==",
            "-1:c2FsdA==$eA==:eA==",
            "4096:$eA==:eA==",
            "4096:c2FsdA=$eA==:eA==",
            "4096:c2FsdA==$eA==",
        ] {
            assert!(
                ScramCredential::try_from(text.to_owned()).is_err(),
                "{text}"
            );
        }
    }
}
