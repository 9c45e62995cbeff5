//! The workers: threads that each take, keep and answer their own connections.

pub(crate) mod accept;
pub(crate) mod acceptor;
pub(crate) mod generation;
pub(crate) mod protocol;

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::OwnedFd;
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
use crate::connection::set::ConnectionSet;
use crate::connection::socket::PlainSocket;
use crate::connection::worker_state::WorkerState;
use crate::error::Error;
use crate::limits::{ConnectionLimits, READERS_MAX, STOP_NOW_TIMEOUT};
use crate::listen::address::PeerAddress;
use crate::log_throttle::LogThrottle;
use crate::quota::shared::SharedQuotas;
use crate::shutdown_phase::{ShutdownPhase, reached};
use crate::worker::accept::{accept, take_rest};
use crate::worker::acceptor::Acceptor;
use crate::worker::protocol::Protocol;

/// A worker before it runs.
pub(crate) struct PreparedWorker<P> {
    pub(crate) protocol: P,
    pub(crate) sockets: Vec<OwnedFd>,
    pub(crate) policy: Policy,
    pub(crate) limits: ConnectionLimits,
    pub(crate) shared: Arc<SharedQuotas>,
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
        match confined.and_then(|()| runtime(self.sockets)) {
            Err(error) => {
                let _ = self.ready.send(Err(error));
            }
            Ok((runtime, acceptors)) => {
                let _ = self.ready.send(Ok(()));
                drop(self.ready);
                // An error is a generation that was given up before it began.
                if self.started.recv().is_ok() {
                    let worker = Rc::new(WorkerState {
                        limits: self.limits,
                        connections: Rc::new(ConnectionSet::new()),
                        kernel: Kernel::probe(),
                        policy: self.policy,
                        sending: Cell::new(0),
                        spare_input: RefCell::default(),
                        shared: self.shared,
                        rejections: LogThrottle::default(),
                    });
                    let work = work::<P>(acceptors, Rc::clone(&state), worker, self.phases);
                    runtime.block_on(work);
                }
            }
        }
        P::finish(&state)
    }
}

fn runtime(sockets: Vec<OwnedFd>) -> Result<(LocalRuntime, Vec<Acceptor>), Error> {
    make_runtime(sockets).map_err(|source| Error::Worker {
        doing: "make a worker's runtime",
        source,
    })
}

fn make_runtime(sockets: Vec<OwnedFd>) -> io::Result<(LocalRuntime, Vec<Acceptor>)> {
    let runtime = Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .max_blocking_threads(READERS_MAX)
        .build_local(LocalOptions::default())?;
    let acceptors = {
        let _inside = runtime.enter();
        sockets
            .into_iter()
            .map(Acceptor::open)
            .collect::<io::Result<_>>()?
    };
    Ok((runtime, acceptors))
}

/// A worker's life: takes connections until it is told to end, then sees the last ones out.
async fn work<P: Protocol>(
    acceptors: Vec<Acceptor>,
    state: Rc<P::Worker>,
    worker: Rc<WorkerState>,
    mut phases: watch::Receiver<ShutdownPhase>,
) {
    let (connections, limits) = (&worker.connections, &worker.limits);
    let take = |socket: PlainSocket, peer: PeerAddress| {
        let (worker, state) = (Rc::clone(&worker), Rc::clone(&state));
        let guard = Rc::clone(&worker.connections).insert();
        spawn_local(async move {
            guard.register_waker().await;
            match admit(Connection::new(socket, peer, worker)).await {
                Ok(stream) => P::serve_connection(state, stream).await,
                Err(why) => P::rejected(&state, why),
            }
        });
    };
    let max = limits.connections_max;
    let phase = tokio::select! {
        phase = reached(&mut phases, ShutdownPhase::Retiring) => phase,
        () = accept(&acceptors, connections, max, take, || P::full(&state)) => ShutdownPhase::Now,
    };
    connections.advance(phase);
    let last = async {
        for queue in acceptors.into_iter().map(Acceptor::into_queue) {
            take_rest(queue, connections, limits, take).await;
        }
        connections.at_most(0).await;
    };
    tokio::select! {
        () = last => {}
        () = end(phase, &mut phases, connections, limits) => {}
    }
    connections.advance(ShutdownPhase::Now);
    let _ = timeout(STOP_NOW_TIMEOUT, connections.at_most(0)).await;
}

/// Passes the phases on, and returns when nobody is waited for any more. Where a newer generation
/// has taken over there is no hurry: idle connections get some time to be used once more, running
/// answers as long as they take.
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
