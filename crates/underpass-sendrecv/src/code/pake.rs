//! The password-authenticated key exchange: SPAKE2 over Ed25519, with confirmation by both sides.
//!
//! ```text
//!  connector                                         listener
//!  begin ── message ──────────────────────────────►  begin, finish
//!  finish ◄────────────────────────────── message ──
//!  confirmation ──────────────────────────────────►  compares, and counts a wrong guess
//!  compares ◄───────────── ticket, confirmation ───
//! ```
//!
//! A side that does not know the code learns whether one guess is right, and nothing else. The
//! identities
//! contain the hash of the listener's public key: whoever terminates TLS in between has another
//! one, and is a wrong guess.

use blake3::Hash;
use spake2::{Ed25519Group, Identity, Password, Spake2};
use zeroize::Zeroizing;

use super::TransferCode;
use crate::profile::SPOKEN;
use crate::secret::Prover;

/// Bytes of a message.
pub(crate) const PAKE_BYTES: usize = 33;

/// An exchange in progress.
pub(crate) struct PakeExchange(Spake2<Ed25519Group>);

/// The key that both sides have if they know the same code and see the same listener.
pub(crate) struct PakeKey(Zeroizing<Vec<u8>>);

/// Starts an exchange, and returns the message for the other side.
pub(crate) fn begin(
    side: Prover,
    code: &TransferCode,
    key_sha256: &[u8; 32],
) -> (PakeExchange, [u8; PAKE_BYTES]) {
    let identity = |role: &str| {
        let text = format!("underpass sendrecv {SPOKEN} {role} ");
        Identity::new(&[text.as_bytes(), key_sha256].concat())
    };
    let (connector, listener) = (identity("connector"), identity("listener"));
    let password = Password::new(code.text().as_bytes());
    let (exchange, message) = match side {
        Prover::Connector => Spake2::start_a(&password, &connector, &listener),
        Prover::Listener => Spake2::start_b(&password, &connector, &listener),
    };
    let mut sent = [0; PAKE_BYTES];
    // One byte names the side; a point has 32.
    sent.copy_from_slice(&message);
    (PakeExchange(exchange), sent)
}

/// Returns the key; none if the other side's message is malformed.
pub(crate) fn finish(exchange: PakeExchange, message: &[u8]) -> Option<PakeKey> {
    let key = exchange.0.finish(message).ok()?;
    Some(PakeKey(Zeroizing::new(key)))
}

impl PakeKey {
    /// Returns the proof of one side that it has the key, which covers `about`. Hashes are compared
    /// in constant time.
    pub(crate) fn confirmation(&self, prover: Prover, about: &[u8]) -> Hash {
        let context = match prover {
            Prover::Listener => "underpass sendrecv 1 code confirmed by the listener",
            Prover::Connector => "underpass sendrecv 1 code confirmed by the connector",
        };
        let key = Zeroizing::new(blake3::derive_key(context, &self.0));
        blake3::keyed_hash(&key, about)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> TransferCode {
        text.parse().unwrap()
    }

    /// Returns the connector's confirmation as both sides compute it.
    fn confirmations(codes: [&str; 2], keys: [u8; 2]) -> [Hash; 2] {
        let (ours, sent) = begin(Prover::Connector, &code(codes[0]), &[keys[0]; 32]);
        let (theirs, answered) = begin(Prover::Listener, &code(codes[1]), &[keys[1]; 32]);
        let ours = finish(ours, &answered).unwrap();
        let theirs = finish(theirs, &sent).unwrap();
        [ours, theirs].map(|key| key.confirmation(Prover::Connector, b"x"))
    }

    #[test]
    fn keys_are_equal_only_for_one_code_and_one_listener() {
        let (one, other) = ("7-lamp-river-goose", "7-lamp-river-giraffe");
        let [ours, theirs] = confirmations([one, one], [3, 3]);
        assert_eq!(ours, theirs);
        assert_ne!(ours, confirmations([one, one], [3, 3])[0], "keys are fresh");
        for (codes, keys) in [
            ([one, other], [3, 3]),
            ([one, "8-lamp-river-goose"], [3, 3]),
            ([one, one], [3, 4]),
        ] {
            let [ours, theirs] = confirmations(codes, keys);
            assert_ne!(ours, theirs, "{codes:?} {keys:?}");
        }
    }

    #[test]
    fn confirmations_of_the_sides_differ_and_cover_what_is_said() {
        let (ours, _) = begin(Prover::Connector, &code("7-lamp-river-goose"), &[3; 32]);
        let (_, answered) = begin(Prover::Listener, &code("7-lamp-river-goose"), &[3; 32]);
        let key = finish(ours, &answered).unwrap();
        let listener = key.confirmation(Prover::Listener, b"ticket");
        assert_ne!(listener, key.confirmation(Prover::Connector, b"ticket"));
        assert_ne!(listener, key.confirmation(Prover::Listener, b"other"));
    }

    #[test]
    fn a_message_of_the_same_side_is_refused() {
        let (ours, _) = begin(Prover::Connector, &code("7-lamp-river-goose"), &[3; 32]);
        let (_, same) = begin(Prover::Connector, &code("7-lamp-river-goose"), &[3; 32]);
        assert!(finish(ours, &same).is_none());
    }
}
