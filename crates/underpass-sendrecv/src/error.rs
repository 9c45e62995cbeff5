//! Errors of a transfer, by who can do something about them.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use rustix::io::Errno;
use thiserror::Error;
use underpass_net::ConnectionError;

use crate::code::InvitationError;
use crate::ticket::TicketError;

/// Why a transfer failed. What was received before can be continued, unless a variant says
/// otherwise.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The ticket or code cannot be read.
    #[error(transparent)]
    Invitation(#[from] InvitationError),
    /// The peer does not have the same code, or another side is in between.
    #[error(
        "the other side does not accept the code: it is mistyped, or somebody intercepts the \
         connection; nothing was sent. The other side shows another code soon"
    )]
    WrongCode,
    /// The peer does not take a code now.
    #[error("the other side does not accept the code now: {why}")]
    CodeRefused {
        /// Its reason.
        why: String,
    },
    /// No address of the ticket answers.
    #[error(
        "the other side cannot be reached: {}; is it still waiting, and is its port open? Where \
         neither side can be reached, use a VPN or a tunnel (ssh -R) and --to HOST:PORT",
        Tried(tried)
    )]
    Unreachable {
        /// The addresses, each with the reason.
        tried: Vec<(SocketAddr, String)>,
    },
    /// The peer has another key than the ticket says: another program has the port now, or
    /// somebody intercepts the connection. Nothing was sent.
    #[error(
        "{peer} is not the side that made the ticket: its key differs; nothing was sent. Ask for a \
         new ticket, and do not continue if this repeats"
    )]
    WrongKey {
        /// The address.
        peer: SocketAddr,
    },
    /// The peer does not know the secret, or does not accept it.
    #[error(
        "the other side does not accept the ticket: it waits for another transfer, or the transfer \
         is complete; ask for a new ticket"
    )]
    WrongSecret,
    /// The peer speaks another version of the profile.
    #[error(
        "the other side speaks version {version} of the protocol, this side version 1; update one"
    )]
    Version {
        /// The peer's version.
        version: String,
    },
    /// The peer refused, with its reason.
    #[error("the other side refuses: {why}")]
    Refused {
        /// The status of its response.
        status: u16,
        /// Its text.
        why: String,
    },
    /// The connection ended early, and could not be restored in time.
    #[error("the connection was lost: {why}; start again with the same ticket to continue")]
    Lost {
        /// The reason.
        why: String,
    },
    /// A local file cannot be read.
    #[error("{}: {doing}: {errno}", path.display())]
    Source {
        /// The file.
        path: PathBuf,
        /// The step that failed.
        doing: &'static str,
        /// The error of the system call.
        errno: Errno,
    },
    /// Standard output takes one file, and something else is offered.
    #[error("standard output takes one file, and the other side offers something else")]
    NotOneFile,
    /// A path has no name under which it could be stored.
    #[error(
        "{} has no name to store it under: send the files and folders in it",
        path.display()
    )]
    Nameless {
        /// The path.
        path: PathBuf,
    },
    /// A local file changed while it was sent, so that the copy may be a mixture.
    #[error("{} changed while it was sent; send it again", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// What arrived cannot be stored.
    #[error("{path}: {source}")]
    Target {
        /// The name, as the other side gave it.
        path: String,
        /// The reason.
        source: underpass_receive::Error,
    },
    /// A tree cannot be stored.
    #[error("{name}: {error}")]
    Tree {
        /// The name of the tree.
        name: String,
        /// The member at fault, and the reason.
        error: underpass_receive::TreeError,
    },
    /// The hash of the copy differs from the original's.
    #[error("{path}: the copy differs from the original; it was kept under its name")]
    Differs {
        /// The name.
        path: String,
    },
    /// The listener cannot be started.
    #[error(transparent)]
    Listen(#[from] underpass_net::Error),
    /// TLS cannot be set up.
    #[error(transparent)]
    Tls(#[from] underpass_net::TlsError),
    /// Something else about this machine.
    #[error("{doing}: {errno}")]
    Local {
        /// The step that failed.
        doing: &'static str,
        /// The error of the system call.
        errno: Errno,
    },
}

impl Error {
    /// Returns the exit code of a program that fails with this error.
    pub fn exit_code(&self) -> u8 {
        match self {
            Error::Invitation(InvitationError::Ticket(TicketError::Version(_)))
            | Error::Version { .. } => 6,
            Error::Invitation(_) => 3,
            Error::WrongKey { .. } => 4,
            Error::WrongSecret => 5,
            Error::Unreachable { .. } => 7,
            Error::Lost { .. } => 8,
            Error::WrongCode | Error::CodeRefused { .. } => 9,
            _ => 1,
        }
    }

    /// Returns the error for a peer that was reached before.
    pub(crate) fn or_lost(self) -> Error {
        match self {
            Error::Unreachable { tried } => Error::Lost {
                why: format!("no address answers any more: {}", Tried(&tried)),
            },
            error => error,
        }
    }

    /// Returns whether another attempt may succeed without anybody doing something.
    pub(crate) fn is_passing(&self) -> bool {
        matches!(self, Error::Lost { .. } | Error::Unreachable { .. })
    }
}

impl From<ConnectionError> for Error {
    fn from(error: ConnectionError) -> Error {
        match error {
            ConnectionError::Move(error) if !matches!(error.fault, underpass::Fault::PeerGone) => {
                Error::Local {
                    doing: "moving bytes between file and connection",
                    errno: error.errno.unwrap_or(Errno::IO),
                }
            }
            error => Error::Lost {
                why: error.to_string(),
            },
        }
    }
}

/// Returns text of the other side as it may be shown: without control characters, and without those
/// that reverse the direction of what follows.
pub fn shown(text: &str) -> String {
    let is_hidden = |char: char| {
        char.is_control() || matches!(char, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let mut shown = String::with_capacity(text.len());
    for char in text.chars() {
        match is_hidden(char) {
            true => shown.extend(char.escape_default()),
            false => shown.push(char),
        }
    }
    shown
}

struct Tried<'t>(&'t [(SocketAddr, String)]);

impl fmt::Display for Tried<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("the ticket has no address");
        }
        for (index, (address, why)) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}{address} ({why})")?;
        }
        Ok(())
    }
}
