//! Requests: the head and its parts.

pub mod head;
pub mod request_line;
