//! Files other than segments, and the operations that write all files.

pub(crate) mod checkpoints;
pub(crate) mod disk;
pub(crate) mod epochs;
pub(crate) mod properties;
pub(crate) mod times;
#[cfg(test)]
pub(crate) mod trace;
