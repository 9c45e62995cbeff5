//! Properties for any bytes at the start of a connection, from a proxy or any other peer: a
//! function that panics if a property does not hold, for the test next to it and for the fuzzer
//! (`fuzz/` in the repository).

use std::net::{IpAddr, SocketAddr};

use underpass_net::proxy_protocol::{ConnectionOrigin, ProxyHeader, ProxyHeaderParse, parse};

/// The maximum length of a version 1 line, with its end.
const LINE_BYTES_MAX: usize = 107;

/// The first bytes of version 2.
const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

/// The maximum length of an accepted header.
const PROXY_BYTES_MAX: usize = 4 << 10;

/// A PROXY header parses as in a simpler parser, however its bytes are split and whatever follows
/// it; waiting for more bytes is bounded; and a header that is written parses to the same address.
/// The first 18 bytes are the written address.
pub(crate) fn proxy(data: &[u8]) {
    let Some((address, input)) = data.split_first_chunk::<18>() else {
        return;
    };
    let parsed = parse(input);
    let first = (0..=input.len()).map(|length| parse(&input[..length]));
    let decided = first
        .clone()
        .find(|parsed| *parsed != ProxyHeaderParse::Partial);
    assert_eq!(
        decided.unwrap_or(ProxyHeaderParse::Partial),
        parsed,
        "byte by byte"
    );
    let plain = plain_line(input).or_else(|| plain_binary(input));
    match parsed {
        ProxyHeaderParse::Complete(header) => {
            assert_eq!(Some(header), plain, "{}", input.escape_ascii());
            assert!(header.length <= input.len().min(PROXY_BYTES_MAX));
            let partial = first.take_while(|parsed| *parsed == ProxyHeaderParse::Partial);
            assert_eq!(partial.count(), header.length, "decided before its end");
        }
        ProxyHeaderParse::Partial => {
            assert_eq!(plain, None, "{}", input.escape_ascii());
            assert!(
                input.len() < PROXY_BYTES_MAX,
                "nothing is waited for forever"
            );
        }
        ProxyHeaderParse::Malformed(_) => assert_eq!(plain, None, "{}", input.escape_ascii()),
    }
    let [ip @ .., high, low] = *address;
    let port = u16::from_be_bytes([high, low]);
    let [a, b, c, d, ..] = ip;
    written(SocketAddr::from(([a, b, c, d], port)), input);
    written(SocketAddr::from((ip, port)), input);
}

/// Both versions name the same client, whatever follows them.
fn written(client: SocketAddr, more: &[u8]) {
    let (family, ip) = match client.ip() {
        IpAddr::V4(ip) => (4, ip.octets().to_vec()),
        IpAddr::V6(ip) => (6, ip.octets().to_vec()),
    };
    let (ip_text, port) = (client.ip(), client.port());
    let line = format!("PROXY TCP{family} {ip_text} {ip_text} {port} 443\r\n").into_bytes();
    assert!(line.len() <= LINE_BYTES_MAX);
    let addresses = [&ip[..], &ip, &port.to_be_bytes(), &443u16.to_be_bytes()].concat();
    let length = addresses.len() as u16;
    let kind = if family == 4 { 0x11 } else { 0x21 };
    let head = [SIGNATURE, &[0x21, kind], &length.to_be_bytes()].concat();
    for header in [line, [head, addresses].concat()] {
        let expected = ProxyHeader {
            length: header.len(),
            origin: ConnectionOrigin::Client(client),
        };
        let input = [&header[..], more].concat();
        assert_eq!(parse(&input), ProxyHeaderParse::Complete(expected));
    }
}

/// Parses version 1 as the words of a line.
fn plain_line(input: &[u8]) -> Option<ProxyHeader> {
    let within = &input[..input.len().min(LINE_BYTES_MAX)];
    let line = within.split_inclusive(|&byte| byte == b'\n').next()?;
    let words: Vec<_> = line
        .strip_suffix(b"\r\n")?
        .split(|&byte| byte == b' ')
        .map(|word| std::str::from_utf8(word).unwrap_or("?"))
        .collect();
    let origin = match words[..] {
        ["PROXY", "UNKNOWN", ..] => ConnectionOrigin::Proxy,
        ["PROXY", family, source, destination, port, other] => {
            let _ = plain_port(other)?;
            let address = |text: &str| match family {
                "TCP4" => text.parse().ok().map(IpAddr::V4),
                "TCP6" => text.parse().ok().map(IpAddr::V6),
                _ => None,
            };
            let _ = address(destination)?;
            ConnectionOrigin::Client(SocketAddr::new(address(source)?, plain_port(port)?))
        }
        _ => return None,
    };
    let length = line.len();
    Some(ProxyHeader { length, origin })
}

/// Parses a port in canonical form.
fn plain_port(text: &str) -> Option<u16> {
    let port: u16 = text.parse().ok()?;
    (port.to_string() == text).then_some(port)
}

/// Parses version 2 field by field.
fn plain_binary(input: &[u8]) -> Option<ProxyHeader> {
    let [command, family, high, low, rest @ ..] = input.strip_prefix(SIGNATURE)? else {
        return None;
    };
    let size = usize::from(*high) << 8 | usize::from(*low);
    let length = SIGNATURE.len() + 4 + size;
    let block = rest.get(..size).filter(|_| length <= PROXY_BYTES_MAX)?;
    let at = |from: usize| block.get(from).copied();
    let port = |from| Some(u16::from(at(from)?) << 8 | u16::from(at(from + 1)?));
    let origin = match (command, family) {
        (0x20, _) | (0x21, 0x00 | 0x12 | 0x22 | 0x32) => ConnectionOrigin::Proxy,
        (0x21, 0x11) => {
            let ip = [at(0)?, at(1)?, at(2)?, at(3)?];
            let (client, _) = (port(8)?, port(10)?);
            ConnectionOrigin::Client(SocketAddr::from((ip, client)))
        }
        (0x21, 0x21) => {
            let ip: [u8; 16] = block.get(..16)?.try_into().ok()?;
            let (client, _) = (port(32)?, port(34)?);
            ConnectionOrigin::Client(SocketAddr::from((ip, client)))
        }
        (0x21, 0x31) => {
            at(215)?;
            ConnectionOrigin::Proxy
        }
        _ => return None,
    };
    Some(ProxyHeader { length, origin })
}
