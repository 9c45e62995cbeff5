use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::*;

const MIB: u64 = 1 << 20;

fn go_on(_: u64) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn compared(source: &File, dest: &File, len: u64) -> Comparison {
    compare(source.as_fd(), dest.as_fd(), len, &mut go_on).unwrap()
}

fn file(folder: &Path, name: &str, content: &[u8]) -> File {
    let path = folder.join(name);
    fs::write(&path, content).unwrap();
    File::options().read(true).write(true).open(path).unwrap()
}

/// Creates a sparse file of this length with these bytes as its only data.
fn sparse(folder: &Path, name: &str, len: u64, bytes: &[(u64, u8)]) -> File {
    let file = file(folder, name, b"");
    file.set_len(len).unwrap();
    for &(at, byte) in bytes {
        file.write_all_at(&[byte], at).unwrap();
    }
    file
}

#[test]
fn equal_content_has_its_hash() {
    let folder = tempfile::tempdir().unwrap();
    let content: Vec<u8> = (0..3_000_017_u32).map(|at| (at % 251) as u8).collect();
    let one = file(folder.path(), "one", &content);
    let other = file(folder.path(), "other", &content);
    for len in [0, 1, MIB - 1, MIB, MIB + 1, content.len() as u64] {
        let hash = blake3::hash(&content[..len as usize]).to_hex().to_string();
        assert_eq!(
            compared(&one, &other, len),
            Comparison::Equal(hash),
            "{len}"
        );
    }
}

#[test]
fn the_first_difference_is_reported_exactly() {
    let folder = tempfile::tempdir().unwrap();
    let content = vec![7; 2 * MIB as usize + 9];
    let one = file(folder.path(), "one", &content);
    let last = content.len() as u64 - 1;
    for at in [last, MIB, MIB - 1, 5, 0] {
        let other = file(folder.path(), "other", &content);
        other.write_all_at(&[8], at).unwrap();
        other.write_all_at(&[9], last).unwrap();
        assert_eq!(
            compared(&one, &other, last + 1),
            Comparison::DifferentAt(at)
        );
        assert!(matches!(compared(&one, &other, at), Comparison::Equal(_)));
    }
}

#[test]
fn bytes_that_lack_differ() {
    let folder = tempfile::tempdir().unwrap();
    let long = file(folder.path(), "long", &[1; 100]);
    let short = file(folder.path(), "short", &[1; 40]);
    let different = Comparison::DifferentAt(40);
    assert_eq!(compared(&long, &short, 100), different);
    assert_eq!(compared(&short, &long, 100), different);
    assert_eq!(compared(&short, &short, 100), different);
    assert!(matches!(compared(&short, &long, 40), Comparison::Equal(_)));
    // Missing bytes count as a difference in holes too.
    let long = sparse(folder.path(), "long", 9 * MIB, &[]);
    let short = sparse(folder.path(), "short", 3 * MIB + 1, &[]);
    let different = Comparison::DifferentAt(3 * MIB + 1);
    assert_eq!(compared(&long, &short, 9 * MIB), different);
    assert_eq!(compared(&short, &long, 9 * MIB), different);
    assert_eq!(compared(&short, &short, 9 * MIB), different);
}

#[test]
fn terabytes_of_hole_take_no_time() {
    const TIB: u64 = 1 << 40;
    let folder = tempfile::tempdir().unwrap();
    let bytes = [(0, 1), (5 * TIB + 12_345, 2)];
    let one = sparse(folder.path(), "one", 10 * TIB, &bytes);
    let other = sparse(folder.path(), "other", 10 * TIB, &bytes);
    let (mut reported, mut ticks) = (0, 0);
    let mut tick = |more| {
        reported += more;
        ticks += 1;
        assert!(ticks < 100, "reading them would take an hour");
        ControlFlow::Continue(())
    };
    let result = compare(one.as_fd(), other.as_fd(), 10 * TIB, &mut tick).unwrap();
    assert!(matches!(result, Comparison::Equal(_)));
    assert_eq!(reported, 10 * TIB);

    other.write_all_at(&[3], 7 * TIB).unwrap();
    assert_eq!(
        compared(&one, &other, 10 * TIB),
        Comparison::DifferentAt(7 * TIB)
    );
}

#[test]
fn holes_and_zeros_are_the_same_content() {
    let folder = tempfile::tempdir().unwrap();
    let len = 2 * content_hash::STRETCH_BYTES + 3 * MIB;
    let ends = [(0, 5), (len - 1, 6)];
    let holes = sparse(folder.path(), "holes", len, &ends);
    let more_holes = sparse(folder.path(), "more", len, &ends);
    let mut content = vec![0; len as usize];
    (content[0], content[len as usize - 1]) = (5, 6);
    let zeros = file(folder.path(), "zeros", &content);
    let hash = compared(&holes, &more_holes, len);
    assert!(matches!(hash, Comparison::Equal(_)));
    assert_eq!(compared(&zeros, &zeros, len), hash);
    assert_eq!(compared(&holes, &zeros, len), hash);
    assert_eq!(compared(&zeros, &holes, len), hash);
}

#[test]
fn it_stops_when_it_is_cancelled() {
    let folder = tempfile::tempdir().unwrap();
    let one = file(folder.path(), "one", &vec![1; 3 * MIB as usize]);
    let mut ticks = Vec::new();
    let mut tick = |more| {
        ticks.push(more);
        match ticks.len() {
            2 => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    };
    let result = compare(one.as_fd(), one.as_fd(), 3 * MIB, &mut tick);
    assert_eq!(result, Ok(Comparison::Stopped));
    assert_eq!(ticks, [MIB, MIB]);
}

#[test]
fn the_side_that_fails_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let good = file(folder.path(), "good", b"x");
    let bad = File::open(folder.path()).unwrap();
    let compare = |source: &File, dest: &File| {
        compare(source.as_fd(), dest.as_fd(), 1, &mut go_on).unwrap_err()
    };
    assert_eq!(compare(&good, &bad), (Side::Sink, Errno::ISDIR));
    assert_eq!(compare(&bad, &good), (Side::Source, Errno::ISDIR));
}

#[test]
fn a_forgotten_file_reads_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let one = file(folder.path(), "one", &[3; 100_000]);
    one.sync_all().unwrap();
    forget_pages(one.as_fd());
    assert!(matches!(
        compared(&one, &one, 100_000),
        Comparison::Equal(_)
    ));
}
