//! The HTTP file server of Underpass.
