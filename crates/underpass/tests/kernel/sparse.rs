//! Holes stay holes: random maps of data and holes through every mechanism.

use std::cell::Cell;
use std::fs::File;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::Path;

use underpass::{Fault, Host, Mechanism, Policy, Progress, Sink, Source, drive::blocking::Driver};

use crate::content;
use crate::copies::copy;
use crate::maps::{Map, allocated, data_of, hash_of};
use crate::places::{Place, all};

const COPYING: [Mechanism; 4] = [
    Mechanism::CopyRange,
    Mechanism::Sendfile,
    Mechanism::Splice,
    Mechanism::ReadWrite,
];

/// What the copy may take more: a file system rounds up and keeps lists.
const SLACK: u64 = 64 << 10;

fn maps() -> Vec<Map> {
    let random = (0..24).map(Map::random);
    Map::special().into_iter().chain(random).collect()
}

/// A sparse source, and what was found out about it.
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

/// Copies, compares, and answers where the copy has data.
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
    let (taken, had) = (allocated(&sink), source.allocated);
    assert!(
        taken <= had + SLACK,
        "{what}: {taken} bytes allocated, not {had}"
    );
    let data = data_of(&sink);
    std::fs::remove_file(path).expect("gone");
    data
}

#[test]
#[ignore = "needs root, mount, xfsprogs, btrfs-progs; run by cargo xtask test"]
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
#[ignore = "needs root, mount, xfsprogs, btrfs-progs; run by cargo xtask test"]
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
#[ignore = "needs root, mount, xfsprogs, btrfs-progs; run by cargo xtask test"]
fn old_bytes_do_not_shine_through_holes() {
    for place in all() {
        for map in Map::special().into_iter().chain((0..4).map(Map::random)) {
            let source = place.file();
            map.write(&source, 11);
            for policy in COPYING
                .map(Policy::only)
                .into_iter()
                .chain([Policy::default()])
            {
                let sink = place.file();
                let len = map.len as usize;
                sink.write_all_at(&content::bytes(12, len), 0)
                    .expect("room");
                copy(policy, &source, &sink).expect("copies");
                let what = format!("{}, {map:?}, {:?}", place.name, policy.choice);
                assert_eq!(hash_of(&sink), hash_of(&source), "{what}");
            }
        }
    }
}

/// Parts of a sparse file, moved to another place of a fresh sink.
#[test]
#[ignore = "needs root, mount, xfsprogs, btrfs-progs; run by cargo xtask test"]
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
                Driver::new(&Host::unprobed())
                    .policy(Policy::only(mechanism))
                    .run(&source, &Sink::at(&sink, to).expect("a sink"))
                    .unwrap_or_else(|error| panic!("{what}: {error}"));
                let mut expected = vec![0; to as usize];
                expected.extend_from_slice(&all[from as usize..(from + len) as usize]);
                assert_eq!(hash_of(&sink), content::hash(&expected), "{what}");
            }
        }
    }
}

#[test]
#[ignore = "needs root, mount, xfsprogs, btrfs-progs; run by cargo xtask test"]
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
                let error = Driver::new(&Host::unprobed())
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
                content::assert_same(&is, &was, &what);
            }
        }
    }
}
