//! Archives of GNU tar, bsdtar and busybox, and ours unpacked by them.

use std::fs::{self, File, FileTimes};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use underpass_tar::{END, Member, MemberKind, SparseExtent, TarTime, padding};

use crate::listing::{Listing, differences, of_folder, of_members, read, run};

const LONG: &str = "a name of a hundred and forty bytes ";

/// Makes a tree with everything that the formats have: what is long, what is not ASCII, links.
fn tree(folder: &Path) {
    let long = LONG.repeat(3);
    fs::create_dir_all(folder.join(&long).join(&long)).unwrap();
    fs::create_dir(folder.join("empty")).unwrap();
    let mut files = vec![
        ("empty/file".to_owned(), 0),
        ("one".to_owned(), 1),
        ("block".to_owned(), 512),
        ("more".to_owned(), 100_000),
        ("\u{fc}ml\u{e4}ut".to_owned(), 5),
    ];
    files.push((format!("{long}/{long}/file"), 700));
    for (name, size) in files {
        let path = folder.join(&name);
        let content: Vec<u8> = (0..size).map(|at| (at % 251) as u8 + 1).collect();
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    }
    fs::hard_link(folder.join("one"), folder.join("other name")).unwrap();
    fs::hard_link(folder.join("more"), folder.join(&long).join("hard")).unwrap();
    symlink("one", folder.join("link")).unwrap();
    symlink("t".repeat(150), folder.join("long link")).unwrap();
    let sparse = File::create(folder.join("sparse")).unwrap();
    for block in 0..40 {
        sparse.write_all_at(b"content", block << 17).unwrap();
    }
    sparse.set_len(41 << 17).unwrap();
    set_times(folder);
}

/// Sets the times of everything, innermost first.
fn set_times(folder: &Path) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let stat = fs::symlink_metadata(&path).unwrap();
        if stat.is_dir() {
            set_times(&path);
        }
        if !stat.is_symlink() {
            let time = UNIX_EPOCH + Duration::new(1_000_000_000, 123_456_789);
            let times = FileTimes::new().set_modified(time).set_accessed(time);
            File::open(&path).unwrap().set_times(times).unwrap();
        }
    }
}

/// Reads what a program has packed, and compares it with the tree.
fn reads(program: &str, formats: &[&[&str]]) {
    let folder = tempfile::tempdir().unwrap();
    tree(folder.path());
    let expected = of_folder(folder.path());
    for options in formats {
        let arguments = [*options, &["-f", "-", "."]].concat();
        let packed = run(program, &arguments, folder.path(), b"");
        // What a format cannot hold is left out, with a message; the rest must be read.
        let message = String::from_utf8_lossy(&packed.stderr);
        let found = of_members(&read(&packed.stdout).unwrap());
        assert!(found.len() > 6, "{options:?}: {message}");
        let is_whole = packed.status.success() && message.is_empty();
        if is_whole {
            let differences = differences(&found, &expected);
            assert!(
                differences.is_empty(),
                "{program} {options:?}: {differences:?}"
            );
        }
        let is_old = options
            .iter()
            .any(|option| option.contains("v7") || option.contains("ustar"));
        assert!(is_whole || is_old, "{program} {options:?}: {message}");
        for (path, line) in found {
            // GNU tar says that it leaves this one out, and writes it, truncated.
            if is_old && path == "long link" {
                continue;
            }
            assert_eq!(expected.get(&path), Some(&line), "{program} {options:?}");
        }
    }
}

#[test]
#[ignore = "needs tar; run by cargo xtask test"]
fn archives_of_gnu_tar_are_read_in_every_format() {
    reads(
        "tar",
        &[
            &["-c", "--format=gnu"],
            &["-c", "--format=oldgnu", "--sparse"],
            &["-c", "--format=posix"],
            &["-c", "--format=posix", "--sparse", "--sparse-version=0.0"],
            &["-c", "--format=posix", "--sparse", "--sparse-version=0.1"],
            &["-c", "--format=posix", "--sparse", "--sparse-version=1.0"],
            &[
                "-c",
                "--format=posix",
                "--pax-option=globexthdr.name=g,comment=c",
            ],
            &[
                "-c",
                "--format=posix",
                "--numeric-owner",
                "--blocking-factor=1",
            ],
            &["-c", "--format=ustar"],
            &["-c", "--format=v7"],
        ],
    );
}

#[test]
#[ignore = "needs bsdtar; run by cargo xtask test"]
fn archives_of_bsdtar_are_read_in_every_format() {
    reads(
        "bsdtar",
        &[
            &["-c", "--format=pax"],
            &["-c", "--format=pax", "--read-sparse"],
            &["-c", "--format=gnutar"],
            &["-c"],
            &["-c", "--format=ustar"],
            &["-c", "--format=v7"],
        ],
    );
}

#[test]
#[ignore = "needs busybox; run by cargo xtask test"]
fn archives_of_busybox_are_read() {
    reads("busybox", &[&["tar", "-c"]]);
}

/// Our archive of a tree, and what it describes.
fn own(with_holes: bool) -> Vec<u8> {
    let modified = TarTime {
        seconds: 1_000_000_000,
        nanoseconds: 123_456_789,
    };
    let long = [LONG.repeat(3), LONG.repeat(3)].join("/");
    let extents = vec![
        SparseExtent {
            offset: 4096,
            len: 512,
        },
        SparseExtent {
            offset: 1 << 20,
            len: 5,
        },
    ];
    let mut members: Vec<(&str, MemberKind, Vec<u8>)> = vec![
        (".", MemberKind::Folder, Vec::new()),
        ("./d", MemberKind::Folder, Vec::new()),
        ("./d/empty", MemberKind::File { size: 0 }, Vec::new()),
        ("./d/file", MemberKind::File { size: 5 }, b"12345".to_vec()),
        (
            "./d/\u{fc}",
            MemberKind::File { size: 512 },
            vec![b'u'; 512],
        ),
        (
            "./d/hard",
            MemberKind::HardLink(b"./d/file".to_vec()),
            Vec::new(),
        ),
        (
            "./d/link",
            MemberKind::Symlink(b"file".to_vec()),
            Vec::new(),
        ),
        (
            "./d/long link",
            MemberKind::Symlink(vec![b't'; 150]),
            Vec::new(),
        ),
    ];
    let deep = format!("./{long}/file");
    let (outer, _) = long.split_once('/').unwrap();
    let (outer, inner) = (format!("./{outer}"), format!("./{long}"));
    members.push((&outer, MemberKind::Folder, Vec::new()));
    members.push((&inner, MemberKind::Folder, Vec::new()));
    members.push((&deep, MemberKind::File { size: 700 }, vec![b'd'; 700]));
    if with_holes {
        let kind = MemberKind::SparseFile {
            size: 2 << 20,
            extents,
        };
        members.push(("./sparse", kind, vec![b's'; 517]));
    }
    let mut stream = Vec::new();
    for (path, kind, content) in members {
        let mode = if kind == MemberKind::Folder {
            0o750
        } else {
            0o640
        };
        Member::new(path, kind, mode, modified).write(&mut stream);
        stream.extend_from_slice(&content);
        stream.extend_from_slice(padding(content.len() as u64));
    }
    stream.extend_from_slice(&END);
    stream
}

/// Removes the times of folders, which busybox does not restore.
fn without_folder_times(listing: Listing) -> Listing {
    let without = |line: String| match line.strip_prefix("folder") {
        Some(_) => line[..line.rfind(' ').unwrap()].to_owned(),
        None => line,
    };
    listing
        .into_iter()
        .map(|(path, line)| (path, without(line)))
        .collect()
}

fn is_unpacked_by(program: &str, arguments: &[&str], with_holes: bool) {
    let stream = own(with_holes);
    let mut expected = of_members(&read(&stream).unwrap());
    let folder = tempfile::tempdir().unwrap();
    let unpacked = run(program, arguments, folder.path(), &stream);
    let message = String::from_utf8_lossy(&unpacked.stderr);
    assert!(
        unpacked.status.success() && message.is_empty(),
        "{program}: {message}"
    );
    let mut unpacked = of_folder(folder.path());
    if program == "busybox" {
        expected = without_folder_times(expected);
        unpacked = without_folder_times(unpacked);
    }
    let differences = differences(&unpacked, &expected);
    assert!(differences.is_empty(), "{program}: {differences:?}");
}

#[test]
#[ignore = "needs tar; run by cargo xtask test"]
fn gnu_tar_unpacks_what_is_written() {
    is_unpacked_by("tar", &["-x", "-p", "-f", "-"], true);
}

#[test]
#[ignore = "needs bsdtar; run by cargo xtask test"]
fn bsdtar_unpacks_what_is_written() {
    is_unpacked_by("bsdtar", &["-x", "-p", "-f", "-"], true);
}

// Busybox reads no sparse files.
#[test]
#[ignore = "needs busybox; run by cargo xtask test"]
fn busybox_unpacks_what_is_written() {
    is_unpacked_by("busybox", &["tar", "-x", "-p", "-f", "-"], false);
}
