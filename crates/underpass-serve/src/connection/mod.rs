//! A connection from its first request to its end, and what a worker keeps for all of them.

pub(crate) mod converse;
pub(crate) mod exchange;
pub(crate) mod http;
pub(crate) mod identify;
pub(crate) mod request_body;
mod upload;
pub(crate) mod worker;
