//! One name to copy, as it is handed from the walk to a worker.

use std::ffi::CString;
use std::sync::Arc;

use crate::report::reporter::SequenceNumber;
use crate::tree::level::{FolderPair, Level};

/// A name to copy.
pub(crate) struct Task {
    pub(crate) level: Arc<Level>,
    pub(crate) folders: Arc<FolderPair>,
    pub(crate) source: CString,
    pub(crate) dest: CString,
    pub(crate) role: Role,
    pub(crate) sequence: SequenceNumber,
}

/// Where a name comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// The command line.
    Operand,
    /// The command line, as source and destination: its backup is made, and nothing else.
    OwnBackup,
    /// A folder that is copied.
    Inside,
}
