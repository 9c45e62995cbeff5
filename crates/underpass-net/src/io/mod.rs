//! The event loop of a worker: sockets in it, turns of computing steps, and shared buffers.

pub(crate) mod buffers;
pub(crate) mod socket;
pub(crate) mod step_gate;
