//! The tree that is copied: its open folders, the filter of names, the files seen before.

pub(crate) mod filter;
pub(crate) mod inode_table;
pub(crate) mod level;
