//! The interface of a protocol.

use std::future::Future;
use std::ops::AddAssign;
use std::rc::Rc;

use crate::admission::Rejected;
use crate::connection::Connection;
use crate::error::Error;
use crate::tls::error::HandshakeError;
use crate::tls::info::TlsInfo;

/// The protocol of a server: a set of services, one for each listener.
///
/// A server with several protocols (a file server with metrics) has a variant of
/// [`Service`](Protocol::Service) for each, which its `serve_connection` matches on: once per
/// connection.
pub trait Protocol: Clone + Send + 'static {
    /// The state that one worker keeps for all of its connections. It never leaves its thread.
    type Worker: 'static;
    /// The service of one listener; `()` if all are the same. It is cloned for each connection.
    type Service: Clone + Send + 'static;
    /// The summary of a worker's work after it has ended.
    type Summary: Send + for<'s> AddAssign<&'s Self::Summary> + 'static;

    /// Called once, when all sockets are bound and no worker runs, with all privileges.
    ///
    /// # Errors
    /// Any; nothing is started.
    fn after_bind(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Drops, on a worker's thread and for the threads it creates, all rights that the work does
    /// not need. Called there before anything else.
    ///
    /// # Errors
    /// Any; nothing is started.
    fn confine(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Creates a worker's state, on its thread.
    fn worker(&self) -> Self::Worker;

    /// Serves one connection until it ends. Runs as a separate task.
    fn serve_connection(
        worker: Rc<Self::Worker>,
        service: Self::Service,
        connection: Connection,
    ) -> impl Future<Output = ()> + 'static;

    /// Called when a connection was closed before any response.
    fn rejected(_worker: &Self::Worker, _why: Rejected) {}

    /// Serves a connection to a TLS listener whose first bytes, which wait in its input, are not
    /// those of a handshake. By default closes it.
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

    /// Called when a worker has reached its maximum number of client connections: others wait until
    /// one ends, or is evicted.
    fn connections_max_reached(_worker: &Self::Worker) {}

    /// Called when descriptors are short: closes cached ones.
    fn descriptors_short(_worker: &Self::Worker) {}

    /// Called when `count` client connections that waited for a request are closed to make room for
    /// others.
    fn evicted(_worker: &Self::Worker, _count: u64) {}

    /// Returns the summary. Called once, after the last connection has ended.
    fn finish(worker: &Self::Worker) -> Self::Summary;
}
