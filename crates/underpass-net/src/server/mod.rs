//! A server at work: its listeners, and generations of workers that take them over in turn.

pub(crate) mod shutdown;

use std::fmt;
use std::mem;
use std::net::SocketAddr;
use std::ops::AddAssign;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::watch;
use underpass::Policy;

use crate::admission::Shared;
use crate::error::Error;
use crate::handover::inherit::{Activated, Inherited};
use crate::handover::upgrade::hand_over;
use crate::limits::{GENERATIONS_MAX, Limits};
use crate::listen::address::{Address, ListenAt};
use crate::listen::listeners::Listeners;
use crate::listen::unix::Fate;
use crate::process::descriptors;
use crate::server::shutdown::{Phase, Shutdown};
use crate::worker::{Protocol, prepare};

/// What a generation of workers is started with.
#[derive(Clone, Debug)]
pub struct Setup<P> {
    /// What is spoken on connections.
    pub protocol: P,
    /// Where to listen: one place at least.
    pub listen: Vec<ListenAt>,
    /// Threads, at least one.
    pub workers: usize,
    /// What may be sent, and how.
    pub policy: Policy,
    /// The bounds.
    pub limits: Limits,
}

/// A server at work. Dropping it ends everything at once.
pub struct Running<S> {
    shutdown: Shutdown,
    activated: Vec<Activated>,
    /// What the workers of all generations share.
    shared: Mutex<Option<Arc<Shared>>>,
    /// Held for as long as a reload or an upgrade takes: one at a time.
    change: Mutex<()>,
    threads: Mutex<Threads<S>>,
}

struct Threads<S> {
    /// The oldest generation first.
    generations: Vec<Vec<JoinHandle<S>>>,
    /// What the workers that have ended did.
    ended: Option<S>,
}

/// Listens and starts workers. What is listened on already is taken from `inherited`. Returns when
/// all of them take connections.
///
/// # Errors
/// Any [`Error`]; nothing is left running and the ports are free.
pub fn start<P: Protocol>(
    setup: &Setup<P>,
    inherited: Inherited,
) -> Result<Running<P::Summary>, Error> {
    let Inherited {
        activated,
        listeners,
    } = inherited;
    let running = Running {
        shutdown: Shutdown::new(),
        activated,
        shared: Mutex::new(None),
        change: Mutex::new(()),
        threads: Mutex::new(Threads {
            generations: Vec::new(),
            ended: None,
        }),
    };
    running.succeed(setup, &listeners)?;
    Ok(running)
}

impl<S: Send + for<'s> AddAssign<&'s S> + 'static> Running<S> {
    /// Goes on with another setup, and drops no connection: listens on what is new, starts workers
    /// on what is there already, has the earlier ones retire, and closes what is listened on no
    /// more. Returns when the new workers take connections.
    ///
    /// An address of TCP that more workers than before listen on gets more queues; fewer workers
    /// serve all that are there.
    ///
    /// # Errors
    /// Any [`Error`]; the server goes on as before. `Stopping` if it does not;
    /// `Generations` if 16 setups still have answers under way.
    pub fn reload<P: Protocol<Summary = S>>(&self, setup: &Setup<P>) -> Result<(), Error> {
        let _change = lock(&self.change);
        let before = self.shutdown.lock().listeners.duplicate()?;
        self.succeed(setup, &before)
    }

    /// Starts `command`, hands it everything that is listened on, and retires when it takes
    /// connections; [`join`](Running::join) returns when the last answer has been given. The
    /// command's standard input becomes the socket by which both speak: its process has to call
    /// [`Inherited::take`], start a server and tell it by [`Predecessor`](crate::Predecessor).
    /// `tell` learns of the new process before this one retires: from then on it may end at once.
    ///
    /// # Errors
    /// [`Error::Upgrade`] if it ends, says that it cannot, or says nothing for 30 seconds (it is
    /// killed); the server goes on as before. [`Error::Stopping`] if it does not.
    pub fn upgrade(&self, command: Command, tell: impl FnOnce(&Child)) -> Result<(), Error> {
        let _change = lock(&self.change);
        if self.shutdown.phase() > Phase::Running {
            return Err(Error::Stopping);
        }
        let listeners = self.shutdown.lock().listeners.duplicate()?;
        let child = hand_over(command, &listeners, &self.activated)?;
        tell(&child);
        let mut switch = self.shutdown.lock();
        if switch.phase() > Phase::Running {
            // Somebody has asked for a stop meanwhile, and meant the new one too.
            if let Some(process) = Pid::from_raw(child.id().cast_signed()) {
                let _ = kill_process(process, Signal::TERM);
            }
            return Err(Error::Stopping);
        }
        listeners.set_fate(Fate::Left);
        switch.advance(Phase::Retiring);
        Ok(())
    }

    /// Where it listens, or did until it was told to end.
    pub fn addresses(&self) -> Vec<Address> {
        self.shutdown.lock().addresses().to_vec()
    }

    /// Where its first listener of TCP is; with the port the kernel chose, if it was asked to.
    pub fn address(&self) -> Option<SocketAddr> {
        self.addresses()
            .into_iter()
            .find_map(|address| match address {
                Address::Tcp(address) => Some(address),
                Address::Unix(_) => None,
            })
    }

    /// The switch that ends it.
    pub fn shutdown(&self) -> Shutdown {
        self.shutdown.clone()
    }

    /// Blocks until every worker of every generation has ended, which needs somebody to ask for it,
    /// and returns what they have to say. A worker that panicked says nothing.
    pub fn join(&self) -> Vec<S> {
        let mut ended = Vec::new();
        loop {
            let generation = {
                let mut threads = lock(&self.threads);
                ended.extend(threads.ended.take());
                match threads.generations.is_empty() {
                    true => return ended,
                    false => threads.generations.remove(0),
                }
            };
            let said = generation
                .into_iter()
                .filter_map(|thread| thread.join().ok());
            ended.extend(said);
        }
    }

    /// Starts a generation on the listeners of `before` as far as they are wanted.
    fn succeed<P: Protocol<Summary = S>>(
        &self,
        setup: &Setup<P>,
        before: &Listeners,
    ) -> Result<(), Error> {
        let workers = setup.workers.max(1);
        setup.limits.check()?;
        lock(&self.threads).make_room()?;
        let listeners = Listeners::open(
            &setup.listen,
            workers,
            &setup.limits,
            before,
            &self.activated,
        )?;
        let limits = Limits {
            connections_max: descriptors::connections(&setup.limits).div_ceil(workers),
            ..setup.limits.clone()
        };
        setup.protocol.bound()?;
        let shared = Shared::after(lock(&self.shared).as_ref(), &setup.limits);
        let phase = watch::Sender::new(Phase::Running);
        let shares = listeners.share_out(workers)?;
        let phases = phase.subscribe();
        let mut next = prepare(
            &setup.protocol,
            shares,
            setup.policy,
            &limits,
            &shared,
            &phases,
        )?;
        let mut threads = lock(&self.threads);
        let mut switch = self.shutdown.lock();
        if switch.phase() > Phase::Running {
            return Err(Error::Stopping);
        }
        next.go();
        // Before the earlier ones retire: who waits for the end must not find that all have ended.
        threads.generations.push(next.threads);
        *lock(&self.shared) = Some(shared);
        switch.succeed(phase, listeners);
        Ok(())
    }
}

impl<S: for<'s> AddAssign<&'s S>> Threads<S> {
    /// Forgets generations that have ended, but for what they did.
    fn make_room(&mut self) -> Result<(), Error> {
        let all = mem::take(&mut self.generations);
        let (over, on): (Vec<_>, Vec<_>) = all
            .into_iter()
            .partition(|threads| threads.iter().all(JoinHandle::is_finished));
        self.generations = on;
        for said in over
            .into_iter()
            .flatten()
            .filter_map(|thread| thread.join().ok())
        {
            match &mut self.ended {
                Some(sum) => *sum += &said,
                None => self.ended = Some(said),
            }
        }
        match self.generations.len() {
            count if count >= GENERATIONS_MAX => Err(Error::Generations { count: count - 1 }),
            _ => Ok(()),
        }
    }
}

impl<S> Running<S> {
    /// This process is the one to remove the files of its sockets.
    pub(crate) fn own_files(&self) {
        self.shutdown.lock().listeners.set_fate(Fate::Removed);
    }
}

impl<S> fmt::Debug for Running<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running")
            .field("shutdown", &self.shutdown)
            .finish_non_exhaustive()
    }
}

impl<S> Drop for Running<S> {
    /// Nobody is left who could ask for a stop.
    fn drop(&mut self) {
        self.shutdown.advance(Phase::Now);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
