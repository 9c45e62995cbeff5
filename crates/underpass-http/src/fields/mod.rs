//! Fields: values that are read and evaluated, and fields that are written.

pub mod accept;
pub mod coding;
pub mod condition;
pub mod content_range;
pub mod digest;
pub mod range;
pub mod repr_digest;
pub mod validator;
pub mod writer;
