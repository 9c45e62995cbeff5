//! File and folder operations that are independent of copying.

pub(crate) mod atomic_file;
pub(crate) mod backup;
pub(crate) mod fifo;
pub(crate) mod folder;
