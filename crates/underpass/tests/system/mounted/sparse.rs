//! Holes stay holes: random maps of data and holes through every mechanism.

use std::cell::Cell;
use std::fs::File;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use underpass::{
    Fault, Holes, Kernel, Mechanism, Policy, Progress, Sink, Source, drive::blocking::Driver,
};

use underpass_testkit as testkit;

use super::copies::copy;
use super::maps::{Map, allocated, data_of, hash_of};
use super::places::{Place, all};

const COPYING: [Mechanism; 4] = [
    Mechanism::CopyRange,
    Mechanism::Sendfile,
    Mechanism::Splice,
    Mechanism::ReadWrite,
];

/// Additional blocks allowed for a copy: a file system rounds up and keeps lists.
const SLACK: u64 = 64 << 10;

fn maps() -> Vec<Map> {
    let random = (0..24).map(Map::random);
    Map::special().into_iter().chain(random).collect()
}

fn with(holes: Holes) -> Policy {
    Policy::default().holes(holes)
}

/// A sparse source, its hash and its allocated size.
struct Sparse {
    file: File,
    hash: String,
    allocated: u64,
}

impl Sparse {
    fn of(map: &Map, place: &Place, seed: u64) -> Self {
        let file = place.file();
        map.write(&file, seed);
        Self {
            hash: hash_of(&file),
            allocated: allocated(&file),
            file,
        }
    }
}

/// Copies, compares, and returns the map of the copy's data.
fn check(policy: Policy, source: &Sparse, path: &Path, what: &str) -> Vec<(u64, u64)> {
    let sink = File::create(path).expect("a new file");
    let account = copy(policy, &source.file, &sink);
    let account = account.unwrap_or_else(|error| panic!("{what}: {error}"));
    let len = source.file.metadata().expect("metadata").len();
    assert_eq!(account.bytes() + account.holes, len, "{what}: {account}");
    sink.sync_all().expect("allocated");
    drop(sink);
    let sink = File::open(path).expect("opens");
    assert_eq!(sink.metadata().expect("metadata").len(), len, "{what}");
    assert_eq!(hash_of(&sink), source.hash, "{what}");
    // XFS frees blocks beyond the end when a writer closes the file, unless its lock is taken at
    // that moment. Blocks allocated before the end would stay.
    let had = source.allocated;
    testkit::wait_until(&format!("{what}: at most {had} bytes allocated"), || {
        drop(File::options().write(true).open(path).expect("opens"));
        allocated(&sink) <= had + SLACK
    });
    let data = data_of(&sink);
    std::fs::remove_file(path).expect("gone");
    data
}

#[test]
#[ignore = "needs root, mounts, loop devices, ext4, XFS and Btrfs; run by cargo xtask test"]
fn holes_and_bytes_are_kept_within_a_file_system() {
    for place in all() {
        for (number, map) in maps().into_iter().enumerate() {
            let source = Sparse::of(&map, place, 9);
            let policies = COPYING.map(Policy::only).into_iter();
            for policy in policies.chain([Policy::default()]) {
                let what = format!("{}, map {number} {map:?}, {:?}", place.name, policy.choice);
                let data = check(policy, &source, &place.path(), &what);
                assert_eq!(data, data_of(&source.file), "{what}");
            }
        }
    }
}

#[test]
#[ignore = "needs root, mounts, loop devices, ext4, XFS and Btrfs; run by cargo xtask test"]
fn holes_and_bytes_are_kept_between_file_systems() {
    for from in all() {
        for (number, map) in maps().into_iter().enumerate().step_by(3) {
            let source = Sparse::of(&map, from, 10);
            for to in all().iter().filter(|to| to.family != from.family) {
                for policy in [Policy::default(), Policy::only(Mechanism::Splice)] {
                    let what = format!("{} → {}, map {number} {map:?}", from.name, to.name);
                    check(policy, &source, &to.path(), &what);
                }
            }
        }
    }
}

/// A sink that has old bytes gets zeros, not holes through which they shine.
#[test]
#[ignore = "needs root, mounts, loop devices, ext4, XFS and Btrfs; run by cargo xtask test"]
fn old_bytes_do_not_shine_through_holes() {
    for place in all() {
        for map in Map::special().into_iter().chain((0..4).map(Map::random)) {
            let source = place.file();
            map.write(&source, 11);
            for policy in COPYING.map(Policy::only).into_iter().chain([
                Policy::default(),
                with(Holes::Fill),
                with(Holes::Find),
            ]) {
                let sink = place.file();
                let len = map.len as usize;
                sink.write_all_at(&testkit::content(12, len), 0)
                    .expect("room");
                copy(policy, &source, &sink).expect("copies");
                let what = format!("{}, {map:?}, {policy:?}", place.name);
                assert_eq!(hash_of(&sink), hash_of(&source), "{what}");
            }
        }
    }
}

/// `cp --sparse=never` allocates every byte on disk.
#[test]
#[ignore = "needs root, mounts, loop devices, ext4, XFS and Btrfs; run by cargo xtask test"]
fn holes_are_filled_where_every_byte_is_to_be_written() {
    for place in all() {
        for (number, map) in maps().into_iter().enumerate().step_by(2) {
            let what = format!("{}, map {number} {map:?}", place.name);
            let (source, path) = (place.file(), place.path());
            map.write(&source, 15);
            let sink = File::create_new(&path).expect("a new file");
            let account = copy(with(Holes::Fill), &source, &sink);
            let account = account.unwrap_or_else(|error| panic!("{what}: {error}"));
            sink.sync_all().expect("allocated");
            assert_eq!((account.bytes(), account.holes), (map.len, 0), "{what}");
            let taken = allocated(&sink);
            assert!(taken >= map.len, "{what}: {taken} bytes allocated");
            let sink = File::open(&path).expect("opens");
            assert_eq!(hash_of(&sink), hash_of(&source), "{what}");
            if place.family.clones() {
                assert!(!shares_blocks(&path), "{what}: {account}");
            }
            std::fs::remove_file(path).expect("gone");
        }
    }
}

fn shares_blocks(path: &Path) -> bool {
    let output = Command::new("filefrag").arg("-v").arg(path).output();
    let output = output.expect("filefrag, which comes with mkfs.ext4");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).contains("shared")
}

/// Shows that the test before this one can fail.
#[test]
#[ignore = "needs root, mounts, loop devices, ext4, XFS and Btrfs; run by cargo xtask test"]
fn shared_blocks_are_seen_where_they_are() {
    for place in all().iter().filter(|place| place.family.clones()) {
        let (source, path) = (place.file(), place.path());
        source
            .write_all_at(&testkit::content(16, 1 << 20), 0)
            .expect("room");
        let sink = File::create_new(&path).expect("a new file");
        copy(Policy::only(Mechanism::Clone), &source, &sink).expect("clones");
        sink.sync_all().expect("allocated");
        assert!(shares_blocks(&path), "{}", place.name);
        std::fs::remove_file(path).expect("gone");
    }
}

/// `cp --sparse=always` allocates nothing for zeros, wherever they are in the source.
#[test]
#[ignore = "needs root, mounts, loop devices, ext4, XFS and Btrfs; run by cargo xtask test"]
fn zeros_become_the_holes_that_they_would_have_been() {
    for place in all() {
        for (number, map) in maps().into_iter().enumerate() {
            let what = format!("{}, map {number} {map:?}", place.name);
            let sparse = Sparse::of(&map, place, 17);
            let dense = place.file();
            let mut content = vec![0; map.len as usize];
            sparse.file.read_exact_at(&mut content, 0).expect("reads");
            dense.write_all_at(&content, 0).expect("room");
            dense.sync_all().expect("allocated");
            let dense = Sparse {
                file: dense,
                hash: sparse.hash.clone(),
                allocated: sparse.allocated,
            };
            for source in [&sparse, &dense] {
                let data = check(with(Holes::Find), source, &place.path(), &what);
                assert_eq!(data, data_of(&sparse.file), "{what}");
            }
        }
    }
}

#[test]
#[ignore = "needs root, mounts, loop devices, ext4, XFS and Btrfs; run by cargo xtask test"]
fn a_large_file_of_zeros_takes_the_room_of_its_data() {
    const MIB: usize = 1 << 20;
    for place in all() {
        // In one piece, and in pieces that leave the file system room to allocate in advance.
        for pieces in [1, 16] {
            let what = format!("{}, {pieces} pieces", place.name);
            let mut content = vec![0; 64 * MIB];
            for piece in 0..pieces {
                let (at, len) = (piece * (64 * MIB / pieces) + 65_536, MIB / pieces);
                content[at..at + len].copy_from_slice(&testkit::content(18, len));
            }
            let (source, sink) = (place.file(), place.file());
            source.write_all_at(&content, 0).expect("room");
            let account = copy(with(Holes::Find), &source, &sink).expect("copies");
            sink.sync_all().expect("allocated");
            assert_eq!(account.bytes(), MIB as u64, "{what}: {account}");
            assert_eq!(account.holes, 63 * MIB as u64, "{what}: {account}");
            assert_eq!(hash_of(&sink), testkit::sha256(&content), "{what}");
            let taken = allocated(&sink);
            assert!(
                (MIB as u64..=MIB as u64 + SLACK).contains(&taken),
                "{what}: {taken} bytes allocated"
            );
        }
    }
}

/// Parts of a sparse file, moved to another place of a fresh sink.
#[test]
#[ignore = "needs root, mounts, loop devices, ext4, XFS and Btrfs; run by cargo xtask test"]
fn a_part_that_begins_or_ends_in_a_hole_arrives_in_place() {
    const MIB: u64 = 1 << 20;
    for place in all() {
        let source = place.file();
        let map = Map {
            len: 4 * MIB,
            data: vec![(MIB, MIB), (3 * MIB, 4096)],
        };
        map.write(&source, 13);
        let mut all = vec![0; 4 << 20];
        source.read_exact_at(&mut all, 0).expect("reads");
        for mechanism in COPYING {
            for (from, len, to) in [
                (0, MIB / 2, 0),
                (0, 2 * MIB, 4096),
                (MIB + 7, 2 * MIB, 3),
                (MIB + MIB / 2, MIB, MIB),
                (3 * MIB + 100, MIB - 100, 1),
            ] {
                let what = format!("{}, {mechanism}: {len} from {from} to {to}", place.name);
                let sink = place.file();
                let source = Source::range(&source, from, len).expect("a range");
                Driver::new(&Kernel::unprobed())
                    .policy(Policy::only(mechanism))
                    .run(&source, &Sink::at(&sink, to).expect("a sink"))
                    .unwrap_or_else(|error| panic!("{what}: {error}"));
                let mut expected = vec![0; to as usize];
                expected.extend_from_slice(&all[from as usize..(from + len) as usize]);
                assert_eq!(hash_of(&sink), testkit::sha256(&expected), "{what}");
            }
        }
    }
}

#[test]
#[ignore = "needs root, mounts, loop devices, ext4, XFS and Btrfs; run by cargo xtask test"]
fn a_sparse_source_that_shrinks_is_truncated() {
    const MIB: u64 = 1 << 20;
    for place in all() {
        for mechanism in COPYING {
            for len in [MIB / 2, 3 * MIB, 6 * MIB - 1] {
                let what = format!("{}, {mechanism}, cut to {len}", place.name);
                let source = place.file();
                let map = Map {
                    len: 6 * MIB,
                    data: vec![(0, MIB), (4 * MIB, MIB)],
                };
                map.write(&source, 14);
                let once = Cell::new(false);
                let mut watch = |progress: Progress| {
                    if progress.done > 0 && !once.replace(true) {
                        source.set_len(len).expect("cuts");
                    }
                    ControlFlow::Continue(())
                };
                let sink = place.file();
                let error = Driver::new(&Kernel::unprobed())
                    .policy(Policy::only(mechanism))
                    .call_bytes_max(100_000)
                    .watch(&mut watch)
                    .run(
                        &Source::whole(&source).expect("a source"),
                        &Sink::new(&sink).expect("a sink"),
                    )
                    .expect_err(&what);
                assert_eq!(error.fault, Fault::Truncated, "{what}: {error}");
                let got = sink.metadata().expect("metadata").len();
                assert!(
                    got <= error.moved().max(len),
                    "{what}: {error}, the sink has {got}"
                );
                let (mut is, mut was) = (vec![0; got as usize], vec![0; got as usize]);
                sink.read_exact_at(&mut is, 0).expect("reads");
                map.write(&source, 14);
                source.read_exact_at(&mut was, 0).expect("reads");
                testkit::assert_same(&is, &was, &what);
            }
        }
    }
}
