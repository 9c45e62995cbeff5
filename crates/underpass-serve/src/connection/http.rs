//! HTTP/1.1 as a protocol of `underpass-net`.

use std::rc::Rc;
use std::sync::Arc;

use underpass_net::{Confine, Connection, Protocol, Rejected, User, confine};

use crate::connection::converse;
use crate::connection::worker::{HttpShared, Worker};
use crate::metrics::worker_metrics::ServeSummary;
use crate::monitor::service::MetricsService;

/// The protocol, and what workers do before they accept connections.
#[derive(Clone, Debug)]
pub(crate) struct HttpProtocol {
    pub(crate) shared: HttpShared,
    pub(crate) user: Option<User>,
    pub(crate) confine: Confine,
}

/// What a listener of the file server speaks.
#[derive(Clone, Debug)]
pub(crate) enum HttpService {
    /// The files of all sites.
    Files,
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
        confine(&self.shared.sites.readable(), self.confine).map(drop)
    }

    fn worker(&self) -> Worker {
        Worker::new(&self.shared)
    }

    async fn serve_connection(worker: Rc<Worker>, service: HttpService, connection: Connection) {
        match service {
            HttpService::Files => converse::serve_connection(worker, connection).await,
            // Boxed, so that connections of clients are not larger for it.
            HttpService::Metrics(metrics) => Box::pin(metrics.serve(connection)).await,
        }
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
