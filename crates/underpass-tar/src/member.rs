//! Members of an archive.

use std::collections::BTreeMap;

/// A member of an archive, without its content.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Member {
    /// The path: bytes without zeros. Nothing else is checked: `..` and a leading slash are
    /// possible.
    pub path: Vec<u8>,
    /// The type, with what only this type has.
    pub kind: MemberKind,
    /// Permission bits, setuid, setgid and sticky included.
    pub mode: u32,
    /// Time of the last modification.
    pub modified: TarTime,
    /// Owner and group.
    pub owner: MemberOwner,
    /// Extended attributes by name, as in `SCHILY.xattr.NAME`.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// The type of a member.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum MemberKind {
    /// A folder.
    Folder,
    /// A regular file, whose content follows.
    File {
        /// Bytes of content.
        size: u64,
    },
    /// A regular file with holes. The contents of the extents follow, in order.
    SparseFile {
        /// Bytes of the file, holes included.
        size: u64,
        /// The parts that are not holes, in ascending order, none of them empty. All lengths but
        /// the last are multiples of 512: implementations read others differently.
        extents: Vec<SparseExtent>,
    },
    /// A symbolic link with its text.
    Symlink(Vec<u8>),
    /// Another name of an earlier member, by that member's path.
    HardLink(Vec<u8>),
    /// A character device.
    CharacterDevice,
    /// A block device.
    BlockDevice,
    /// A FIFO.
    Fifo,
    /// A type that this crate does not know, by its flag.
    Other {
        /// The type flag.
        flag: u8,
        /// Bytes that follow.
        size: u64,
    },
}

/// A part of a sparse file that is not a hole.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SparseExtent {
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
}

/// A time, in seconds since 1970 and nanoseconds that count forward.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub struct TarTime {
    /// Whole seconds; negative before 1970.
    pub seconds: i64,
    /// 0 to 999,999,999.
    pub nanoseconds: u32,
}

/// Owner and group of a member.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct MemberOwner {
    /// Number of the user.
    pub uid: u32,
    /// Number of the group.
    pub gid: u32,
    /// Name of the user; may be empty.
    pub user: Vec<u8>,
    /// Name of the group; may be empty.
    pub group: Vec<u8>,
}

impl Member {
    /// Returns a member that belongs to root and has no extended attributes.
    pub fn new(path: impl Into<Vec<u8>>, kind: MemberKind, mode: u32, modified: TarTime) -> Member {
        Member {
            path: path.into(),
            kind,
            mode,
            modified,
            owner: MemberOwner::default(),
            xattrs: BTreeMap::new(),
        }
    }
}

impl MemberKind {
    /// The bytes of content that follow the headers, without padding.
    pub fn stored(&self) -> u64 {
        match self {
            MemberKind::File { size } | MemberKind::Other { size, .. } => *size,
            MemberKind::SparseFile { extents, .. } => {
                (extents.iter()).fold(0, |sum: u64, extent| sum.saturating_add(extent.len))
            }
            _ => 0,
        }
    }
}
