//! Tickets: one line of text that leads to a waiting side, and authenticates both.
//!
//! ```text
//!  "up" │ base64url of: version 1 │ security 1 │ port 2 │ secret 16 │ key 32, if encrypted
//!       │ count 1 │ count × (4 │ IPv4 4  or  6 │ IPv6 16) │ check 2
//! ```

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use thiserror::Error;

use crate::secret::{SECRET_BYTES, Secret};

const PREFIX: &str = "up";
const VERSION: u8 = 1;
const CHECK_BYTES: usize = 2;

/// The shortest ticket, without an address.
const CHARACTERS_MIN: usize = 30;

/// Addresses of a ticket: machines with containers have dozens, of which the first are enough.
pub const ADDRESSES_MAX: usize = 8;

/// How a transfer is protected.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Security {
    /// TLS 1.3; the waiting side has the public key with this SHA-256 hash.
    Encrypted {
        /// The hash of the key (RFC 7469, section 2.4).
        key_sha256: [u8; 32],
    },
    /// No encryption: both sides prove at the start of a connection that they know the secret.
    Plain,
}

/// What the other side needs to reach a waiting one. Who has it may take part in the transfer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Ticket {
    /// The protection.
    pub security: Security,
    /// The shared secret.
    pub secret: Secret,
    /// The port of all addresses.
    pub port: u16,
    /// The addresses of the waiting machine, at most [`ADDRESSES_MAX`].
    pub addresses: Vec<IpAddr>,
}

/// The reason why a text is not a ticket.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum TicketError {
    /// It does not begin as tickets do.
    #[error("not a ticket: tickets begin with 'up' and are have more than 30 characters")]
    Form,
    /// Some of it is missing or mistyped.
    #[error("the ticket is incomplete or mistyped; copy the whole line")]
    Damaged,
    /// It was made by another version of this program.
    #[error(
        "the ticket is of version {0}, and this program knows version 1; update the older side"
    )]
    Version(u8),
}

impl Ticket {
    /// Returns the addresses with their port.
    pub fn sockets(&self) -> impl Iterator<Item = SocketAddr> {
        let port = self.port;
        let addresses = self.addresses.iter();
        addresses.map(move |address| SocketAddr::new(*address, port))
    }

    /// Returns whether a text is meant to be a ticket, complete or not. No usual file name is.
    pub fn is_likely(text: &str) -> bool {
        let word = word(text);
        let is_of_ticket = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        let is_prefixed = word
            .get(..2)
            .is_some_and(|start| start.eq_ignore_ascii_case(PREFIX));
        is_prefixed && word.len() >= CHARACTERS_MIN && word.bytes().all(is_of_ticket)
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION];
        bytes.push(match self.security {
            Security::Encrypted { .. } => 0,
            Security::Plain => 1,
        });
        bytes.extend(self.port.to_be_bytes());
        bytes.extend(self.secret.bytes());
        if let Security::Encrypted { key_sha256 } = self.security {
            bytes.extend(key_sha256);
        }
        let addresses = &self.addresses[..self.addresses.len().min(ADDRESSES_MAX)];
        bytes.push(addresses.len() as u8);
        for address in addresses {
            match address {
                IpAddr::V4(four) => {
                    bytes.push(4);
                    bytes.extend(four.octets());
                }
                IpAddr::V6(six) => {
                    bytes.push(6);
                    bytes.extend(six.octets());
                }
            }
        }
        let check = check(&bytes);
        bytes.extend(check);
        bytes
    }
}

/// Returns the ticket in what people paste: with spaces or quotes around it, or the whole line.
pub(crate) fn word(text: &str) -> &str {
    let word = text.split_whitespace().next_back().unwrap_or_default();
    word.trim_matches(['"', '\'', '`'])
}

fn check(bytes: &[u8]) -> [u8; CHECK_BYTES] {
    let hash = *blake3::hash(bytes).as_bytes();
    [hash[0], hash[1]]
}

impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}", URL_SAFE_NO_PAD.encode(self.encode()))
    }
}

impl FromStr for Ticket {
    type Err = TicketError;

    fn from_str(text: &str) -> Result<Ticket, TicketError> {
        let text = word(text);
        let encoded = match text.strip_prefix(PREFIX) {
            Some(encoded) => encoded,
            None if Ticket::is_likely(text) => return Err(TicketError::Damaged),
            None => return Err(TicketError::Form),
        };
        let bytes = URL_SAFE_NO_PAD.decode(encoded);
        let bytes = bytes.map_err(|_| match encoded.len() {
            CHARACTERS_MIN.. => TicketError::Damaged,
            _ => TicketError::Form,
        })?;
        match bytes.first() {
            Some(&VERSION) => {}
            // Far versions are typing errors.
            Some(&version @ 2..16) if bytes.len() > SECRET_BYTES => {
                return Err(TicketError::Version(version));
            }
            _ if encoded.len() + 2 >= CHARACTERS_MIN => return Err(TicketError::Damaged),
            _ => return Err(TicketError::Form),
        }
        let (content, found) = bytes
            .split_last_chunk::<CHECK_BYTES>()
            .ok_or(TicketError::Damaged)?;
        if check(content) != *found {
            return Err(TicketError::Damaged);
        }
        let mut reader = TicketReader(&content[1..]);
        decode(&mut reader)
            .filter(|_| reader.0.is_empty())
            .ok_or(TicketError::Damaged)
    }
}

/// The bytes that have not been read.
struct TicketReader<'b>(&'b [u8]);

impl TicketReader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*taken)
    }
}

fn decode(reader: &mut TicketReader<'_>) -> Option<Ticket> {
    let [security] = reader.take()?;
    let port = u16::from_be_bytes(reader.take()?);
    let secret = Secret::of(reader.take()?);
    let security = match security {
        0 => Security::Encrypted {
            key_sha256: reader.take()?,
        },
        1 => Security::Plain,
        _ => return None,
    };
    let [count] = reader.take()?;
    let mut addresses = Vec::new();
    for _ in 0..count {
        addresses.push(match reader.take()? {
            [4] => IpAddr::from(reader.take::<4>()?),
            [6] => IpAddr::from(reader.take::<16>()?),
            _ => return None,
        });
    }
    (addresses.len() <= ADDRESSES_MAX).then_some(Ticket {
        security,
        secret,
        port,
        addresses,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tickets() -> Vec<Ticket> {
        let ticket = |security, addresses: &[&str]| Ticket {
            security,
            secret: Secret::of([9; SECRET_BYTES]),
            port: 40_000,
            addresses: addresses.iter().map(|text| text.parse().unwrap()).collect(),
        };
        let key_sha256 = [3; 32];
        vec![
            ticket(Security::Encrypted { key_sha256 }, &["10.0.0.1", "fd00::1"]),
            ticket(Security::Plain, &["10.0.0.1"]),
            ticket(Security::Plain, &[]),
        ]
    }

    #[test]
    fn a_ticket_is_read_as_it_was_written() {
        for ticket in tickets() {
            let text = ticket.to_string();
            assert_eq!(text.parse(), Ok(ticket));
            assert!(Ticket::is_likely(&text), "{text}");
        }
    }

    #[test]
    fn a_typing_error_or_a_missing_end_is_reported() {
        for ticket in tickets() {
            let text = ticket.to_string();
            for at in 2..text.len() {
                let other = if text.as_bytes()[at] == b'A' {
                    "B"
                } else {
                    "A"
                };
                let mut typed = text.clone();
                typed.replace_range(at..=at, other);
                assert_ne!(typed.parse(), Ok(ticket.clone()), "{typed}");
                assert!(text[..at].parse::<Ticket>().is_err());
            }
        }
        for text in ["", "up", "report.pdf", "upload", "updates.tar.gz"] {
            assert_eq!(text.parse::<Ticket>(), Err(TicketError::Form), "{text}");
            assert!(!Ticket::is_likely(text));
        }
        let mut bytes = tickets()[0].encode();
        for pasted in [
            format!(" {} \n", tickets()[0]),
            format!("underpass recv '{}'", tickets()[0]),
        ] {
            assert_eq!(pasted.parse(), Ok(tickets()[0].clone()));
            assert!(Ticket::is_likely(&pasted));
            let lower = pasted.to_lowercase();
            assert_eq!(lower.parse::<Ticket>(), Err(TicketError::Damaged));
        }
        bytes[0] = 2;
        let text = format!("up{}", URL_SAFE_NO_PAD.encode(bytes));
        assert_eq!(text.parse::<Ticket>(), Err(TicketError::Version(2)));
    }
}
