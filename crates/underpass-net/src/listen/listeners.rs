//! Everything that a server listens on, for as long as it lives: generations of workers come and
//! go, and get duplicates.
//!
//! An address of TCP has a socket, and with it a queue, for each worker (`SO_REUSEPORT`): the
//! kernel spreads connections, and no worker wakes for another one's. A socket that is closed takes
//! the connections in its queue with it, so none is while its address is listened on: a server with
//! fewer workers than before gives some of them several sockets.
//!
//! A Unix socket and one that a service manager opened are single; all workers wait for it, each
//! connection wakes those that have nothing to do, and one of them gets it. That is an `accept`
//! in vain per idle worker, which has nothing better to do; `EPOLLEXCLUSIVE` would save it at the
//! price of waking the same worker first, whatever it has to do.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use socket2::{Domain, SockRef};

use crate::error::Error;
use crate::handover::inherit::Activated;
use crate::limits::Limits;
use crate::listen::address::{Address, ListenAt};
use crate::listen::tcp::{self, Version4};
use crate::listen::unix::{self, Fate, SocketFile};

/// Duplicates of them are the same sockets.
#[derive(Debug, Default)]
pub(crate) struct Listeners {
    places: Vec<Listening>,
}

/// One address that is listened on.
#[derive(Debug)]
pub(crate) struct Listening {
    pub(crate) at: ListenAt,
    pub(crate) address: Address,
    pub(crate) sockets: Vec<OwnedFd>,
    file: Option<Arc<SocketFile>>,
}

impl Listeners {
    pub(crate) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Listens wherever is `wanted`, on the sockets of `before` where they are there already, and
    /// makes sockets for `workers`. Nothing about `before` changes where it fails.
    pub(crate) fn open(
        wanted: &[ListenAt],
        workers: usize,
        limits: &Limits,
        before: &Listeners,
        activated: &[Activated],
    ) -> Result<Listeners, Error> {
        let mut places = Vec::with_capacity(wanted.len());
        for (number, at) in wanted.iter().enumerate() {
            if wanted[..number].iter().any(|other| is_same(other, at)) {
                return Err(Error::ListenTwice { at: at.clone() });
            }
            places.extend(open(at, wanted, limits, before, activated)?);
        }
        if places.is_empty() {
            return Err(Error::NowhereToListen);
        }
        for place in &places {
            place.settle(limits)?;
        }
        // Last of all: a queue that is opened gets connections, and loses them when it is closed.
        for place in &mut places {
            place.widen(workers, version4(&place.at, wanted), limits)?;
        }
        Ok(Listeners { places })
    }

    /// Those that another server has handed over.
    pub(crate) fn of(places: Vec<Listening>) -> Listeners {
        Listeners { places }
    }

    pub(crate) fn places(&self) -> &[Listening] {
        &self.places
    }

    pub(crate) fn addresses(&self) -> Vec<Address> {
        self.places
            .iter()
            .map(|place| place.address.clone())
            .collect()
    }

    /// What each of `workers` takes connections from: at least one socket of every address, and no
    /// socket is left out.
    pub(crate) fn share_out(&self, workers: usize) -> Result<Vec<Vec<OwnedFd>>, Error> {
        let mut shares: Vec<Vec<OwnedFd>> = (0..workers).map(|_| Vec::new()).collect();
        for place in &self.places {
            let sockets = &place.sockets;
            for turn in 0..workers.max(sockets.len()) {
                let socket = duplicate(&sockets[turn % sockets.len()])?;
                shares[turn % workers].push(socket);
            }
        }
        Ok(shares)
    }

    pub(crate) fn duplicate(&self) -> Result<Listeners, Error> {
        let places = self.places.iter().map(Listening::duplicate);
        Ok(Listeners {
            places: places.collect::<Result<_, _>>()?,
        })
    }

    /// Says what becomes of the files of Unix sockets.
    pub(crate) fn set_fate(&self, fate: Fate) {
        for file in self.places.iter().filter_map(|place| place.file.as_ref()) {
            file.set_fate(fate);
        }
    }
}

/// Sockets for one entry: those of before, or new ones.
fn open(
    at: &ListenAt,
    wanted: &[ListenAt],
    limits: &Limits,
    before: &Listeners,
    activated: &[Activated],
) -> Result<Vec<Listening>, Error> {
    if let ListenAt::Systemd { name } = at {
        return activated_by(at, name.as_deref(), activated);
    }
    if let Some(place) = before.places.iter().find(|place| is_same(&place.at, at)) {
        let mut place = place.duplicate()?;
        place.at = at.clone();
        return Ok(vec![place]);
    }
    let place = match at {
        ListenAt::Tcp(address) => {
            let socket = tcp::first(*address, version4(at, wanted), limits)?;
            Listening::of(at.clone(), socket, None)?
        }
        ListenAt::Unix { path, mode } => {
            let (socket, file) = unix::listen(path, *mode, limits)?;
            Listening::of(at.clone(), socket, Some(Arc::new(file)))?
        }
        ListenAt::Systemd { .. } => return Ok(Vec::new()),
    };
    Ok(vec![place])
}

fn activated_by(
    at: &ListenAt,
    name: Option<&str>,
    activated: &[Activated],
) -> Result<Vec<Listening>, Error> {
    let ours = |one: &&Activated| name.is_none_or(|name| name == one.name);
    let places: Vec<_> = activated
        .iter()
        .filter(ours)
        .map(|one| Listening::of(at.clone(), duplicate(&one.socket)?, None))
        .collect::<Result<_, Error>>()?;
    match places.is_empty() {
        true => Err(Error::NotActivated {
            at: at.clone(),
            names: activated.iter().map(|one| one.name.clone()).collect(),
        }),
        false => Ok(places),
    }
}

/// Whether two entries are the same place; the mode of a socket's file can change.
fn is_same(one: &ListenAt, other: &ListenAt) -> bool {
    match (one, other) {
        (ListenAt::Unix { path, .. }, ListenAt::Unix { path: other, .. }) => path == other,
        _ => one == other,
    }
}

/// Version 4 is left to the listener that asks for it.
fn version4(at: &ListenAt, wanted: &[ListenAt]) -> Version4 {
    let ListenAt::Tcp(SocketAddr::V6(address)) = at else {
        return Version4::Too;
    };
    let is_apart = wanted.iter().any(|other| match other {
        ListenAt::Tcp(SocketAddr::V4(other)) => other.port() == address.port(),
        _ => false,
    });
    match is_apart {
        true => Version4::Apart,
        false => Version4::Too,
    }
}

fn duplicate(socket: &OwnedFd) -> Result<OwnedFd, Error> {
    socket.try_clone().map_err(|source| Error::Worker {
        doing: "duplicate a listening socket",
        source,
    })
}

impl Listening {
    /// A socket that listens already.
    pub(crate) fn of(
        at: ListenAt,
        socket: OwnedFd,
        file: Option<Arc<SocketFile>>,
    ) -> Result<Listening, Error> {
        let address = address_of(&socket).map_err(|source| Error::Inherited {
            what: at.to_string(),
            source,
        })?;
        Ok(Listening {
            at,
            address,
            sockets: vec![socket],
            file,
        })
    }

    fn duplicate(&self) -> Result<Listening, Error> {
        Ok(Listening {
            at: self.at.clone(),
            address: self.address.clone(),
            sockets: self
                .sockets
                .iter()
                .map(duplicate)
                .collect::<Result<_, _>>()?,
            file: self.file.clone(),
        })
    }

    /// One socket for each worker, where this server has opened the first one. Where the kernel
    /// refuses more after a reload or an upgrade, because the process has another user or fewer
    /// rights than the one that took the port, workers share those that are there.
    fn widen(&mut self, workers: usize, version4: Version4, limits: &Limits) -> Result<(), Error> {
        let (ListenAt::Tcp(_), Address::Tcp(address)) = (&self.at, &self.address) else {
            return Ok(());
        };
        while self.sockets.len() < workers {
            match tcp::sibling(*address, version4, limits) {
                Ok(socket) => self.sockets.push(socket),
                Err(Error::AddressTaken { .. } | Error::PortForbidden { .. }) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// What may have changed since the socket was made.
    fn settle(&self, limits: &Limits) -> Result<(), Error> {
        for socket in &self.sockets {
            let dressed = tcp::dress(&SockRef::from(socket), limits);
            dressed.map_err(|source| Error::Inherited {
                what: self.at.to_string(),
                source,
            })?;
        }
        match &self.at {
            ListenAt::Unix { path, mode } => unix::set_mode(path, *mode),
            _ => Ok(()),
        }
    }
}

fn address_of(socket: &OwnedFd) -> std::io::Result<Address> {
    let socket = SockRef::from(socket);
    if socket.domain()? == Domain::UNIX {
        return Ok(Address::Unix(unix::path_of(&socket)?));
    }
    let address = socket.local_addr()?.as_socket();
    address.map(Address::Tcp).ok_or_else(|| {
        std::io::Error::new(
            std::io::ErrorKind::InvalidInput,
            "it is neither a TCP nor a Unix socket",
        )
    })
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;

    fn tcp() -> ListenAt {
        ListenAt::Tcp(SocketAddr::from(([127, 0, 0, 1], 0)))
    }

    fn open(wanted: &[ListenAt], workers: usize, before: &Listeners) -> Result<Listeners, Error> {
        Listeners::open(wanted, workers, &Limits::default(), before, &[])
    }

    #[test]
    fn fewer_workers_have_all_the_sockets_that_more_had() {
        let many = open(&[tcp()], 4, &Listeners::default()).unwrap();
        let few = open(&[tcp()], 2, &many).unwrap();
        assert_eq!(few.addresses(), many.addresses());
        let shares: Vec<_> = few.share_out(2).unwrap().iter().map(Vec::len).collect();
        assert_eq!(shares, [2, 2]);
    }

    #[test]
    fn more_workers_get_a_socket_each() {
        let few = open(&[tcp()], 1, &Listeners::default()).unwrap();
        let many = open(&[tcp()], 3, &few).unwrap();
        assert_eq!(many.places[0].sockets.len(), 3);
    }

    #[test]
    fn a_unix_socket_is_one_for_all() {
        let folder = tempfile::tempdir().unwrap();
        let at = ListenAt::Unix {
            path: folder.path().join("s"),
            mode: 0o600,
        };
        let listeners = open(&[at], 3, &Listeners::default()).unwrap();
        let shares: Vec<_> = listeners
            .share_out(3)
            .unwrap()
            .iter()
            .map(Vec::len)
            .collect();
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
    fn a_place_that_cannot_be_had_leaves_what_was_there() {
        let before = open(&[tcp()], 1, &Listeners::default()).unwrap();
        let elsewhere = ListenAt::Tcp(SocketAddr::from(([192, 0, 2, 1], 80)));
        assert!(open(&[tcp(), elsewhere], 2, &before).is_err());
        let Address::Tcp(address) = before.addresses()[0] else {
            panic!("a TCP address");
        };
        assert!(TcpStream::connect(address).is_ok());
        assert_eq!(before.places[0].sockets.len(), 1);
    }
}
