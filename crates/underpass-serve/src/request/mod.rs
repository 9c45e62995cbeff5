//! The parts of a request that are this server's own: parameters of a query, and clients behind
//! proxies.

pub(crate) mod forwarded;
pub(crate) mod query;
