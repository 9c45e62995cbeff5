//! Bodies that are produced while they are sent.

pub(crate) mod archive;
pub(crate) mod compressed;
pub(crate) mod listing;
pub(crate) mod producer;
pub(crate) mod query;
