//! Requests: the head and its parts, read by servers and written by clients.

pub mod field_lines;
pub mod head;
pub mod request_line;
pub mod writer;
