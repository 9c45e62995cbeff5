//! A server at work: its listeners, and generations of workers that take them over in turn.

pub(crate) mod config;

use std::fmt;
use std::mem;
use std::net::SocketAddr;
use std::ops::AddAssign;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::watch;

use crate::error::Error;
use crate::handover::inherit::{Inherited, Predecessor};
use crate::handover::upgrade::hand_over;
use crate::limits::{ConnectionLimits, GENERATIONS_MAX};
use crate::listen::activated::ActivatedSocket;
use crate::listen::address::Address;
use crate::listen::config::ListenerConfig;
use crate::listen::listeners::Listeners;
use crate::listen::unix::UnlinkPolicy;
use crate::process::descriptors;
use crate::quota::shared::SharedQuotas;
use crate::server::config::ServerConfig;
use crate::shutdown::phase::ShutdownPhase;
use crate::shutdown::switch::Shutdown;
use crate::worker::generation::{ServerParts, prepare};
use crate::worker::protocol::Protocol;

/// A server at work. Dropping it ends everything at once.
pub struct Server<S> {
    shutdown: Shutdown,
    activated: Vec<ActivatedSocket>,
    /// What the workers of all generations share.
    shared: Mutex<Option<Arc<SharedQuotas>>>,
    /// Held for as long as a reload or an upgrade takes: one at a time.
    change: Mutex<()>,
    threads: Mutex<GenerationThreads<S>>,
}

struct GenerationThreads<S> {
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
    config: &ServerConfig<P>,
    inherited: Inherited,
) -> Result<Server<P::Summary>, Error> {
    let Inherited {
        activated,
        listeners,
    } = inherited;
    let server = Server {
        shutdown: Shutdown::new(),
        activated,
        shared: Mutex::new(None),
        change: Mutex::new(()),
        threads: Mutex::new(GenerationThreads {
            generations: Vec::new(),
            ended: None,
        }),
    };
    server.start_generation(config, &listeners)?;
    Ok(server)
}

impl<S: Send + for<'s> AddAssign<&'s S> + 'static> Server<S> {
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
    pub fn reload<P: Protocol<Summary = S>>(&self, config: &ServerConfig<P>) -> Result<(), Error> {
        let _change = lock(&self.change);
        let before = self.shutdown.lock().listeners.duplicate()?;
        self.start_generation(config, &before)
    }

    /// Starts `command`, hands it everything that is listened on, and retires when it takes
    /// connections; [`join`](Server::join) returns when the last answer has been given. The
    /// command's standard input becomes the socket by which both speak: its process has to call
    /// [`Inherited::take`], start a server and tell it by [`Predecessor`](crate::Predecessor).
    /// `tell` learns of the new process before this one retires: from then on it may end at once.
    ///
    /// # Errors
    /// [`Error::Upgrade`] if it ends, says that it cannot, or says nothing for 30 seconds (it is
    /// killed); the server goes on as before. [`Error::Stopping`] if it does not.
    pub fn upgrade(&self, command: Command, tell: impl FnOnce(&Child)) -> Result<(), Error> {
        let _change = lock(&self.change);
        if self.shutdown.phase() > ShutdownPhase::Running {
            return Err(Error::Stopping);
        }
        let listeners = self.shutdown.lock().listeners.duplicate()?;
        let child = hand_over(command, &listeners, &self.activated)?;
        tell(&child);
        let mut state = self.shutdown.lock();
        if state.phase() > ShutdownPhase::Running {
            // Somebody has asked for a stop meanwhile, and meant the new one too.
            if let Some(process) = Pid::from_raw(child.id().cast_signed()) {
                let _ = kill_process(process, Signal::TERM);
            }
            return Err(Error::Stopping);
        }
        listeners.set_unlink(UnlinkPolicy::Keep);
        state.advance(ShutdownPhase::Retiring);
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
                    true => break,
                    false => threads.generations.remove(0),
                }
            };
            let said = generation
                .into_iter()
                .filter_map(|thread| thread.join().ok());
            ended.extend(said);
        }
        self.shutdown.lock().files.clear();
        ended
    }

    /// Starts a generation on the listeners of `before` as far as they are wanted.
    fn start_generation<P: Protocol<Summary = S>>(
        &self,
        config: &ServerConfig<P>,
        before: &Listeners,
    ) -> Result<(), Error> {
        let workers = config.workers.max(1);
        config.limits.check()?;
        lock(&self.threads).make_room()?;
        let wanted: Vec<_> = config.listeners.iter().map(without_service).collect();
        let limits = &config.limits;
        let listeners = Listeners::open(&wanted, workers, limits, before, &self.activated)?;
        let limits = ConnectionLimits {
            connections_max: descriptors::connections(limits).div_ceil(workers),
            ..limits.clone()
        };
        config.protocol.after_bind()?;
        let shared = SharedQuotas::after(lock(&self.shared).as_ref(), &limits);
        let phase = watch::Sender::new(ShutdownPhase::Running);
        let parts = ServerParts {
            limits: &limits,
            shared: &shared,
            shutdown: &self.shutdown,
            phases: &phase.subscribe(),
        };
        let mut next = prepare(config, listeners.assign(workers)?, &parts)?;
        let mut threads = lock(&self.threads);
        let mut state = self.shutdown.lock();
        if state.phase() > ShutdownPhase::Running {
            return Err(Error::Stopping);
        }
        next.go();
        // Before the earlier ones retire: who waits for the end must not find that all have ended.
        threads.generations.push(next.threads);
        *lock(&self.shared) = Some(shared);
        state.replace_generation(phase, listeners);
        Ok(())
    }
}

fn without_service<S>(listener: &ListenerConfig<S>) -> ListenerConfig<()> {
    ListenerConfig {
        at: listener.at.clone(),
        service: (),
        access: listener.access,
    }
}

impl<S: for<'s> AddAssign<&'s S>> GenerationThreads<S> {
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

impl<S> Server<S> {
    /// Reports to `predecessor` that this server takes connections: it may retire. From then on
    /// this process removes the files of Unix sockets.
    ///
    /// # Errors
    /// [`Error::Inherited`]: the predecessor has ended, or has stopped waiting and goes on.
    pub fn take_over_from(&self, predecessor: Predecessor) -> Result<(), Error> {
        predecessor.report_ready()?;
        self.shutdown
            .lock()
            .listeners
            .set_unlink(UnlinkPolicy::Unlink);
        Ok(())
    }
}

impl<S> fmt::Debug for Server<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running")
            .field("shutdown", &self.shutdown)
            .finish_non_exhaustive()
    }
}

impl<S> Drop for Server<S> {
    /// Nobody is left who could ask for a stop.
    fn drop(&mut self) {
        self.shutdown.advance(ShutdownPhase::Now);
        self.shutdown.lock().files.clear();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
