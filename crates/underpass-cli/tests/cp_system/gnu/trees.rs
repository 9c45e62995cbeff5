//! The contents of a world, and their creation on disk: always the same, to the nanosecond.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags, chmodat, chownat,
    lsetxattr, makedev, mknodat, utimensat,
};

/// Stands for the world's own path, at the beginning of an operand or of a link target.
pub(crate) const HERE: &[u8] = b"@/";

#[derive(Clone, Debug)]
pub(crate) struct Node {
    /// The path below the world.
    pub(crate) path: Vec<u8>,
    pub(crate) kind: Kind,
    pub(crate) mode: u32,
    pub(crate) owner: (u32, u32),
    /// The times of last access and of last change.
    pub(crate) times: [(i64, i64); 2],
    pub(crate) xattrs: Vec<(&'static str, Vec<u8>)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Folder,
    File(Content),
    /// The target, which may begin with [`HERE`].
    Symlink(Vec<u8>),
    /// Another name of this node.
    HardLink(Vec<u8>),
    Fifo,
    Socket,
    /// `/dev/null` under another name.
    Null,
    /// A block device without a driver.
    Block,
}

/// The content of a file; ranges that no piece covers are holes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Content {
    pub(crate) len: u64,
    pub(crate) pieces: Vec<Piece>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) offset: u64,
    pub(crate) len: usize,
    pub(crate) fill: Fill,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fill {
    /// Bytes other than 0, generated from this seed.
    Noise(u8),
    Zeros,
}

impl Content {
    /// Noise without a hole.
    pub(crate) fn plain(len: usize, seed: u8) -> Self {
        let fill = Fill::Noise(seed);
        let pieces = vec![Piece {
            offset: 0,
            len,
            fill,
        }];
        Self {
            len: len as u64,
            pieces,
        }
    }
}

impl Piece {
    fn bytes(&self) -> Vec<u8> {
        match self.fill {
            Fill::Zeros => vec![0; self.len],
            Fill::Noise(seed) => (0..self.len)
                .map(|at| (at.wrapping_mul(31) ^ (at >> 8) ^ usize::from(seed)) as u8 | 1)
                .collect(),
        }
    }
}

/// Returns the path on disk of a path below the world.
pub(crate) fn at(world: &Path, path: &[u8]) -> PathBuf {
    match path {
        [] => world.to_owned(),
        path => world.join(OsStr::from_bytes(path)),
    }
}

/// Appends a name to a path below the world.
pub(crate) fn join(folder: &[u8], name: &[u8]) -> Vec<u8> {
    match folder {
        [] => name.to_vec(),
        folder => [folder, b"/", name].concat(),
    }
}

/// Replaces a leading [`HERE`] by the world's path.
pub(crate) fn placed(world: &Path, text: &[u8]) -> Vec<u8> {
    match text.strip_prefix(HERE) {
        Some(rest) => [world.as_os_str().as_bytes(), b"/", rest].concat(),
        None => text.to_owned(),
    }
}

/// Makes a world, as root, since its files have any owner and its devices any number.
pub(crate) fn build(world: &Path, nodes: &[Node]) -> io::Result<()> {
    for node in nodes {
        create(world, node).map_err(|error| reported(node, "make", error))?;
    }
    for node in nodes {
        dress(world, node).map_err(|error| reported(node, "dress", error))?;
    }
    // Children first: setting them up changes the times of their folder.
    for node in nodes.iter().rev() {
        date(&at(world, &node.path), node.times).map_err(|error| reported(node, "date", error))?;
    }
    Ok(())
}

fn reported(node: &Node, what: &str, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{what} {node:?}: {error}"))
}

fn create(world: &Path, node: &Node) -> io::Result<()> {
    let path = at(world, &node.path);
    let special = |kind, device| mknodat(CWD, &path, kind, Mode::from_raw_mode(0o600), device);
    match &node.kind {
        Kind::Folder => fs::create_dir(&path)?,
        Kind::File(content) => {
            let file = File::create_new(&path)?;
            for piece in &content.pieces {
                file.write_all_at(&piece.bytes(), piece.offset)?;
            }
            file.set_len(content.len)?;
        }
        Kind::Symlink(target) => {
            let target = placed(world, target);
            std::os::unix::fs::symlink(OsStr::from_bytes(&target), &path)?;
        }
        Kind::HardLink(other) => fs::hard_link(at(world, other), &path)?,
        Kind::Fifo => special(FileType::Fifo, 0)?,
        Kind::Socket => special(FileType::Socket, 0)?,
        Kind::Null => special(FileType::CharacterDevice, makedev(1, 3))?,
        Kind::Block => special(FileType::BlockDevice, makedev(42, 77))?,
    }
    Ok(())
}

/// Sets the owner first, which clears set-id bits and capabilities.
fn dress(world: &Path, node: &Node) -> io::Result<()> {
    let path = at(world, &node.path);
    if matches!(node.kind, Kind::HardLink(_)) {
        return Ok(());
    }
    let (user, group) = node.owner;
    let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
    chownat(
        CWD,
        &path,
        Some(user),
        Some(group),
        AtFlags::SYMLINK_NOFOLLOW,
    )?;
    if !matches!(node.kind, Kind::Symlink(_)) {
        chmodat(CWD, &path, Mode::from_raw_mode(node.mode), AtFlags::empty())?;
    }
    for (name, value) in &node.xattrs {
        lsetxattr(&path, *name, value, XattrFlags::empty())?;
    }
    Ok(())
}

fn date(path: &Path, [accessed, changed]: [(i64, i64); 2]) -> io::Result<()> {
    let time = |(tv_sec, tv_nsec)| Timespec { tv_sec, tv_nsec };
    let times = Timestamps {
        last_access: time(accessed),
        last_modification: time(changed),
    };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(())
}
