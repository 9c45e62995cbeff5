//! The HTTP file server of Underpass.

#![forbid(unsafe_code)]
