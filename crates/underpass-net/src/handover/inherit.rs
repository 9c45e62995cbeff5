//! Sockets that this process inherits: from a service manager (sd_listen_fds(3)), and from an
//! earlier process of the same server.

use std::env;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use listenfd::ListenFd;
use rustix::net::{AddressFamily, SocketType, sockopt};

use crate::address::{Address, ListenAt};
use crate::error::Error;
use crate::handover::socket::{
    ACTIVATED, END, FAILED, FILE, HandoverSocket, READY, SOCKET, TICKETS, VARIABLE,
};
use crate::limits::{INHERITED_MAX, UPGRADE_TIMEOUT};
use crate::listen::config::ListenerAccess;
use crate::listen::listeners::{ActivatedSocket, Listener, Listeners, address_of};
use crate::listen::unix::{SocketFile, UnlinkPolicy};
use crate::tls::shared::TlsShared;

/// Listening sockets that were opened for this process before it started.
#[derive(Debug, Default)]
pub struct Inherited {
    pub(crate) activated: Vec<ActivatedSocket>,
    pub(crate) listeners: Listeners,
    file: Option<HandedFile>,
    tls: Arc<TlsShared>,
}

/// An open file that a process passes to its successor, which may not be able to open it.
#[derive(Debug)]
pub struct HandedFile {
    /// The name under which both processes know it.
    pub name: String,
    /// The descriptor.
    pub file: OwnedFd,
}

/// The predecessor of this process. It continues until [`Server::take_over_from`] or
/// [`report_ready`](Predecessor::report_ready) is called; if this is dropped before, it does not
/// end.
///
/// [`Server::take_over_from`]: crate::Server::take_over_from
#[derive(Debug)]
#[must_use]
pub struct Predecessor {
    peer_process: HandoverSocket,
}

impl Inherited {
    /// Takes the sockets that the environment announces. Call it once, before other threads are
    /// started: it removes the environment variables that announce them.
    ///
    /// # Errors
    /// [`Error::Inherited`]: a descriptor is not a listening socket, or the predecessor has ended.
    pub fn take() -> Result<(Inherited, Option<Predecessor>), Error> {
        match env::var_os(VARIABLE) {
            Some(_) => of_predecessor()
                .map(|(all, peer_process)| (all, Some(Predecessor { peer_process }))),
            None => Ok((of_service_manager()?, None)),
        }
    }

    /// Returns the names and ports of the TCP sockets that the service manager has passed.
    pub fn activated_ports(&self) -> Vec<(String, u16)> {
        let ports = self
            .activated
            .iter()
            .filter_map(|one| match address_of(&one.socket).ok()? {
                Address::Tcp(address) => Some((one.name.clone(), address.port())),
                Address::Unix(_) => None,
            });
        ports.collect()
    }

    /// Takes the open file that the predecessor has passed.
    pub fn take_file(&mut self) -> Option<HandedFile> {
        self.file.take()
    }

    /// Returns the shared state of TLS acceptors, with the keys of the predecessor's tickets.
    pub fn tls(&self) -> Arc<TlsShared> {
        Arc::clone(&self.tls)
    }
}

impl Predecessor {
    /// Reports that this process can take over. The predecessor retires, also if this process has
    /// no server yet: connections wait in the queues of the sockets.
    ///
    /// # Errors
    /// [`Error::Inherited`]: the predecessor has ended.
    pub fn report_ready(self) -> Result<(), Error> {
        self.peer_process
            .send(READY, &[])
            .map_err(|error| unusable("the earlier process", error))
    }

    /// Reports why this process does not take over. The predecessor continues.
    pub fn report_failure(self, why: &str) {
        // If the predecessor is gone, the report is not needed.
        let _ = self.peer_process.send(&format!("{FAILED}{why}"), &[]);
    }
}

const WHAT: &str = "listening stream socket of TCP or Unix";

fn of_service_manager() -> Result<Inherited, Error> {
    let is_ours = env::var("LISTEN_PID").is_ok_and(|pid| pid == std::process::id().to_string());
    let count = env::var("LISTEN_FDS")
        .ok()
        .and_then(|count| count.parse::<usize>().ok());
    let count = match count {
        Some(count) if is_ours => count,
        _ => return Ok(Inherited::default()),
    };
    if count > INHERITED_MAX {
        let error = io::Error::other(format!("at most {INHERITED_MAX} sockets can be inherited"));
        return Err(unusable(&format!("LISTEN_FDS={count}"), error));
    }
    let names = env::var("LISTEN_FDNAMES").unwrap_or_default();
    let mut names = names.split(':');
    let mut passed = ListenFd::from_env();
    let activated = (0..count).map(|number| {
        // The name of unnamed sockets in sd_listen_fds_with_names(3).
        let name = names
            .next()
            .filter(|name| !name.is_empty())
            .unwrap_or("unknown");
        let mut take = |family: AddressFamily| {
            let (family, kind) = (family.as_raw().into(), SocketType::STREAM.as_raw());
            passed.take_custom::<OwnedFd>(number, family, kind.cast_signed(), WHAT)
        };
        let socket = take(AddressFamily::UNIX).or_else(|_| take(AddressFamily::INET));
        let socket = socket.and_then(|socket| check(socket.ok_or(io::ErrorKind::NotFound)?));
        Ok(ActivatedSocket {
            name: name.to_owned(),
            socket: socket.map_err(|error| unusable(&format!("systemd:{name}"), error))?,
        })
    });
    Ok(Inherited {
        activated: activated.collect::<Result<_, Error>>()?,
        ..Inherited::default()
    })
}

fn of_predecessor() -> Result<(Inherited, HandoverSocket), Error> {
    let failed = |error: io::Error| unusable("the earlier process", error);
    let socket = io::stdin().as_fd().try_clone_to_owned().map_err(failed)?;
    // A chroot may lack it; a pipe without a writer reads as empty, too.
    let null = File::open("/dev/null").map(OwnedFd::from);
    let null = null.or_else(|_| io::pipe().map(|(read, _write)| read.into()));
    rustix::stdio::dup2_stdin(null.map_err(failed)?).map_err(|errno| failed(errno.into()))?;
    let peer_process = HandoverSocket::new(socket, UPGRADE_TIMEOUT).map_err(failed)?;
    let (mut activated, mut all, mut file) = (Vec::new(), Vec::new(), None);
    let mut tls = TlsShared::default();
    for _ in 0..=INHERITED_MAX {
        let message = peer_process.receive().map_err(failed)?;
        let (text, descriptors) =
            message.ok_or_else(|| failed(io::ErrorKind::UnexpectedEof.into()))?;
        if text == END {
            let listeners = Listeners { all };
            return Ok((
                Inherited {
                    activated,
                    listeners,
                    file,
                    tls: Arc::new(tls),
                },
                peer_process,
            ));
        }
        let mut descriptors = descriptors.into_iter();
        let socket = descriptors
            .next()
            .ok_or_else(|| failed(io::Error::other("a socket is missing")))?;
        let socket = check(socket).map_err(|error| unusable(&text, error))?;
        if let Some(name) = text.strip_prefix(ACTIVATED) {
            let name = name.to_owned();
            activated.push(ActivatedSocket { name, socket });
        } else if text.starts_with(TICKETS) {
            tls = TlsShared::of_predecessor(text, TICKETS);
        } else if let Some(name) = text.strip_prefix(FILE) {
            let name = name.to_owned();
            file = descriptors.next().map(|file| HandedFile { name, file });
        } else if let Some(at) = text.strip_prefix(SOCKET) {
            let at = at
                .parse()
                .map_err(|error| failed(io::Error::other(error)))?;
            add(&mut all, at, socket)?;
        }
    }
    Err(failed(io::Error::other("too many sockets")))
}

/// Adds a socket. Sockets of one address come in sequence, those for clients first.
fn add(all: &mut Vec<Listener>, at: ListenAt, socket: OwnedFd) -> Result<(), Error> {
    let mut access = ListenerAccess::Clients;
    if let Some(last) = all.last_mut().filter(|last| last.identity.at == at) {
        let address = address_of(&socket).map_err(|error| unusable(&at.to_string(), error))?;
        if last.identity.address == address {
            last.sockets.push(socket);
            return Ok(());
        }
        // Both have a port chosen by the kernel.
        access = ListenerAccess::Operators { connections_max: 0 };
    }
    let file = match &at {
        ListenAt::Unix { path, .. } => {
            let file = match SocketFile::of(path) {
                // Nobody can connect to a socket without its file: a new one is opened.
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                // This user may not access the path, and could not remove the file either.
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => None,
                file => Some(file.map_err(|error| unusable(&at.to_string(), error))?),
            };
            // Until the takeover is complete the file belongs to the predecessor.
            file.map(|file| {
                file.set_unlink(UnlinkPolicy::Keep);
                Arc::new(file)
            })
        }
        _ => None,
    };
    let mut listener = Listener::of(at, socket, file)?;
    listener.identity.access = access;
    all.push(listener);
    Ok(())
}

fn check(socket: OwnedFd) -> io::Result<OwnedFd> {
    let family = sockopt::socket_domain(&socket)?;
    let is_known = [
        AddressFamily::INET,
        AddressFamily::INET6,
        AddressFamily::UNIX,
    ]
    .contains(&family);
    let is_stream = sockopt::socket_type(&socket)? == SocketType::STREAM;
    match is_known && is_stream && sockopt::socket_acceptconn(&socket)? {
        true => Ok(socket),
        false => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("it is not a {WHAT}"),
        )),
    }
}

fn unusable(what: &str, source: io::Error) -> Error {
    Error::Inherited {
        what: what.to_owned(),
        source,
    }
}
