//! Operations on files and folders that know nothing of a copy.

pub(crate) mod atomic_file;
pub(crate) mod backup;
pub(crate) mod fifo;
pub(crate) mod folder;
