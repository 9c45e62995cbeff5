//! Codes: short texts for the telephone, which are exchanged for a ticket.
//!
//! ```text
//!  7-lamp-river-goose@192.0.2.7:4711
//!  │ └ secret: 31 bits  └ address: not secret
//!  └ number: tells the codes of a waiting side apart, not secret
//! ```
//!
//! A code is too short to be sent, even as a hash: both sides prove that they know it by a
//! password-authenticated key exchange ([`pake`]).

pub(crate) mod pake;
mod words;

use std::fmt;
use std::str::FromStr;

use rustix::io::Errno;
use thiserror::Error;
use zeroize::Zeroizing;

use crate::secret::random;
use crate::ticket::{Ticket, TicketError, word};

/// Words of a code.
const WORDS: usize = 3;

/// Digits of a code's number.
const DIGITS_MAX: usize = 9;

/// A code. Its words are not printed by `Debug`.
#[derive(Clone, Eq, PartialEq)]
pub struct TransferCode {
    number: u32,
    words: Zeroizing<String>,
}

/// A code with the address of the waiting side, as a user types it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AddressedCode {
    /// The code.
    pub code: TransferCode,
    /// `HOST:PORT`, if it follows the code.
    pub address: Option<String>,
}

/// The text by which a side finds the waiting one.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Invitation {
    /// A ticket.
    Ticket(Ticket),
    /// A code.
    Code(AddressedCode),
}

/// The reason why a text is not an invitation.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum InvitationError {
    /// It is not a ticket.
    #[error(transparent)]
    Ticket(#[from] TicketError),
    /// It is not of the form of codes.
    #[error(
        "not a code: codes are a number and three words, with hyphens between them, as in \
         7-lamp-river-goose@HOST:PORT"
    )]
    CodeForm,
    /// A word of it is not one of the list.
    #[error("word {0} of the code is mistyped: codes do not use it; nothing was sent")]
    CodeWord(usize),
}

impl TransferCode {
    /// Returns a new code with a number.
    ///
    /// # Errors
    /// Those of getrandom(2).
    pub(crate) fn random(number: u32) -> Result<TransferCode, Errno> {
        let list = words::list();
        let mut words = Zeroizing::new(String::new());
        for index in 0..WORDS {
            if index > 0 {
                words.push('-');
            }
            words.push_str(list[below(list.len())?]);
        }
        Ok(TransferCode { number, words })
    }

    /// Returns the number, which is not secret.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Returns the text for the other side.
    pub fn text(&self) -> Zeroizing<String> {
        Zeroizing::new(format!("{}-{}", self.number, *self.words))
    }
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphabetic())
}

/// Returns a random number below `end`, each with the same probability.
fn below(end: usize) -> Result<usize, Errno> {
    let bits = end.next_power_of_two() - 1;
    loop {
        let drawn = usize::from(u16::from_le_bytes(random()?)) & bits;
        if drawn < end {
            return Ok(drawn);
        }
    }
}

impl fmt::Debug for TransferCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TransferCode({}-…)", self.number)
    }
}

impl FromStr for TransferCode {
    type Err = InvitationError;

    fn from_str(text: &str) -> Result<TransferCode, InvitationError> {
        let (number, rest) = text.split_once('-').ok_or(InvitationError::CodeForm)?;
        let is_number = (1..=DIGITS_MAX).contains(&number.len())
            && number.bytes().all(|byte| byte.is_ascii_digit());
        let words = Zeroizing::new(rest.to_ascii_lowercase());
        let count = words.split('-').filter(|word| is_word(word)).count();
        if !is_number || count != WORDS || words.split('-').count() != WORDS {
            return Err(InvitationError::CodeForm);
        }
        if let Some(index) = words.split('-').position(|word| !words::contains(word)) {
            return Err(InvitationError::CodeWord(index + 1));
        }
        let number = number.parse().map_err(|_| InvitationError::CodeForm)?;
        Ok(TransferCode { number, words })
    }
}

impl FromStr for AddressedCode {
    type Err = InvitationError;

    fn from_str(text: &str) -> Result<AddressedCode, InvitationError> {
        let text = word(text);
        let (code, address) = match text.split_once('@') {
            Some((_, "")) => return Err(InvitationError::CodeForm),
            Some((code, address)) => (code, Some(address.to_owned())),
            None => (text, None),
        };
        Ok(AddressedCode {
            code: code.parse()?,
            address,
        })
    }
}

impl Invitation {
    /// Returns whether a text among file names is meant to be an invitation, correct or not: a
    /// ticket; a number and words before an `@`; or, without an address, a number and three words
    /// of which codes use two.
    pub fn is_likely(text: &str) -> bool {
        if Ticket::is_likely(text) {
            return true;
        }
        let text = word(text);
        let (code, has_address) = match text.split_once('@') {
            Some((code, _)) => (code, true),
            None => (text, false),
        };
        let code = code.to_ascii_lowercase();
        let mut parts = code.split('-');
        let number = parts.next().unwrap_or_default();
        if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
            return false;
        }
        let words: Vec<_> = parts.collect();
        if words.iter().any(|word| !is_word(word)) {
            return false;
        }
        let known = words.iter().filter(|word| words::contains(word)).count();
        match has_address {
            true => !words.is_empty(),
            false => words.len() == WORDS && known + 1 >= WORDS,
        }
    }
}

impl FromStr for Invitation {
    type Err = InvitationError;

    fn from_str(text: &str) -> Result<Invitation, InvitationError> {
        let short = word(text);
        let is_code =
            short.contains('@') || short.starts_with(|first: char| first.is_ascii_digit());
        Ok(match is_code && !Ticket::is_likely(short) {
            true => Invitation::Code(short.parse()?),
            false => Invitation::Ticket(short.parse()?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_read_as_it_was_written() {
        let code = TransferCode::random(7).unwrap();
        let text = code.text();
        assert_eq!(text.parse().as_ref(), Ok(&code));
        assert_ne!(TransferCode::random(7).unwrap(), code);
        assert!(!format!("{code:?}").contains(&*code.words));
        let line = format!("underpass recv {}@[fd00::1]:4711 ", text.to_uppercase());
        let found = line.parse::<Invitation>().unwrap();
        let address = Some("[fd00::1]:4711".to_owned());
        assert_eq!(found, Invitation::Code(AddressedCode { code, address }));
    }

    #[test]
    fn what_is_not_exact_is_refused() {
        use InvitationError::{CodeForm, CodeWord};
        for (text, error) in [
            ("7lampriver goose@host:1", CodeForm),
            ("7-lamp-river@host:1", CodeForm),
            ("7-lamp-river-goose-goose@host:1", CodeForm),
            ("7-lamp--river-goose@host:1", CodeForm),
            ("7-lamp-river-goose@", CodeForm),
            ("lamp-river-goose@host:1", CodeForm),
            ("7_lamp_river_goose@host:1", CodeForm),
            ("7lamprivergoose", CodeForm),
            ("-7-lamp-river-goose@host:1", CodeForm),
            ("12345678901-lamp-river-goose", CodeForm),
            ("7-lamp-rivr-goose@host:1", CodeWord(2)),
            ("7-lamp-river-gosse", CodeWord(3)),
        ] {
            assert_eq!(text.parse::<Invitation>(), Err(error), "{text}");
        }
        let ticket = "lamp".parse::<Invitation>();
        assert_eq!(ticket, Err(InvitationError::Ticket(TicketError::Form)));
    }

    #[test]
    fn codes_are_told_from_file_names() {
        for code in [
            "7-lamp-river-goose",
            "7-lamp-rivr-goose",
            "7-Lamp-River-Goose@host:1",
            "7-lamp-river@host:1",
        ] {
            assert!(Invitation::is_likely(code), "{code}");
        }
        for name in [
            "2026-annual-sales-report",
            "7-zip.tar",
            "7",
            "lamp-river-goose",
            "./7-lamp-river-goose",
            "user@host:",
            "7-lamp-river-goose.pdf",
        ] {
            assert!(!Invitation::is_likely(name), "{name}");
        }
    }
}
