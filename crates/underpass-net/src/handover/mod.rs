//! Listening sockets from outside of this process: from a service manager, from an earlier process
//! of the same server, and to the process that succeeds this one.

pub(crate) mod inherit;
pub(crate) mod socket;
pub(crate) mod upgrade;
