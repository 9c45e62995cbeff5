//! Files being received: what has arrived is in a partial file, and gets its name when it is
//! complete. This crate knows no protocol and no socket; whoever receives the bytes writes them
//! to the partial file's descriptor.
//!
//! ```text
//!  Area::begin ──► PartialFile ──► bytes at its end ──► PartialFile::commit ──► FOLDER/NAME
//!  Area::create ─► the same, with a record ─► Area::resume after a cut, a kill or a restart
//! ```
//!
//! An [`Area`] is an open folder beneath which files may be received. Partial files are in its
//! folder `.underpass-uploads` (mode 0700), and a file appears under its name by one `rename`:
//! readers see the former file or the whole new one. Names are resolved by descriptors, beneath
//! the area and without following a symbolic link, so no name and no link leads out of it.
//!
//! A [`PartialTree`] takes a tar stream the same way: its folder gets its name at the end.
//!
//! All calls block, for as long as the disk takes.

#![forbid(unsafe_code)]

mod area;
mod beneath;
mod checkpoint;
mod error;
mod folder;
#[cfg(test)]
mod forks;
#[cfg(any(test, feature = "fuzz"))]
#[doc(hidden)]
#[path = "../tests/promises/mod.rs"]
pub mod fuzz;
mod overwrite;
mod partial;
mod path;
mod record;
mod removal;
mod space;
mod tree;

pub use area::{Area, NameKind, SweepSummary, UploadsMax};
pub use checkpoint::{CutMember, TreeCheckpoint};
pub use error::Error;
pub use folder::UPLOADS_FOLDER;
pub use overwrite::{FileVersion, Overwrite};
pub use partial::{Committed, PartialFile, SyncPolicy};
pub use path::RelativePath;
pub use record::{UploadId, UploadRecord};
pub use tree::{
    HiddenNames, LinkTargets, PartialTree, PreservedMetadata, TreeError, TreeFault, TreeInput,
    TreeLimits, TreeMerge, TreeSettings, TreeSummary,
};
