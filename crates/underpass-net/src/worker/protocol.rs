//! What a protocol has to provide.

use std::future::Future;
use std::ops::AddAssign;
use std::rc::Rc;

use crate::admission::Rejected;
use crate::connection::Connection;
use crate::error::Error;

/// What is spoken on the connections of a server.
pub trait Protocol: Clone + Send + 'static {
    /// What one worker keeps for all of its connections. It never leaves its thread.
    type Worker: 'static;
    /// What is known of a worker's work when it has ended.
    type Summary: Send + for<'s> AddAssign<&'s Self::Summary> + 'static;

    /// Called once, when the port is taken and no worker runs: the last moment with all rights.
    ///
    /// # Errors
    /// Any; nothing is started.
    fn bound(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Gives up, on a worker's thread and for the threads it makes, whatever rights the work does
    /// not need. Called before anything else is done there.
    ///
    /// # Errors
    /// Any; nothing is started.
    fn confine(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Makes a worker's state, on its thread.
    fn worker(&self) -> Self::Worker;

    /// Speaks with one peer until the connection ends. Runs as its own task.
    fn serve_connection(
        worker: Rc<Self::Worker>,
        stream: Connection,
    ) -> impl Future<Output = ()> + 'static;

    /// A connection was closed before anything was said on it.
    fn rejected(_worker: &Self::Worker, _why: Rejected) {}

    /// There are as many connections as a worker may have: others wait until one ends.
    fn full(_worker: &Self::Worker) {}

    /// Sums up. Called once, after the last connection has ended.
    fn finish(worker: &Self::Worker) -> Self::Summary;
}
