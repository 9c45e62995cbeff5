//! The tar format, without files and sockets: [`Member::write`] makes the headers of a member, and
//! a [`TarReader`] reads a stream as it arrives.
//!
//! ```text
//!  bytes of headers ─► TarReader::feed ─► Member ─► content of known length ─► Member ─► … End
//!                                          (moved by the caller, past the reader)
//! ```
//!
//! Contents never pass through the reader: it says how many bytes follow, and the caller reports
//! how many it has moved. The reader takes what GNU tar, bsdtar and busybox write. Whatever
//! implementations of tar read differently, it refuses: nothing is guessed or skipped. Its memory
//! is bounded by the constants of [`limits`], whatever the stream.
//!
//! Sources: POSIX.1-2017, pax, "pax Interchange Format" and "ustar Interchange Format"; the manual
//! of GNU tar, "Basic Tar Format", "GNU Extensions to the Archive Format" and "Sparse Formats";
//! tar(5) of libarchive.

#![forbid(unsafe_code)]

mod chain;
mod error;
#[cfg(any(test, feature = "fuzz"))]
#[doc(hidden)]
#[path = "../tests/promises/mod.rs"]
pub mod fuzz;
mod header;
pub mod limits;
mod member;
mod number;
mod pax;
mod read;
mod sparse;
mod value;
mod write;

pub use chain::HeaderChain;
pub use error::{Error, TarFault};
pub use member::{Member, MemberKind, MemberOwner, SparseExtent, TarTime};
pub use read::{ReadMember, TarEvent, TarReader};
pub use write::{END, padding};
