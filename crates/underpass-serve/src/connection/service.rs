//! What a listener of the file server speaks.

use std::sync::Arc;

use crate::monitor::service::MetricsService;

/// One of the services of the file server.
#[derive(Clone, Debug)]
pub(crate) enum HttpService {
    /// The files of all sites.
    Files,
    /// Metrics and health.
    Metrics(Arc<MetricsService>),
}
