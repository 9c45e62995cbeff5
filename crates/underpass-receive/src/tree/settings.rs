//! What a receiver of trees allows and preserves.

use crate::overwrite::Overwrite;
use crate::partial::SyncPolicy;

/// What a receiver of trees allows and preserves. By default: times and permissions, nothing that
/// gives privileges, no link that leads out, no hidden name at the top.
#[derive(Clone, Copy, Debug, Default)]
pub struct TreeSettings {
    /// The metadata to take over from the sender.
    pub preserve: PreservedMetadata,
    /// The symbolic links to create.
    pub links: LinkTargets,
    /// Whether names at the top may begin with a dot.
    pub hidden: HiddenNames,
    /// What a sender may use.
    pub limits: TreeLimits,
    /// Bytes of the file system to keep free.
    pub keep_free: u64,
    /// When what is received is written to disk.
    pub sync: SyncPolicy,
}

/// The metadata that a sender decides. Owners are taken over by number.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PreservedMetadata {
    /// Modification times; otherwise they are those of the arrival.
    pub times: bool,
    /// The permission bits as they are; otherwise less the process's umask.
    pub mode: bool,
    /// Setuid, setgid and sticky, too. Only with `mode`.
    pub special_mode_bits: bool,
    /// User and group.
    pub owner: bool,
    /// Extended attributes of the namespace `user`.
    pub xattrs: bool,
}

impl Default for PreservedMetadata {
    fn default() -> PreservedMetadata {
        PreservedMetadata {
            times: true,
            mode: true,
            special_mode_bits: false,
            owner: false,
            xattrs: false,
        }
    }
}

/// The targets of symbolic links that are received. A link is never followed in either case.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum LinkTargets {
    /// Those that cannot lead out of the tree: relative, and with `..` only at their start, no more
    /// often than the link is deep.
    #[default]
    Beneath,
    /// All. Whoever follows them later may get anywhere.
    Any,
}

/// Names at the top of a tree that begin with a dot, which programs read as settings.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum HiddenNames {
    /// They end the transfer.
    #[default]
    Refused,
    /// They are received like others.
    Allowed,
}

/// What a sender may use.
#[derive(Clone, Copy, Debug)]
pub struct TreeLimits {
    /// Members of the stream.
    pub members_max: u64,
    /// Bytes of content, without holes.
    pub bytes_max: u64,
    /// Folders on the path to a member.
    pub depth_max: usize,
    /// Bytes of a name.
    pub name_bytes_max: usize,
    /// Bytes of a path. Linux resolves 4,095 at once.
    pub path_bytes_max: usize,
}

impl Default for TreeLimits {
    fn default() -> TreeLimits {
        TreeLimits {
            members_max: 10_000_000,
            bytes_max: i64::MAX as u64,
            depth_max: 128,
            name_bytes_max: 255,
            path_bytes_max: 4095,
        }
    }
}

/// What happens if a name of a tree is taken.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum TreeMerge {
    /// The tree does not get its name.
    Refused,
    /// Folders are merged; a file whose name is taken by another file replaces it or not. Anything
    /// else that has a name stays, and the tree gets none of its names.
    Folders(Overwrite),
}
