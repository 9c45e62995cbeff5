//! Tells a service manager how the server is (sd_notify(3)): lines of text in a datagram to the
//! socket that it names. The protocol is stable and small enough to need no library.

use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use rustix::time::{ClockId, clock_gettime};

/// The way to the service manager, or to nobody.
#[derive(Debug)]
pub struct Notifier {
    manager: Option<(UnixDatagram, SocketAddr)>,
}

impl Notifier {
    /// To whoever `NOTIFY_SOCKET` names. Where it is not set, or cannot be used, nobody is told.
    pub fn from_environment() -> Notifier {
        let name = env::var_os("NOTIFY_SOCKET");
        let manager = name.filter(|name| !name.is_empty()).map(|name| of(&name));
        let manager = manager.transpose().inspect_err(|error| {
            tracing::warn!("the service manager is not told anything: NOTIFY_SOCKET: {error}");
        });
        Notifier {
            manager: manager.ok().flatten(),
        }
    }

    /// It takes connections; also the end of a reload.
    pub fn ready(&self, status: &str) {
        self.tell(&format!("READY=1\nSTATUS={}", one_line(status)));
    }

    /// It begins to read its configuration anew. The time tells the service manager which of
    /// several requests this answers.
    pub fn reloading(&self) {
        let now = clock_gettime(ClockId::Monotonic);
        let microseconds = now.tv_sec * 1_000_000 + now.tv_nsec / 1_000;
        self.tell(&format!("RELOADING=1\nMONOTONIC_USEC={microseconds}"));
    }

    /// Another process goes on with the service.
    pub fn succeeded_by(&self, process: u32) {
        self.tell(&format!("MAINPID={process}\nREADY=1"));
    }

    /// It begins to stop.
    pub fn stopping(&self) {
        self.tell("STOPPING=1");
    }

    fn tell(&self, text: &str) {
        let Some((socket, manager)) = &self.manager else {
            return;
        };
        if let Err(error) = socket.send_to_addr(text.as_bytes(), manager) {
            tracing::warn!("the service manager was not told: {error}");
        }
    }
}

fn of(name: &OsStr) -> io::Result<(UnixDatagram, SocketAddr)> {
    let manager = match name.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(name)?,
    };
    let socket = UnixDatagram::unbound()?;
    // A service manager that does not listen holds up nobody.
    socket.set_nonblocking(true)?;
    Ok((socket, manager))
}

fn one_line(text: &str) -> String {
    text.replace('\n', "; ")
}
