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

use crate::admission::{Gate, Shared, TurnedAway, enter};
use crate::connection::Stream;
use crate::connection::set::Roster;
use crate::connection::socket::{Door, Socket};
use crate::error::Error;
use crate::limits::{
    Limits, READERS_MAX, ROUND_BYTES, ROUND_BYTES_WATCHED, STOP_NOW_TIMEOUT, TURN_BYTES_WATCHED_MIN,
};
use crate::listen::address::Peer;
use crate::server::shutdown::{Phase, reached};
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
    fn converse(worker: Rc<Self::Worker>, stream: Stream) -> impl Future<Output = ()> + 'static;

    /// A connection was closed before anything was said on it.
    fn turned_away(_worker: &Self::Worker, _why: TurnedAway) {}

    /// There are as many connections as a worker may have: others wait until one ends.
    fn full(_worker: &Self::Worker) {}

    /// Sums up. Called once, after the last connection has ended.
    fn finish(worker: &Self::Worker) -> Self::Summary;
}

/// What every connection of a worker uses and none owns.
pub(crate) struct Ground {
    pub(crate) limits: Limits,
    pub(crate) roster: Rc<Roster>,
    pub(crate) kernel: Kernel,
    pub(crate) policy: Policy,
    /// How many connections are being sent something.
    pub(crate) sending: Cell<usize>,
    /// What the next connection reads into.
    pub(crate) spare_input: RefCell<Vec<u8>>,
    pub(crate) gate: Gate,
}

impl Ground {
    /// What a connection may send in one turn: a fair share of the round.
    pub(crate) fn turn_bytes(&self) -> u64 {
        let sending = self.sending.get().max(1);
        let (round, least) = match self.roster.len() > sending {
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
    limits: &Limits,
    shared: &Arc<Shared>,
    phases: &watch::Receiver<Phase>,
) -> Result<Generation<P::Summary>, Error> {
    let (ready, prepared) = mpsc::channel();
    let mut generation = Generation {
        threads: Vec::with_capacity(shares.len()),
        starts: Vec::with_capacity(shares.len()),
    };
    for (number, sockets) in shares.into_iter().enumerate() {
        let (start, started) = mpsc::channel();
        let worker = Worker {
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
struct Worker<P> {
    protocol: P,
    sockets: Vec<OwnedFd>,
    policy: Policy,
    limits: Limits,
    shared: Arc<Shared>,
    phases: watch::Receiver<Phase>,
    ready: mpsc::Sender<Result<(), Error>>,
    started: mpsc::Receiver<()>,
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
        match confined.and_then(|()| runtime(self.sockets)) {
            Err(error) => {
                let _ = self.ready.send(Err(error));
            }
            Ok((runtime, doors)) => {
                let _ = self.ready.send(Ok(()));
                drop(self.ready);
                // An error is a generation that was given up before it began.
                if self.started.recv().is_ok() {
                    let ground = Rc::new(Ground {
                        limits: self.limits,
                        roster: Rc::new(Roster::new()),
                        kernel: Kernel::probe(),
                        policy: self.policy,
                        sending: Cell::new(0),
                        spare_input: RefCell::default(),
                        gate: Gate::new(self.shared),
                    });
                    let work = work::<P>(doors, Rc::clone(&state), ground, self.phases);
                    runtime.block_on(work);
                }
            }
        }
        P::finish(&state)
    }
}

fn runtime(sockets: Vec<OwnedFd>) -> Result<(LocalRuntime, Vec<Door>), Error> {
    make_runtime(sockets).map_err(|source| Error::Worker {
        doing: "make a worker's runtime",
        source,
    })
}

fn make_runtime(sockets: Vec<OwnedFd>) -> io::Result<(LocalRuntime, Vec<Door>)> {
    let runtime = Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .max_blocking_threads(READERS_MAX)
        .build_local(LocalOptions::default())?;
    let doors = {
        let _inside = runtime.enter();
        sockets
            .into_iter()
            .map(Door::open)
            .collect::<io::Result<_>>()?
    };
    Ok((runtime, doors))
}

/// A worker's life: takes connections until it is told to end, then sees the last ones out.
async fn work<P: Protocol>(
    doors: Vec<Door>,
    state: Rc<P::Worker>,
    ground: Rc<Ground>,
    mut phases: watch::Receiver<Phase>,
) {
    let (roster, limits) = (&ground.roster, &ground.limits);
    let take = |socket: Socket, peer: Peer| {
        let (ground, state) = (Rc::clone(&ground), Rc::clone(&state));
        let place = Rc::clone(&ground.roster).enter();
        spawn_local(async move {
            place.attend().await;
            match enter(Stream::new(socket, peer, ground)).await {
                Ok(stream) => P::converse(state, stream).await,
                Err(why) => P::turned_away(&state, why),
            }
        });
    };
    let phase = tokio::select! {
        phase = reached(&mut phases, Phase::Retiring) => phase,
        () = accept(&doors, roster, limits.connections_max, take, || P::full(&state)) => Phase::Now,
    };
    roster.advance(phase);
    let last = async {
        for queue in doors.into_iter().map(Door::into_queue) {
            take_rest(queue, roster, limits, take).await;
        }
        roster.at_most(0).await;
    };
    tokio::select! {
        () = last => {}
        () = end(phase, &mut phases, roster, limits) => {}
    }
    roster.advance(Phase::Now);
    let _ = timeout(STOP_NOW_TIMEOUT, roster.at_most(0)).await;
}

/// Passes the phases on, and returns when nobody is waited for any more. Where a newer generation
/// has taken over there is no hurry: idle connections get some time to be used once more, running
/// answers as long as they take.
async fn end(phase: Phase, phases: &mut watch::Receiver<Phase>, roster: &Roster, limits: &Limits) {
    if phase < Phase::Draining {
        let _ = timeout(limits.stop_timeout, reached(phases, Phase::Draining)).await;
        roster.advance(Phase::Draining);
        reached(phases, Phase::Draining).await;
    }
    tokio::select! {
        _ = reached(phases, Phase::Now) => {}
        () = sleep(limits.stop_timeout) => {}
    }
}
