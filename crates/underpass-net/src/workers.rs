//! The workers: threads that each take, keep and answer their own connections.

use std::future::Future;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};

use tokio::runtime::{Builder, LocalOptions, LocalRuntime};
use tokio::sync::watch;
use tokio::task::spawn_local;
use tokio::time::{sleep, timeout};
use underpass::limits::{TURN_BYTES_MAX, TURN_BYTES_MIN};
use underpass::{Host, Policy};

use crate::accept::accept;
use crate::descriptors;
use crate::error::Error;
use crate::gate::{Gate, Shared, enter};
use crate::limits::{Limits, READERS_MAX, ROUND_BYTES, STOP_NOW_TIMEOUT};
use crate::listen::listen;
use crate::roster::Roster;
use crate::shutdown::{Phase, Shutdown, reached};
use crate::stream::Stream;

/// What is spoken on the connections of a server.
pub trait Protocol: Clone + Send + 'static {
    /// What one worker keeps for all of its connections. It never leaves its thread.
    type Worker: 'static;
    /// What is known of a worker's work when it has ended.
    type Summary: Send + 'static;

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
    fn converse(worker: Rc<Self::Worker>, stream: Stream) -> impl Future<Output = ()> + 'static;

    /// Sums up. Called once, after the last connection has ended.
    fn finish(worker: &Self::Worker) -> Self::Summary;
}

/// What every connection of a worker uses and none owns.
pub(crate) struct Ground {
    pub(crate) limits: Limits,
    pub(crate) roster: Rc<Roster>,
    pub(crate) host: Host,
    pub(crate) policy: Policy,
    pub(crate) gate: Gate,
}

impl Ground {
    /// What a connection may send in one turn: a fair share of the round.
    pub(crate) fn turn_bytes(&self) -> u64 {
        let connections = self.roster.len().max(1) as u64;
        (ROUND_BYTES / connections).clamp(TURN_BYTES_MIN, TURN_BYTES_MAX)
    }
}

/// A server at work.
#[derive(Debug)]
pub struct Running<S> {
    address: SocketAddr,
    shutdown: Shutdown,
    threads: Vec<JoinHandle<S>>,
}

/// The cores this process may use: what the scheduler's affinity mask allows, at least one.
pub fn cores() -> usize {
    match rustix::thread::sched_getaffinity(None) {
        Ok(mask) => (mask.count() as usize).max(1),
        Err(_) => 1,
    }
}

/// Listens on `address` and starts `workers` (at least one) threads that speak `protocol` and send
/// what `policy` allows. Returns when all of them take connections.
///
/// # Errors
/// Any [`Error`]; nothing is left running and the port is free.
pub fn start<P: Protocol>(
    protocol: &P,
    address: SocketAddr,
    workers: usize,
    policy: Policy,
    limits: &Limits,
) -> Result<Running<P::Summary>, Error> {
    let workers = workers.max(1);
    limits.check()?;
    let listeners = listen(address, workers, limits)?;
    protocol.bound()?;
    let shared = Arc::new(Shared::new(limits));
    let mut running = Running {
        address: listeners[0].local_addr().unwrap_or(address),
        shutdown: Shutdown::new(),
        threads: Vec::with_capacity(workers),
    };
    let limits = Limits {
        connections_max: descriptors::connections(limits).div_ceil(workers),
        ..limits.clone()
    };
    let (ready, started) = mpsc::channel();
    for (number, listener) in listeners.into_iter().enumerate() {
        let worker = Worker {
            protocol: protocol.clone(),
            listener,
            policy,
            limits: limits.clone(),
            shared: Arc::clone(&shared),
            phases: running.shutdown.phases(),
            ready: ready.clone(),
        };
        running.threads.push(worker.spawn(number)?);
    }
    drop(ready);
    for outcome in started {
        outcome?;
    }
    Ok(running)
}

impl<S> Running<S> {
    /// Where it listens; with the port the kernel chose, if it was asked to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The switch that ends it.
    pub fn shutdown(&self) -> Shutdown {
        self.shutdown.clone()
    }

    /// Blocks until every worker has ended, which needs somebody to ask for it, and returns what
    /// each of them has to say. A worker that panicked says nothing.
    pub fn join(mut self) -> Vec<S> {
        self.threads
            .drain(..)
            .filter_map(|thread| thread.join().ok())
            .collect()
    }
}

impl<S> Drop for Running<S> {
    /// Nobody is left who could ask for a stop.
    fn drop(&mut self) {
        self.shutdown.advance(Phase::Now);
    }
}

/// A worker before it runs.
struct Worker<P> {
    protocol: P,
    listener: TcpListener,
    policy: Policy,
    limits: Limits,
    shared: Arc<Shared>,
    phases: watch::Receiver<Phase>,
    ready: mpsc::Sender<Result<(), Error>>,
}

impl<P: Protocol> Worker<P> {
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
        match confined.and_then(|()| runtime(self.listener)) {
            Err(error) => {
                let _ = self.ready.send(Err(error));
            }
            Ok((runtime, listener)) => {
                let _ = self.ready.send(Ok(()));
                drop(self.ready);
                let ground = Rc::new(Ground {
                    limits: self.limits,
                    roster: Rc::new(Roster::new()),
                    host: Host::probe(),
                    policy: self.policy,
                    gate: Gate::new(self.shared),
                });
                let work = work::<P>(listener, Rc::clone(&state), ground, self.phases);
                runtime.block_on(work);
            }
        }
        P::finish(&state)
    }
}

fn runtime(listener: TcpListener) -> Result<(LocalRuntime, tokio::net::TcpListener), Error> {
    make_runtime(listener).map_err(|source| Error::Worker {
        doing: "make a worker's runtime",
        source,
    })
}

fn make_runtime(listener: TcpListener) -> io::Result<(LocalRuntime, tokio::net::TcpListener)> {
    let runtime = Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .max_blocking_threads(READERS_MAX)
        .build_local(LocalOptions::default())?;
    let listener = {
        let _inside = runtime.enter();
        tokio::net::TcpListener::from_std(listener)?
    };
    Ok((runtime, listener))
}

/// A worker's life: takes connections until a stop is asked for, then sees the last ones out.
async fn work<P: Protocol>(
    listener: tokio::net::TcpListener,
    state: Rc<P::Worker>,
    ground: Rc<Ground>,
    mut phases: watch::Receiver<Phase>,
) {
    let (roster, limits) = (&ground.roster, &ground.limits);
    tokio::select! {
        () = reached(&mut phases, Phase::Draining) => {}
        () = accept(&listener, roster, limits.connections_max, |socket, peer| {
            let (ground, state) = (Rc::clone(&ground), Rc::clone(&state));
            let place = Rc::clone(&ground.roster).enter();
            spawn_local(async move {
                place.attend().await;
                if let Some(stream) = enter(Stream::new(socket, peer, ground)).await {
                    P::converse(state, stream).await;
                }
            });
        }) => {}
    }
    drop(listener);
    roster.advance(Phase::Draining);
    tokio::select! {
        () = roster.at_most(0) => {}
        () = reached(&mut phases, Phase::Now) => {}
        () = sleep(limits.stop_timeout) => {}
    }
    roster.advance(Phase::Now);
    let _ = timeout(STOP_NOW_TIMEOUT, roster.at_most(0)).await;
}
