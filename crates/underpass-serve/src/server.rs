//! A server from its start to its end: workers that come and go, a log and counts that stay.

use std::sync::Arc;

use underpass::Mechanism;
use underpass_net::{Inherited, ListenAt, ListenerAccess, ListenerConfig, Server, ServerConfig};

use crate::answer::writer::BodyJoining;
use crate::connection::http::{HttpProtocol, HttpService};
use crate::connection::worker::HttpShared;
use crate::error::Error;
use crate::limits::METRICS_CONNECTIONS_MAX;
use crate::log::{AccessLog, LogOptions, rotation_obstacle};
use crate::metrics::registry::{MetricsRegistry, MetricsUse};
use crate::metrics::worker_metrics::ServeSummary;
use crate::monitor::address::StatusAddress;
use crate::monitor::service::MetricsService;
use crate::options::ServerOptions;
use crate::site::digest_cache::DigestCache;
use crate::site::sites::ServedSites;

/// A server at work. Dropping it ends everything at once.
#[derive(Debug)]
pub struct FileServer {
    running: Server<ServeSummary>,
    kept: KeptState,
    log: LogOptions,
}

/// What stays when workers are replaced.
#[derive(Debug)]
struct KeptState {
    registry: Arc<MetricsRegistry>,
    metrics: Arc<MetricsService>,
    digests: Arc<DigestCache>,
}

/// Serves the sites of `options` until its [`Server::shutdown`] stops it. Returns when
/// connections are taken.
///
/// # Errors
/// Any [`Error`]; nothing is left running.
///
/// # Examples
/// ```no_run
/// use underpass_serve::{ServerOptions, serve};
///
/// let server = serve(&ServerOptions::of("public"))?;
/// for address in server.running().addresses() {
///     println!("http://{address}/");
/// }
/// let summaries = server.running().join();
/// # Ok::<(), underpass_serve::Error>(())
/// ```
pub fn serve(options: &ServerOptions) -> Result<FileServer, Error> {
    serve_on(options, Inherited::default())
}

/// Like [`serve`], with sockets that were opened for this process: by a service manager, or by the
/// process that this one succeeds.
///
/// # Errors
/// Any [`Error`]; nothing is left running.
pub fn serve_on(options: &ServerOptions, inherited: Inherited) -> Result<FileServer, Error> {
    options
        .requests
        .check(options.connections.input_bytes_max)?;
    let sites = Arc::new(ServedSites::open(&options.sites)?);
    let log = AccessLog::open(&options.log, options.user.as_ref())?;
    let registry = Arc::new(MetricsRegistry::new(log, options.explain));
    let kept = KeptState {
        metrics: Arc::new(MetricsService::new(Arc::clone(&registry))),
        registry,
        digests: Arc::default(),
    };
    let config = server_config(options, sites, &kept);
    let running = underpass_net::start(&config, inherited).inspect_err(|_| {
        if let Some(log) = &kept.registry.log {
            log.discard();
        }
    });
    let running = running.map_err(|error| start_error(error, options))?;
    for warning in warnings(options) {
        tracing::warn!("{warning}");
    }
    Ok(FileServer {
        running,
        kept,
        log: options.log.clone(),
    })
}

/// What works at first and will not later: whether the log can be opened again.
pub fn warnings(options: &ServerOptions) -> Vec<String> {
    let obstacle = rotation_obstacle(&options.log.access, options.user.as_ref());
    obstacle.into_iter().collect()
}

/// Addresses of which a server could not listen on both.
pub(crate) fn address_conflicts(options: &ServerOptions) -> Vec<Error> {
    let status = options.status.listen.as_ref().map(StatusAddress::listen_at);
    let all: Vec<_> = options.listen.iter().chain(&status).collect();
    let repeated = all.iter().enumerate().filter(|(number, at)| {
        let mut before = all[..*number].iter();
        before.any(|other| at.conflicts_with(other))
    });
    let error = |(_, at): (_, &&ListenAt)| {
        let at = ListenAt::clone(at);
        start_error(underpass_net::Error::ListenTwice { at }, options)
    };
    repeated.map(error).collect()
}

impl FileServer {
    /// Its workers: where they listen, how they are told to stop, how they are waited for.
    pub fn running(&self) -> &Server<ServeSummary> {
        &self.running
    }

    /// Has the log's file opened anew: see [`crate::LogReopen::ask`].
    pub fn reopen_log(&self) {
        self.log.reopen.ask();
    }

    /// Goes on with other options, and drops no connection: see [`Server::reload`]. Folders and
    /// the log's file are opened anew. Blocks until new workers take connections.
    ///
    /// # Errors
    /// Any [`Error`]; [`Error::Fixed`] for what only a new process can change. The server goes on
    /// with the options that it had.
    pub fn reload(&self, options: &ServerOptions) -> Result<(), Error> {
        self.check_fixed(options)?;
        options
            .requests
            .check(options.connections.input_bytes_max)?;
        let sites = Arc::new(ServedSites::open(&options.sites)?);
        let config = server_config(options, sites, &self.kept);
        let reloaded = self.running.reload(&config);
        reloaded.map_err(|error| start_error(error, options))?;
        self.reopen_log();
        Ok(())
    }

    /// What all workers write to the same place can't change under half of them.
    fn check_fixed(&self, options: &ServerOptions) -> Result<(), Error> {
        let (log, asked) = (&self.log, &options.log);
        let is_same_log = log.access == asked.access
            && log.format == asked.format
            && log.queue_bytes_max == asked.queue_bytes_max;
        let what = match () {
            () if !is_same_log => "log",
            () if self.kept.registry.explain != options.explain => "explain",
            () => return Ok(()),
        };
        Err(Error::Fixed { what })
    }
}

fn server_config(
    options: &ServerOptions,
    sites: Arc<ServedSites>,
    kept: &KeptState,
) -> ServerConfig<HttpProtocol> {
    let status = options.status.listen.as_ref();
    let metrics = match status {
        Some(_) => MetricsUse::Read,
        None => MetricsUse::Unread,
    };
    let files = |at: &ListenAt| ListenerConfig::new(at.clone(), HttpService::Files);
    let status = status.map(|address| ListenerConfig {
        at: address.listen_at(),
        service: HttpService::Metrics(Arc::clone(&kept.metrics)),
        access: ListenerAccess::Operators {
            connections_max: METRICS_CONNECTIONS_MAX,
        },
    });
    ServerConfig {
        protocol: HttpProtocol {
            shared: HttpShared {
                sites,
                limits: options.requests.clone(),
                joining: joining(options),
                registry: Arc::clone(&kept.registry),
                observation: kept.registry.observation(metrics),
                digests: Arc::clone(&kept.digests),
                proxies: options.connections.proxy.clone(),
            },
            user: options.user.clone(),
            confine: options.confine,
        },
        listeners: options.listen.iter().map(files).chain(status).collect(),
        workers: options
            .workers
            .map_or_else(underpass_net::cores, Into::into),
        policy: options.policy,
        limits: options.connections.clone(),
    }
}

/// Keeps apart which of the addresses could not be listened on.
fn start_error(error: underpass_net::Error, options: &ServerOptions) -> Error {
    match &options.status.listen {
        Some(address) if error.is_about(&address.listen_at()) => Error::Status {
            listen: address.to_string(),
            source: error,
        },
        _ => Error::Net(error),
    }
}

fn joining(options: &ServerOptions) -> BodyJoining {
    let is_allowed = options.policy.allows(Mechanism::ReadWrite);
    match is_allowed && options.connections.joined_bytes_max > 0 {
        true => BodyJoining::Allowed,
        false => BodyJoining::Forbidden,
    }
}
