//! Trees on the real file system.

mod attacks;
mod faults;
mod foreign;
mod hostile;
mod kills;
mod merged;
mod resumed;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use underpass_tar::{END, Member, MemberKind, SparseExtent, TarTime, padding};
use underpass_testkit::wait_for;

use super::*;
use crate::area::{Area, UploadsMax};
use crate::folder::UPLOADS_FOLDER;

const TIME: TarTime = TarTime {
    seconds: 1_000_000_000,
    nanoseconds: 123_456_789,
};

fn open(folder: &Path) -> Area {
    Area::open(File::open(folder).unwrap().as_fd(), None).unwrap()
}

fn area() -> (tempfile::TempDir, Area) {
    let folder = tempfile::tempdir().unwrap();
    let area = open(folder.path());
    (folder, area)
}

/// Opens a tree again as soon as no child of another test has its lock.
fn resumed(area: &Area, id: &UploadId) -> Result<PartialTree, Error> {
    wait_for("lock of the tree", || {
        match area.resume_tree(id, SystemTime::now(), settings()) {
            Err(Error::Busy) => None,
            resumed => Some(resumed),
        }
    })
}

fn path(text: &str) -> RelativePath {
    RelativePath::parse(text.as_bytes()).unwrap()
}

/// The usual settings, without waiting for the disk.
fn settings() -> TreeSettings {
    TreeSettings {
        sync: SyncPolicy::None,
        ..TreeSettings::default()
    }
}

const FEW: UploadsMax = UploadsMax {
    all: 9,
    per_client: 9,
};

const ONE: UploadsMax = UploadsMax {
    all: 1,
    per_client: 1,
};

fn hour() -> UploadRecord {
    UploadRecord::new(Some("t"), None, Duration::from_secs(3600))
}

/// The members of a stream with their contents.
type Members = Vec<(Member, Vec<u8>)>;

fn folder(path: &str, mode: u32) -> (Member, Vec<u8>) {
    (
        Member::new(path, MemberKind::Folder, mode, TIME),
        Vec::new(),
    )
}

fn file(path: &str, content: &[u8]) -> (Member, Vec<u8>) {
    let size = content.len() as u64;
    let kind = MemberKind::File { size };
    (Member::new(path, kind, 0o644, TIME), content.to_vec())
}

fn symlink(path: &str, target: &str) -> (Member, Vec<u8>) {
    let kind = MemberKind::Symlink(target.into());
    (Member::new(path, kind, 0o777, TIME), Vec::new())
}

fn hard_link(path: &str, target: &str) -> (Member, Vec<u8>) {
    let kind = MemberKind::HardLink(target.into());
    (Member::new(path, kind, 0o644, TIME), Vec::new())
}

fn sparse(path: &str) -> (Member, Vec<u8>) {
    let extents = vec![
        SparseExtent {
            offset: 1 << 20,
            len: 4096,
        },
        SparseExtent {
            offset: 3 << 20,
            len: 5,
        },
    ];
    let kind = MemberKind::SparseFile {
        size: 4 << 20,
        extents,
    };
    (Member::new(path, kind, 0o600, TIME), vec![b's'; 4101])
}

/// Everything that a tree may have.
fn everything() -> Members {
    vec![
        folder("./", 0o750),
        folder("./d", 0o755),
        file("./d/empty", b""),
        file("./d/small", b"small"),
        folder("./d/locked", 0o555),
        file("./d/locked/inside", &[b'i'; 512]),
        folder("./d/locked/deeper", 0o700),
        file("./d/locked/deeper/large", &content(200_000)),
        file("./d/after", b"after the folder"),
        symlink("./d/link", "../d/small"),
        hard_link("./d/other name", "./d/small"),
        hard_link("./top", "./d/locked/deeper/large"),
        sparse("./d/holes"),
        file("./implied/by/its/path", b"p"),
        file("./last \u{fc}\n\\", b"odd name"),
    ]
}

fn content(size: usize) -> Vec<u8> {
    (0..size).map(|at| (at * 7 % 251) as u8).collect()
}

/// The headers, content and padding of a member.
fn part((member, content): &(Member, Vec<u8>)) -> Vec<u8> {
    let mut part = Vec::new();
    member.write(&mut part);
    part.extend_from_slice(content);
    part.extend_from_slice(padding(content.len() as u64));
    part
}

fn stream(members: &[(Member, Vec<u8>)]) -> Vec<u8> {
    let mut stream: Vec<u8> = members.iter().flat_map(part).collect();
    stream.extend_from_slice(&END);
    stream
}

/// Continues a stream behind a checkpoint, as a sender does: by the members that it has.
fn rest(members: &[(Member, Vec<u8>)], checkpoint: &TreeCheckpoint) -> Vec<u8> {
    let (mut chain, mut parts) = (HeaderChain::new(), members.iter());
    for part in parts.by_ref().take(checkpoint.members as usize) {
        let mut headers = Vec::new();
        part.0.write(&mut headers);
        chain = chain.then(&headers);
    }
    assert_eq!(chain, checkpoint.chain, "the source has changed");
    let mut left = stream(parts.as_slice());
    if let Some(cut) = &checkpoint.cut {
        let mut headers = Vec::new();
        parts.as_slice()[0].0.write(&mut headers);
        left.drain(headers.len()..headers.len() + cut.offset as usize);
    }
    left
}

/// Lists what is in a folder: type, mode, time, links, content.
fn listing(folder: &Path) -> BTreeMap<String, String> {
    let mut listing = BTreeMap::new();
    let mut left = vec![folder.to_owned()];
    while let Some(next) = left.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            let stat = fs::symlink_metadata(&path).unwrap();
            let (mode, time) = (stat.mode() & 0o7777, (stat.mtime(), stat.mtime_nsec()));
            let line = if stat.is_dir() {
                left.push(path.clone());
                format!("folder {mode:o} {time:?}")
            } else if stat.is_symlink() {
                format!("link {time:?} {:?}", fs::read_link(&path).unwrap())
            } else {
                let hash = blake3::hash(&fs::read(&path).unwrap());
                format!("file {mode:o} {time:?} {} {hash}", stat.nlink())
            };
            let name = path.strip_prefix(folder).unwrap().as_os_str();
            listing.insert(name.as_bytes().escape_ascii().to_string(), line);
        }
    }
    listing
}

/// What [`everything`] is to become.
fn expected(members: &[(Member, Vec<u8>)]) -> BTreeMap<String, String> {
    let time = (TIME.seconds, i64::from(TIME.nanoseconds));
    let name = |path: &[u8]| {
        let path = path.strip_prefix(b"./").unwrap_or(path);
        path.escape_ascii().to_string()
    };
    let mut links = BTreeMap::<String, u64>::new();
    for (member, _) in members {
        if let MemberKind::HardLink(target) = &member.kind {
            *links.entry(name(target)).or_default() += 1;
        }
    }
    let mut listing = BTreeMap::<String, String>::new();
    for (member, content) in members {
        let path = name(&member.path);
        let links = 1 + links.get(&path).copied().unwrap_or_default();
        let mode = member.mode;
        let line = match &member.kind {
            MemberKind::Folder => format!("folder {mode:o} {time:?}"),
            MemberKind::Symlink(target) => {
                format!("link {time:?} {:?}", std::ffi::OsStr::from_bytes(target))
            }
            MemberKind::HardLink(target) => listing[&name(target)].clone(),
            MemberKind::SparseFile { size, extents } => {
                let (mut whole, mut at) = (vec![0; *size as usize], 0);
                for extent in extents {
                    let (start, len) = (extent.offset as usize, extent.len as usize);
                    whole[start..start + len].copy_from_slice(&content[at..at + len]);
                    at += len;
                }
                format!("file {mode:o} {time:?} {links} {}", blake3::hash(&whole))
            }
            _ => format!("file {mode:o} {time:?} {links} {}", blake3::hash(content)),
        };
        if !path.is_empty() {
            listing.insert(path, line);
        }
    }
    listing
}

/// Whether a tree is what its members say. Folders that they do not name may have any metadata.
fn assert_is(folder: &Path, members: &[(Member, Vec<u8>)]) {
    let (found, expected) = (listing(folder), expected(members));
    for (path, line) in &expected {
        assert_eq!(found.get(path), Some(line), "{path}");
    }
    let is_implied = |path: &String| expected.keys().any(|other| other.starts_with(path));
    let others = found.keys().filter(|path| !expected.contains_key(*path));
    let others: Vec<_> = others.filter(|path| !is_implied(path)).collect();
    assert!(others.is_empty(), "{others:?}");
}

fn partial_files(folder: &Path) -> usize {
    fs::read_dir(folder.join(UPLOADS_FOLDER)).map_or(0, Iterator::count)
}

#[test]
fn a_tree_appears_whole_with_its_metadata_however_it_arrives() {
    let members = everything();
    let stream = stream(&members);
    for size in [1000, 512, 7777, usize::MAX] {
        let (folder, area) = area();
        let mut tree = area.begin_tree(settings()).unwrap();
        for piece in stream.chunks(size.min(stream.len())) {
            tree.push(piece).unwrap();
        }
        assert!(matches!(tree.wants(), TreeInput::End));
        assert_eq!(
            fs::read_dir(folder.path()).unwrap().count(),
            1,
            "visible early"
        );
        let summary = tree.commit(&path("new/t"), TreeMerge::Refused).unwrap();
        assert_eq!((summary.files, summary.folders, summary.links), (8, 4, 3));
        assert_is(&folder.path().join("new/t"), &members);
        let top = fs::metadata(folder.path().join("new/t")).unwrap();
        assert_eq!((top.mode() & 0o7777, top.mtime()), (0o750, TIME.seconds));
        let holes = fs::metadata(folder.path().join("new/t/d/holes")).unwrap();
        assert!(holes.blocks() * 512 < 1 << 20, "holes are kept");
        assert_eq!(partial_files(folder.path()), 0);
    }
}

#[test]
fn content_is_moved_past_the_tree_by_whoever_receives_it() {
    let members = everything();
    let stream = stream(&members);
    let (folder, area) = area();
    let mut tree = area.begin_tree(settings()).unwrap();
    let (mut at, mut moved) = (0, 0);
    loop {
        match tree.wants() {
            TreeInput::Headers(bytes) => {
                tree.push(&stream[at..at + bytes]).unwrap();
                at += bytes;
            }
            TreeInput::Content { file, offset, len } => {
                let len = len.min(3000) as usize;
                let written = File::from(file.try_clone().unwrap());
                written.write_all_at(&stream[at..at + len], offset).unwrap();
                tree.moved(len as u64).unwrap();
                (at, moved) = (at + len, moved + len as u64);
            }
            TreeInput::End => break,
        }
    }
    assert_eq!(at, stream.len());
    assert_eq!(tree.progress(), (members.len() as u64, moved));
    tree.commit(&path("t"), TreeMerge::Refused).unwrap();
    assert_is(&folder.path().join("t"), &members);
}

#[test]
fn folders_get_their_metadata_in_any_order_of_members() {
    let mut members = everything();
    let mut rng = fastrand::Rng::with_seed(5);
    for round in 0..20 {
        // Hard links come after their targets, the rest in any order.
        let is_link = |(member, _): &(Member, _)| matches!(member.kind, MemberKind::HardLink(_));
        let (links, mut others): (Members, Members) = members.into_iter().partition(is_link);
        rng.shuffle(&mut others);
        members = others.into_iter().chain(links).collect();
        let (folder, area) = area();
        let mut tree = area.begin_tree(settings()).unwrap();
        tree.push(&stream(&members)).unwrap();
        tree.commit(&path("t"), TreeMerge::Refused).unwrap();
        let named = members
            .iter()
            .filter(|(member, _)| member.kind != MemberKind::Folder);
        let named: Members = named.cloned().collect();
        let (found, expected) = (listing(&folder.path().join("t")), expected(&members));
        for (path, line) in &expected {
            assert_eq!(found.get(path), Some(line), "round {round}: {path}");
        }
        assert!(found.len() > named.len());
    }
}

#[test]
fn metadata_is_that_of_the_sender_only_as_far_as_it_is_asked_for() {
    let mut member = file("f", b"content").0;
    member.mode = 0o6751;
    member.owner.uid = 12345;
    member.owner.gid = 12346;
    member.xattrs.insert(b"user.a".to_vec(), b"value".to_vec());
    member
        .xattrs
        .insert(b"security.capability".to_vec(), b"x".to_vec());
    let mut d = folder("d", 0o1777);
    d.0.xattrs.insert(b"user.b".to_vec(), b"value".to_vec());
    let members = vec![d, (member, b"content".to_vec())];
    let receive = |preserve| {
        let (folder, area) = area();
        let settings = TreeSettings {
            preserve,
            ..settings()
        };
        let mut tree = area.begin_tree(settings).unwrap();
        tree.push(&stream(&members)).unwrap();
        let summary = tree.commit(&path("t"), TreeMerge::Refused).unwrap();
        let stat = fs::metadata(folder.path().join("t/f")).unwrap();
        let d = fs::metadata(folder.path().join("t/d")).unwrap();
        let mut value = [0; 9];
        let name = folder.path().join("t/f");
        let value = rustix::fs::getxattr(name, "user.a", &mut value).ok();
        (stat, d, value, summary)
    };
    let usual = PreservedMetadata::default();
    let (stat, d, value, summary) = receive(usual);
    assert_eq!((stat.mode() & 0o7777, d.mode() & 0o7777), (0o751, 0o777));
    assert_eq!((stat.mtime(), value), (TIME.seconds, None));
    assert_eq!(stat.uid(), rustix::process::geteuid().as_raw());
    assert_eq!(summary.xattrs_left_out, 3);
    let (stat, d, ..) = receive(PreservedMetadata {
        special_mode_bits: true,
        ..usual
    });
    assert_eq!((stat.mode() & 0o7777, d.mode() & 0o7777), (0o6751, 0o1777));
    let (stat, ..) = receive(PreservedMetadata {
        times: false,
        mode: false,
        ..usual
    });
    assert!(stat.mtime() > TIME.seconds);
    assert_eq!(stat.mode() & 0o7022, 0, "the umask applies");
    let (.., value, summary) = receive(PreservedMetadata {
        xattrs: true,
        ..usual
    });
    // Not every file system has attributes.
    match value {
        Some(length) => assert_eq!((length, summary.xattrs_left_out), (5, 1)),
        None => assert_eq!(summary.xattrs_left_out, 3),
    }
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn owners_are_taken_over_if_asked() {
    let (folder, area) = area();
    let mut members = everything();
    for (member, _) in &mut members {
        member.owner.uid = 12345;
        member.owner.gid = 12346;
        member.mode |= 0o4000;
    }
    let settings = TreeSettings {
        preserve: PreservedMetadata {
            owner: true,
            special_mode_bits: true,
            ..PreservedMetadata::default()
        },
        ..settings()
    };
    let mut tree = area.begin_tree(settings).unwrap();
    tree.push(&stream(&members)).unwrap();
    tree.commit(&path("t"), TreeMerge::Refused).unwrap();
    for (member, _) in &members {
        let path = String::from_utf8(member.path.clone()).unwrap();
        let stat = fs::symlink_metadata(folder.path().join("t").join(&path)).unwrap();
        assert_eq!((stat.uid(), stat.gid()), (12345, 12346), "{path}");
        // A change of the owner clears setuid: the mode has to come after it.
        assert!(stat.is_symlink() || stat.mode() & 0o4000 != 0, "{path}");
    }
}
