//! Workers that are started together.

use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use tokio::sync::watch;

use crate::connection::set::CLIENTS;
use crate::error::Error;
use crate::limits::ConnectionLimits;
use crate::listen::config::{ListenerAccess, ListenerConfig};
use crate::listen::listeners::AssignedSocket;
use crate::quota::shared::SharedQuotas;
use crate::server::config::ServerConfig;
use crate::shutdown::phase::ShutdownPhase;
use crate::shutdown::switch::Shutdown;
use crate::worker::PreparedWorker;
use crate::worker::listener::PreparedListener;
use crate::worker::protocol::Protocol;

/// Workers that were started together, with one configuration.
#[derive(Debug)]
pub(crate) struct Generation<S> {
    pub(crate) threads: Vec<JoinHandle<S>>,
    starts: Vec<mpsc::Sender<()>>,
}

/// What the workers of a generation get from their server.
pub(crate) struct ServerParts<'s> {
    /// The limits of one worker.
    pub(crate) limits: &'s ConnectionLimits,
    pub(crate) shared: &'s Arc<SharedQuotas>,
    pub(crate) shutdown: &'s Shutdown,
    /// The phases of this generation.
    pub(crate) phases: &'s watch::Receiver<ShutdownPhase>,
}

/// Makes a worker for each of `shares`, the sockets that it takes connections from. All of them are
/// ready when this returns, and none takes any before [`Generation::go`].
///
/// # Errors
/// [`Error::Worker`]; nothing is left running.
pub(crate) fn prepare<P: Protocol>(
    config: &ServerConfig<P>,
    shares: Vec<Vec<AssignedSocket>>,
    server: &ServerParts<'_>,
) -> Result<Generation<P::Summary>, Error> {
    let (ready, prepared) = mpsc::channel();
    let mut generation = Generation {
        threads: Vec::with_capacity(shares.len()),
        starts: Vec::with_capacity(shares.len()),
    };
    let maxima = maxima(&config.listeners, shares.len(), server.limits);
    for (number, sockets) in shares.into_iter().enumerate() {
        let (start, started) = mpsc::channel();
        let listener = |socket| prepare_listener(socket, &config.listeners);
        let worker = PreparedWorker {
            protocol: config.protocol.clone(),
            listeners: sockets.into_iter().map(listener).collect(),
            maxima: maxima.clone(),
            policy: config.policy,
            limits: server.limits.clone(),
            shared: Arc::clone(server.shared),
            shutdown: server.shutdown.clone(),
            phases: server.phases.clone(),
            ready: ready.clone(),
            started,
        };
        generation.threads.push(worker.spawn(number)?);
        generation.starts.push(start);
    }
    drop(ready);
    for outcome in prepared {
        outcome?;
    }
    Ok(generation)
}

/// How many connections one worker may have: of clients, and of each other listener.
fn maxima<S>(
    listeners: &[ListenerConfig<S>],
    workers: usize,
    limits: &ConnectionLimits,
) -> Vec<usize> {
    let operators = listeners
        .iter()
        .filter_map(|listener| match listener.access {
            ListenerAccess::Clients => None,
            ListenerAccess::Operators { connections_max } => {
                Some(connections_max.div_ceil(workers))
            }
        });
    [limits.connections_max]
        .into_iter()
        .chain(operators)
        .collect()
}

fn prepare_listener<S: Clone>(
    socket: AssignedSocket,
    listeners: &[ListenerConfig<S>],
) -> PreparedListener<S> {
    let is_apart = |listener: &&ListenerConfig<S>| listener.access != ListenerAccess::Clients;
    let group = match socket.identity.access {
        ListenerAccess::Clients => CLIENTS,
        ListenerAccess::Operators { .. } => {
            1 + listeners[..socket.entry].iter().filter(is_apart).count()
        }
    };
    PreparedListener {
        service: listeners[socket.entry].service.clone(),
        group,
        identity: socket.identity,
        socket: socket.socket,
    }
}

impl<S> Generation<S> {
    pub(crate) fn go(&mut self) {
        for start in self.starts.drain(..) {
            // A worker that is gone has panicked, which its thread reports.
            let _ = start.send(());
        }
    }
}
