//! The partitions that fetches are about, and the sessions that keep them from one request to the
//! next.

pub(crate) mod asked;
pub(crate) mod sessions;
