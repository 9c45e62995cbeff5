//! Moves bytes between files and sockets underneath user space, and reports how every byte
//! travelled.
//!
//! Copying a file to a socket through a program costs two system calls and two copies per buffer.
//! The kernel can avoid that: it can share blocks between files ([`Mechanism::Clone`]), copy inside
//! a file system or on its server ([`Mechanism::CopyRange`]), hand pages of the page cache to a
//! socket ([`Mechanism::Sendfile`]) or pass them through a pipe ([`Mechanism::Splice`]). Each of
//! these works for some pairs of descriptors and refuses others, in a dozen ways that differ
//! between kernels and file systems. This crate knows these ways, tries the mechanisms best first,
//! falls back without losing or doubling a byte, and reports how the bytes travelled.
//!
//! # How it works
//!
//! A [`Source`] and a [`Sink`] are open descriptors with their [`EndpointKind`]. [`plan()`] takes
//! both, the earlier refusals of the [`Kernel`] and the caller's [`Policy`], and returns a
//! [`Plan`]: the mechanisms worth trying, in order, and the reasons against the others. A
//! [`Transfer`] is a plan in progress: it returns one [`Op`] after the other, records each result,
//! and returns the next step. A *driver* makes the calls and waits: [`drive::blocking`] on a
//! thread, `drive::tokio` (feature `tokio`) on an event loop. The end is an [`Account`] measured
//! from the counts that the kernel returned, or an [`Error`] whose account is just as exact.
//!
//! A server that interleaves protocol heads and file ranges keeps an [`Outbox`] per connection.
//!
//! # Examples
//!
//! The first copies a file. [`send_file`] and [`recv_file`] do the same between a file and a
//! socket, [`relay_streams`] between two sockets.
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
//! Progress, cancelling and policies: [`drive::blocking::Driver`]. Tokio's sockets: `drive::tokio`.
//! Custom drivers: [`drive`] and [`Outbox`].
//!
//! # What the caller has to know
//!
//! - Bytes that left by sendfile or splice are references to the page cache until the peer has
//!   acknowledged them: see [`Aliasing`].
//! - File positions of both sides are unspecified after a move.
//! - One [`Kernel`] serves a whole program, or one of its threads: it remembers refusals and keeps
//!   idle pipes. It is passed by reference, without any global state.
//!
//! # Features
//!
//! None is on by default.
//!
//! | feature | adds |
//! |---|---|
//! | `tokio` | `drive::tokio`: sending, receiving and relaying on Tokio's event loop |
//! | `serde` | `Serialize` for [`Account`], [`Plan`] and their parts |
//!
//! # Versions
//!
//! Linux 5.10 and later; mechanisms that a kernel lacks are left out and reported. The minimum Rust
//! version is in `Cargo.toml`; a higher one is a new minor version of this crate.
//!
//! Two types of other crates are in the public interface. [`Errno`] is that of `rustix` 1: a custom
//! driver records results of system calls, which it makes with `rustix`; a separate type would be
//! converted at every call for no benefit. It is re-exported, so that `rustix` need not be a
//! dependency of yours. `drive::tokio` names Tokio's sockets and `Interest`. A new major version of
//! either is a new major version of this crate.
//!
//! Enumerations to which variants will be added are `#[non_exhaustive]`. Those that a driver has to
//! handle completely ([`Step`], [`Due`], [`Piece`]) are not, and neither is [`Mechanism`]: a sixth
//! way to move bytes concerns every caller.

#![deny(unsafe_code)]

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(not(target_os = "linux"))]
compile_error!("Underpass moves bytes by Linux system calls; it runs on Linux 5.10 and later only");

pub mod drive;
mod kernel;
pub mod kernel_tls;
mod outbox;
mod plan;
mod probe;
mod sealed;
mod shared_file;
mod sys;
pub mod tcp;
mod transfer;
mod vocabulary;

pub use drive::blocking::{Progress, Relayed, copy_file, recv_file, relay_streams, send_file};
pub use kernel::Kernel;
pub use outbox::buffered::{Gathered, Unsent};
pub use outbox::{Due, FileRange, Joining, Loaded, MsgMore, Outbox, Piece, SendStats};
pub use plan::reason::Reason;
pub use plan::{Aliasing, Choice, Cloning, Holes, KernelFacts, Pipes, Plan, Policy, plan};
pub use sealed::SealedRecords;
pub use shared_file::SharedFile;
pub use sys::{is_ignored as is_signal_ignored, is_stderr_closed, is_stdout_closed};
pub use transfer::op::{BufferedBytes, Op, RelayBuffer};
pub use transfer::verdict::Wait;
pub use transfer::{Step, Transfer};
pub use vocabulary::account::{
    Account, Cause, Mechanism, MechanismUsage, Refusal, Scope, UnknownMechanism,
};
pub use vocabulary::endpoint::{
    Endpoint, EndpointKind, FileStat, Owed, Side, Sink, Source, Waits, Writes,
};
pub use vocabulary::error::{Error, Fault};
pub use vocabulary::{errno, limits};

#[doc(no_inline)]
pub use rustix::io::Errno;
