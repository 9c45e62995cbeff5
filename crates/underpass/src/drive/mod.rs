//! The drivers: the only loops that make system calls.
//!
//! [`blocking`] waits with poll(2) on a thread of its own, `tokio` (feature `tokio`) for
//! readiness on an event loop. Both hand the same operations to [`perform`], the one place where
//! a [`Op`](crate::Op) becomes a call.

pub mod blocking;
pub(crate) mod idle;
pub(crate) mod perform;
#[cfg(feature = "tokio")]
pub mod tokio;
#[cfg(feature = "tokio")]
mod warm;
