//! Sizes beyond 31 and 32 bits.

use std::fs::File;
use std::io::Read;
use std::os::unix::net::UnixStream;

use underpass::{Kernel, Mechanism, Policy, Sink, Source, drive::blocking::Driver, limits};

use super::copies::copy;
use super::maps::{Map, allocated, contents_of};
use super::places::{all, place};

const GIB: u64 = 1 << 30;

#[test]
#[ignore = "needs root, mounts, loop devices, ext4, XFS and Btrfs; run by cargo xtask test"]
fn data_on_both_sides_of_two_and_four_gibibytes_arrives() {
    let map = Map {
        len: 5 * GIB + 4321,
        data: vec![
            (0, 100_000),
            (2 * GIB - 300_001, 700_000),
            (4 * GIB - 4096, 8192),
            (5 * GIB, 4321),
        ],
    };
    for place in all() {
        let source = place.file();
        map.write(&source, 20);
        for policy in [
            Policy::default(),
            Policy::only(Mechanism::CopyRange),
            Policy::only(Mechanism::Sendfile),
            Policy::only(Mechanism::Splice),
            Policy::only(Mechanism::ReadWrite),
        ] {
            let what = format!("{}, {:?}", place.name, policy.choice);
            let sink = place.file();
            let account = copy(policy, &source, &sink).expect("copies");
            assert_eq!(
                account.bytes() + account.holes,
                map.len,
                "{what}: {account}"
            );
            sink.sync_all().expect("allocated");
            assert_eq!(contents_of(&sink), contents_of(&source), "{what}");
            assert!(allocated(&sink) < 4 << 20, "{what}");
        }
    }
}

/// sendfile moves at most 0x7ffff000 bytes in one call.
#[test]
#[ignore = "needs root, mounts, loop devices, ext4, XFS and Btrfs; run by cargo xtask test"]
fn one_call_moves_no_more_than_the_kernel_takes_and_the_next_goes_on() {
    let len = 2 * GIB + GIB / 2 + 3;
    let from = place("tmpfs").file();
    from.set_len(len).expect("a sparse file");
    let source = Source::range(&from, 0, len).expect("a range");
    let null = File::options()
        .write(true)
        .open("/dev/null")
        .expect("opens");
    let account = Driver::new(&Kernel::unprobed())
        .policy(Policy::only(Mechanism::Sendfile))
        .call_bytes_max(u64::MAX)
        .run(&source, &Sink::new(&null).expect("a sink"))
        .expect("sends");
    let usage = account.of(Mechanism::Sendfile);
    assert_eq!((usage.bytes, usage.calls), (len, 2), "{account}");
    assert_eq!(limits::KERNEL_CALL_BYTES_MAX, 0x7fff_f000);
}

#[test]
#[ignore = "needs root, mounts, loop devices, ext4, XFS and Btrfs; run by cargo xtask test"]
fn more_than_two_gibibytes_reach_a_socket() {
    let len = 2 * GIB + 12_345;
    let from = place("tmpfs").file();
    from.set_len(len).expect("a sparse file");
    let (ours, mut theirs) = UnixStream::pair().expect("a pair");
    let reader = std::thread::spawn(move || {
        let (mut got, mut buffer) = (0, vec![0; 1 << 20]);
        while let Ok(read @ 1..) = theirs.read(&mut buffer) {
            got += read as u64;
        }
        got
    });
    let source = Source::range(&from, 0, len).expect("a range");
    let account = Driver::new(&Kernel::unprobed())
        .policy(Policy::only(Mechanism::Sendfile))
        .call_bytes_max(u64::MAX)
        .run(&source, &Sink::new(&ours).expect("a sink"))
        .expect("sends");
    drop(ours);
    assert_eq!(account.bytes(), len);
    assert_eq!(reader.join().expect("reads"), len);
}
