//! One entry: what it is, what is in its place, and what becomes of both.

pub(crate) mod decide;
pub(crate) mod destination;
pub(crate) mod execute;
pub(crate) mod existing;
pub(crate) mod file;
pub(crate) mod special;
