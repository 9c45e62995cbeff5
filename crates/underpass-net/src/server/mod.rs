//! A running server: its listeners, and successive generations of workers that use them.

use std::fmt;
use std::mem;
use std::net::SocketAddr;
use std::ops::AddAssign;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;

use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::watch;

use crate::address::Address;
use crate::error::Error;
use crate::handover::inherit::{HandedFile, Inherited, Predecessor};
use crate::handover::upgrade::hand_over;
use crate::limits::{ConnectionLimits, GENERATIONS_MAX, RETIRE_TIMEOUT};
use crate::listen::config::{ListenerAccess, ListenerIdentity};
use crate::listen::listeners::{ActivatedSocket, Listeners};
use crate::listen::unix::UnlinkPolicy;
use crate::process::resources;
use crate::quota::SharedQuotas;
use crate::shutdown::{Shutdown, ShutdownPhase};
use crate::tls::shared::TlsShared;
use crate::worker::config::ServerConfig;
use crate::worker::protocol::Protocol;
use crate::worker::{ServerParts, prepare};

/// A running server. Dropping it stops all workers immediately.
pub struct Server<S> {
    shutdown: Shutdown,
    activated: Vec<ActivatedSocket>,
    /// The quotas that the workers of all generations share.
    shared: Mutex<Option<Arc<SharedQuotas>>>,
    /// Held during a reload or an upgrade: one at a time.
    change: Mutex<()>,
    threads: Mutex<GenerationThreads<S>>,
}

struct GenerationThreads<S> {
    /// Threads per generation, the oldest first.
    generations: Vec<Vec<JoinHandle<S>>>,
    /// The number of generations that `join` has taken from these, and waits for.
    joined: usize,
    /// Disconnected when the newest generation stops accepting connections.
    accepting: Option<mpsc::Receiver<()>>,
    /// The sum of the workers that have ended.
    ended: Option<S>,
}

/// Opens listeners and starts workers. Sockets in `inherited` are used unchanged. Returns when all
/// workers accept connections.
///
/// # Errors
/// Any [`Error`]; nothing is left running, and the ports are free.
pub fn start<P: Protocol>(
    config: &ServerConfig<P>,
    inherited: Inherited,
) -> Result<Server<P::Summary>, Error> {
    let Inherited {
        activated,
        listeners,
        ..
    } = inherited;
    let server = Server {
        shutdown: Shutdown::new(),
        activated,
        shared: Mutex::new(None),
        change: Mutex::new(()),
        threads: Mutex::new(GenerationThreads {
            generations: Vec::new(),
            joined: 0,
            accepting: None,
            ended: None,
        }),
    };
    server.start_generation(config, &listeners)?;
    Ok(server)
}

impl<S: Send + for<'s> AddAssign<&'s S> + 'static> Server<S> {
    /// Replaces the configuration without losing a connection: opens new listeners, starts workers
    /// on them and on the existing ones, retires the earlier workers, and closes listeners that are
    /// not configured any more. Returns when the new workers accept connections and the earlier
    /// ones have stopped: connections made from then on are served as `config` says. Waits at most
    /// 5 seconds for an earlier worker to notice.
    ///
    /// A TCP address has a queue for each worker: with more workers it gets more queues, with fewer
    /// the workers share the existing ones.
    ///
    /// # Errors
    /// Any [`Error`]; the server continues as before. `Stopping` if it is ending; `Generations` if
    /// 16 configurations are still sending responses.
    pub fn reload<P: Protocol<Summary = S>>(&self, config: &ServerConfig<P>) -> Result<(), Error> {
        let _change = lock(&self.change);
        if self.shutdown.phase() > ShutdownPhase::Running {
            return Err(Error::Stopping);
        }
        let before = self.shutdown.lock().listeners.duplicate()?;
        self.start_generation(config, &before)
    }

    /// Starts `command`, passes all listening sockets, the ticket keys and `file` to it, and
    /// retires when it accepts connections; [`join`](Server::join) returns when the last response
    /// has been sent. The command's standard input becomes the socket between both processes: the
    /// new one has to call [`Inherited::take`], start a server and call [`Server::take_over_from`].
    /// `started` is called with the new process before this one retires; this process may end at
    /// any time after that.
    ///
    /// # Errors
    /// [`Error::Upgrade`] if the new process ends, reports a failure, or is not ready within 30
    /// seconds (it is killed); the server continues as before. [`Error::Stopping`] if the server is
    /// ending.
    pub fn upgrade(
        &self,
        command: Command,
        tls: &TlsShared,
        file: Option<&HandedFile>,
        started: impl FnOnce(&Child),
    ) -> Result<(), Error> {
        let _change = lock(&self.change);
        if self.shutdown.phase() > ShutdownPhase::Running {
            return Err(Error::Stopping);
        }
        let listeners = self.shutdown.lock().listeners.duplicate()?;
        let child = hand_over(command, &listeners, &self.activated, tls, file)?;
        started(&child);
        let mut state = self.shutdown.lock();
        if state.phase() > ShutdownPhase::Running {
            // A stop was requested meanwhile, and applies to the new process too.
            if let Some(process) = Pid::from_raw(child.id().cast_signed()) {
                let _ = kill_process(process, Signal::TERM);
            }
            return Err(Error::Stopping);
        }
        listeners.set_unlink(UnlinkPolicy::Keep);
        state.advance(ShutdownPhase::Retiring);
        Ok(())
    }

    /// Returns the addresses for clients, also while the server is ending.
    pub fn addresses(&self) -> Vec<Address> {
        self.addresses_of(|access| access == ListenerAccess::Clients)
    }

    /// Returns the addresses for operators, as [`addresses`](Server::addresses).
    pub fn operator_addresses(&self) -> Vec<Address> {
        self.addresses_of(|access| access != ListenerAccess::Clients)
    }

    /// Returns all listeners, including those for operators.
    pub fn listeners(&self) -> Vec<ListenerIdentity> {
        self.shutdown.lock().identities().to_vec()
    }

    fn addresses_of(&self, is_asked: impl Fn(ListenerAccess) -> bool) -> Vec<Address> {
        let state = self.shutdown.lock();
        let of = state.identities().iter();
        of.filter(|identity| is_asked(identity.access))
            .map(|identity| identity.address.clone())
            .collect()
    }

    /// Returns the first TCP address for clients, with the port that the kernel chose for port 0.
    pub fn address(&self) -> Option<SocketAddr> {
        self.addresses()
            .into_iter()
            .find_map(|address| match address {
                Address::Tcp(address) => Some(address),
                Address::Unix(_) => None,
            })
    }

    /// Returns a handle that stops the server.
    pub fn shutdown(&self) -> Shutdown {
        self.shutdown.clone()
    }

    /// Blocks until every worker of every generation has ended, which they do only after a request
    /// to [`shutdown`](Server::shutdown), and returns their summaries. A worker that panicked has
    /// none.
    pub fn join(&self) -> Vec<S> {
        let mut ended = Vec::new();
        loop {
            let generation = {
                let mut threads = lock(&self.threads);
                ended.extend(threads.ended.take());
                match threads.generations.is_empty() {
                    true => break,
                    false => {
                        threads.joined += 1;
                        threads.generations.remove(0)
                    }
                }
            };
            let summaries = generation
                .into_iter()
                .filter_map(|thread| thread.join().ok());
            ended.extend(summaries);
            lock(&self.threads).joined -= 1;
        }
        self.shutdown.lock().files.clear();
        ended
    }

    /// Starts a generation, keeping the listeners of `before` that are still configured.
    fn start_generation<P: Protocol<Summary = S>>(
        &self,
        config: &ServerConfig<P>,
        before: &Listeners,
    ) -> Result<(), Error> {
        let (workers, limits) = (config.workers.max(1), &config.limits);
        limits.check()?;
        lock(&self.threads).make_room()?;
        let wanted = &config.listeners;
        let listeners = Listeners::open(wanted, workers, limits, before, &self.activated)?;
        let limits = ConnectionLimits {
            connections_max: resources::connections(limits, workers).div_ceil(workers),
            ..limits.clone()
        };
        config.protocol.after_bind()?;
        let shared = SharedQuotas::after(lock(&self.shared).as_ref(), &limits, workers);
        let phase = watch::Sender::new(ShutdownPhase::Running);
        let parts = ServerParts {
            config: ServerConfig {
                workers,
                limits,
                ..config.clone()
            },
            shared: Arc::clone(&shared),
            shutdown: self.shutdown.clone(),
            phases: phase.subscribe(),
        };
        if before.all.is_empty() {
            resources::check_descriptors(workers)?;
        }
        let mut next = prepare(&parts, listeners.assign(workers)?)?;
        let mut threads = lock(&self.threads);
        let mut state = self.shutdown.lock();
        if state.phase() > ShutdownPhase::Running {
            return Err(Error::Stopping);
        }
        next.go();
        // Before the earlier ones retire: `join` must not find that all have ended.
        threads.generations.push(next.threads);
        let earlier = threads.accepting.replace(next.accepting);
        *lock(&self.shared) = Some(shared);
        state.replace_generation(phase, listeners);
        drop((state, threads));
        if let Some(accepting) = earlier {
            // Nothing is sent: this ends when the last sender is dropped, or by the timeout.
            let _ = accepting.recv_timeout(RETIRE_TIMEOUT);
        }
        Ok(())
    }
}

impl<S: for<'s> AddAssign<&'s S>> GenerationThreads<S> {
    /// Removes generations that have ended, and keeps the sum of their summaries.
    fn make_room(&mut self) -> Result<(), Error> {
        let all = mem::take(&mut self.generations);
        let (over, on): (Vec<_>, Vec<_>) = all
            .into_iter()
            .partition(|threads| threads.iter().all(JoinHandle::is_finished));
        self.generations = on;
        for summary in over
            .into_iter()
            .flatten()
            .filter_map(|thread| thread.join().ok())
        {
            match &mut self.ended {
                Some(sum) => *sum += &summary,
                None => self.ended = Some(summary),
            }
        }
        match self.generations.len() + self.joined {
            count if count >= GENERATIONS_MAX => Err(Error::Generations { count: count - 1 }),
            _ => Ok(()),
        }
    }
}

impl<S> Server<S> {
    /// Reports to `predecessor` that this server accepts connections: it may retire. From then on
    /// this process removes the files of Unix sockets.
    ///
    /// # Errors
    /// [`Error::Inherited`]: the predecessor has ended, or has given up waiting and continues.
    pub fn take_over_from(&self, predecessor: Predecessor) -> Result<(), Error> {
        predecessor.report_ready()?;
        self.own_socket_files();
        Ok(())
    }

    /// Makes this process remove the files of Unix sockets at its end, which a predecessor that has
    /// retired has left to it.
    pub fn own_socket_files(&self) {
        let state = self.shutdown.lock();
        state.listeners.set_unlink(UnlinkPolicy::Unlink);
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
    /// Stops all workers immediately.
    fn drop(&mut self) {
        self.shutdown.advance(ShutdownPhase::Now);
        self.shutdown.lock().files.clear();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
