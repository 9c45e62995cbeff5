//! Workers: threads that each accept and serve their own connections.

pub(crate) mod accept;
pub(crate) mod config;
pub(crate) mod listener;
pub(crate) mod protocol;

use std::io;
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};

use tokio::runtime::{Builder, LocalOptions, LocalRuntime};
use tokio::sync::watch;
use tokio::task::spawn_local;
use tokio::time::{sleep, timeout};

use crate::address::PeerAddress;
use crate::admission::admit;
use crate::connection::Connection;
use crate::connection::transport::Transport;
use crate::connection::worker_state::{CLIENTS, ConnectionGuard, ConnectionSet, WorkerState};
use crate::error::Error;
use crate::limits::{ConnectionLimits, READERS_MAX, STOP_NOW_TIMEOUT};
use crate::listen::listeners::AssignedSocket;
use crate::process::resources;
use crate::quota::SharedQuotas;
use crate::shutdown::{Shutdown, ShutdownPhase, reached};
use crate::tls::acceptor::TlsAcceptor;
use crate::tls::error::HandshakeError;
use crate::tls::info::Handshake;
use crate::worker::accept::{AcceptEvent, accept, take_rest};
use crate::worker::config::ServerConfig;
use crate::worker::listener::{WorkerListener, group_maxima};
use crate::worker::protocol::Protocol;

/// The parts of a server that each worker of a generation gets.
#[derive(Clone)]
pub(crate) struct ServerParts<P: Protocol> {
    /// The configuration, with the limits of one worker.
    pub(crate) config: ServerConfig<P>,
    pub(crate) shared: Arc<SharedQuotas>,
    pub(crate) shutdown: Shutdown,
    /// The phases of the generation.
    pub(crate) phases: watch::Receiver<ShutdownPhase>,
}

/// Workers that were started together, with one configuration.
#[derive(Debug)]
pub(crate) struct Generation<S> {
    pub(crate) threads: Vec<JoinHandle<S>>,
    starts: Vec<mpsc::Sender<()>>,
    /// Disconnected when none of them accepts connections any more.
    pub(crate) accepting: mpsc::Receiver<()>,
}

/// Creates a worker for each of `shares`, the sockets that it accepts from. All of them are ready
/// when this returns, and none accepts before [`Generation::go`].
///
/// # Errors
/// [`Error::Worker`]; nothing is left running.
pub(crate) fn prepare<P: Protocol>(
    server: &ServerParts<P>,
    shares: Vec<Vec<AssignedSocket>>,
) -> Result<Generation<P::Summary>, Error> {
    let (ready, prepared) = mpsc::channel();
    let (accepts, accepting) = mpsc::channel();
    let mut generation = Generation {
        threads: Vec::with_capacity(shares.len()),
        starts: Vec::with_capacity(shares.len()),
        accepting,
    };
    for (number, sockets) in shares.into_iter().enumerate() {
        let (start, started) = mpsc::channel();
        let worker = PreparedWorker {
            server: server.clone(),
            sockets,
            ready: ready.clone(),
            started,
            accepts: accepts.clone(),
        };
        generation.threads.push(worker.spawn(number)?);
        generation.starts.push(start);
    }
    drop(ready);
    let outcomes: Vec<()> = prepared.into_iter().collect::<Result<_, _>>()?;
    match outcomes.len() == generation.threads.len() {
        true => Ok(generation),
        false => Err(Error::Worker {
            doing: "start all workers",
            source: io::Error::other("one has panicked"),
        }),
    }
}

impl<S> Generation<S> {
    pub(crate) fn go(&mut self) {
        for start in self.starts.drain(..) {
            // A worker that has ended has panicked, which its thread reports.
            let _ = start.send(());
        }
    }
}

/// A worker before it runs.
struct PreparedWorker<P: Protocol> {
    server: ServerParts<P>,
    sockets: Vec<AssignedSocket>,
    ready: mpsc::Sender<Result<(), Error>>,
    started: mpsc::Receiver<()>,
    /// Dropped when it stops accepting connections.
    accepts: mpsc::Sender<()>,
}

impl<P: Protocol> PreparedWorker<P> {
    fn spawn(self, number: usize) -> Result<JoinHandle<P::Summary>, Error> {
        thread::Builder::new()
            .name(format!("worker-{number}"))
            .spawn(move || self.run())
            .map_err(|source| Error::Worker {
                doing: "start a worker's thread",
                source,
            })
    }

    fn run(self) -> P::Summary {
        let ServerParts {
            config,
            shared,
            shutdown,
            phases,
        } = self.server;
        let confined = config.protocol.confine();
        let state = Rc::new(config.protocol.worker());
        match confined.and_then(|()| runtime(self.sockets, &config)) {
            Err(error) => {
                let _ = self.ready.send(Err(error));
            }
            Ok((runtime, listeners)) => {
                let _ = self.ready.send(Ok(()));
                drop(self.ready);
                // An error means that the generation was given up before it started.
                if self.started.recv().is_ok() {
                    let (limits, workers) = (config.limits, config.workers);
                    let maxima = group_maxima(&config.listeners, limits.connections_max, workers);
                    let descriptors = resources::descriptors(workers) / workers.max(1);
                    let connections = ConnectionSet::new(maxima, descriptors);
                    let worker =
                        WorkerState::new(limits, config.policy, connections, shared, shutdown);
                    runtime.block_on(work::<P>(
                        listeners,
                        Rc::clone(&state),
                        Rc::new(worker),
                        phases,
                        self.accepts,
                    ));
                }
            }
        }
        P::finish(&state)
    }
}

type RuntimeAndListeners<S> = (LocalRuntime, Vec<WorkerListener<S>>);

fn runtime<P: Protocol>(
    sockets: Vec<AssignedSocket>,
    config: &ServerConfig<P>,
) -> Result<RuntimeAndListeners<P::Service>, Error> {
    let make = || -> io::Result<_> {
        let runtime = Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .max_blocking_threads(READERS_MAX)
            .build_local(LocalOptions::default())?;
        let inside = runtime.enter();
        let open = |socket| WorkerListener::open(socket, &config.listeners);
        let listeners = sockets.into_iter().map(open).collect::<io::Result<_>>()?;
        drop(inside);
        Ok((runtime, listeners))
    };
    make().map_err(|source| Error::Worker {
        doing: "make a worker's runtime",
        source,
    })
}

fn report<P: Protocol>(state: &P::Worker, worker: &WorkerState, event: AcceptEvent) {
    match event {
        AcceptEvent::Full => P::connections_max_reached(state),
        AcceptEvent::Evicted(count) => P::evicted(state, count),
        AcceptEvent::Shortage => {
            worker.buffers.kernel.close_idle_pipes();
            P::descriptors_short(state);
        }
    }
}

/// Runs the main task of a worker: accepts connections until the end, then waits for the last ones.
async fn work<P: Protocol>(
    listeners: Vec<WorkerListener<P::Service>>,
    state: Rc<P::Worker>,
    worker: Rc<WorkerState>,
    mut phases: watch::Receiver<ShutdownPhase>,
    accepts: mpsc::Sender<()>,
) {
    let (connections, limits) = (&worker.connections, &worker.limits);
    let overdue = Rc::clone(&worker);
    spawn_local(async move { overdue.connections.wake_overdue().await });
    let renewed = Rc::clone(&worker);
    spawn_local(async move { renewed.send_queue.renew().await });
    let take = |listener: &WorkerListener<P::Service>, transport: Transport, peer: PeerAddress| {
        let (worker, state) = (Rc::clone(&worker), Rc::clone(&state));
        let (identity, service) = (Rc::clone(&listener.identity), listener.service.clone());
        let guard = ConnectionGuard::new(Rc::clone(&worker), listener.group);
        let tls = listener.tls.clone();
        // Outside the task, which would reserve memory for all of this until its end.
        let connection = Connection::accepted(transport, peer, identity, worker, guard);
        spawn_local(async move {
            connection.enter_task().await;
            let connection = match admit(connection).await {
                Ok(connection) => connection,
                Err(why) => return P::rejected(&state, why),
            };
            match tls {
                None => P::serve_connection(state, service, connection).await,
                // Boxed, so that connections without TLS are not larger for it.
                Some(tls) => Box::pin(serve_secured::<P>(state, service, connection, &tls)).await,
            }
        });
    };
    let report = |event| report::<P>(&state, &worker, event);
    let (seen, serving) = (phases.clone(), worker.shutdown.serving());
    let is_over = || seen.has_changed().unwrap_or(true);
    let phase = tokio::select! {
        // Biased: connections after the phase change belong to the next generation.
        biased;
        phase = reached(&mut phases, ShutdownPhase::Retiring) => phase,
        () = accept(&listeners, connections, is_over, take, report) => ShutdownPhase::Now,
    };
    connections.advance(phase);
    let (staying, leaving): (Vec<_>, Vec<_>) = listeners
        .into_iter()
        .partition(|listener| phase == ShutdownPhase::Draining && listener.stays_while_draining());
    let last = async {
        for listener in leaving {
            // A newer generation on the same socket has its queue, and its own service for it.
            if !worker.shutdown.listens_at(&listener.identity.at) {
                take_rest(&listener, connections, take).await;
            }
        }
        // The sockets are closed: their addresses can be bound again.
        drop(accepts);
        connections.none_in(CLIENTS).await;
        drop(serving);
        match staying.is_empty() {
            true => connections.none().await,
            false => worker.shutdown.no_clients().await,
        }
    };
    tokio::select! {
        () = last => {}
        () = end(phase, &mut phases, connections, limits) => {}
        () = accept(&staying, connections, || false, take, |_| {}) => {}
    }
    drop(staying);
    connections.advance(ShutdownPhase::Now);
    let _ = timeout(STOP_NOW_TIMEOUT, connections.none()).await;
}

/// Performs the handshake, and serves the connection.
async fn serve_secured<P: Protocol>(
    state: Rc<P::Worker>,
    service: P::Service,
    mut connection: Connection,
    tls: &TlsAcceptor,
) {
    match Box::pin(connection.handshake(tls)).await {
        Ok(Handshake::Complete) => {
            if let Some(info) = connection.tls() {
                P::secured(&state, info);
            }
            P::serve_connection(state, service, connection).await;
        }
        Ok(Handshake::Plain) => P::serve_plain(state, service, connection).await,
        Err(why) => {
            P::handshake_failed(&state, &why);
            match why {
                // The peer should receive the alert.
                HandshakeError::Failed(_) | HandshakeError::Alert(_) | HandshakeError::WrongKey => {
                    connection.close().await;
                }
                HandshakeError::Late | HandshakeError::PeerGone | HandshakeError::Closed => {
                    connection.end();
                }
            }
        }
    }
}

/// Passes the phases on to the connections, and returns when none is waited for any more. After a
/// newer generation has taken over, idle connections get some time to be used once more, and
/// responses in progress as long as they need.
async fn end(
    phase: ShutdownPhase,
    phases: &mut watch::Receiver<ShutdownPhase>,
    connections: &ConnectionSet,
    limits: &ConnectionLimits,
) {
    if phase < ShutdownPhase::Draining {
        let _ = timeout(
            limits.stop_timeout,
            reached(phases, ShutdownPhase::Draining),
        )
        .await;
        connections.advance(ShutdownPhase::Draining);
        reached(phases, ShutdownPhase::Draining).await;
    }
    tokio::select! {
        _ = reached(phases, ShutdownPhase::Now) => {}
        () = sleep(limits.stop_timeout) => {}
    }
}
