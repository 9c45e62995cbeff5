//! A server from start to end: workers are replaced, log and metrics persist.

use std::process::{Child, Command};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use underpass::Mechanism;
use underpass_http::scheme::Scheme;
use underpass_monitor::{METRICS_CONNECTIONS_MAX, MetricsService, StatusAddress};
use underpass_net::{
    Address, Inherited, ListenAt, ListenerAccess, ListenerConfig, OffloadMode, Refreshed, Server,
    ServerConfig, TlsAcceptor,
};

use crate::access::verifier::PasswordVerifier;
use crate::answer::writer::BodyJoining;
use crate::connection::http::{HttpProtocol, HttpService};
use crate::connection::upload_protocols::running::RunningUploads;
use crate::connection::worker::HttpShared;
use crate::error::{Error, start_thread};
use crate::https::{self, CertificatePin, HttpsState};
use crate::limits::SWEEP_INTERVAL;
use crate::log::{AccessLog, LogOptions, rotation_obstacle};
use crate::metrics::exposition::ServerCounts;
use crate::metrics::registry::{MetricsRegistry, MetricsUse};
use crate::metrics::worker_metrics::ServeSummary;
use crate::options::ServerOptions;
use crate::options::listen::HttpListen;
use crate::site::access_check;
use crate::site::access_files;
use crate::site::digest_cache::DigestCache;
use crate::site::sites::{ServedSite, ServedSites};
use crate::site::upload_area::UploadArea;
use crate::site::upload_check;

/// A running server. Dropping it ends everything immediately.
#[derive(Debug)]
pub struct FileServer {
    running: Server<ServeSummary>,
    kept: KeptState,
    /// The scheme of each listen address.
    spoken: Mutex<Vec<(ListenAt, Scheme)>>,
    log: LogOptions,
}

/// The state that persists when workers are replaced.
#[derive(Debug)]
struct KeptState {
    registry: Arc<MetricsRegistry>,
    metrics: Arc<MetricsService>,
    digests: Arc<DigestCache>,
    running: Arc<RunningUploads>,
    https: Arc<HttpsState>,
    verifier: Arc<PasswordVerifier>,
    /// The names and ports of sockets passed by the service manager.
    activated_ports: Vec<(String, u16)>,
}

impl KeptState {
    /// Starts the threads that restricted sites need.
    fn restrict(&self, options: &ServerOptions, sites: &Arc<ServedSites>) -> Result<(), Error> {
        if !sites.is_restricted {
            return Ok(());
        }
        if let Some(error) = access_check::mistakes(options) {
            return Err(error);
        }
        self.verifier.start()?;
        access_files::watch(sites)
    }
}

/// Serves the sites of `options` until stopped by [`Server::shutdown`]. Returns once connections
/// are accepted.
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
/// process that it succeeds.
///
/// # Errors
/// Any [`Error`]; nothing is left running.
pub fn serve_on(options: &ServerOptions, mut inherited: Inherited) -> Result<FileServer, Error> {
    options.requests.check()?;
    let sites = Arc::new(ServedSites::open(&options.sites)?);
    let log = AccessLog::open(&options.log, options.user.as_ref(), inherited.take_file())?;
    let registry = Arc::new(MetricsRegistry::new(log, options.explain));
    let https = Arc::new(HttpsState::new(inherited.tls()));
    let kept = KeptState {
        metrics: Arc::new(MetricsService::new(Box::new(ServerCounts {
            registry: Arc::clone(&registry),
            https: Arc::clone(&https),
        }))),
        registry,
        digests: Arc::default(),
        running: Arc::default(),
        https,
        verifier: Arc::default(),
        activated_ports: inherited.activated_ports(),
    };
    kept.restrict(options, &sites)?;
    let (tls, _) = kept.https.acceptor(options)?;
    kept.https.watch()?;
    let config = server_config(options, Arc::clone(&sites), &kept, tls.as_ref())?;
    let running = underpass_net::start(&config, inherited).inspect_err(|_| {
        if let Some(log) = &kept.registry.log {
            log.discard();
        }
    });
    let running = running.map_err(|error| start_error(error, options))?;
    kept.https.set_present(tls);
    warn(options, &kept.https, &sites);
    sweep_uploads(&sites)?;
    Ok(FileServer {
        running,
        kept,
        spoken: Mutex::new(spoken(options)),
        log: options.log.clone(),
    })
}

/// Returns warnings about settings that will fail later or for some clients: log rotation and
/// certificates. The mistakes that [`crate::check`] finds are not included.
pub fn warnings(options: &ServerOptions) -> Vec<String> {
    let obstacle = rotation_obstacle(&options.log.access, options.user.as_ref());
    // Missing kernel features are reported by the check.
    let mut read = options.clone();
    read.tls.offload = OffloadMode::Off;
    let acceptor = HttpsState::default().acceptor(&read).ok();
    let acceptor = acceptor.and_then(|(acceptor, _)| acceptor);
    let certificates = acceptor.map(|acceptor| acceptor.certificates());
    let cautions = https::check::cautions(options, &certificates.unwrap_or_default());
    let cautions = cautions.into_iter().chain(access_check::warnings(options));
    let sites = options.sites.iter().map(ServedSite::open);
    let odd = sites
        .flatten()
        .flat_map(|site| upload_check::oddities(&site));
    obstacle.into_iter().chain(cautions).chain(odd).collect()
}

/// Logs warnings about a server that has just started.
fn warn(options: &ServerOptions, https: &HttpsState, sites: &ServedSites) {
    let obstacle = rotation_obstacle(&options.log.access, options.user.as_ref());
    let certificates = https.certificates();
    let uploads = sites.all.iter().map(|site| {
        let obstacles = upload_check::obstacles(site, options.user.as_ref());
        obstacles.into_iter().chain(upload_check::oddities(site))
    });
    for warning in obstacle
        .into_iter()
        .chain(https::check::warnings(options, &certificates))
        .chain(
            access_check::unreadable(options)
                .iter()
                .map(Error::to_string),
        )
        .chain(access_check::warnings(options))
        .chain(uploads.flatten())
    {
        tracing::warn!("{warning}");
    }
}

/// Returns an error for each pair of addresses that cannot both be bound.
pub(crate) fn address_conflicts(options: &ServerOptions) -> Vec<Error> {
    let status = options.status.listen.as_ref().map(StatusAddress::listen_at);
    let listen = options.listen.iter().map(|listen| &listen.at);
    let all: Vec<_> = listen.chain(&status).collect();
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
    /// Returns the server with its listeners, shutdown and join operations.
    pub fn running(&self) -> &Server<ServeSummary> {
        &self.running
    }

    /// Returns the listen addresses for clients and their schemes, with the ports that the kernel
    /// has chosen.
    pub fn addresses(&self) -> Vec<(Scheme, Address)> {
        let spoken = self.spoken.lock().unwrap_or_else(PoisonError::into_inner);
        let scheme = |at: &ListenAt| {
            spoken
                .iter()
                .find(|(known, _)| known == at)
                .map(|(_, scheme)| *scheme)
        };
        let all = self.running.listeners();
        all.iter()
            .filter_map(|listener| Some((scheme(listener.at())?, listener.address().clone())))
            .collect()
    }

    /// Returns the fingerprints of the certificate in use, if it is self-signed by this server.
    pub fn self_signed(&self) -> Option<CertificatePin> {
        let acceptor = self.kept.https.present()?;
        let certificates = acceptor.certificates();
        let made = certificates
            .first()
            .filter(|_| acceptor.options().self_signed);
        made.map(CertificatePin::of)
    }

    /// Rereads the certificate files for new connections, as also happens every minute. Returns
    /// whether they have changed.
    ///
    /// # Errors
    /// [`Error::Tls`]; the certificates in use do not change.
    pub fn reload_certificates(&self) -> Result<Refreshed, Error> {
        self.kept.https.refresh()
    }

    #[cfg(test)]
    pub(crate) fn https(&self) -> &Arc<HttpsState> {
        &self.kept.https
    }

    /// Lets a new process take over: see [`Server::upgrade`]. It resumes TLS sessions of this one,
    /// and writes to the open log if it may not open the file.
    ///
    /// # Errors
    /// See [`Server::upgrade`].
    pub fn upgrade(
        &self,
        command: Command,
        started: impl FnOnce(&Child),
    ) -> Result<(), underpass_net::Error> {
        let log = self.kept.registry.log.as_ref();
        let file = log.and_then(AccessLog::handed);
        let tls = &self.kept.https.shared;
        self.running.upgrade(command, tls, file.as_ref(), started)
    }

    /// Reopens the log file: see [`crate::LogReopen::ask`].
    pub fn reopen_log(&self) {
        self.log.reopen.ask();
    }

    /// Stops waiting for unwritten log lines, so that the process can end immediately. The lost
    /// lines are reported.
    pub fn abandon_log(&self) {
        if let Some(log) = &self.kept.registry.log {
            log.buffers.abandon();
        }
    }

    /// Applies other options without dropping a connection: see [`Server::reload`]. Folders and the
    /// log file are reopened. Blocks until new workers accept connections.
    ///
    /// Certificate files already in use are reread first, and renewed certificates are used by all
    /// workers, including those of earlier configurations.
    ///
    /// # Errors
    /// Any [`Error`]; [`Error::Fixed`] if only a new process can change the option. The server
    /// keeps its previous options; with [`Error::OnlyCertificates`] certificates have been renewed.
    pub fn reload(&self, options: &ServerOptions) -> Result<(), Error> {
        let (tls, refreshed) = self.kept.https.acceptor(options)?;
        let restarted = self.restart_workers(options, tls);
        restarted.map_err(|error| match refreshed {
            Refreshed::Changed => Error::OnlyCertificates(Box::new(error)),
            Refreshed::Same => error,
        })
    }

    fn restart_workers(
        &self,
        options: &ServerOptions,
        tls: Option<Arc<TlsAcceptor>>,
    ) -> Result<(), Error> {
        self.check_fixed(options)?;
        options.requests.check()?;
        let sites = Arc::new(ServedSites::open(&options.sites)?);
        self.kept.restrict(options, &sites)?;
        let config = server_config(options, Arc::clone(&sites), &self.kept, tls.as_ref())?;
        let reloaded = self.running.reload(&config);
        reloaded.map_err(|error| start_error(error, options))?;
        sweep_uploads(&sites)?;
        self.kept.https.set_present(tls);
        *self.spoken.lock().unwrap_or_else(PoisonError::into_inner) = spoken(options);
        warn(options, &self.kept.https, &sites);
        self.reopen_log();
        Ok(())
    }

    /// Rejects changes of settings that all workers must share.
    fn check_fixed(&self, options: &ServerOptions) -> Result<(), Error> {
        let (log, asked) = (&self.log, &options.log);
        let is_same_log = log.access == asked.access && log.format == asked.format;
        let what = match () {
            () if !is_same_log => "log",
            () if self.kept.registry.explain != options.explain => "explain",
            () => return Ok(()),
        };
        Err(Error::Fixed { what })
    }
}

/// Removes expired uploads regularly, on a thread that ends when the sites are dropped.
fn sweep_uploads(sites: &Arc<ServedSites>) -> Result<(), Error> {
    if sites.all.iter().all(|site| site.uploads.is_empty()) {
        return Ok(());
    }
    let sites = Arc::downgrade(sites);
    let sweep = move || {
        while let Some(sites) = sites.upgrade() {
            let areas = sites.all.iter().flat_map(|site| &site.uploads);
            areas.for_each(UploadArea::sweep);
            drop(sites);
            thread::sleep(SWEEP_INTERVAL);
        }
    };
    start_thread(
        "uploads",
        "start the thread that removes expired uploads",
        sweep,
    )
}

fn spoken(options: &ServerOptions) -> Vec<(ListenAt, Scheme)> {
    let all = options.listen.iter();
    all.map(|listen| (listen.at.clone(), listen.spoken(options)))
        .collect()
}

fn server_config(
    options: &ServerOptions,
    sites: Arc<ServedSites>,
    kept: &KeptState,
    tls: Option<&Arc<TlsAcceptor>>,
) -> Result<ServerConfig<HttpProtocol>, Error> {
    let status = options.status.listen.as_ref();
    let metrics = match status {
        Some(_) => MetricsUse::Read,
        None => MetricsUse::Unread,
    };
    let secured_port = https::port(options, &kept.activated_ports);
    let files = |listen: &HttpListen| {
        let (service, tls) = match (listen.spoken(options), secured_port) {
            (Scheme::Https, _) => (HttpService::Files, tls.cloned()),
            (Scheme::Http, Some(port)) => (HttpService::Redirect(port), None),
            (Scheme::Http, None) => (HttpService::Files, None),
        };
        ListenerConfig {
            tls,
            ..ListenerConfig::new(listen.at.clone(), service)
        }
    };
    let status = status.map(|address| ListenerConfig {
        access: ListenerAccess::Operators {
            connections_max: METRICS_CONNECTIONS_MAX,
        },
        ..ListenerConfig::new(
            address.listen_at(),
            HttpService::Metrics(Arc::clone(&kept.metrics)),
        )
    });
    Ok(ServerConfig {
        protocol: HttpProtocol {
            shared: HttpShared {
                sites,
                limits: options.requests.clone(),
                joining: joining(options),
                registry: Arc::clone(&kept.registry),
                observation: kept.registry.observation(metrics),
                digests: Arc::clone(&kept.digests),
                running: Arc::clone(&kept.running),
                proxies: options.connections.proxy.clone(),
                hsts: https::hsts(options)?.map(Arc::from),
                verifier: Arc::clone(&kept.verifier),
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
    })
}

/// Separates errors of the status address from those of other addresses.
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
