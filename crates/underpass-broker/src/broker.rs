//! The state that the workers of a broker share.

use std::io;
use std::ops::Range;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use tokio::sync::Semaphore;
use underpass_log::LogManager;
use underpass_monitor::MetricsService;

use underpass_net::LogThrottle;

use crate::connection::frame::RequestMemory;
use crate::connection::unsupported::UnsupportedLog;
use crate::connection::waiters::{FetchWaiters, MovedLists};
use crate::counts::{BrokerCounts, WorkerCounts};
use crate::fetch::sessions::FetchSessions;
use crate::lock::lock;
use crate::metadata::topics::Topics;
use crate::offsets::groups::Groups;
use crate::options::{AdvertisedAddress, BrokerOptions};
use crate::security::access::Authorizer;
use crate::security::login::LoginSettings;
use crate::security::users::Users;
use crate::security::verifier::PlainVerifier;

/// The state that all workers share.
pub(crate) struct Broker {
    pub(crate) options: BrokerOptions,
    pub(crate) cluster_id: String,
    pub(crate) topics: Topics,
    pub(crate) log: Arc<LogManager>,
    pub(crate) memory: RequestMemory,
    pub(crate) fetch_sessions: FetchSessions,
    pub(crate) groups: Arc<Groups>,
    /// Permits for the threads that decompress batches.
    pub(crate) decompression: Semaphore,
    /// Reserved producer IDs that are not handed out yet.
    pub(crate) producer_ids: Mutex<Range<i64>>,
    pub(crate) moved: Arc<MovedLists>,
    pub(crate) counts: BrokerCounts,
    pub(crate) unsupported: UnsupportedLog,
    pub(crate) users: Users,
    pub(crate) verifier: PlainVerifier,
    /// The access rules; none if everyone may do everything.
    pub(crate) authorizer: Option<Authorizer>,
}

/// The state that the connections of a worker share.
pub(crate) struct BrokerWorker {
    pub(crate) broker: Arc<Broker>,
    pub(crate) waiters: Rc<FetchWaiters>,
    pub(crate) counts: Arc<WorkerCounts>,
    /// Warnings about rejected batches and unreadable offsets.
    pub(crate) refusals: LogThrottle,
    /// Warnings about connections that are closed because of invalid requests.
    pub(crate) disconnections: LogThrottle,
}

/// The service behind a listener of a broker.
#[derive(Clone, Debug)]
pub(crate) enum BrokerService {
    /// Kafka's protocol.
    Kafka(Arc<KafkaService>),
    /// Metrics and health.
    Metrics(Arc<MetricsService>),
}

/// The settings of a listener for clients.
#[derive(Debug)]
pub(crate) struct KafkaService {
    /// The address that clients are directed to, if it is not the one they connected to.
    pub(crate) advertised: Option<AdvertisedAddress>,
    /// The logins, if clients must log in.
    pub(crate) login: Option<Arc<LoginSettings>>,
}

impl Broker {
    /// Returns an unused producer ID.
    ///
    /// # Errors
    /// No more IDs can be reserved.
    pub(crate) async fn next_producer_id(self: &Arc<Self>) -> io::Result<i64> {
        let taken = || lock(&self.producer_ids).next();
        if let Some(id) = taken() {
            return Ok(id);
        }
        let broker = Arc::clone(self);
        let reserve = move || {
            let mut ids = lock(&broker.producer_ids);
            if ids.is_empty() {
                let (first, count) = broker.topics.reserve_producer_ids()?;
                *ids = first..first + count;
            }
            ids.next().ok_or_else(|| io::ErrorKind::Other.into())
        };
        let reserved = tokio::task::spawn_blocking(reserve).await;
        reserved.map_err(io::Error::other)?
    }
}
