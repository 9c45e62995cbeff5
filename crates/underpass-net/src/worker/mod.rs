//! Workers: threads that each accept and serve their own connections.

pub(crate) mod accept;
pub(crate) mod acceptor;
pub(crate) mod generation;
pub(crate) mod listener;
pub(crate) mod protocol;

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};

use tokio::runtime::{Builder, LocalOptions, LocalRuntime};
use tokio::sync::watch;
use tokio::task::spawn_local;
use tokio::time::{sleep, timeout};
use underpass::{Kernel, Policy};

use crate::admission::admit;
use crate::connection::Connection;
use crate::connection::set::{CLIENTS, ConnectionSet};
use crate::connection::socket::PlainSocket;
use crate::connection::worker_state::WorkerState;
use crate::error::Error;
use crate::limits::{ConnectionLimits, READERS_MAX, STOP_NOW_TIMEOUT};
use crate::listen::address::PeerAddress;
use crate::log_throttle::LogThrottle;
use crate::quota::shared::SharedQuotas;
use crate::shutdown::phase::{ShutdownPhase, reached};
use crate::shutdown::switch::Shutdown;
use crate::worker::accept::{accept, take_rest};
use crate::worker::listener::{PreparedListener, WorkerListener};
use crate::worker::protocol::Protocol;

/// A worker before it runs.
pub(crate) struct PreparedWorker<P: Protocol> {
    pub(crate) protocol: P,
    pub(crate) listeners: Vec<PreparedListener<P::Service>>,
    /// How many connections each group may have.
    pub(crate) maxima: Vec<usize>,
    pub(crate) policy: Policy,
    pub(crate) limits: ConnectionLimits,
    pub(crate) shared: Arc<SharedQuotas>,
    pub(crate) shutdown: Shutdown,
    pub(crate) phases: watch::Receiver<ShutdownPhase>,
    pub(crate) ready: mpsc::Sender<Result<(), Error>>,
    pub(crate) started: mpsc::Receiver<()>,
}

impl<P: Protocol> PreparedWorker<P> {
    pub(crate) fn spawn(self, number: usize) -> Result<JoinHandle<P::Summary>, Error> {
        thread::Builder::new()
            .name(format!("worker-{number}"))
            .spawn(move || self.run())
            .map_err(|source| Error::Worker {
                doing: "start a worker's thread",
                source,
            })
    }

    fn run(self) -> P::Summary {
        let confined = self.protocol.confine();
        let state = Rc::new(self.protocol.worker());
        match confined.and_then(|()| runtime(self.listeners)) {
            Err(error) => {
                let _ = self.ready.send(Err(error));
            }
            Ok((runtime, listeners)) => {
                let _ = self.ready.send(Ok(()));
                drop(self.ready);
                // An error is a generation that was given up before it began.
                if self.started.recv().is_ok() {
                    let worker = Rc::new(WorkerState {
                        limits: self.limits,
                        connections: Rc::new(ConnectionSet::new(self.maxima)),
                        kernel: Kernel::probe(),
                        policy: self.policy,
                        sending: Cell::new(0),
                        spare_input: RefCell::default(),
                        shared: self.shared,
                        shutdown: self.shutdown,
                        rejections: LogThrottle::default(),
                    });
                    let work = work::<P>(listeners, Rc::clone(&state), worker, self.phases);
                    runtime.block_on(work);
                }
            }
        }
        P::finish(&state)
    }
}

type RuntimeAndListeners<S> = (LocalRuntime, Vec<WorkerListener<S>>);

fn runtime<S>(listeners: Vec<PreparedListener<S>>) -> Result<RuntimeAndListeners<S>, Error> {
    make_runtime(listeners).map_err(|source| Error::Worker {
        doing: "make a worker's runtime",
        source,
    })
}

fn make_runtime<S>(listeners: Vec<PreparedListener<S>>) -> io::Result<RuntimeAndListeners<S>> {
    let runtime = Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .max_blocking_threads(READERS_MAX)
        .build_local(LocalOptions::default())?;
    let listeners = {
        let _inside = runtime.enter();
        let opened = listeners.into_iter().map(PreparedListener::open);
        opened.collect::<io::Result<_>>()?
    };
    Ok((runtime, listeners))
}

/// The main task of a worker: accepts connections until it is to end, then waits for the last ones.
async fn work<P: Protocol>(
    listeners: Vec<WorkerListener<P::Service>>,
    state: Rc<P::Worker>,
    worker: Rc<WorkerState>,
    mut phases: watch::Receiver<ShutdownPhase>,
) {
    let (connections, limits) = (&worker.connections, &worker.limits);
    let take = |listener: &WorkerListener<P::Service>, socket: PlainSocket, peer: PeerAddress| {
        let (worker, state) = (Rc::clone(&worker), Rc::clone(&state));
        let (identity, service) = (Rc::clone(&listener.identity), listener.service.clone());
        let guard = Rc::clone(&worker.connections).insert(listener.group);
        spawn_local(async move {
            guard.register_waker().await;
            match admit(Connection::accepted(socket, peer, identity, worker)).await {
                Ok(connection) => P::serve_connection(state, service, connection).await,
                Err(why) => P::rejected(&state, why),
            }
        });
    };
    let full = || P::connections_max_reached(&state);
    let seen = phases.clone();
    let is_over = || seen.has_changed().unwrap_or(true);
    let phase = tokio::select! {
        // In this order: what connects after the phase has changed is the next generation's.
        biased;
        phase = reached(&mut phases, ShutdownPhase::Retiring) => phase,
        () = accept(&listeners, connections, is_over, take, full) => ShutdownPhase::Now,
    };
    connections.advance(phase);
    let (staying, leaving): (Vec<_>, Vec<_>) = listeners
        .into_iter()
        .partition(|listener| phase == ShutdownPhase::Draining && listener.stays_while_draining());
    let last = async {
        for listener in leaving {
            // Where a newer generation listens on the same socket, its queue is theirs, and so is
            // what is spoken there.
            if !worker.shutdown.listens_at(&listener.identity.at) {
                take_rest(&listener, connections, limits, take).await;
            }
        }
        match staying.is_empty() {
            true => connections.none().await,
            false => connections.none_in(CLIENTS).await,
        }
    };
    tokio::select! {
        () = last => {}
        () = end(phase, &mut phases, connections, limits) => {}
        () = accept(&staying, connections, || false, take, || {}) => {}
    }
    drop(staying);
    connections.advance(ShutdownPhase::Now);
    let _ = timeout(STOP_NOW_TIMEOUT, connections.none()).await;
}

/// Passes the phases on to the connections, and returns when none is waited for any more. After a
/// newer generation has taken over, idle connections get some time to be used once more, and
/// responses in progress as long as they take.
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
