//! The start, reload and stop of a broker.

mod metrics;

use std::io;
use std::ops::AddAssign;
use std::process::{Child, Command};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Semaphore;
use underpass::Policy;
use underpass_log::{
    CleanupPolicy, DataFolderOptions, FlushPolicy, FoundPartition, LogError, LogManager,
    TopicConfig,
};
use underpass_monitor::{METRICS_CONNECTIONS_MAX, MetricsService, StatusAddress};
use underpass_net::{
    Connection, HandshakeError, Inherited, ListenerAccess, ListenerConfig, LogThrottle,
    Predecessor, Protocol, Server, ServerConfig, ShutdownPhase, TlsAcceptor, TlsError, TlsShared,
};

use crate::broker::{Broker, BrokerService, BrokerWorker, KafkaService};
use crate::connection;
use crate::connection::frame::RequestMemory;
use crate::connection::unsupported::UnsupportedLog;
use crate::connection::waiters::MovedLists;
use crate::counts::BrokerCounts;
use crate::fetch::sessions::FetchSessions;
use crate::group::GroupSettings;
use crate::limits::DECOMPRESSING_MAX;
use crate::lock::lock;
use crate::metadata::names::is_internal;
use crate::metadata::topic_id::TopicId;
use crate::metadata::topics::{PARTITIONS_MAX, Topics};
use crate::offsets::groups::Groups;
use crate::options::{
    AuthorizerOptions, BrokerListener, BrokerOptions, FsyncPolicy, SaslMechanismName, SaslOptions,
};
use crate::requests::BrokerRequests;
use crate::security::access::{AclRules, Authorizer};
use crate::security::acl::AclTable;
use crate::security::login::{LoginSettings, SaslMechanism};
use crate::security::scram::ScramMechanism;
use crate::security::users::{self, UserCredentials, Users};
use crate::security::verifier::PlainVerifier;
use crate::server::metrics::BrokerMetrics;

/// The time to close the data folder, beyond that to send the last responses.
const CLOSE_MAX: Duration = Duration::from_secs(60);

#[derive(Clone)]
struct BrokerProtocol(Arc<Broker>);

/// The summary of a worker.
#[derive(Clone, Copy, Debug, Default)]
pub struct BrokerSummary;

/// A running broker. Dropping it stops everything immediately.
pub struct RunningBroker {
    server: Server<BrokerSummary>,
    broker: Arc<Broker>,
    listening: Mutex<Listening>,
    tls: Arc<TlsShared>,
}

/// The state that can change while a broker runs.
struct Listening {
    listeners: Vec<BrokerListener>,
    sasl: SaslOptions,
    acceptor: Option<Arc<TlsAcceptor>>,
    status: Option<StatusAddress>,
    metrics: Arc<MetricsService>,
}

/// The reason why a broker does not start.
#[derive(Debug, thiserror::Error)]
pub enum BrokerError {
    /// The data folder cannot be opened.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The topics cannot be opened.
    #[error("{0}")]
    Topics(String),
    /// An option is out of range.
    #[error("{0}")]
    Option(String),
    /// A network error.
    #[error(transparent)]
    Net(#[from] underpass_net::Error),
    /// A certificate error.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// A reload changes an option that requires a restart.
    #[error("{0} cannot be changed without a restart")]
    NeedsRestart(&'static str),
}

/// Starts a broker, which listens on `inherited` sockets if its options say so. Returns when it
/// accepts connections.
///
/// A predecessor is told to leave once the options and certificates are found good; what is wrong
/// with them is reported to it, and it continues. Then this waits until the predecessor has synced
/// and left the data folder. Meanwhile connections wait in the queues of the inherited sockets.
///
/// # Errors
/// [`BrokerError`]; nothing is left running.
pub fn start(
    options: BrokerOptions,
    inherited: Inherited,
    predecessor: Option<Predecessor>,
) -> Result<RunningBroker, BrokerError> {
    let tls = inherited.tls();
    let checked = check(&options, &tls);
    let has_predecessor = predecessor.is_some();
    match (predecessor, &checked) {
        (Some(predecessor), Ok(_)) => predecessor.report_ready()?,
        (Some(predecessor), Err(error)) => predecessor.report_failure(&error.to_string()),
        (None, _) => {}
    }
    let (defaults, acceptor, of_file) = checked?;
    let patience = match has_predecessor {
        true => options.connections.stop_timeout + CLOSE_MAX,
        false => Duration::ZERO,
    };
    let moved = Arc::<MovedLists>::default();
    let (log, found) = open_log(&options, &defaults, Arc::clone(&moved), patience)?;
    let topics = Topics::open(&options.data, Arc::clone(&log), &found, defaults);
    let topics = topics.map_err(|error| BrokerError::Topics(error.to_string()))?;
    let users = users_of(&options, &topics, of_file);
    let users = users.map_err(|error| BrokerError::Topics(error.to_string()))?;
    let acls = topics.acl_table();
    let settings = GroupSettings {
        initial_rebalance_delay: Duration::from_millis(options.groups.initial_rebalance_delay_ms),
        offsets_retention: Duration::from_secs(60 * options.groups.offsets_retention_minutes),
        ..GroupSettings::default()
    };
    let groups = Groups::open(settings, Arc::clone(&log), &topics.present());
    let groups = groups.map_err(|error| BrokerError::Topics(error.to_string()))?;
    let broker = Arc::new(Broker {
        cluster_id: log.cluster_id().to_owned(),
        topics,
        log: Arc::clone(&log),
        memory: RequestMemory::new(options.request_memory),
        fetch_sessions: FetchSessions::default(),
        groups,
        decompression: Semaphore::new(DECOMPRESSING_MAX),
        producer_ids: Mutex::new(0..0),
        moved,
        counts: BrokerCounts::default(),
        unsupported: UnsupportedLog::default(),
        users,
        verifier: PlainVerifier::new(),
        authorizer: authorizer(&options, acls),
        options,
    });
    let metrics = BrokerMetrics(Arc::downgrade(&broker));
    let listening = Listening {
        acceptor,
        listeners: broker.options.listeners.clone(),
        sasl: broker.options.sasl.clone(),
        status: broker.options.status.listen.clone(),
        metrics: Arc::new(MetricsService::new(Box::new(metrics))),
    };
    let config = listening.config(&broker);
    let server = underpass_net::start(&config, inherited)?;
    server.own_socket_files();
    let listening = Mutex::new(listening);
    Ok(RunningBroker {
        server,
        broker,
        listening,
        tls,
    })
}

/// The defaults of topics, the acceptor of TLS, and the users of the file.
type CheckedOptions = (TopicConfig, Option<Arc<TlsAcceptor>>, UserCredentials);

/// Checks the options, and loads the certificates.
fn check(options: &BrokerOptions, tls: &Arc<TlsShared>) -> Result<CheckedOptions, BrokerError> {
    let defaults = TopicConfig::default().with(&options.topics.config);
    let defaults = defaults.map_err(BrokerError::Topics)?;
    let partitions = options.topics.partitions;
    if !(1..=PARTITIONS_MAX).contains(&partitions) {
        let why = format!("num.partitions={partitions}: expected 1 to {PARTITIONS_MAX}");
        return Err(BrokerError::Option(why));
    }
    if options.node_id < 0 {
        // For clients, −1 means no broker.
        let why = format!("node-id={}: expected a number from 0", options.node_id);
        return Err(BrokerError::Option(why));
    }
    let of_file = check_logins(options)?;
    Ok((defaults, acceptor(options, tls)?, of_file))
}

/// Opens the data folder, which another process may leave only after a while, and reports losses.
fn open_log(
    options: &BrokerOptions,
    defaults: &TopicConfig,
    observed: Arc<MovedLists>,
    patience: Duration,
) -> Result<(Arc<LogManager>, Vec<FoundPartition>), LogError> {
    let folder = DataFolderOptions {
        flush: match options.fsync {
            FsyncPolicy::Acks => FlushPolicy::Acks,
            FsyncPolicy::Interval => FlushPolicy::Interval,
            FsyncPolicy::Never => FlushPolicy::Never,
        },
        wait_for_folder: patience,
        node_id: options.node_id,
        // Generated like a topic ID.
        cluster_id: TopicId::random().to_string(),
        cleaner: (&options.cleaner).into(),
        ..DataFolderOptions::default()
    };
    // Until the topics are known, nothing is deleted or compacted.
    let config = Arc::new(TopicConfig {
        cleanup_policy: CleanupPolicy::Delete,
        retention_ms: -1,
        retention_bytes: -1,
        ..defaults.clone()
    });
    let (log, found) = LogManager::open(
        &options.data,
        folder,
        &|_| Arc::clone(&config),
        Box::new(move |partitions| observed.report(partitions)),
    )?;
    for one in found.iter().filter(|one| one.repairs.lost_something()) {
        let (name, repairs) = (one.log.name(), &one.repairs);
        tracing::warn!("{name}: {repairs}");
    }
    Ok((log, found))
}

/// Checks the logins of all listeners, and reads the users.
fn check_logins(options: &BrokerOptions) -> Result<UserCredentials, BrokerError> {
    let is_in_clear = |listener: &&BrokerListener| {
        let has_plain = listener.sasl.contains(&SaslMechanismName::Plain);
        has_plain && !listener.is_secured(&options.tls) && !listener.passwords_in_clear
    };
    if let Some(listener) = options.listeners.iter().find(is_in_clear) {
        return Err(BrokerError::Option(format!(
            "the listener {} would receive passwords in clear: remove \"PLAIN\" from its sasl, \
             give it TLS, or set passwords-in-clear = true",
            listener.at
        )));
    }
    match &options.sasl.users {
        Some(file) => users::read_file(file).map_err(BrokerError::Option),
        None => Ok(UserCredentials::new()),
    }
}

/// Returns the users of the file and those that clients have added.
fn users_of(
    options: &BrokerOptions,
    topics: &Topics,
    of_file: UserCredentials,
) -> io::Result<Users> {
    let has_logins = options.listeners.iter().any(|one| !one.sasl.is_empty());
    let secret = match has_logins {
        true => topics.login_secret()?,
        false => users::new_secret(),
    };
    Ok(Users::new(of_file, topics.users(), secret))
}

fn authorizer(options: &BrokerOptions, table: AclTable) -> Option<Authorizer> {
    let rules = |options: &AuthorizerOptions| AclRules {
        super_users: options.super_users.iter().cloned().collect(),
        allows_without_rules: options.allow_without_rules,
        table,
    };
    options.authorizer.as_ref().map(rules).map(Authorizer::new)
}

/// Returns the logins of a listener; none if it has no mechanisms.
fn login_settings(listener: &BrokerListener, sasl: &SaslOptions) -> Option<Arc<LoginSettings>> {
    let mechanisms = listener.sasl.iter().map(|name| match name {
        SaslMechanismName::Plain => SaslMechanism::Plain,
        SaslMechanismName::ScramSha256 => SaslMechanism::Scram(ScramMechanism::Sha256),
        SaslMechanismName::ScramSha512 => SaslMechanism::Scram(ScramMechanism::Sha512),
    });
    let lifetime = Duration::from_millis(sasl.reauth_ms_max);
    (!listener.sasl.is_empty()).then(|| {
        Arc::new(LoginSettings {
            mechanisms: mechanisms.collect(),
            lifetime: (!lifetime.is_zero()).then_some(lifetime),
            failure_delay: Duration::from_millis(sasl.failure_delay_ms),
        })
    })
}

fn acceptor(
    options: &BrokerOptions,
    shared: &Arc<TlsShared>,
) -> Result<Option<Arc<TlsAcceptor>>, TlsError> {
    let mut listeners = options.listeners.iter();
    match listeners.any(|listener| listener.is_secured(&options.tls)) {
        // Kafka clients do not use ALPN.
        true => Ok(Some(Arc::new(TlsAcceptor::load(
            &options.tls,
            &[],
            shared,
        )?))),
        false => Ok(None),
    }
}

impl Listening {
    fn config(&self, broker: &Arc<Broker>) -> ServerConfig<BrokerProtocol> {
        let options = &broker.options;
        let listeners = self.listeners.iter().map(|listener| {
            let service = BrokerService::Kafka(Arc::new(KafkaService {
                advertised: listener.advertised.clone(),
                login: login_settings(listener, &self.sasl),
            }));
            let acceptor = self.acceptor.as_ref();
            let acceptor = acceptor.filter(|it| listener.is_secured(it.options()));
            ListenerConfig {
                tls: acceptor.cloned(),
                ..ListenerConfig::new(listener.at.clone(), service)
            }
        });
        let status = self.status.iter().map(|address| ListenerConfig {
            access: ListenerAccess::Operators {
                connections_max: METRICS_CONNECTIONS_MAX,
            },
            ..ListenerConfig::new(
                address.listen_at(),
                BrokerService::Metrics(Arc::clone(&self.metrics)),
            )
        });
        ServerConfig {
            listeners: listeners.chain(status).collect(),
            workers: options
                .workers
                .map_or_else(underpass_net::cores, Into::into),
            policy: Policy::default(),
            limits: options.connections.clone(),
            protocol: BrokerProtocol(Arc::clone(broker)),
        }
    }
}

impl RunningBroker {
    /// Returns the server, with the listeners and the stop of the broker.
    pub fn server(&self) -> &Server<BrokerSummary> {
        &self.server
    }

    /// Returns the number of topics without internal ones.
    pub fn topics(&self) -> usize {
        let present = self.broker.topics.present();
        present
            .all()
            .filter(|topic| !is_internal(&topic.name))
            .count()
    }

    /// Measures a sync of a small write in the data folder: the least that acks=all waits for.
    /// Blocks for three syncs.
    ///
    /// # Errors
    /// I/O errors.
    pub fn sync_time(&self) -> io::Result<Duration> {
        self.broker.log.sync_time()
    }

    /// Changes listeners, advertised addresses, logins, super users and certificates, whose files
    /// are read again. Closes connections only if listeners or logins change.
    ///
    /// # Errors
    /// [`BrokerError`]; nothing changes.
    pub fn reload(&self, options: &BrokerOptions) -> Result<(), BrokerError> {
        let present = &self.broker.options;
        for (is_same, what) in [
            (options.data == present.data, "the data folder"),
            (options.fsync == present.fsync, "fsync"),
            (options.node_id == present.node_id, "node-id"),
            (
                options.authorizer.is_some() == present.authorizer.is_some(),
                "authorizer",
            ),
        ] {
            if !is_same {
                return Err(BrokerError::NeedsRestart(what));
            }
        }
        let of_file = check_logins(options)?;
        let mut listening = lock(&self.listening);
        let acceptor = match &listening.acceptor {
            Some(present) if *present.options() == options.tls => {
                present.refresh()?;
                Some(Arc::clone(present))
            }
            _ => acceptor(options, &self.tls)?,
        };
        let same = |one: &Option<Arc<TlsAcceptor>>| match (one, &acceptor) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (one, other) => one.is_none() && other.is_none(),
        };
        let is_same_place =
            listening.listeners == options.listeners && listening.status == options.status.listen;
        let is_same_login = listening.sasl == options.sasl;
        if is_same_place && is_same_login && same(&listening.acceptor) {
            self.set_security(options, of_file);
            return Ok(());
        }
        let changed = Listening {
            listeners: options.listeners.clone(),
            sasl: options.sasl.clone(),
            acceptor,
            status: options.status.listen.clone(),
            metrics: Arc::clone(&listening.metrics),
        };
        self.server.reload(&changed.config(&self.broker))?;
        self.set_security(options, of_file);
        *listening = changed;
        Ok(())
    }

    /// Starts `command` as the successor, which gets the listening sockets, and stops this broker
    /// once the successor has checked its options: it opens the data folder after
    /// [`join`](RunningBroker::join) and the end of this process. `started` is called with the new
    /// process before this one stops.
    ///
    /// # Errors
    /// As for [`Server::upgrade`]; this broker continues.
    pub fn upgrade(
        &self,
        command: Command,
        started: impl FnOnce(&Child),
    ) -> Result<(), underpass_net::Error> {
        self.server.upgrade(command, &self.tls, None, started)?;
        self.server.shutdown().advance(ShutdownPhase::Draining);
        Ok(())
    }

    /// Changes the users of the file, and the settings about access rules.
    fn set_security(&self, options: &BrokerOptions, of_file: UserCredentials) {
        self.broker.users.set_file(of_file);
        if let (Some(options), Some(authorizer)) = (&options.authorizer, &self.broker.authorizer) {
            authorizer.change(|rules| {
                rules.super_users = options.super_users.iter().cloned().collect();
                rules.allows_without_rules = options.allow_without_rules;
            });
        }
    }

    /// Reads the certificate files again, since they are renewed at any time. Call it about every
    /// minute.
    ///
    /// # Errors
    /// [`BrokerError::Tls`]; the current certificates stay in use.
    pub fn refresh_certificates(&self) -> Result<(), BrokerError> {
        self.tls.rotate();
        if let Some(acceptor) = &lock(&self.listening).acceptor {
            acceptor.refresh()?;
        }
        Ok(())
    }

    /// Waits until the broker is stopped, and leaves the data folder ready for a fast start.
    ///
    /// # Errors
    /// The data folder cannot be closed cleanly: the next start recovers it.
    pub fn join(&self) -> Result<(), LogError> {
        self.server.join();
        self.broker.log.close()
    }
}

impl AddAssign<&BrokerSummary> for BrokerSummary {
    fn add_assign(&mut self, _other: &BrokerSummary) {}
}

impl Protocol for BrokerProtocol {
    type Worker = BrokerWorker;
    type Service = BrokerService;
    type Summary = BrokerSummary;

    fn worker(&self) -> BrokerWorker {
        BrokerWorker {
            waiters: Rc::new(self.0.moved.worker()),
            counts: self.0.counts.worker(),
            refusals: LogThrottle::default(),
            disconnections: LogThrottle::default(),
            broker: Arc::clone(&self.0),
        }
    }

    async fn serve_connection(
        worker: Rc<BrokerWorker>,
        service: BrokerService,
        connection: Connection,
    ) {
        let service = match &service {
            BrokerService::Kafka(service) => service,
            BrokerService::Metrics(metrics) => return metrics.serve(connection).await,
        };
        let counts = Arc::clone(&worker.counts);
        counts.connection_begins();
        let requests = BrokerRequests::new(worker, service, &connection);
        connection::serve(Rc::new(requests), connection).await;
        counts.connection_ends();
    }

    async fn serve_plain(
        worker: Rc<BrokerWorker>,
        _service: BrokerService,
        connection: Connection,
    ) {
        let peer = connection.client();
        worker.disconnections.warn(format_args!(
            "{peer}: no TLS, which this listener expects; set security.protocol=SSL"
        ));
    }

    fn handshake_failed(worker: &BrokerWorker, why: &HandshakeError) {
        if let HandshakeError::Failed(_) | HandshakeError::Alert(_) = why {
            worker
                .disconnections
                .warn(format_args!("a TLS handshake has failed: {why}"));
        }
    }

    fn finish(_worker: &BrokerWorker) -> BrokerSummary {
        BrokerSummary
    }
}
