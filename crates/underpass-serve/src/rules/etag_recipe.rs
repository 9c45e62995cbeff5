//! The rule for entity-tags.

use serde::Deserialize;

/// The file attributes that entity-tags are computed from.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "kebab-case")]
pub enum EtagRecipe {
    /// Modification time, size and inode: detects every change.
    #[default]
    MtimeSizeInode,
    /// Modification time and size: equal for copies on several hosts, if their times were copied
    /// too. A file replaced by one of equal size and time is taken for the old one.
    MtimeSize,
}
