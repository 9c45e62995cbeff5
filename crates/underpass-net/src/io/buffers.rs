//! The means and buffers with which the connections of a worker read and send, one at a time.

use std::cell::{Cell, RefCell};

use underpass::{Kernel, Policy};

/// The means and buffers that the connections of a worker share.
pub(crate) struct WorkerBuffers {
    pub(crate) kernel: Kernel,
    pub(crate) policy: Policy,
    /// The buffer that the next connection reads into.
    pub(crate) spare_input: RefCell<Vec<u8>>,
    /// A buffer for data that is about to be encrypted.
    pub(crate) plaintext: RefCell<Vec<u8>>,
    /// The buffer that the next connection encrypts into.
    pub(crate) sealed: RefCell<Vec<u8>>,
    /// Bytes left to encrypt record by record, over all connections.
    pub(crate) sealed_caution: Cell<u64>,
}

impl WorkerBuffers {
    /// Probes the kernel with a few calls.
    pub(crate) fn new(policy: Policy) -> WorkerBuffers {
        WorkerBuffers {
            kernel: Kernel::probe(),
            policy,
            spare_input: RefCell::default(),
            plaintext: RefCell::default(),
            sealed: RefCell::default(),
            sealed_caution: Cell::default(),
        }
    }
}
