//! A server from its start to its end: workers that come and go, a log and counts that stay.

use std::sync::Arc;

use underpass::Mechanism;
use underpass_net::{Inherited, Server, ServerConfig};

use crate::StatusOptions;
use crate::answer::writer::BodyJoining;
use crate::connection::http::HttpProtocol;
use crate::connection::worker::{HttpShared, ServeSummary};
use crate::error::Error;
use crate::log::{AccessLog, LogOptions};
use crate::metrics::registry::{MetricsRegistry, MetricsUse, Presence};
use crate::monitor::{Beside, Monitor};
use crate::options::ServerOptions;
use crate::site::digest_cache::DigestCache;
use crate::site::sites::ServedSites;

/// A server at work. Dropping it ends everything at once.
#[derive(Debug)]
pub struct FileServer {
    running: Server<ServeSummary>,
    board: Arc<MetricsRegistry>,
    presence: Presence,
    digests: Arc<DigestCache>,
    log: LogOptions,
    status: StatusOptions,
}

/// Serves the sites of `options` until its [`Server::shutdown`] is told to stop. Returns when
/// connections are taken.
///
/// # Errors
/// Any [`Error`]; nothing is left running.
///
/// # Examples
/// ```no_run
/// use underpass_serve::{Options, serve};
///
/// let server = serve(&Options::of("public"))?;
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
    let beside = match inherited.is_succession() {
        true => Beside::Predecessor,
        false => Beside::Nobody,
    };
    let monitor = Monitor::listen(&options.status, beside)?;
    let metrics = match &monitor {
        Some(_) => MetricsUse::Read,
        None => MetricsUse::Unread,
    };
    let log = AccessLog::open(&options.log)?;
    let board = Arc::new(MetricsRegistry::new(log, metrics, options.explain));
    let presence = Presence::new();
    let digests = Arc::default();
    let server_config = server_config(options, sites, &board, &presence, &digests);
    let running = underpass_net::start(&server_config, inherited)?;
    if let Some(monitor) = monitor {
        monitor.start(Arc::clone(&board), running.shutdown(), &presence)?;
    }
    Ok(FileServer {
        running,
        board,
        presence,
        digests,
        log: options.log.clone(),
        status: options.status.clone(),
    })
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
        let (board, presence) = (&self.board, &self.presence);
        let server_config = server_config(options, sites, board, presence, &self.digests);
        self.running.reload(&server_config)?;
        self.reopen_log();
        Ok(())
    }

    /// What every worker tells to the same place can't change under half of them.
    fn check_fixed(&self, options: &ServerOptions) -> Result<(), Error> {
        let (log, asked) = (&self.log, &options.log);
        let is_same_log = log.access == asked.access
            && log.format == asked.format
            && log.queue_bytes_max == asked.queue_bytes_max;
        let what = match () {
            () if !is_same_log => "log",
            () if self.status.listen != options.status.listen => "status",
            () if self.board.explain != options.explain => "explain",
            () => return Ok(()),
        };
        Err(Error::Fixed { what })
    }
}

fn server_config(
    options: &ServerOptions,
    sites: Arc<ServedSites>,
    board: &Arc<MetricsRegistry>,
    presence: &Presence,
    digests: &Arc<DigestCache>,
) -> ServerConfig<HttpProtocol> {
    ServerConfig {
        protocol: HttpProtocol {
            shared: HttpShared {
                sites,
                limits: options.requests.clone(),
                joining: joining(options),
                board: Arc::clone(board),
                _presence: presence.clone(),
                digests: Arc::clone(digests),
                proxies: options.connections.proxy.clone(),
            },
            user: options.user.clone(),
            confine: options.confine,
        },
        listen: options.listen.clone(),
        workers: options
            .workers
            .map_or_else(underpass_net::cores, Into::into),
        policy: options.policy,
        limits: options.connections.clone(),
    }
}

fn joining(options: &ServerOptions) -> BodyJoining {
    let is_allowed = options.policy.allows(Mechanism::ReadWrite);
    match is_allowed && options.connections.joined_bytes_max > 0 {
        true => BodyJoining::Allowed,
        false => BodyJoining::Forbidden,
    }
}
