//! The tree that is copied: its open folders, the names that take part, the files met before.

pub(crate) mod filter;
pub(crate) mod inode_table;
pub(crate) mod level;
