//! Every kind of header, at its boundaries, and split at any byte.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

const MIXED: &str = "2001:db8::1 2001:db8::2 1 2";

fn client(text: &str) -> ConnectionOrigin {
    ConnectionOrigin::Client(text.parse().unwrap())
}

/// Returns a version 2 header with these addresses and additions.
fn second(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
    let length = (rest.len() as u16).to_be_bytes();
    [SIGNATURE, &[command, family], &length, rest].concat()
}

fn four(port: u16) -> Vec<u8> {
    let ports = [port.to_be_bytes(), 443u16.to_be_bytes()].concat();
    [&[192, 0, 2, 7, 198, 51, 100, 1][..], &ports].concat()
}

fn six() -> Vec<u8> {
    let mut addresses = vec![0; 36];
    addresses[..4].copy_from_slice(&[0x20, 0x01, 0x0d, 0xb8]);
    addresses[15] = 9;
    addresses[32..34].copy_from_slice(&4711u16.to_be_bytes());
    addresses
}

fn right() -> Vec<(Vec<u8>, ConnectionOrigin)> {
    let line = |text: &str| format!("PROXY {text}\r\n").into_bytes();
    let long = "f".repeat(LINE_BYTES_MAX - "PROXY UNKNOWN \r\n".len());
    vec![
        (
            line("TCP4 192.0.2.7 198.51.100.1 56324 443"),
            client("192.0.2.7:56324"),
        ),
        (line("TCP4 0.0.0.0 0.0.0.0 0 65535"), client("0.0.0.0:0")),
        (line(&format!("TCP6 {MIXED}")), client("[2001:db8::1]:1")),
        (
            line("TCP6 ::ffff:192.0.2.7 ::1 65535 0"),
            client("[::ffff:192.0.2.7]:65535"),
        ),
        (line("UNKNOWN"), ConnectionOrigin::Proxy),
        (
            line("UNKNOWN ffff::1 anything \x01 at all"),
            ConnectionOrigin::Proxy,
        ),
        (
            b"PROXY UNKNOWN \xff\xfe\r\n".to_vec(),
            ConnectionOrigin::Proxy,
        ),
        (line(&format!("UNKNOWN {long}")), ConnectionOrigin::Proxy),
        (second(0x21, 0x11, &four(56324)), client("192.0.2.7:56324")),
        (second(0x21, 0x21, &six()), client("[2001:db8::9]:4711")),
        (second(0x21, 0x31, &[b'/'; 216]), ConnectionOrigin::Proxy),
        (second(0x21, 0x00, &[]), ConnectionOrigin::Proxy),
        (
            second(0x21, 0x00, b"what this is nobody knows"),
            ConnectionOrigin::Proxy,
        ),
        (second(0x20, 0x00, &[]), ConnectionOrigin::Proxy),
        (second(0x20, 0x11, &four(1)), ConnectionOrigin::Proxy),
        (
            second(0x20, 0x77, b"to be ignored"),
            ConnectionOrigin::Proxy,
        ),
        (
            second(0x21, 0x11, &[&four(2)[..], b"\x04\x00\x02ab"].concat()),
            client("192.0.2.7:2"),
        ),
        (
            second(
                0x21,
                0x11,
                &[four(3), vec![7; PROXY_BYTES_MAX - 16 - 12]].concat(),
            ),
            client("192.0.2.7:3"),
        ),
    ]
}

fn wrong() -> Vec<Vec<u8>> {
    let mut wrong: Vec<Vec<u8>> = [
        "GET / HTTP/1.1\r\n",
        "proxy UNKNOWN\r\n",
        "PROXY\tUNKNOWN\r\n",
        "PROXY UNKNOWN\n",
        "PROXY \r\n",
        "PROXY  UNKNOWN\r\n",
        "PROXY UNKNOWNS\r\n",
        "PROXY TCP4\r\n",
        "PROXY TCP5 192.0.2.7 198.51.100.1 1 2\r\n",
        "PROXY UDP4 192.0.2.7 198.51.100.1 1 2\r\n",
        "PROXY TCP4 2001:db8::1 2001:db8::2 1 2\r\n",
        "PROXY TCP6 192.0.2.7 198.51.100.1 1 2\r\n",
        "PROXY TCP4 192.0.2.7 2001:db8::2 1 2\r\n",
        "PROXY TCP4 192.0.2.7 198.51.100.1 1\r\n",
        "PROXY TCP4 192.0.2.7 198.51.100.1 1 2 3\r\n",
        "PROXY TCP4 192.0.2.7 198.51.100.1 1 2 \r\n",
        "PROXY TCP4 192.0.2.7  198.51.100.1 1 2\r\n",
        "PROXY TCP4 192.0.2.7 198.51.100.1 65536 2\r\n",
        "PROXY TCP4 192.0.2.7 198.51.100.1 -1 2\r\n",
        "PROXY TCP4 192.0.2.7 198.51.100.1 +1 2\r\n",
        "PROXY TCP4 192.0.2.7 198.51.100.1 01 2\r\n",
        "PROXY TCP4 192.0.2.7 198.51.100.1  2\r\n",
        "PROXY TCP4 192.0.2.07 198.51.100.1 1 2\r\n",
        "PROXY TCP4 192.0.2 198.51.100.1 1 2\r\n",
        "PROXY TCP4 example.org 198.51.100.1 1 2\r\n",
        "PROXY TCP4 192.0.2.7 198.51.100.1 1 2\r\r\n",
    ]
    .iter()
    .map(|text| text.as_bytes().to_vec())
    .collect();
    let too_long = LINE_BYTES_MAX - "PROXY UNKNOWN \r\n".len() + 1;
    wrong.push(format!("PROXY UNKNOWN {}\r\n", "f".repeat(too_long)).into_bytes());
    wrong.push(b"PROXY TCP4 \xff\xfe\r\n".to_vec());
    wrong.extend([
        second(0x11, 0x11, &four(1)),
        second(0x22, 0x11, &four(1)),
        second(0x01, 0x11, &four(1)),
        second(0x21, 0x10, &four(1)),
        second(0x21, 0x13, &four(1)),
        second(0x21, 0x42, &four(1)),
        second(0x21, 0x41, &four(1)),
        second(0x21, 0x11, &four(1)[..11]),
        second(0x21, 0x21, &six()[..35]),
        second(0x21, 0x31, &[0; 215]),
        second(0x21, 0x00, &vec![0; PROXY_BYTES_MAX - 15]),
        second(0x20, 0x00, &vec![0; PROXY_BYTES_MAX - 15]),
        b"\r\n\r\n\0\r\nQUIT\r".to_vec(),
        b"\r\n\r\nGET / HTTP/1.1\r\n".to_vec(),
    ]);
    wrong
}

#[test]
fn right_headers_say_who_it_is_and_where_they_end() {
    for (header, origin) in right() {
        let expected = ProxyHeaderParse::Complete(ProxyHeader {
            length: header.len(),
            origin,
        });
        assert_eq!(parse(&header), expected, "{}", header.escape_ascii());
        let with_more = [&header[..], b"GET / HTTP/1.1\r\n"].concat();
        assert_eq!(parse(&with_more), expected);
    }
}

#[test]
fn families_of_datagrams_stand_for_the_proxy_itself() {
    for (family, rest) in [
        (0x12, four(1)),
        (0x22, six()),
        (0x32, vec![0; 216]),
        (0x12, vec![]),
    ] {
        let header = second(0x21, family, &rest);
        let expected = ProxyHeader {
            length: header.len(),
            origin: ConnectionOrigin::Proxy,
        };
        assert_eq!(parse(&header), ProxyHeaderParse::Complete(expected));
    }
}

#[test]
fn every_beginning_of_a_right_header_awaits_more() {
    for (header, _) in right() {
        for length in 0..header.len() {
            let beginning = &header[..length];
            assert_eq!(
                parse(beginning),
                ProxyHeaderParse::Partial,
                "{}",
                beginning.escape_ascii()
            );
        }
    }
}

#[test]
fn wrong_headers_are_refused() {
    for header in wrong() {
        let parsed = parse(&header);
        assert!(
            matches!(parsed, ProxyHeaderParse::Malformed(_)),
            "{}: {parsed:?}",
            header.escape_ascii()
        );
    }
}

/// Parses `input` as it arrives byte by byte.
fn byte_by_byte(input: &[u8]) -> ProxyHeaderParse {
    (0..=input.len())
        .map(|length| parse(&input[..length]))
        .find(|parsed| *parsed != ProxyHeaderParse::Partial)
        .unwrap_or(ProxyHeaderParse::Partial)
}

/// Generates valid and malformed headers with some bytes changed, and input that starts like one.
fn any_input() -> impl Strategy<Value = Vec<u8>> {
    let samples: Vec<Vec<u8>> = right()
        .into_iter()
        .map(|(header, _)| header)
        .chain(wrong())
        .collect();
    let changed = (
        proptest::sample::select(samples),
        vec((any::<proptest::sample::Index>(), any::<u8>()), 0..3),
        vec(any::<u8>(), 0..40),
    )
        .prop_map(|(mut input, changes, more)| {
            for (at, byte) in changes {
                let at = at.index(input.len());
                input[at] = byte;
            }
            input.extend(more);
            input
        });
    let second = (any::<[u8; 4]>(), vec(any::<u8>(), 0..300))
        .prop_map(|(head, rest)| [SIGNATURE, &head, &rest].concat());
    prop_oneof![changed, second, vec(any::<u8>(), 0..20)]
}

proptest! {
    #[test]
    fn any_split_of_the_bytes_gives_the_same_verdict(input in any_input()) {
        let at_once = parse(&input);
        prop_assert_eq!(byte_by_byte(&input), at_once);
        if let ProxyHeaderParse::Complete(header) = at_once {
            prop_assert!(header.length <= input.len());
            prop_assert!(header.length <= PROXY_BYTES_MAX);
        }
    }
}
