//! Files with large offsets, most of which are holes.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use rustix::fs::{FallocateFlags, fallocate};

use crate::copying::{CopyReport, MIB, cp, file, len, tree};
use underpass_testkit::{content, disk_folder};

const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;

/// Writes data at a few offsets in a file of that length.
fn islands(path: &Path, len: u64, offsets: &[u64]) {
    let file = File::create_new(path).expect("a new file");
    file.set_len(len).expect("a long one");
    for &offset in offsets {
        file.write_all_at(&content(offset, 100_000), offset)
            .expect("room");
    }
}

#[track_caller]
fn has_islands(path: &Path, len: u64, offsets: &[u64]) {
    let file = File::open(path).expect("there");
    let metadata = file.metadata().expect("there");
    assert_eq!(metadata.len(), len);
    let blocks = metadata.blocks() * 512;
    assert!(
        blocks <= (offsets.len() as u64 + 1) * 2 * MIB,
        "{blocks} bytes allocated"
    );
    for &offset in offsets {
        let mut there = vec![0; 100_000];
        file.read_exact_at(&mut there, offset).expect("reads");
        assert!(there == content(offset, 100_000), "at {offset}");
        if offset > 0 {
            let mut before = vec![1; 4096];
            file.read_exact_at(&mut before, offset - 8192)
                .expect("reads");
            assert!(before.iter().all(|byte| *byte == 0), "before {offset}");
        }
    }
}

#[test]
fn more_than_32_bits_of_bytes() {
    let folder = disk_folder();
    let path = |name: &str| folder.path().join(name);
    let all = 5 * GIB + 777;
    let offsets = [
        0,
        2 * GIB - 4096,
        4 * GIB - 49_152,
        4 * GIB + MIB,
        5 * GIB - 200_704,
    ];
    islands(&path("source"), all, &offsets);
    for (way, options) in [
        ("free", &["--verify"][..]),
        ("no offload", &["--reflink=never"]),
        ("sendfile", &["--only=sendfile"]),
        ("splice", &["--only=splice", "--verify"]),
        ("atomic", &["--atomic", "--resume", "--verify"]),
    ] {
        // A copy that moved the bytes of holes would allocate blocks for them, or count them.
        cp(options, &[path("source"), path(way)]).succeeded();
        has_islands(&path(way), all, &offsets);
    }
}

#[test]
fn ten_tebibytes_of_nothing_take_no_time() {
    let folder = disk_folder();
    let path = |name: &str| folder.path().join(name);
    let offsets = [3 * TIB, 10 * TIB - MIB];
    islands(&path("source"), 10 * TIB, &offsets);
    for options in [
        &[][..],
        &["--verify"],
        &["--resume"],
        &["--resume", "--verify"],
        &["--atomic", "--verify", "--fsync"],
        &["--sparse=always"],
    ] {
        // A copy that read the holes would not end within the bound of all waits.
        cp(options, &[path("source"), path("dest")]).succeeded();
        has_islands(&path("dest"), 10 * TIB, &offsets);
    }
    // The first island differs: it is detected, truncated, and copied again.
    let dest = File::options()
        .write(true)
        .open(path("dest"))
        .expect("ours");
    dest.write_all_at(&[0], 3 * TIB + 9).expect("room");
    let (name, _) = cp(&["--resume", "--json"], &[path("source"), path("dest")]).one_name();
    assert_eq!(name["resumed"], 3 * TIB + 9);
    has_islands(&path("dest"), 10 * TIB, &offsets);
}

#[test]
fn holes_stay_although_blocks_are_reserved_behind_the_end() {
    let folder = disk_folder();
    let path = |name: &str| folder.path().join(name);
    let (all, offsets) = (64 * MIB, [0, 32 * MIB]);
    islands(&path("source"), all, &offsets);
    let source = File::options().write(true).open(path("source"));
    let source = source.expect("there");
    fallocate(&source, FallocateFlags::KEEP_SIZE, all, 2 * all).expect("room");
    source.sync_all().expect("synced");
    for options in [&[][..], &["--atomic"], &["--resume", "--verify"]] {
        let dest = path(&format!("dest {options:?}"));
        cp(options, &[&path("source"), &dest]).succeeded();
        File::open(&dest)
            .and_then(|file| file.sync_all())
            .expect("synced");
        has_islands(&dest, all, &offsets);
    }
}

#[test]
fn holes_are_no_bytes_to_a_limit() {
    let folder = disk_folder();
    let path = |name: &str| folder.path().join(name);
    islands(&path("source"), 100 * GIB, &[50 * GIB]);
    // If holes counted, it would take a day, and no wait is that long.
    cp(&["--bwlimit=1M"], &[path("source"), path("dest")]).succeeded();
    has_islands(&path("dest"), 100 * GIB, &[50 * GIB]);
}

#[test]
fn many_sizes_around_the_edges_of_calls() {
    let folder = disk_folder();
    let path = |name: &str| folder.path().join(name);
    fs::create_dir(path("source")).expect("a folder");
    for edge in [1, 512, 4096, 65_536, MIB, 8 * MIB] {
        for size in [edge - 1, edge, edge + 1] {
            file(&path(&format!("source/{size}")), size, size);
        }
    }
    for (way, options) in [("a", &["-rT"][..]), ("b", &["-rT", "--verify", "--atomic"])] {
        cp(options, &[path("source"), path(way)]).succeeded();
        assert!(tree(&path("source")) == tree(&path(way)));
    }
    assert_eq!(len(&path("a/4097")), 4097);
}
