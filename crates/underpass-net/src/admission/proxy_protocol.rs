//! The PROXY protocol of HAProxy, versions 1 and 2, which names the real client of a connection.
//!
//! ```text
//!  1   PROXY TCP4 192.0.2.7 198.51.100.1 56324 443 CR LF             at most 107 bytes
//!  2   signature 12 │ version, command 1 │ family 1 │ length 2 │ addresses │ additions (TLV)
//! ```
//!
//! Parsing is a pure function of all bytes received so far. It stops at the first byte that decides
//! the result, so the result does not depend on how reads split the bytes.
//!
//! Specification: <https://www.haproxy.org/download/3.0/doc/proxy-protocol.txt>. Additions (TLVs)
//! are skipped unread, including checksums.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use crate::limits::PROXY_BYTES_MAX;

/// The result of parsing the first bytes of a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ProxyHeaderParse {
    /// The start of a header; more bytes are needed.
    Partial,
    /// A header.
    Complete(ProxyHeader),
    /// Not a header, with the reason. Further bytes cannot change that.
    Malformed(&'static str),
}

/// A complete header.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ProxyHeader {
    /// Its length in bytes.
    pub length: usize,
    /// The origin of the connection.
    pub origin: ConnectionOrigin,
}

/// The origin of a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ConnectionOrigin {
    /// The proxy itself, or a client that it cannot name: a health check, a Unix socket, `UNKNOWN`.
    Proxy,
    /// This client.
    Client(SocketAddr),
}

/// Parses the header at the start of `input`. Does not allocate.
pub fn parse(input: &[u8]) -> ProxyHeaderParse {
    if input.len() < SIGNATURE.len() && SIGNATURE.starts_with(input) {
        return ProxyHeaderParse::Partial;
    }
    if input.starts_with(SIGNATURE) {
        return binary(input);
    }
    let known = input.len().min(PREFIX.len());
    match input[..known] == PREFIX[..known] {
        true => line(input),
        false => ProxyHeaderParse::Malformed("the connection does not begin with a PROXY header"),
    }
}

const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
const PREFIX: &[u8] = b"PROXY ";

/// The maximum length of a version 1 line with its CR LF, from the specification.
const LINE_BYTES_MAX: usize = 107;

/// Parses version 1.
fn line(input: &[u8]) -> ProxyHeaderParse {
    let within = &input[..input.len().min(LINE_BYTES_MAX)];
    let Some(feed) = within.iter().position(|&byte| byte == b'\n') else {
        return match within.len() {
            LINE_BYTES_MAX => {
                ProxyHeaderParse::Malformed("the line of the PROXY header is too long")
            }
            _ => ProxyHeaderParse::Partial,
        };
    };
    let Some(line) = within[..feed].strip_suffix(b"\r") else {
        return ProxyHeaderParse::Malformed("the line of the PROXY header ends without CR");
    };
    match origin(&line[PREFIX.len()..]) {
        Some(origin) => ProxyHeaderParse::Complete(ProxyHeader {
            length: feed + 1,
            origin,
        }),
        None => ProxyHeaderParse::Malformed("the line of the PROXY header is malformed"),
    }
}

/// Parses the part of a line after `PROXY `.
fn origin(line: &[u8]) -> Option<ConnectionOrigin> {
    //     // The specification says to ignore the rest of the line, text or not.
    if line.split(|&byte| byte == b' ').next() == Some(b"UNKNOWN") {
        return Some(ConnectionOrigin::Proxy);
    }
    let line = std::str::from_utf8(line).ok()?;
    let (family, rest) = line.split_once(' ').unwrap_or((line, ""));
    let is_expected: fn(&IpAddr) -> bool = match family {
        "TCP4" => IpAddr::is_ipv4,
        "TCP6" => IpAddr::is_ipv6,
        _ => return None,
    };
    let words: Vec<&str> = rest.split(' ').collect();
    let [source, destination, source_port, destination_port] = words[..] else {
        return None;
    };
    let address = |text| IpAddr::from_str(text).ok().filter(is_expected);
    let (source, _) = (address(source)?, address(destination)?);
    let (port, _) = (port(source_port)?, port(destination_port)?);
    Some(ConnectionOrigin::Client(SocketAddr::new(source, port)))
}

/// Parses digits without a sign or leading zeros.
fn port(text: &str) -> Option<u16> {
    let is_plain = text == "0" || !text.starts_with('0');
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_plain && is_number)
}

/// Parses version 2, after its signature.
fn binary(input: &[u8]) -> ProxyHeaderParse {
    let Some(&version_and_command) = input.get(12) else {
        return ProxyHeaderParse::Partial;
    };
    let is_local = match version_and_command {
        0x20 => true,
        0x21 => false,
        _ => {
            return ProxyHeaderParse::Malformed(
                "the version or command of the PROXY header is unknown",
            );
        }
    };
    let Some(&family) = input.get(13) else {
        return ProxyHeaderParse::Partial;
    };
    let Some(needed) = addresses_bytes(family).or(is_local.then_some(0)) else {
        return ProxyHeaderParse::Malformed("the address family of the PROXY header is unknown");
    };
    let Some(&[high, low]) = input.get(14..16) else {
        return ProxyHeaderParse::Partial;
    };
    let length = HEAD_BYTES + usize::from(u16::from_be_bytes([high, low]));
    if length > PROXY_BYTES_MAX {
        return ProxyHeaderParse::Malformed("the PROXY header is too long");
    }
    if !is_local && length < HEAD_BYTES + needed {
        return ProxyHeaderParse::Malformed("the PROXY header is too short for its addresses");
    }
    let Some(addresses) = input.get(HEAD_BYTES..length) else {
        return ProxyHeaderParse::Partial;
    };
    let origin = match is_local {
        true => ConnectionOrigin::Proxy,
        false => claimed(family, addresses),
    };
    ProxyHeaderParse::Complete(ProxyHeader { length, origin })
}

/// The length of signature, version and command, family, and length.
const HEAD_BYTES: usize = 16;

/// Returns the length of the addresses of a family, if the specification has it. Datagram families
/// are read as `UNSPEC`, as the specification asks of receivers that cannot use them.
fn addresses_bytes(family: u8) -> Option<usize> {
    match family {
        0x00 | 0x12 | 0x22 | 0x32 => Some(0),
        0x11 => Some(4 + 4 + 2 + 2),
        0x21 => Some(16 + 16 + 2 + 2),
        0x31 => Some(108 + 108),
        _ => None,
    }
}

fn claimed(family: u8, addresses: &[u8]) -> ConnectionOrigin {
    let client = |address: IpAddr, port: [u8; 2]| {
        ConnectionOrigin::Client(SocketAddr::new(address, u16::from_be_bytes(port)))
    };
    match (family, addresses) {
        (0x11, &[a, b, c, d, _, _, _, _, high, low, ..]) => {
            client(IpAddr::from([a, b, c, d]), [high, low])
        }
        (0x21, _) => match (addresses.first_chunk::<16>(), addresses.get(32..34)) {
            (Some(&source), Some(&[high, low])) => client(IpAddr::from(source), [high, low]),
            _ => ConnectionOrigin::Proxy,
        },
        _ => ConnectionOrigin::Proxy,
    }
}

#[cfg(test)]
#[path = "proxy_protocol_tests.rs"]
mod tests;
