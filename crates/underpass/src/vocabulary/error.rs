//! The one error of the mover: who is at fault, what the kernel said, and exactly what has moved.

use std::fmt;
use std::io;

use rustix::io::Errno;

use crate::vocabulary::account::Account;
use crate::vocabulary::endpoint::Side;
use crate::vocabulary::errno;
use crate::vocabulary::mechanism::Mechanism;

/// Why a transfer ended before its end, sorted by who is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// No mechanism that the policy allows could do it.
    Refused,
    /// The caller's hook said stop.
    Cancelled,
    /// The source ended before it had given what it owed.
    Truncated,
    /// The peer closed or reset the connection, or never was connected.
    PeerGone,
    /// A socket timeout (`SO_SNDTIMEO`, `SO_RCVTIMEO`) ran out.
    TimedOut,
    /// A kernel TLS socket holds a record that is no payload (an alert, a key update); the owner of
    /// the socket must fetch it by `recvmsg` and may then go on.
    ControlRecord,
    /// The sink's file system, quota or size limit is full.
    Full,
    /// A disk failed; the call read and wrote at once and does not tell whose.
    Disk,
    /// The source can't be read.
    Source,
    /// The sink can't be written.
    Sink,
    /// The kernel failed in another way (out of memory, out of descriptors).
    Kernel,
}

impl Fault {
    /// The words used in messages.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Refused => "no allowed mechanism works here",
            Self::Cancelled => "cancelled",
            Self::Truncated => "the source ended early",
            Self::PeerGone => "the peer is gone",
            Self::TimedOut => "the socket's timeout ran out",
            Self::ControlRecord => "a TLS control record is in the way",
            Self::Full => "no room in the sink",
            Self::Disk => "a disk of one of the two files failed",
            Self::Source => "the source can't be read",
            Self::Sink => "the sink can't be written",
            Self::Kernel => "the kernel can't go on",
        }
    }

    /// The fault of a side that can't be used.
    pub(crate) const fn of_side(side: Side) -> Self {
        match side {
            Side::Source => Self::Source,
            Side::Sink => Self::Sink,
        }
    }
}

/// A transfer that did not reach its end. What had moved by then is in `account`, and is exact.
#[derive(Debug)]
#[non_exhaustive]
pub struct Error {
    /// Who is at fault.
    pub fault: Fault,
    /// The mechanism that was in use.
    pub mechanism: Option<Mechanism>,
    /// What the kernel said.
    pub errno: Option<Errno>,
    /// Bytes that were taken from the source and did not reach the sink. They are gone where the
    /// source was a pipe or a socket.
    pub lost: u64,
    /// What the sink has got, and how; nothing of it is undone.
    pub account: Box<Account>,
}

impl Error {
    pub(crate) fn of_call(errno: Errno) -> Self {
        Self {
            fault: Fault::Kernel,
            mechanism: None,
            errno: Some(errno),
            lost: 0,
            account: Box::default(),
        }
    }

    /// Bytes that the sink has got, holes included: the source's range up to there is done.
    pub fn moved(&self) -> u64 {
        self.account.bytes() + self.account.holes
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.fault.words())?;
        if let Some(mechanism) = self.mechanism {
            write!(f, " (by {mechanism}")?;
            if let Some(errno) = self.errno {
                write!(f, ": {}", errno::Named(errno))?;
            }
            f.write_str(")")?;
        } else if let Some(errno) = self.errno {
            write!(f, ": {}", errno::Named(errno))?;
        }
        write!(f, "; {} bytes had moved", self.moved())?;
        if self.lost > 0 {
            write!(f, ", {} more were taken from the source", self.lost)?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}

impl From<Errno> for Error {
    /// A call before the transfer began failed.
    fn from(errno: Errno) -> Self {
        Self::of_call(errno)
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        let kind = match (error.fault, error.errno) {
            (Fault::Truncated, _) => io::ErrorKind::UnexpectedEof,
            (Fault::Cancelled, _) => io::ErrorKind::Interrupted,
            (Fault::TimedOut, _) => io::ErrorKind::TimedOut,
            (_, Some(errno)) => io::Error::from(errno).kind(),
            (_, None) => io::ErrorKind::Other,
        };
        io::Error::new(kind, error)
    }
}
