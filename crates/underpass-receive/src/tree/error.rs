//! Why a tree is not received.

use std::fmt;

use underpass_tar::TarFault;

use crate::error::Error;

/// The end of receiving a tree, with the member at fault.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TreeError {
    /// The path of the member; empty if the fault is not that of one.
    pub path: Vec<u8>,
    /// What is wrong.
    pub fault: TreeFault,
}

/// A fault of receiving a tree, by the party at fault.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum TreeFault {
    /// The stream is no tar stream, or one that is not read everywhere the same.
    #[error("{fault} (byte {offset} of the stream)")]
    Stream {
        /// Offset of the member's first header.
        offset: u64,
        /// What is wrong.
        fault: TarFault,
    },
    /// The sender may not create this here.
    #[error("{0}")]
    Refused(&'static str),
    /// More than the receiver allows.
    #[error("the limit of {0} is exceeded")]
    Limit(&'static str),
    /// The receiver cannot store it. What has arrived is kept, and can be continued.
    #[error("{0}")]
    Failed(#[from] Error),
}

impl std::error::Error for TreeError {}

impl fmt::Display for TreeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            let path = String::from_utf8_lossy(&self.path);
            write!(f, "'{}': ", path.escape_debug())?;
        }
        write!(f, "{}", self.fault)
    }
}

impl From<underpass_tar::Error> for TreeError {
    fn from(error: underpass_tar::Error) -> TreeError {
        TreeError {
            path: error.path,
            fault: TreeFault::Stream {
                offset: error.offset,
                fault: error.fault,
            },
        }
    }
}

impl From<Error> for TreeError {
    fn from(error: Error) -> TreeError {
        TreeError {
            path: Vec::new(),
            fault: TreeFault::Failed(error),
        }
    }
}

impl TreeFault {
    /// Names the member.
    pub(super) fn of(self, path: &[u8]) -> TreeError {
        TreeError {
            path: path.to_vec(),
            fault: self,
        }
    }
}
