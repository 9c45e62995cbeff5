//! The network ground of Underpass.

#![forbid(unsafe_code)]
