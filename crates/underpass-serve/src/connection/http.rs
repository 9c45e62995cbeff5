//! HTTP/1.1 as a protocol for `underpass-net`.

use std::rc::Rc;
use std::sync::Arc;

use underpass_monitor::MetricsService;
use underpass_net::{
    Address, Confine, Connection, HandshakeError, ListenerIdentity, Protocol, Rejected, TlsInfo,
    User, confine,
};

use crate::connection::converse;
use crate::connection::worker::{HttpShared, Worker};
use crate::metrics::worker_metrics::ServeSummary;
use underpass_http::scheme::HTTPS_PORT;

/// The protocol, and the preparation of workers before they accept connections.
#[derive(Clone, Debug)]
pub(crate) struct HttpProtocol {
    pub(crate) shared: HttpShared,
    pub(crate) user: Option<User>,
    pub(crate) confine: Confine,
}

/// The service of a listener.
#[derive(Clone, Debug)]
pub(crate) enum HttpService {
    /// The files of all sites.
    Files,
    /// Redirects to HTTPS on this port, except for ACME challenges.
    Redirect(u16),
    /// Metrics and health.
    Metrics(Arc<MetricsService>),
}

impl Protocol for HttpProtocol {
    type Worker = Worker;
    type Service = HttpService;
    type Summary = ServeSummary;

    fn after_bind(&self) -> Result<(), underpass_net::Error> {
        match &self.user {
            Some(user) => user.assume(),
            None => Ok(()),
        }
    }

    fn confine(&self) -> Result<(), underpass_net::Error> {
        confine(&self.shared.sites.reach(), self.confine).map(drop)
    }

    fn worker(&self) -> Worker {
        Worker::new(&self.shared)
    }

    async fn serve_connection(worker: Rc<Worker>, service: HttpService, connection: Connection) {
        let https = match service {
            HttpService::Files => None,
            HttpService::Redirect(port) => Some(port),
            // Boxed, so that client connections are not enlarged by it.
            HttpService::Metrics(metrics) => return Box::pin(metrics.serve(connection)).await,
        };
        converse::serve_connection(worker, connection, https).await;
    }

    async fn serve_plain(worker: Rc<Worker>, _: HttpService, connection: Connection) {
        let port = match connection.listener().map(ListenerIdentity::address) {
            Some(Address::Tcp(address)) => address.port(),
            _ => HTTPS_PORT,
        };
        converse::serve_connection(worker, connection, Some(port)).await;
    }

    fn secured(worker: &Worker, tls: &TlsInfo) {
        worker.metrics.handshakes[tls.handshake as usize].add(1);
    }

    fn handshake_failed(worker: &Worker, why: &HandshakeError) {
        tracing::debug!("handshake failed: {why}");
        worker.metrics.handshakes_failed[why.number()].add(1);
    }

    fn rejected(worker: &Worker, why: Rejected) {
        worker.metrics.rejected[why.number()].add(1);
    }

    fn connections_max_reached(worker: &Worker) {
        worker.metrics.full.add(1);
    }

    fn descriptors_short(worker: &Worker) {
        worker.close_kept_files();
    }

    fn evicted(worker: &Worker, count: u64) {
        worker.metrics.evicted.add(count);
    }

    fn finish(worker: &Worker) -> ServeSummary {
        worker.finish()
    }
}
