//! Moves bytes between files and sockets underneath user space, and tells how every byte travelled.
//!
//! Copying a file to a socket through a program costs two system calls and two copies per buffer.
//! The kernel can do without: it can share blocks between files ([`Mechanism::Clone`]), copy
//! inside a file system or on its server ([`Mechanism::CopyRange`]), hand pages of the page cache
//! to a socket ([`Mechanism::Sendfile`]) or pass them through a pipe ([`Mechanism::Splice`]).
//! Each of these works for some pairs of descriptors and refuses others, in a dozen ways that
//! differ between kernels and file systems. This crate knows the ways, tries in the best order,
//! falls back without losing or doubling a byte, and says what it did.
//!
//! # The story
//!
//! A [`Source`] and a [`Sink`] are open descriptors with their [`Kind`]. [`plan()`] looks at
//! both, at what the [`Kernel`] has refused before and at the caller's [`Policy`], and answers a
//! [`Plan`]: the mechanisms worth trying, in order, and why not the others. A [`Transfer`] is a
//! plan in progress: it hands out one [`Op`] after the other, is told each result, and says how
//! to go on. A *driver* makes the calls and waits: [`drive::blocking`] on a thread,
//! `drive::tokio` (feature `tokio`) on an event loop. The end is an [`Account`] measured from the
//! counts that the kernel returned, or an [`Error`] whose account is just as exact.
//!
//! A server that interleaves protocol heads and file ranges keeps an [`Outbox`] per connection.
//!
//! # The short way
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let kernel = underpass::Kernel::probe();
//! let from = std::fs::File::open("big.iso")?;
//! let to = std::fs::File::create("copy.iso")?;
//! println!("{}", underpass::copy_file(&kernel, &from, &to)?);
//! # Ok(()) }
//! ```
//!
//! # What the caller has to know
//!
//! Bytes that left by sendfile or splice are references to the page cache until the peer has
//! acknowledged them: see [`Aliasing`]. File positions of both sides are unspecified after a move.

#![deny(unsafe_code)]

#[cfg(not(target_os = "linux"))]
compile_error!("Underpass moves bytes by Linux system calls; it runs on Linux 5.10 and later only");

pub mod drive;
mod kernel;
pub mod kernel_tls;
mod outbox;
mod plan;
mod probe;
mod shared_file;
mod sys;
pub mod tcp;
mod transfer;
mod vocabulary;

pub use drive::blocking::{Progress, Relayed, copy_file, recv_file, relay_streams, send_file};
pub use kernel::Kernel;
pub use outbox::{Beside, Due, FileRange, Joining, Loaded, More, Outbox, Piece, Unsent};
pub use plan::facts::{KernelFacts, Pipes};
pub use plan::policy::{Aliasing, Choice, Cloning, Holes, Policy};
pub use plan::reason::Reason;
pub use plan::{Plan, plan};
pub use shared_file::SharedFile;
pub use transfer::op::{Held, Middle, Op};
pub use transfer::verdict::Wait;
pub use transfer::{Step, Transfer};
pub use vocabulary::account::{Account, Cause, Refusal, Scope, Tally};
pub use vocabulary::endpoint::{Endpoint, FileStat, Kind, Owed, Side, Sink, Source, Waits, Writes};
pub use vocabulary::error::{Error, Fault};
pub use vocabulary::mechanism::{Mechanism, UnknownMechanism};
pub use vocabulary::{errno, limits};
