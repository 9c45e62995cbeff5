//! Tickets by which clients resume sessions (RFC 8446, section 4.6.1; RFC 5077). The server stores
//! only their keys.
//!
//! ```text
//!  name of the key 16 │ time of issue 8 │ nonce 12 │ encrypted session │ tag 16
//! ```
//!
//! All workers and generations use the same keys, and a successor gets them. The use of a ticket is
//! authenticated with it: one that was issued under other rules for clients cannot be opened. A key
//! is used for six hours, and erased when its last ticket is too old. Keys are only ever written to
//! the successor's socket.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::SystemTime;

use aws_lc_rs::aead::{AES_256_GCM_SIV, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use aws_lc_rs::rand;
use rustls::server::ProducesTickets;
use zeroize::Zeroizing;

/// The time for which a key issues new tickets, in seconds.
const ROTATION: u64 = 6 * 3600;

/// The lifetime of a ticket, in seconds.
const LIFETIME: u32 = 12 * 3600;

const NAME_BYTES: usize = 16;
const TIME_BYTES: usize = 8;
const SECRET_BYTES: usize = 32;
const STORED_BYTES: usize = NAME_BYTES + TIME_BYTES + SECRET_BYTES;
const TAG_BYTES: usize = 16;

/// The use that tickets are bound to: they are opened only under the same one.
pub(crate) type TicketUse = [u8; 32];

/// The ticket keys, the latest last.
#[derive(Default)]
pub(crate) struct TicketKeys(RwLock<Vec<TicketKey>>);

struct TicketKey {
    /// Identifies the key in its tickets; not secret.
    name: [u8; NAME_BYTES],
    /// The creation time, in seconds since 1970.
    made: u64,
    secret: Zeroizing<[u8; SECRET_BYTES]>,
    key: RandomizedNonceKey,
}

impl TicketKey {
    fn new(name: [u8; NAME_BYTES], made: u64, secret: &[u8]) -> Option<TicketKey> {
        let secret = Zeroizing::new(<[u8; SECRET_BYTES]>::try_from(secret).ok()?);
        Some(TicketKey {
            name,
            made,
            key: RandomizedNonceKey::new(&AES_256_GCM_SIV, &secret[..]).ok()?,
            secret,
        })
    }

    fn random(now: u64) -> Option<TicketKey> {
        let mut name = [0; NAME_BYTES];
        let mut secret = Zeroizing::new([0; SECRET_BYTES]);
        rand::fill(&mut name).ok()?;
        rand::fill(&mut secret[..]).ok()?;
        TicketKey::new(name, now, &secret[..])
    }

    fn is_latest_at(&self, now: u64) -> bool {
        self.made.abs_diff(now) < ROTATION
    }
}

impl TicketKeys {
    /// Creates a key if the latest one is too old, and erases those whose tickets have all expired.
    pub(crate) fn rotate(&self, now: SystemTime) {
        let now = seconds(now);
        let mut keys = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if !keys.last().is_some_and(|key| key.is_latest_at(now)) {
            keys.extend(TicketKey::random(now));
        }
        keys.retain(|key| key.made.abs_diff(now) < ROTATION + u64::from(LIFETIME));
    }

    /// Encrypts a session.
    fn seal(&self, session: &[u8], of: &TicketUse, now: SystemTime) -> Option<Vec<u8>> {
        if !self.has_latest(now) {
            self.rotate(now);
        }
        let keys = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let key = keys.last()?;
        let head = [&key.name[..], &seconds(now).to_be_bytes()].concat();
        let aad = Aad::from([&head[..], of].concat());
        let mut sealed = session.to_vec();
        let nonce = key.key.seal_in_place_append_tag(aad, &mut sealed).ok()?;
        Some([&head[..], nonce.as_ref(), &sealed].concat())
    }

    /// Decrypts a session, unless the ticket is too old, invalid, or issued for another use.
    fn open(&self, ticket: &[u8], of: &TicketUse, now: SystemTime) -> Option<Vec<u8>> {
        let (head, rest) = ticket.split_at_checked(NAME_BYTES + TIME_BYTES)?;
        let (name, time) = head.split_at(NAME_BYTES);
        let (nonce, sealed) = rest.split_at_checked(NONCE_LEN)?;
        let time = u64::from_be_bytes(time.try_into().ok()?);
        if time.abs_diff(seconds(now)) >= LIFETIME.into() || sealed.len() < TAG_BYTES {
            return None;
        }
        let keys = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let key = keys.iter().find(|key| key.name == name)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let aad = Aad::from([head, of].concat());
        let mut session = sealed.to_vec();
        let length = key.key.open_in_place(nonce, aad, &mut session).ok()?.len();
        session.truncate(length);
        Some(session)
    }

    fn has_latest(&self, now: SystemTime) -> bool {
        let keys = self.0.read().unwrap_or_else(PoisonError::into_inner);
        keys.last()
            .is_some_and(|key| key.is_latest_at(seconds(now)))
    }

    /// Formats all keys as text after `what`, for the successor only.
    pub(crate) fn to_secret_text(&self, what: &str) -> Zeroizing<String> {
        let keys = self.0.read().unwrap_or_else(PoisonError::into_inner);
        // It must not grow: that would leave a copy in memory.
        let room = what.len() + keys.len() * STORED_BYTES * 2;
        let mut text = Zeroizing::new(String::with_capacity(room));
        text.push_str(what);
        for key in keys.iter() {
            let time = key.made.to_be_bytes();
            let bytes = key.name.iter().chain(&time).chain(&key.secret[..]);
            for byte in bytes {
                for digit in [byte >> 4, byte & 15] {
                    text.extend(char::from_digit(u32::from(digit), 16));
                }
            }
        }
        text
    }

    /// Takes over the keys of a predecessor. Invalid keys are skipped: their tickets lead to full
    /// handshakes.
    pub(crate) fn take_over(&self, text: &str) {
        let digits: Option<Vec<u8>> = text
            .chars()
            .map(|digit| Some(digit.to_digit(16)? as u8))
            .collect();
        let digits = Zeroizing::new(digits.unwrap_or_default());
        let pairs = digits.chunks_exact(2);
        let bytes = Zeroizing::new(pairs.map(|pair| pair[0] << 4 | pair[1]).collect::<Vec<_>>());
        let keys = bytes.chunks_exact(STORED_BYTES).filter_map(|stored| {
            let (name, rest) = stored.split_first_chunk()?;
            let (time, secret) = rest.split_first_chunk()?;
            TicketKey::new(*name, u64::from_be_bytes(*time), secret)
        });
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = keys.collect();
    }
}

impl fmt::Debug for TicketKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TicketKeys").finish_non_exhaustive()
    }
}

fn seconds(now: SystemTime) -> u64 {
    let since = now.duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or_default().as_secs()
}

/// An issuer of tickets for one use.
#[derive(Debug)]
pub(crate) struct TicketIssuer {
    pub(crate) keys: Arc<TicketKeys>,
    pub(crate) of: TicketUse,
}

impl ProducesTickets for TicketIssuer {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        LIFETIME
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.keys.seal(plain, &self.of, SystemTime::now())
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        self.keys.open(cipher, &self.of, SystemTime::now())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const USE: TicketUse = [1; 32];

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 + seconds)
    }

    fn names(keys: &TicketKeys) -> Vec<[u8; NAME_BYTES]> {
        let keys = keys.0.read().unwrap();
        keys.iter().map(|key| key.name).collect()
    }

    #[test]
    fn a_ticket_is_valid_for_its_lifetime_whatever_keys_come_after() {
        let keys = TicketKeys::default();
        let lifetime = u64::from(LIFETIME);
        let first = keys.seal(b"first", &USE, at(0)).unwrap();
        let last = keys.seal(b"last", &USE, at(ROTATION - 1)).unwrap();
        for now in 1..lifetime + ROTATION {
            keys.rotate(at(now));
            if now % 997 == 0 || now.abs_diff(lifetime) < 3 {
                let open = |ticket| keys.open(ticket, &USE, at(now));
                assert_eq!(open(&first), (now < lifetime).then(|| b"first".to_vec()));
                let is_valid = now + 1 < lifetime + ROTATION;
                assert_eq!(open(&last), is_valid.then(|| b"last".to_vec()), "{now}");
                assert!(names(&keys).len() <= 3);
            }
        }
        let used = names(&keys);
        keys.rotate(at(lifetime + ROTATION));
        assert!(!names(&keys).contains(&used[0]), "erased");
    }

    #[test]
    fn a_ticket_that_was_changed_or_is_for_another_use_is_none() {
        let keys = TicketKeys::default();
        let ticket = keys.seal(b"session", &USE, at(0)).unwrap();
        assert_ne!(keys.seal(b"session", &USE, at(0)).unwrap(), ticket);
        assert_eq!(keys.open(&ticket, &[2; 32], at(0)), None);
        assert_eq!(TicketKeys::default().open(&ticket, &USE, at(0)), None);
        for place in 0..ticket.len() {
            let mut changed = ticket.clone();
            changed[place] ^= 1;
            assert_eq!(keys.open(&changed, &USE, at(0)), None, "{place}");
            assert_eq!(keys.open(&ticket[..place], &USE, at(0)), None, "{place}");
        }
        assert_eq!(keys.open(&ticket, &USE, at(0)).unwrap(), b"session");
    }

    #[test]
    fn a_successor_has_the_keys_and_nothing_shows_them() {
        let keys = TicketKeys::default();
        let old = keys.seal(b"old", &USE, at(0)).unwrap();
        let new = keys.seal(b"new", &USE, at(ROTATION)).unwrap();
        let text = keys.to_secret_text("");
        let successor = TicketKeys::default();
        successor.take_over(&text);
        assert_eq!(names(&successor), names(&keys));
        assert_eq!(successor.open(&old, &USE, at(ROTATION)).unwrap(), b"old");
        assert_eq!(successor.open(&new, &USE, at(ROTATION)).unwrap(), b"new");
        assert_eq!(format!("{keys:?}"), "TicketKeys { .. }");
        for wrong in [
            "",
            "a",
            "äöü",
            "0123",
            &text[1..],
            &"z".repeat(STORED_BYTES * 2),
        ] {
            successor.take_over(wrong);
            assert_eq!(successor.open(&new, &USE, at(ROTATION)), None);
        }
        assert!(successor.seal(b"session", &USE, at(0)).is_some());
    }
}
