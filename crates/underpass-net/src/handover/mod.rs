//! Passing of listening sockets between processes: from a service manager, from a predecessor, and
//! to a successor.

pub(crate) mod inherit;
pub(crate) mod socket;
pub(crate) mod upgrade;
