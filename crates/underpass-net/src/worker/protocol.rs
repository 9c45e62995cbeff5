//! What a protocol has to provide.

use std::future::Future;
use std::ops::AddAssign;
use std::rc::Rc;

use crate::admission::Rejected;
use crate::connection::Connection;
use crate::error::Error;
use crate::tls::error::HandshakeError;
use crate::tls::info::TlsInfo;

/// What a server speaks: a set of services, one of which each listener has.
///
/// A server that speaks several protocols (a file server with metrics beside it) has a variant of
/// [`Service`](Protocol::Service) for each, which its `serve_connection` matches on: once per
/// connection.
pub trait Protocol: Clone + Send + 'static {
    /// What one worker keeps for all of its connections. It never leaves its thread.
    type Worker: 'static;
    /// What one listener speaks; `()` where all speak the same. It is cloned for each connection.
    type Service: Clone + Send + 'static;
    /// What is known of a worker's work when it has ended.
    type Summary: Send + for<'s> AddAssign<&'s Self::Summary> + 'static;

    /// Called once, when all sockets are bound and no worker runs: the last moment with all rights.
    ///
    /// # Errors
    /// Any; nothing is started.
    fn after_bind(&self) -> Result<(), Error> {
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

    /// Serves one connection until it ends. Runs as its own task.
    fn serve_connection(
        worker: Rc<Self::Worker>,
        service: Self::Service,
        connection: Connection,
    ) -> impl Future<Output = ()> + 'static;

    /// Called when a connection was closed before anything was said on it.
    fn rejected(_worker: &Self::Worker, _why: Rejected) {}

    /// Serves a connection to a listener with TLS whose first bytes, which wait in its input, are
    /// not those of a handshake. Closes it, unless the protocol has an answer.
    fn serve_plain(
        _worker: Rc<Self::Worker>,
        _service: Self::Service,
        _connection: Connection,
    ) -> impl Future<Output = ()> + 'static {
        std::future::ready(())
    }

    /// Called when a handshake is complete.
    fn secured(_worker: &Self::Worker, _tls: &TlsInfo) {}

    /// Called when a connection was closed during the handshake.
    fn handshake_failed(_worker: &Self::Worker, _why: &HandshakeError) {}

    /// Called when a worker has as many connections of clients as it may have: others wait until
    /// one ends, or is evicted.
    fn connections_max_reached(_worker: &Self::Worker) {}

    /// Called when descriptors are short: closes those that are kept for later.
    fn descriptors_short(_worker: &Self::Worker) {}

    /// Called when `count` connections of clients that waited for a request are closed to make room
    /// for others.
    fn evicted(_worker: &Self::Worker, _count: u64) {}

    /// Sums up. Called once, after the last connection has ended.
    fn finish(worker: &Self::Worker) -> Self::Summary;
}
