//! The shared types of all modules: descriptors, mechanisms, errors, accounts, limits. Plain data,
//! no system calls.

pub(crate) mod account;
pub(crate) mod endpoint;
pub mod errno;
pub(crate) mod error;
pub mod limits;
