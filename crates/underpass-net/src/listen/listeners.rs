//! All listening sockets of a server. They outlive the generations of workers, which have
//! duplicates of them.
//!
//! A TCP address has a socket, and with it a queue, for each worker (`SO_REUSEPORT`): the kernel
//! distributes connections, and a worker wakes only for its own. Closing a socket resets the
//! connections in its queue, so no socket of a configured address is closed: with fewer workers
//! than before, some of them have several sockets.
//!
//! A Unix socket, and one from a service manager, is a single socket. All workers wait for it; each
//! connection wakes the idle ones, and one of them accepts it, while the `accept` calls of the
//! others fail. `EPOLLEXCLUSIVE` would save those calls, but prefers the same worker, however busy
//! it is.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::net::{AddressFamily, getsockname};

use crate::address::{Address, ListenAt};
use crate::error::Error;
use crate::limits::ConnectionLimits;
use crate::listen::config::{ListenerAccess, ListenerConfig, ListenerIdentity};
use crate::listen::tcp::{self, Ipv4Mapped, RateMax};
use crate::listen::unix::{self, SocketFile, UnlinkPolicy};

/// The listeners of a server. A duplicate refers to the same sockets.
#[derive(Debug, Default)]
pub(crate) struct Listeners {
    pub(crate) all: Vec<Listener>,
}

/// The sockets of one address.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) identity: ListenerIdentity,
    pub(crate) sockets: Vec<OwnedFd>,
    file: Option<Arc<SocketFile>>,
    /// The index of its configuration entry.
    entry: usize,
}

/// A socket from the service manager (sd_listen_fds(3)). It stays open as long as the server lives,
/// so that a reload can use it again.
#[derive(Debug)]
pub(crate) struct ActivatedSocket {
    pub(crate) name: String,
    pub(crate) socket: OwnedFd,
}

/// A socket that one worker accepts connections from.
pub(crate) struct AssignedSocket {
    pub(crate) identity: ListenerIdentity,
    /// The index of its configuration entry.
    pub(crate) entry: usize,
    pub(crate) socket: OwnedFd,
}

impl Listeners {
    /// Opens listeners for `wanted`, with the sockets of `before` where they exist, and enough
    /// queues for `workers`. On failure `before` is unchanged.
    pub(crate) fn open<S>(
        wanted: &[ListenerConfig<S>],
        workers: usize,
        limits: &ConnectionLimits,
        before: &Listeners,
        activated: &[ActivatedSocket],
    ) -> Result<Listeners, Error> {
        let places: Vec<ListenAt> = wanted.iter().map(|config| config.at.clone()).collect();
        let mut all = Vec::with_capacity(wanted.len());
        for (entry, config) in wanted.iter().enumerate() {
            if wanted[..entry]
                .iter()
                .any(|other| is_same(&other.at, &config.at) && shares(other.access, config))
            {
                return Err(Error::ListenTwice {
                    at: config.at.clone(),
                });
            }
            let rate_max = rate_max(config.access, limits);
            let opened = open(config, &places, rate_max, before, activated);
            let opened = opened.map_err(|error| match error {
                Error::AddressTaken { address } if is_ours(address, &all, before) => {
                    Error::AddressOurs { address }
                }
                error => error,
            });
            for mut listener in opened? {
                listener.entry = entry;
                listener.identity.access = config.access;
                all.push(listener);
            }
        }
        let is_used = |socket: &ActivatedSocket| {
            places.iter().any(|at| match at {
                ListenAt::Systemd { name } => name.as_ref().is_none_or(|name| *name == socket.name),
                _ => false,
            })
        };
        let unused = activated.iter().filter(|socket| !is_used(socket));
        let unused: Vec<_> = unused.map(|socket| socket.name.clone()).collect();
        if !unused.is_empty() {
            // Their clients would wait forever.
            return Err(Error::UnusedSockets { names: unused });
        }
        if !all.iter().any(Listener::is_for_clients) {
            return Err(Error::NowhereToListen);
        }
        for listener in &all {
            listener.limit_rate(rate_max(listener.identity.access, limits))?;
        }
        // Last: a queue gets connections once it is open, and closing it loses them.
        for listener in &mut all {
            let rate_max = rate_max(listener.identity.access, limits);
            let ipv4_mapped = ipv4_mapped(&listener.identity.at, &places);
            listener.add_queues(workers, ipv4_mapped, rate_max)?;
        }
        Ok(Listeners { all })
    }

    /// Returns whether there is a listener at `at`.
    pub(crate) fn contain(&self, at: &ListenAt) -> bool {
        self.all
            .iter()
            .any(|listener| is_same(&listener.identity.at, at))
    }

    /// Returns the identities of all listeners.
    pub(crate) fn identities(&self) -> Vec<ListenerIdentity> {
        let all = self.all.iter();
        all.map(|listener| listener.identity.clone()).collect()
    }

    /// Returns the sockets of each of `workers`: at least one of every address, and every socket is
    /// assigned.
    pub(crate) fn assign(&self, workers: usize) -> Result<Vec<Vec<AssignedSocket>>, Error> {
        let mut shares: Vec<Vec<AssignedSocket>> = (0..workers).map(|_| Vec::new()).collect();
        for listener in &self.all {
            let sockets = &listener.sockets;
            for turn in 0..workers.max(sockets.len()) {
                let socket = duplicate(&sockets[turn % sockets.len()])?;
                shares[turn % workers].push(AssignedSocket {
                    identity: listener.identity.clone(),
                    entry: listener.entry,
                    socket,
                });
            }
        }
        Ok(shares)
    }

    pub(crate) fn duplicate(&self) -> Result<Listeners, Error> {
        let all = self.all.iter().map(Listener::duplicate);
        Ok(Listeners {
            all: all.collect::<Result<_, _>>()?,
        })
    }

    /// Closes all sockets, and returns the socket files of listeners that workers keep open while
    /// the server drains.
    pub(crate) fn into_files(self) -> Vec<Arc<SocketFile>> {
        let stay = self.all.into_iter();
        let stay = stay.filter(|listener| !listener.is_for_clients());
        stay.filter_map(|listener| listener.file).collect()
    }

    /// Sets whether the files of Unix sockets are removed.
    pub(crate) fn set_unlink(&self, policy: UnlinkPolicy) {
        for file in self
            .all
            .iter()
            .filter_map(|listener| listener.file.as_ref())
        {
            file.set_unlink(policy);
        }
    }
}

/// Returns the sockets of one entry: existing or new ones.
fn open<S>(
    config: &ListenerConfig<S>,
    wanted: &[ListenAt],
    rate_max: RateMax,
    before: &Listeners,
    activated: &[ActivatedSocket],
) -> Result<Vec<Listener>, Error> {
    let at = &config.at;
    if let ListenAt::Systemd { name } = at {
        return activated_by(at, name.as_deref(), activated);
    }
    let is_kept = |listener: &&Listener| {
        is_same(&listener.identity.at, at)
            && shares(listener.identity.access, config)
            && listener.is_reachable()
    };
    if let Some(listener) = before.all.iter().find(is_kept) {
        let mut listener = listener.duplicate()?;
        // Leaves an equal mode alone: this process may have switched to another user.
        if let ListenAt::Unix { path, mode } = at
            && listener.identity.at != *at
        {
            unix::set_mode(path, *mode)?;
        }
        listener.identity.at = at.clone();
        return Ok(vec![listener]);
    }
    let listener = match at {
        ListenAt::Tcp(address) => {
            let socket = tcp::bind_first(*address, ipv4_mapped(at, wanted), rate_max)?;
            Listener::of(at.clone(), socket, None)?
        }
        ListenAt::Unix { path, mode } => {
            let (socket, file) = unix::listen(path, *mode)?;
            Listener::of(at.clone(), socket, Some(Arc::new(file)))?
        }
        ListenAt::Systemd { .. } => return Ok(Vec::new()),
    };
    Ok(vec![listener])
}

fn activated_by(
    at: &ListenAt,
    name: Option<&str>,
    activated: &[ActivatedSocket],
) -> Result<Vec<Listener>, Error> {
    let ours = |one: &&ActivatedSocket| name.is_none_or(|name| name == one.name);
    let all: Vec<_> = activated
        .iter()
        .filter(ours)
        .map(|one| Listener::of(at.clone(), duplicate(&one.socket)?, None))
        .collect::<Result<_, Error>>()?;
    match all.is_empty() {
        true => Err(Error::NotActivated {
            at: at.clone(),
            names: activated.iter().map(|one| one.name.clone()).collect(),
        }),
        false => Ok(all),
    }
}

/// Returns whether this server has a socket on the port of `address`.
fn is_ours(address: SocketAddr, new: &[Listener], before: &Listeners) -> bool {
    new.iter().chain(&before.all).any(|listener| {
        matches!(listener.identity.address, Address::Tcp(ours) if ours.port() == address.port())
    })
}

/// Returns whether two entries name the same socket; the mode of its file may differ.
fn is_same(one: &ListenAt, other: &ListenAt) -> bool {
    match (one, other) {
        (ListenAt::Unix { path, .. }, ListenAt::Unix { path: other, .. }) => path == other,
        _ => one == other,
    }
}

/// Returns whether a listener with the address of `config` can be kept: with port 0, clients and
/// operators have different ports.
fn shares<S>(access: ListenerAccess, config: &ListenerConfig<S>) -> bool {
    match config.at {
        ListenAt::Tcp(address) if address.port() == 0 => {
            (access == ListenerAccess::Clients) == (config.access == ListenerAccess::Clients)
        }
        _ => true,
    }
}

/// Leaves IPv4 connections to a listener on an IPv4 address with the same port, if there is one.
fn ipv4_mapped(at: &ListenAt, wanted: &[ListenAt]) -> Ipv4Mapped {
    let ListenAt::Tcp(SocketAddr::V6(address)) = at else {
        return Ipv4Mapped::Included;
    };
    let is_apart = wanted.iter().any(|other| match other {
        ListenAt::Tcp(SocketAddr::V4(other)) => other.port() == address.port(),
        _ => false,
    });
    match is_apart {
        true => Ipv4Mapped::Excluded,
        false => Ipv4Mapped::Included,
    }
}

fn duplicate(socket: &OwnedFd) -> Result<OwnedFd, Error> {
    socket.try_clone().map_err(|source| Error::Worker {
        doing: "duplicate a listening socket",
        source,
    })
}

impl Listener {
    /// Creates a listener from an existing socket.
    pub(crate) fn of(
        at: ListenAt,
        socket: OwnedFd,
        file: Option<Arc<SocketFile>>,
    ) -> Result<Listener, Error> {
        let address = address_of(&socket).map_err(|source| Error::Inherited {
            what: at.to_string(),
            source,
        })?;
        let access = ListenerAccess::Clients;
        Ok(Listener {
            identity: ListenerIdentity {
                at,
                address,
                access,
            },
            sockets: vec![socket],
            file,
            entry: 0,
        })
    }

    /// Returns whether the socket's file still exists: nobody can connect without it.
    fn is_reachable(&self) -> bool {
        self.file.as_ref().is_none_or(|file| file.is_in_place())
    }

    fn is_for_clients(&self) -> bool {
        self.identity.access == ListenerAccess::Clients
    }

    fn duplicate(&self) -> Result<Listener, Error> {
        let sockets = self.sockets.iter().map(duplicate);
        Ok(Listener {
            identity: self.identity.clone(),
            sockets: sockets.collect::<Result<_, _>>()?,
            file: self.file.clone(),
            entry: self.entry,
        })
    }

    /// Opens one socket for each worker, if this server has opened the first one. If the kernel
    /// refuses more after a reload or an upgrade, because the process runs as another user or with
    /// fewer privileges than the one that bound the port, workers share the existing ones.
    fn add_queues(
        &mut self,
        workers: usize,
        ipv4_mapped: Ipv4Mapped,
        rate_max: RateMax,
    ) -> Result<(), Error> {
        let (ListenAt::Tcp(_), Address::Tcp(address)) = (&self.identity.at, &self.identity.address)
        else {
            return Ok(());
        };
        while self.sockets.len() < workers {
            match tcp::bind_sibling(*address, ipv4_mapped, rate_max) {
                Ok(socket) => self.sockets.push(socket),
                Err(Error::AddressTaken { .. } | Error::PortForbidden { .. }) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Applies the maximum rate, which may have changed since the sockets were opened.
    fn limit_rate(&self, rate_max: RateMax) -> Result<(), Error> {
        for socket in &self.sockets {
            let set = tcp::set_options(socket, rate_max);
            set.map_err(|source| Error::Inherited {
                what: self.identity.at.to_string(),
                source,
            })?;
        }
        Ok(())
    }
}

/// Returns the maximum rate of the connections of a listener.
fn rate_max(access: ListenerAccess, limits: &ConnectionLimits) -> RateMax {
    limits
        .rate_max
        .filter(|_| access == ListenerAccess::Clients)
}

pub(crate) fn address_of(socket: &OwnedFd) -> io::Result<Address> {
    let address = getsockname(socket)?;
    if address.address_family() == AddressFamily::UNIX {
        return Ok(Address::Unix(unix::path_of(address)?));
    }
    Ok(Address::Tcp(address.try_into()?))
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;

    fn tcp() -> ListenAt {
        ListenAt::Tcp(SocketAddr::from(([127, 0, 0, 1], 0)))
    }

    fn addresses(listeners: &Listeners) -> Vec<Address> {
        let all = listeners.all.iter();
        all.map(|listener| listener.identity.address.clone())
            .collect()
    }

    fn open(wanted: &[ListenAt], workers: usize, before: &Listeners) -> Result<Listeners, Error> {
        let config = |at: &ListenAt| ListenerConfig::new(at.clone(), ());
        let wanted: Vec<_> = wanted.iter().map(config).collect();
        Listeners::open(&wanted, workers, &ConnectionLimits::default(), before, &[])
    }

    #[test]
    fn fewer_workers_have_all_the_sockets_that_more_had() {
        let many = open(&[tcp()], 4, &Listeners::default()).unwrap();
        let few = open(&[tcp()], 2, &many).unwrap();
        assert_eq!(addresses(&few), addresses(&many));
        let shares: Vec<_> = few.assign(2).unwrap().iter().map(Vec::len).collect();
        assert_eq!(shares, [2, 2]);
    }

    #[test]
    fn more_workers_get_a_socket_each() {
        let few = open(&[tcp()], 1, &Listeners::default()).unwrap();
        let many = open(&[tcp()], 3, &few).unwrap();
        assert_eq!(many.all[0].sockets.len(), 3);
    }

    #[test]
    fn a_unix_socket_is_one_for_all() {
        let folder = tempfile::tempdir().unwrap();
        let at = ListenAt::Unix {
            path: folder.path().join("s"),
            mode: 0o600,
        };
        let listeners = open(&[at], 3, &Listeners::default()).unwrap();
        let shares: Vec<_> = listeners.assign(3).unwrap().iter().map(Vec::len).collect();
        assert_eq!(shares, [1, 1, 1]);
    }

    #[test]
    fn the_same_place_twice_and_no_place_are_refused() {
        let twice = open(&[tcp(), tcp()], 1, &Listeners::default());
        assert!(matches!(twice, Err(Error::ListenTwice { .. })));
        let nowhere = open(&[], 1, &Listeners::default());
        assert!(matches!(nowhere, Err(Error::NowhereToListen)));
    }

    #[test]
    fn clients_and_operators_may_each_have_a_port_of_the_kernels_choice() {
        let operators = ListenerAccess::Operators { connections_max: 1 };
        let mut wanted = [(); 2].map(|()| ListenerConfig::new(tcp(), ()));
        wanted[1].access = operators;
        let limits = ConnectionLimits::default();
        let both = |before: &Listeners| Listeners::open(&wanted, 1, &limits, before, &[]).unwrap();
        let nothing = Listeners::default();
        let before = both(&nothing);
        assert_ne!(addresses(&before)[0], addresses(&before)[1]);
        assert_eq!(addresses(&both(&before)), addresses(&before), "a reload");
    }

    #[test]
    fn a_socket_without_its_file_is_opened_anew() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let unix = ListenAt::Unix {
            path: path.clone(),
            mode: 0o600,
        };
        let wanted = [tcp(), unix];
        let before = open(&wanted, 1, &Listeners::default()).unwrap();
        std::fs::remove_file(&path).unwrap();
        let after = open(&wanted, 1, &before).unwrap();
        drop(before);
        std::os::unix::net::UnixStream::connect(&path).unwrap();
        drop(after);
        assert!(!path.exists());
    }

    #[test]
    fn a_place_that_cannot_be_had_leaves_what_was_there() {
        let before = open(&[tcp()], 1, &Listeners::default()).unwrap();
        let elsewhere = ListenAt::Tcp(SocketAddr::from(([192, 0, 2, 1], 80)));
        assert!(open(&[tcp(), elsewhere], 2, &before).is_err());
        let Address::Tcp(address) = addresses(&before)[0] else {
            panic!("a TCP address");
        };
        assert!(TcpStream::connect(address).is_ok());
        assert_eq!(before.all[0].sockets.len(), 1);
    }
}
