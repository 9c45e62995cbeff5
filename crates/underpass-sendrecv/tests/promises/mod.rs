//! Promises about arbitrary texts and messages from outside. This is not a public interface: it is
//! part of the crate in tests and with the feature `fuzz`.

#![allow(missing_docs, reason = "hidden; what it promises stands beside it")]

use crate::code::pake::{self, PAKE_BYTES};
use crate::code::{AddressedCode, Invitation, TransferCode};
use crate::secret::Prover;

/// A text is a ticket or a code, which is read back as it was written and has three words, or is
/// refused. A text that is one of them is recognized among file names, unless it is a code of which
/// the address is missing.
pub fn invitation(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else {
        return;
    };
    let is_likely = Invitation::is_likely(text);
    match text.parse() {
        Ok(Invitation::Ticket(ticket)) => {
            assert_eq!(ticket.to_string().parse().as_ref(), Ok(&ticket));
        }
        Ok(Invitation::Code(AddressedCode { code, address })) => {
            assert!(is_likely);
            assert!(address.is_none_or(|address| !address.is_empty()));
            assert_eq!(code.text().parse().as_ref(), Ok(&code));
            assert_eq!(code.text().split('-').count(), 4);
        }
        Err(_) => {}
    }
}

/// No message gives a side the key of another exchange: a proof of one proves nothing in the next.
/// The first byte chooses the side.
pub fn code_exchange(data: &[u8]) {
    let Some((side, message)) = data.split_first() else {
        return;
    };
    let side = match side % 2 {
        0 => Prover::Connector,
        _ => Prover::Listener,
    };
    let code: TransferCode = "7-lamp-river-goose".parse().expect("a code");
    let key = || {
        let (exchange, _) = pake::begin(side, &code, &[3; 32]);
        pake::finish(exchange, message)
    };
    let (Some(one), Some(other)) = (key(), key()) else {
        return;
    };
    assert_eq!(message.len(), PAKE_BYTES);
    for prover in [Prover::Connector, Prover::Listener] {
        assert_ne!(
            one.confirmation(prover, b""),
            other.confirmation(prover, b"")
        );
    }
    assert_ne!(
        one.confirmation(Prover::Connector, b""),
        one.confirmation(Prover::Listener, b"")
    );
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn invitations(text in "([0-9]{0,3}-)?(lamp|river|goose|x|-| ){0,6}(@[a-z:0-9]{0,9})?") {
            super::invitation(text.as_bytes());
        }

        #[test]
        fn any_text(text in "\\PC{0,40}") {
            super::invitation(text.as_bytes());
        }

        #[test]
        fn code_exchanges(
            side in 0u8..2,
            mark in prop_oneof![Just(b'A'), Just(b'B'), any::<u8>()],
            rest in prop_oneof![vec(any::<u8>(), 32), vec(any::<u8>(), 0..40)],
        ) {
            super::code_exchange(&[&[side, mark], &rest[..]].concat());
        }
    }
}
