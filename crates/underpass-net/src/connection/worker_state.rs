//! The state that all connections of a worker share.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use underpass::limits::{TURN_BYTES_MAX, TURN_BYTES_MIN};
use underpass::{Kernel, Policy};

use crate::connection::set::ConnectionSet;
use crate::limits::{ConnectionLimits, ROUND_BYTES, ROUND_BYTES_WATCHED, TURN_BYTES_WATCHED_MIN};
use crate::log_throttle::LogThrottle;
use crate::quota::shared::SharedQuotas;
use crate::shutdown::switch::Shutdown;

/// What every connection of a worker uses and none owns.
pub(crate) struct WorkerState {
    pub(crate) limits: ConnectionLimits,
    pub(crate) connections: Rc<ConnectionSet>,
    pub(crate) kernel: Kernel,
    pub(crate) policy: Policy,
    /// How many connections are being sent something.
    pub(crate) sending: Cell<usize>,
    /// What the next connection reads into.
    pub(crate) spare_input: RefCell<Vec<u8>>,
    pub(crate) shared: Arc<SharedQuotas>,
    /// Of the server that the worker belongs to.
    pub(crate) shutdown: Shutdown,
    /// Connections that are not admitted are logged once per burst.
    pub(crate) rejections: LogThrottle,
}

impl WorkerState {
    /// What a connection may send in one turn: a fair share of the round.
    pub(crate) fn turn_bytes(&self) -> u64 {
        let sending = self.sending.get().max(1);
        let (round, least) = match self.connections.len() > sending {
            true => (ROUND_BYTES_WATCHED, TURN_BYTES_WATCHED_MIN),
            false => (ROUND_BYTES, TURN_BYTES_MIN),
        };
        (round / sending as u64).clamp(least, TURN_BYTES_MAX)
    }
}
