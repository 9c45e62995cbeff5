//! The waiting side: a small HTTP server for one transfer.
//!
//! ```text
//!  head ─► token or proof ─► role: receives items, or offers them ─► response
//! ```
//!
//! It has one worker thread: a transfer is one stream of bytes, and all state belongs to the
//! thread.

mod code_guard;
mod exchange;
mod offer;
mod receive;
mod request;
mod state;

use std::cell::Cell;
use std::net::{IpAddr, SocketAddr};
use std::ops::AddAssign;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use underpass::Policy;
use underpass_http::status::Status;
use underpass_net::{
    Address, Connection, ConnectionLimits, Inherited, ListenAt, ListenerConfig, Protocol, Server,
    ServerConfig, Shutdown, TlsAcceptor, TlsOptions, TlsShared, TlsVersion, machine_addresses,
    self_signed_in, start,
};

pub use state::KeptTicket;
use underpass_receive::Area;

use crate::error::Error;
use crate::listen::code_guard::{CodeExchange, CodeGuard};
use crate::listen::exchange::{Notice, RoleContext, Then, respond};
use crate::listen::offer::OfferRole;
use crate::listen::receive::ReceiveRole;
use crate::listen::request::{Admission, NoRequest, Request, Session, ShortResponse};
use crate::offer::Item;
use crate::offer::tree::Attributes;
use crate::profile;
use crate::progress::{TransferEvent, TransferProgress};
use crate::secret::Secret;
use crate::target::ReceiveOptions;
use crate::ticket::{ADDRESSES_MAX, Security, Ticket};

/// Connections of a transfer: those that a lost network has left, and of strangers that must not
/// keep out who has the ticket.
const CONNECTIONS_MAX: usize = 1024;

/// The time for which a sender may take to confirm that it has the last response, and to come back
/// if it has not.
const CONFIRM_TIMEOUT: Duration = Duration::from_secs(10);

/// The pause before another attempt to make a code.
const CODE_RETRY_PAUSE: Duration = Duration::from_secs(5);

/// The time that connections have to end after the last transfer: those that a peer has left
/// without a word do not.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// How a waiting side can be reached.
#[derive(Clone, Debug)]
pub struct ListenOptions {
    /// The addresses to listen on; port 0 takes the kept one, or any.
    pub at: Vec<SocketAddr>,
    /// Whether connections are encrypted.
    pub encryption: Encryption,
    /// The number of transfers after which it ends; none for no end.
    pub count: Option<u64>,
    /// The limits of connections.
    pub limits: ConnectionLimits,
}

/// Whether connections are encrypted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Encryption {
    /// By TLS 1.3.
    Tls,
    /// By TLS 1.3; the other side gets the ticket for a code.
    TlsByCode,
    /// Not at all: for trusted networks.
    None,
}

/// The role of a waiting side.
#[derive(Debug)]
pub enum TransferRole {
    /// It receives items into a folder.
    Receive(ReceiveOptions),
    /// It offers these items.
    Offer(Vec<Item>, Attributes),
}

/// A waiting side.
pub struct WaitingSide {
    server: Server<Nothing>,
    /// The ticket for the other side.
    pub ticket: Ticket,
    /// Progress and events.
    pub progress: Arc<TransferProgress>,
    notices: Receiver<Notice>,
    code: Option<Arc<CodeGuard>>,
    count: Option<u64>,
    kept: KeptTicket,
}

impl WaitingSide {
    /// Starts to wait.
    ///
    /// # Errors
    /// [`Error::Listen`], [`Error::Tls`], [`Error::Local`], and those of opening the folder.
    pub fn start(
        role: TransferRole,
        options: &ListenOptions,
        kept: KeptTicket,
    ) -> Result<WaitingSide, Error> {
        let progress = Arc::new(TransferProgress::default());
        let (notify, notices) = channel();
        let (security, tls) = security_of(options.encryption, &kept)?;
        let code = match (options.encryption, security) {
            (Encryption::TlsByCode, Security::Encrypted { key_sha256 }) => {
                Some(Arc::new(CodeGuard::new(key_sha256)))
            }
            _ => None,
        };
        let shared = Arc::new(Shared {
            secret: kept.secret.clone(),
            progress: Arc::clone(&progress),
            notify,
            code: code.clone(),
            role: match role {
                TransferRole::Receive(options) => {
                    let area = options.open()?;
                    let state = kept.folder().to_owned();
                    SharedRole::Receive(area, ReceiveOptions { state, ..options })
                }
                TransferRole::Offer(items, attributes) => SharedRole::Offer(items, attributes),
            },
        });
        let server = bound(options, kept.port, |at| ServerConfig {
            protocol: TransferProtocol(Arc::clone(&shared)),
            listeners: at
                .map(|at| ListenerConfig {
                    tls: tls.clone(),
                    ..ListenerConfig::new(ListenAt::Tcp(at), ())
                })
                .collect(),
            workers: 1,
            policy: Policy::default(),
            limits: ConnectionLimits {
                connections_max: CONNECTIONS_MAX,
                stop_timeout: STOP_TIMEOUT,
                ..options.limits.clone()
            },
        })?;
        let bound = bound_addresses(&server);
        let port = bound.first().map_or(0, SocketAddr::port);
        kept.keep(port)?;
        let ticket = Ticket {
            security,
            secret: kept.secret.clone(),
            port,
            addresses: reachable(&bound),
        };
        if let Some(code) = &code {
            code.open(&ticket, &progress)?;
        }
        Ok(WaitingSide {
            server,
            ticket,
            progress,
            notices,
            code,
            count: options.count,
            kept,
        })
    }

    /// The handle that ends it.
    pub fn shutdown(&self) -> Shutdown {
        self.server.shutdown()
    }

    /// Makes the next code; returns when to try again where that fails.
    fn renew_code(&self) -> Option<Instant> {
        let renewed = self.code.as_ref().map(|code| code.renew(&self.progress));
        let error = renewed?.err()?;
        let text = format!("no new code yet: {error}");
        self.progress.record(TransferEvent::Warning(text));
        Some(Instant::now() + CODE_RETRY_PAUSE)
    }

    /// Waits until as many transfers are complete as were asked for, or the server is stopped.
    /// Returns whether all were.
    pub fn wait(self) -> bool {
        let mut left = self.count;
        let mut renewed_at = None;
        while left != Some(0) {
            let notice = match renewed_at {
                None => self.notices.recv().map_err(RecvTimeoutError::from),
                Some(at) => {
                    let span = Instant::saturating_duration_since(&at, Instant::now());
                    self.notices.recv_timeout(span)
                }
            };
            match notice {
                Ok(Notice::Complete) => left = left.map(|left| left - 1),
                Ok(Notice::CodeSpent(delay)) => renewed_at = Some(Instant::now() + delay),
                Err(RecvTimeoutError::Timeout) => renewed_at = self.renew_code(),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        let is_complete = left == Some(0);
        if is_complete {
            self.kept.forget();
        }
        self.server.shutdown().escalate();
        self.server.join();
        is_complete
    }
}

/// Returns how connections are protected, with the certificate for that.
fn security_of(
    encryption: Encryption,
    kept: &KeptTicket,
) -> Result<(Security, Option<Arc<TlsAcceptor>>), Error> {
    if encryption == Encryption::None {
        return Ok((Security::Plain, None));
    }
    let acceptor = acceptor(kept.folder())?;
    let certificates = acceptor.certificates();
    let key_sha256 = certificates
        .first()
        .map_or([0; 32], |facts| facts.key_sha256);
    Ok((Security::Encrypted { key_sha256 }, Some(Arc::new(acceptor))))
}

fn acceptor(folder: &Path) -> Result<TlsAcceptor, Error> {
    let options = TlsOptions {
        min_version: TlsVersion::Tls13,
        ..self_signed_in(folder)?
    };
    let protocols: [&[u8]; 1] = [b"http/1.1"];
    Ok(TlsAcceptor::load(
        &options,
        &protocols,
        &Arc::<TlsShared>::default(),
    )?)
}

/// Starts a server on the kept port, or on another one if that is taken.
fn bound(
    options: &ListenOptions,
    kept: Option<u16>,
    config: impl Fn(&mut dyn Iterator<Item = SocketAddr>) -> ServerConfig<TransferProtocol>,
) -> Result<Server<Nothing>, Error> {
    let started = |port: u16| {
        let mut at = options.at.iter().map(|at| match at.port() {
            0 => SocketAddr::new(at.ip(), port),
            _ => *at,
        });
        start(&config(&mut at), Inherited::default())
    };
    match started(kept.unwrap_or(0)) {
        Err(underpass_net::Error::AddressTaken { .. }) if kept.is_some() => Ok(started(0)?),
        started => Ok(started?),
    }
}

fn bound_addresses(server: &Server<Nothing>) -> Vec<SocketAddr> {
    let addresses = server.addresses().into_iter();
    let tcp = addresses.filter_map(|address| match address {
        Address::Tcp(address) => Some(address),
        Address::Unix(_) => None,
    });
    tcp.collect()
}

/// Returns the addresses by which a listener can be reached: those of the machine for all
/// interfaces, and loopback ones only where there is nothing else.
fn reachable(bound: &[SocketAddr]) -> Vec<IpAddr> {
    let mut found = Vec::new();
    for address in bound {
        if !address.ip().is_unspecified() {
            found.push(address.ip());
            continue;
        }
        let takes_both = address.is_ipv6();
        let fits = |ip: &IpAddr| ip.is_ipv6() == address.is_ipv6() || takes_both;
        found.extend(machine_addresses().into_iter().filter(fits));
    }
    let is_link_local = |ip: &IpAddr| match ip {
        IpAddr::V4(four) => four.is_link_local(),
        IpAddr::V6(six) => six.is_unicast_link_local(),
    };
    found.retain(|ip| !is_link_local(ip));
    // IPv4 first: most people have it.
    found.sort_by_key(|ip| (ip.is_loopback(), ip.is_ipv6()));
    let mut seen = std::collections::HashSet::new();
    found.retain(|ip| seen.insert(*ip));
    if found.iter().any(|ip| !ip.is_loopback()) {
        found.retain(|ip| !ip.is_loopback());
    }
    found.truncate(ADDRESSES_MAX);
    found
}

/// The summary of a worker: there is nothing to sum up.
pub(crate) struct Nothing;

impl AddAssign<&Nothing> for Nothing {
    fn add_assign(&mut self, _other: &Nothing) {}
}

#[derive(Clone)]
struct TransferProtocol(Arc<Shared>);

struct Shared {
    secret: Secret,
    progress: Arc<TransferProgress>,
    notify: Sender<Notice>,
    code: Option<Arc<CodeGuard>>,
    role: SharedRole,
}

enum SharedRole {
    Receive(Arc<Area>, ReceiveOptions),
    Offer(Vec<Item>, Attributes),
}

/// The state of the worker.
pub(crate) struct TransferWorker {
    secret: Secret,
    code: Option<Arc<CodeGuard>>,
    context: RoleContext,
    role: WorkerRole,
}

enum WorkerRole {
    Receive(ReceiveRole),
    Offer(OfferRole),
}

impl Protocol for TransferProtocol {
    type Worker = TransferWorker;
    type Service = ();
    type Summary = Nothing;

    fn worker(&self) -> TransferWorker {
        let shared = &self.0;
        TransferWorker {
            secret: shared.secret.clone(),
            code: shared.code.clone(),
            context: RoleContext {
                progress: Arc::clone(&shared.progress),
                notices: shared.notify.clone(),
                unconfirmed: Cell::default(),
            },
            role: match &shared.role {
                SharedRole::Receive(area, options) => {
                    WorkerRole::Receive(ReceiveRole::new(area, options))
                }
                SharedRole::Offer(items, attributes) => {
                    WorkerRole::Offer(OfferRole::new(items.clone(), *attributes))
                }
            },
        }
    }

    async fn serve_connection(worker: Rc<TransferWorker>, (): (), connection: Connection) {
        worker.serve(connection).await;
    }

    fn finish(_worker: &TransferWorker) -> Nothing {
        Nothing
    }
}

impl TransferWorker {
    async fn serve(&self, mut connection: Connection) {
        let mut session = Session::default();
        let mut exchange = CodeExchange::default();
        let mut is_unconfirmed = false;
        loop {
            let read = Request::read(&mut connection);
            let read = match is_unconfirmed {
                true => tokio::time::timeout(CONFIRM_TIMEOUT, read).await,
                false => Ok(read.await),
            };
            let request = match read {
                Ok(Ok(request)) => request,
                // The sender may not have the last response: it comes back then, and asks.
                _ if is_unconfirmed => {
                    drop(connection);
                    tokio::time::sleep(CONFIRM_TIMEOUT).await;
                    return self.context.give_up_confirmation();
                }
                Err(_) | Ok(Err(NoRequest::End)) => return connection.close().await,
                Ok(Err(NoRequest::Failed)) => return connection.end(),
                Ok(Err(NoRequest::Invalid(error))) => {
                    let how = (request::Verb::Other, true);
                    let _ = ShortResponse::from(error).send(&mut connection, how).await;
                    return connection.close().await;
                }
            };
            let then = match &self.code {
                Some(code) if request.is_for_code() => {
                    let peer = connection.peer();
                    let response = code.answer(&self.context, &request, peer, &mut exchange);
                    respond(response, &request, &mut connection, Then::KeepAlive).await
                }
                _ => self.answer(&request, &mut session, &mut connection).await,
            };
            match then {
                Then::Confirm => {
                    let unconfirmed = &self.context.unconfirmed;
                    unconfirmed.set(unconfirmed.get() + 1);
                    is_unconfirmed = true;
                }
                Then::KeepAlive if !request.closes => {}
                Then::KeepAlive | Then::Close => return connection.close().await,
                Then::Abort => return connection.abort(),
            }
        }
    }

    async fn answer(
        &self,
        request: &Request,
        session: &mut Session,
        connection: &mut Connection,
    ) -> Then {
        if let Some(version) = request.field(profile::VERSION)
            && version != profile::SPOKEN.as_bytes()
        {
            let text = "this side speaks version 1 of the profile";
            let response = ShortResponse::new(Status::PreconditionFailed, text);
            return respond(response, request, connection, Then::Close).await;
        }
        let names = match request.admit(&self.secret, session) {
            Admission::Granted(names) => names,
            Admission::Proof(response) => {
                return respond(response, request, connection, Then::KeepAlive).await;
            }
            Admission::Denied => {
                let peer = format!("{}", connection.peer());
                self.context.progress.record(TransferEvent::Rejected(peer));
                let text = "no such transfer: the ticket is wrong, or the transfer is complete";
                let response = ShortResponse::new(Status::NotFound, text);
                return respond(response, request, connection, Then::Close).await;
            }
        };
        match &self.role {
            WorkerRole::Receive(role) => {
                role.answer(&self.context, request, &names, connection)
                    .await
            }
            WorkerRole::Offer(role) => {
                role.answer(&self.context, request, &names, connection)
                    .await
            }
        }
    }
}
