//! The error type: the side at fault, the errno, and the exact account.

use std::fmt;
use std::io;

use rustix::io::Errno;

use crate::vocabulary::account::{Account, Mechanism};
use crate::vocabulary::errno;

/// The reason why a transfer ended early, by the side at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// No mechanism that the policy allows works for this pair.
    Refused,
    /// Source and sink are ranges of one file that overlap. Nothing was moved.
    Overlap,
    /// The caller's hook cancelled it.
    Cancelled,
    /// The source ended before the promised length.
    Truncated,
    /// The peer closed or reset the connection, or was never connected.
    PeerGone,
    /// A socket timeout (`SO_SNDTIMEO`, `SO_RCVTIMEO`) expired.
    TimedOut,
    /// A kernel TLS socket holds a non-data record (an alert, a key update); the owner of the
    /// socket must fetch it by `recvmsg` and may then continue.
    ControlRecord,
    /// The sink's file system, quota or size limit is full.
    Full,
    /// A disk failed; the call both reads and writes, and does not report on which side.
    Disk,
    /// The source cannot be read.
    Source,
    /// The sink cannot be written.
    Sink,
    /// The kernel failed in another way (out of memory, out of descriptors).
    Kernel,
}

impl Fault {
    /// Returns the words used in messages.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Refused => "no allowed mechanism works here",
            Self::Overlap => "source and sink overlap in the same file",
            Self::Cancelled => "cancelled",
            Self::Truncated => "the source ended early",
            Self::PeerGone => "the peer closed the connection",
            Self::TimedOut => "the socket timed out",
            Self::ControlRecord => "a TLS control record precedes the payload",
            Self::Full => "the sink is full",
            Self::Disk => "I/O error on one of the two files",
            Self::Source => "the source cannot be read",
            Self::Sink => "the sink cannot be written",
            Self::Kernel => "the call failed",
        }
    }
}

/// A transfer that ended early. `account` holds exactly the bytes moved before the error.
#[derive(Debug)]
#[non_exhaustive]
pub struct Error {
    /// The reason, by the side at fault.
    pub fault: Fault,
    /// The mechanism in use.
    pub mechanism: Option<Mechanism>,
    /// The errno of the call that failed, if one failed.
    pub errno: Option<Errno>,
    /// Bytes that were taken from a pipe, a socket or a character device and did not reach the
    /// sink: they cannot be read again. Of a file or a block device nothing is lost.
    pub lost: u64,
    /// The bytes that reached the sink, and how. They stay there.
    pub account: Box<Account>,
}

impl Error {
    /// Creates the error of a failed read/write that left no bytes between the sides.
    pub(crate) fn of_writing(fault: Fault, errno: Option<Errno>, account: &Account) -> Self {
        Self {
            fault,
            mechanism: Some(Mechanism::ReadWrite),
            errno,
            lost: 0,
            account: Box::new(account.clone()),
        }
    }

    /// Returns the bytes that reached the sink, holes included: the range of the source up to there
    /// is done.
    pub fn moved(&self) -> u64 {
        self.account.bytes().saturating_add(self.account.holes)
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
            write!(
                f,
                ", {} more were read from the stream and are lost",
                self.lost
            )?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}

impl From<Errno> for Error {
    /// Converts the errno of a call before the transfer started.
    fn from(errno: Errno) -> Self {
        Self {
            fault: Fault::Kernel,
            mechanism: None,
            errno: Some(errno),
            lost: 0,
            account: Box::default(),
        }
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        let kind = match (error.fault, error.errno) {
            (Fault::Truncated, _) => io::ErrorKind::UnexpectedEof,
            (Fault::Cancelled, _) => io::ErrorKind::Interrupted,
            (Fault::Overlap, _) => io::ErrorKind::InvalidInput,
            (Fault::TimedOut, _) => io::ErrorKind::TimedOut,
            (_, Some(errno)) => io::Error::from(errno).kind(),
            (_, None) => io::ErrorKind::Other,
        };
        io::Error::new(kind, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(fault: Fault, mechanism: Option<Mechanism>, errno: Option<Errno>) -> Error {
        let mut account = Box::new(Account::default());
        account.record(Mechanism::Splice, 30, 1);
        account.holes = 4;
        Error {
            fault,
            mechanism,
            errno,
            lost: 0,
            account,
        }
    }

    #[test]
    fn an_error_says_who_is_at_fault_by_which_call_and_what_moved() {
        let (full, splice) = (Some(Errno::NOSPC), Some(Mechanism::Splice));
        let told = error(Fault::Full, splice, full).to_string();
        let words =
            "the sink is full (by splice: ENOSPC (No space left on device)); 34 bytes had moved";
        assert_eq!(told, words);
        let told = error(Fault::Cancelled, splice, None).to_string();
        assert_eq!(told, "cancelled (by splice); 34 bytes had moved");
        let told = error(Fault::Kernel, None, Some(Errno::MFILE)).to_string();
        assert_eq!(
            told,
            "the call failed: EMFILE (Too many open files); 34 bytes had moved"
        );
        let mut lost = error(Fault::Truncated, None, None);
        lost.lost = 5;
        let words = "the source ended early; 34 bytes had moved, \
                     5 more were read from the stream and are lost";
        assert_eq!(lost.to_string(), words);
    }

    #[test]
    fn every_fault_has_words_of_its_own() {
        let faults = [
            Fault::Refused,
            Fault::Overlap,
            Fault::Cancelled,
            Fault::Truncated,
            Fault::PeerGone,
            Fault::TimedOut,
            Fault::ControlRecord,
            Fault::Full,
            Fault::Disk,
            Fault::Source,
            Fault::Sink,
            Fault::Kernel,
        ];
        let words: std::collections::BTreeSet<_> =
            faults.iter().map(|fault| fault.words()).collect();
        assert_eq!(words.len(), faults.len());
        assert!(words.iter().all(|words| words.len() > 8), "{words:?}");
    }

    #[test]
    fn other_errors_have_the_kind_of_the_fault_or_of_the_errno() {
        for (fault, errno, kind) in [
            (Fault::Truncated, None, io::ErrorKind::UnexpectedEof),
            (Fault::Cancelled, None, io::ErrorKind::Interrupted),
            (Fault::TimedOut, Some(Errno::AGAIN), io::ErrorKind::TimedOut),
            (Fault::Overlap, None, io::ErrorKind::InvalidInput),
            (Fault::Full, Some(Errno::NOSPC), io::ErrorKind::StorageFull),
            (Fault::Refused, None, io::ErrorKind::Other),
        ] {
            let error = io::Error::from(error(fault, None, errno));
            assert_eq!(error.kind(), kind, "{error}");
        }
        let call = Error::from(Errno::MFILE);
        assert_eq!(
            (call.fault, call.errno, call.moved()),
            (Fault::Kernel, Some(Errno::MFILE), 0)
        );
    }
}
