//! Passes all listening sockets, and an open file, to a new process, the successor.

use std::env;
use std::io;
use std::os::fd::AsFd;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Instant;

use crate::address::ListenAt;
use crate::error::Error;
use crate::handover::inherit::HandedFile;
use crate::handover::socket::{
    ACTIVATED, END, FAILED, FILE, HandoverSocket, READY, SOCKET, TICKETS, VARIABLE,
};
use crate::limits::{LAST_WORDS_TIMEOUT, UPGRADE_TIMEOUT};
use crate::listen::listeners::{ActivatedSocket, Listeners};
use crate::tls::shared::TlsShared;

/// Returns a command that starts the file of this program, which may have been replaced, with the
/// same arguments.
pub fn command_of_this_process() -> Command {
    let mut arguments = env::args_os();
    let mut command = Command::new(arguments.next().unwrap_or_else(|| "underpass".into()));
    command.args(arguments);
    command
}

/// Starts `command` and returns when it accepts connections.
///
/// # Errors
/// [`Error::Upgrade`]; the new process has ended.
pub(crate) fn hand_over(
    mut command: Command,
    listeners: &Listeners,
    activated: &[ActivatedSocket],
    tls: &TlsShared,
    file: Option<&HandedFile>,
) -> Result<Child, Error> {
    let (ours, theirs) = HandoverSocket::pair().map_err(|error| failed("socketpair", &error))?;
    let peer_process =
        HandoverSocket::new(ours, UPGRADE_TIMEOUT).map_err(|error| failed("setsockopt", &error))?;
    command
        .stdin(Stdio::from(theirs))
        .env(VARIABLE, "stdin")
        .env_remove("LISTEN_FDNAMES");
    let program = command.get_program().to_string_lossy().into_owned();
    let started = command.spawn();
    // Closes our copy of the other end: otherwise reading would never see the end.
    drop(command);
    let mut child = started.map_err(|error| failed(&program, &error))?;
    let answer = pass_sockets(&peer_process, listeners, activated, tls, file)
        .and_then(|()| peer_process.receive());
    let why = match answer {
        Ok(Some((text, _))) if text == READY => return Ok(child),
        Ok(Some((text, _))) => text.strip_prefix(FAILED).unwrap_or(&text).to_owned(),
        Ok(None) => "it ended before it was ready".to_owned(),
        Err(error) if is_gone(&error) => "it ended before it was ready".to_owned(),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            format!("it was not ready within {UPGRADE_TIMEOUT:?}")
        }
        Err(error) => error.to_string(),
    };
    let status = end(&mut child).map(|status| format!(" ({status})"));
    let why = format!("{why}{}", status.unwrap_or_default());
    Err(Error::Upgrade { why })
}

/// Waits for a failed process, which may be about to print the reason, and kills it after a
/// timeout.
fn end(child: &mut Child) -> io::Result<ExitStatus> {
    let deadline = Instant::now() + LAST_WORDS_TIMEOUT;
    while Instant::now() < deadline {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        thread::sleep(LAST_WORDS_TIMEOUT / 100);
    }
    let _ = child.kill();
    child.wait()
}

fn pass_sockets(
    peer_process: &HandoverSocket,
    listeners: &Listeners,
    activated: &[ActivatedSocket],
    tls: &TlsShared,
    file: Option<&HandedFile>,
) -> io::Result<()> {
    for place in &listeners.all {
        if matches!(place.identity.at, ListenAt::Systemd { .. }) {
            continue;
        }
        for socket in &place.sockets {
            peer_process.send(&format!("{SOCKET}{}", place.identity.at), &[socket.as_fd()])?;
        }
    }
    for one in activated {
        let name = format!("{ACTIVATED}{}", one.name);
        peer_process.send(&name, &[one.socket.as_fd()])?;
    }
    let sockets = listeners.all.iter().flat_map(|place| &place.sockets);
    if let Some(socket) = sockets
        .chain(activated.iter().map(|one| &one.socket))
        .next()
    {
        tls.handover(TICKETS, |text| peer_process.send(text, &[socket.as_fd()]))?;
        if let Some(HandedFile { name, file }) = file {
            let descriptors = [socket.as_fd(), file.as_fd()];
            peer_process.send(&format!("{FILE}{name}"), &descriptors)?;
        }
    }
    peer_process.send(END, &[])
}

/// Returns whether the other process is gone. A reset is an end with unread messages.
fn is_gone(error: &io::Error) -> bool {
    let gone = [io::ErrorKind::BrokenPipe, io::ErrorKind::ConnectionReset];
    gone.contains(&error.kind())
}

fn failed(what: &str, error: &io::Error) -> Error {
    Error::Upgrade {
        why: format!("{what}: {error}"),
    }
}
