//! PROXY headers of random words agree with a simpler parser.

mod promise;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

const WORDS: &[&[u8]] = &[
    b"PROXY ",
    b"UNKNOWN",
    b"TCP4",
    b"TCP6",
    b" ",
    b" 192.0.2.7",
    b" 2001:db8::7",
    b" ::ffff:192.0.2.7",
    b" 80",
    b" 65535",
    b" 080",
    b"\r\n",
    b"\n",
    b"\r",
    b"\r\n\r\n\0\r\nQUIT\n",
    b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x00\x0c",
    b"\r\n\r\n\0\r\nQUIT\n\x21\x21\x00\x24",
    b"\r\n\r\n\0\r\nQUIT\n\x20\x00\x00\x00",
    b"\x21\x31\x00\xd8",
    b"\xff",
];

proptest! {
    #[test]
    fn proxy_headers(
        address in any::<[u8; 18]>(),
        words in vec(select(WORDS), 0..12),
        rest in vec(any::<u8>(), 0..40),
    ) {
        promise::proxy(&[&address, &words.concat()[..], &rest].concat());
    }
}
