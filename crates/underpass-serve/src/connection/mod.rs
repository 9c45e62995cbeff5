//! A connection from its first request to its end, and the state that a worker shares among all.

mod changes;
pub(crate) mod converse;
mod exchanges;
pub(crate) mod http;
pub(crate) mod identify;
pub(crate) mod producers;
pub(crate) mod request_body;
mod upload;
pub(crate) mod upload_protocols;
pub(crate) mod worker;
