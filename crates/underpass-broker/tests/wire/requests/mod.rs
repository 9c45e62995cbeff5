//! Damaged and random requests: both this and another implementation read the same.

mod promise;
mod seeds;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

#[test]
fn requests_of_every_kind_and_version_are_read_as_they_were_meant() {
    for (name, frame) in seeds::seeds() {
        println!("{name}");
        promise::requests(&frame);
        // Bytes after the request change nothing.
        promise::requests(&[&frame[..], &[0; 9]].concat());
    }
}

#[test]
fn every_byte_of_a_request_may_be_wrong() {
    for (name, frame) in seeds::seeds() {
        println!("{name}");
        for at in 0..frame.len() {
            for byte in [0, 1, 2, 0x7f, 0x80, 0xff] {
                let mut frame = frame.clone();
                frame[at] = byte;
                promise::requests(&frame);
            }
        }
    }
}

/// Inputs found by a fuzzer: in each, the other implementation is less strict, or does not write
/// the message that it has read.
#[test]
fn nulls_and_tags_of_all_values_are_no_disagreement() {
    let metadata = |version: u8, body: &[u8]| {
        let head = [&[0, 3, 0, version, 0, 0, 0, 77], &b"\0\x01c\0"[..]].concat();
        promise::requests(&[&head, body].concat());
    };
    metadata(9, &[2, 0, 0, 1, 0, 0, 0]);
    metadata(10, b"\x01\x01\0\0\x01\xff\xff\xff\xff\x0f\0");
}

proptest! {
    #[test]
    fn damaged_requests(
        seed in any::<Index>(),
        changes in vec((any::<Index>(), any::<u8>()), 0..5),
        end in any::<Index>(),
        rest in vec(any::<u8>(), 0..20),
    ) {
        let seeds = seeds::seeds();
        let mut frame = seed.get(&seeds).1.clone();
        for (at, byte) in changes {
            *at.get_mut::<u8>(&mut frame) = byte;
        }
        frame.truncate(8 + end.index(frame.len()));
        frame.extend(rest);
        promise::requests(&frame);
    }

    #[test]
    fn random_requests(
        key in 0..76_i16,
        version in 0..18_i16,
        rest in vec(any::<u8>(), 0..80),
    ) {
        let head = [key.to_be_bytes(), version.to_be_bytes()].concat();
        promise::requests(&[&head[..], &[0, 0, 0, 7, 0, 1, b'c'], &rest].concat());
    }
}
