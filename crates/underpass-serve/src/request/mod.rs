//! What a request says: bytes in, checked values out.

pub(crate) mod accept;
pub(crate) mod chunked;
pub(crate) mod condition;
pub(crate) mod forwarded;
pub(crate) mod head;
pub(crate) mod path;
pub(crate) mod query;
pub(crate) mod range;
pub(crate) mod request_line;
