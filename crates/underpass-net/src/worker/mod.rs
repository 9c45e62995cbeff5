//! The workers: threads that each take, keep and answer their own connections.

pub(crate) mod accept;

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io;
use std::ops::AddAssign;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};

use tokio::runtime::{Builder, LocalOptions, LocalRuntime};
use tokio::sync::watch;
use tokio::task::spawn_local;
use tokio::time::{sleep, timeout};
use underpass::limits::{TURN_BYTES_MAX, TURN_BYTES_MIN};
use underpass::{Kernel, Policy};

use crate::admission::{Admission, Rejected, SharedQuotas, admit};
use crate::connection::Connection;
use crate::connection::set::ConnectionSet;
use crate::connection::socket::{Acceptor, PlainSocket};
use crate::error::Error;
use crate::limits::{
    ConnectionLimits, READERS_MAX, ROUND_BYTES, ROUND_BYTES_WATCHED, STOP_NOW_TIMEOUT,
    TURN_BYTES_WATCHED_MIN,
};
use crate::listen::address::PeerAddress;
use crate::server::shutdown::{ShutdownPhase, reached};
use crate::worker::accept::{accept, take_rest};

/// What is spoken on the connections of a server.
pub trait Protocol: Clone + Send + 'static {
    /// What one worker keeps for all of its connections. It never leaves its thread.
    type Worker: 'static;
    /// What is known of a worker's work when it has ended.
    type Summary: Send + for<'s> AddAssign<&'s Self::Summary> + 'static;

    /// Called once, when the port is taken and no worker runs: the last moment with all rights.
    ///
    /// # Errors
    /// Any; nothing is started.
    fn bound(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Gives up, on a worker's thread and for the threads it makes, whatever rights the work does
    /// not need. Called before anything else is done there.
    ///
    /// # Errors
    /// Any; nothing is started.
    fn confine(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Makes a worker's state, on its thread.
    fn worker(&self) -> Self::Worker;

    /// Speaks with one peer until the connection ends. Runs as its own task.
    fn serve_connection(
        worker: Rc<Self::Worker>,
        stream: Connection,
    ) -> impl Future<Output = ()> + 'static;

    /// A connection was closed before anything was said on it.
    fn rejected(_worker: &Self::Worker, _why: Rejected) {}

    /// There are as many connections as a worker may have: others wait until one ends.
    fn full(_worker: &Self::Worker) {}

    /// Sums up. Called once, after the last connection has ended.
    fn finish(worker: &Self::Worker) -> Self::Summary;
}

/// What every connection of a worker uses and none owns.
pub(crate) struct WorkerState {
    pub(crate) limits: ConnectionLimits,
    pub(crate) connections: Rc<ConnectionSet>,
    pub(crate) kernel: Kernel,
    pub(crate) policy: Policy,
    /// How many connections are being sent something.
    pub(crate) sending: Cell<usize>,
    /// What the next connection reads into.
    pub(crate) spare_input: RefCell<Vec<u8>>,
    pub(crate) admission: Admission,
}

impl WorkerState {
    /// What a connection may send in one turn: a fair share of the round.
    pub(crate) fn turn_bytes(&self) -> u64 {
        let sending = self.sending.get().max(1);
        let (round, least) = match self.connections.len() > sending {
            true => (ROUND_BYTES_WATCHED, TURN_BYTES_WATCHED_MIN),
            false => (ROUND_BYTES, TURN_BYTES_MIN),
        };
        (round / sending as u64).clamp(least, TURN_BYTES_MAX)
    }
}

/// The cores this process may use: what the scheduler's affinity mask allows, at least one.
pub fn cores() -> usize {
    match rustix::thread::sched_getaffinity(None) {
        Ok(mask) => (mask.count() as usize).max(1),
        Err(_) => 1,
    }
}

/// Workers that were started together, with one configuration.
#[derive(Debug)]
pub(crate) struct Generation<S> {
    pub(crate) threads: Vec<JoinHandle<S>>,
    starts: Vec<mpsc::Sender<()>>,
}

/// Makes a worker for each of `shares`, the sockets that it takes connections from. All of them are
/// ready when this returns, and none takes any before [`Generation::go`].
///
/// # Errors
/// [`Error::Worker`]; nothing is left running.
pub(crate) fn prepare<P: Protocol>(
    protocol: &P,
    shares: Vec<Vec<OwnedFd>>,
    policy: Policy,
    limits: &ConnectionLimits,
    shared: &Arc<SharedQuotas>,
    phases: &watch::Receiver<ShutdownPhase>,
) -> Result<Generation<P::Summary>, Error> {
    let (ready, prepared) = mpsc::channel();
    let mut generation = Generation {
        threads: Vec::with_capacity(shares.len()),
        starts: Vec::with_capacity(shares.len()),
    };
    for (number, sockets) in shares.into_iter().enumerate() {
        let (start, started) = mpsc::channel();
        let worker = PreparedWorker {
            protocol: protocol.clone(),
            sockets,
            policy,
            limits: limits.clone(),
            shared: Arc::clone(shared),
            phases: phases.clone(),
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

impl<S> Generation<S> {
    pub(crate) fn go(&mut self) {
        for start in self.starts.drain(..) {
            // A worker that is gone has panicked, which its thread tells.
            let _ = start.send(());
        }
    }
}

/// A worker before it runs.
struct PreparedWorker<P> {
    protocol: P,
    sockets: Vec<OwnedFd>,
    policy: Policy,
    limits: ConnectionLimits,
    shared: Arc<SharedQuotas>,
    phases: watch::Receiver<ShutdownPhase>,
    ready: mpsc::Sender<Result<(), Error>>,
    started: mpsc::Receiver<()>,
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
                        admission: Admission::new(self.shared),
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
