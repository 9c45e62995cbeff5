//! The network ground of Underpass.
