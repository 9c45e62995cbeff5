//! Reports the state of the server to a service manager (sd_notify(3)): lines of text in a datagram
//! to the socket that it names. The protocol is stable and small enough to need no library.

use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use rustix::time::{ClockId, clock_gettime};

/// Sends notifications to the service manager, if there is one.
#[derive(Debug)]
pub struct Notifier {
    manager: Option<(UnixDatagram, SocketAddr)>,
}

impl Notifier {
    /// Creates a notifier for the socket in `NOTIFY_SOCKET`. If it is not set, or cannot be used,
    /// notifications are discarded.
    pub fn from_environment() -> Notifier {
        let name = env::var_os("NOTIFY_SOCKET");
        let manager = name.filter(|name| !name.is_empty()).map(|name| of(&name));
        let manager = manager.transpose().inspect_err(|error| {
            tracing::warn!("cannot notify the service manager: NOTIFY_SOCKET: {error}");
        });
        Notifier {
            manager: manager.ok().flatten(),
        }
    }

    /// Reports that connections are accepted; also the end of a reload.
    pub fn ready(&self, status: &str) {
        self.send(&format!("READY=1\nSTATUS={}", one_line(status)));
    }

    /// Reports that a reload starts. The time identifies the request that this answers.
    pub fn reloading(&self) {
        let now = clock_gettime(ClockId::Monotonic);
        let microseconds = now.tv_sec * 1_000_000 + now.tv_nsec / 1_000;
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={microseconds}"));
    }

    /// Reports that another process continues the service.
    pub fn succeeded_by(&self, process: u32) {
        self.send(&format!("MAINPID={process}\nREADY=1"));
    }

    /// Reports that the server is stopping.
    pub fn stopping(&self) {
        self.send("STOPPING=1");
    }

    fn send(&self, text: &str) {
        let Some((socket, manager)) = &self.manager else {
            return;
        };
        if let Err(error) = socket.send_to_addr(text.as_bytes(), manager) {
            tracing::warn!("cannot notify the service manager: {error}");
        }
    }
}

fn of(name: &OsStr) -> io::Result<(UnixDatagram, SocketAddr)> {
    let manager = match name.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(name)?,
    };
    let socket = UnixDatagram::unbound()?;
    // A service manager that does not read must not block the server.
    socket.set_nonblocking(true)?;
    Ok((socket, manager))
}

fn one_line(text: &str) -> String {
    text.replace('\n', "; ")
}
